package spec

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"testing"
)

// FuzzParse: never a panic; either a spec whose helpers work, or errors that
// point into the file.
func FuzzParse(f *testing.F) {
	for _, glob := range []string{"*.yaml", "invalid/*.yaml"} {
		files, err := filepath.Glob(filepath.Join(specs, glob))
		if err != nil || len(files) == 0 {
			f.Fatalf("no seeds in %s: %v", glob, err)
		}
		for _, file := range files {
			src, err := os.ReadFile(file)
			if err != nil {
				f.Fatal(err)
			}
			f.Add(src)
		}
	}
	f.Fuzz(func(t *testing.T, src []byte) {
		s, err := Parse("f", src)
		if err == nil {
			exercise(t, s, src)
			return
		}
		var es Errors
		if !errors.As(err, &es) || len(es) == 0 || s != nil {
			t.Fatalf("got %v with %v", s, err)
		}
		lines := bytes.Count(src, []byte("\n")) + bytes.Count(src, []byte("\r")) + 2
		for _, e := range es {
			if e.Line < 1 || e.Column < 1 || e.Line > lines+bytes.Count(src, []byte("\u2028"))+bytes.Count(src, []byte("\u2029"))+bytes.Count(src, []byte("\u0085")) || e.Text == "" {
				t.Fatalf("%d lines, error %v", lines, e)
			}
		}
	})
}

func exercise(t *testing.T, s *Spec, src []byte) {
	t.Helper()
	again, err := Parse("f", src)
	if err != nil || again.Hash != s.Hash {
		t.Fatalf("second parse: %v", err)
	}
	s.ArtifactMatches("a/b")
	for i := range s.Stages {
		st := &s.Stages[i]
		for j := range st.Outputs {
			o := &st.Outputs[j]
			if len(o.Dirs(st, 2)) == 0 {
				t.Fatalf("output %q has no dirs", o.Name)
			}
			if _, found, err := s.FindOutput(st.Name + "/" + o.Name); err != nil || found != o {
				t.Fatalf("cannot find %q: %v", o.Name, err)
			}
			prefix := s.OutputKeyPrefix(st, o)
			for _, rel := range []string{"a", "a/b.bin", literalPrefix(o.Match)} {
				o.SampleID(rel)
				if o.Matches(rel) && !bytes.HasPrefix([]byte(s.ObjectKey(o, st, rel)), []byte(prefix)) {
					t.Fatalf("key of %q does not begin with %q", rel, prefix)
				}
			}
		}
	}
}
