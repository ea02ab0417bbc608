package spec

import (
	"errors"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write the expected errors of testdata/specs/invalid")

const specs = "../../testdata/specs"

func load(t *testing.T, name string) *Spec {
	t.Helper()
	src, err := os.ReadFile(filepath.Join(specs, name))
	if err != nil {
		t.Fatal(err)
	}
	s, err := Parse("pipedeck.yaml", src)
	if err != nil {
		t.Fatalf("%s:\n%v", name, err)
	}
	return s
}

// TestInvalid compares the errors of each invalid spec, hints included, with
// the file beside it.
func TestInvalid(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob(filepath.Join(specs, "invalid", "*.yaml"))
	if err != nil || len(files) < 80 {
		t.Fatalf("found %d invalid specs, %v", len(files), err)
	}
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			t.Parallel()
			src, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			got := errorText(t, src)
			golden := strings.TrimSuffix(file, ".yaml") + ".err"
			if *update {
				if err := os.WriteFile(golden, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(golden)
			if err != nil {
				t.Fatal(err)
			}
			if got != string(want) {
				t.Errorf("got:\n%s\nwant:\n%s", got, want)
			}
		})
	}
}

func errorText(t *testing.T, src []byte) string {
	t.Helper()
	s, err := Parse("pipedeck.yaml", src)
	var es Errors
	if !errors.As(err, &es) || len(es) == 0 || s != nil {
		t.Fatalf("got spec %v and error %v, want Errors", s, err)
	}
	var b strings.Builder
	for _, e := range es {
		b.WriteString(e.Error() + "\n")
		if e.Hint != "" {
			b.WriteString("  " + e.Hint + "\n")
		}
	}
	return b.String()
}
