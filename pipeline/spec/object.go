package spec

import (
	"fmt"
	"path"
	"strings"
)

// RunPrefix is what every key of this run begins with: "PREFIX/RUN/".
func (s *Spec) RunPrefix() string {
	if s.Store.Prefix == "" {
		return s.Run + "/"
	}
	return s.Store.Prefix + "/" + s.Run + "/"
}

// ObjectKey is the key of an output's file; rel is its path below the
// output's dir, slash-separated.
func (s *Spec) ObjectKey(o *Output, st *Stage, rel string) string {
	key, err := Expand(o.Key, Vars{Path: rel, Stage: st.Name, Run: s.Run})
	if err != nil {
		// Validation excludes this; the path keeps two files apart even so.
		key = st.Name + "/" + o.Name + "/" + rel
	}
	return s.RunPrefix() + key
}

// ArtifactKey is the key of an artifact; rel is its path below Workdir.
func (s *Spec) ArtifactKey(rel string) string { return s.RunPrefix() + rel }

// ManifestPrefix is what the manifests of an output begin with.
func (s *Spec) ManifestPrefix(stage, output string) string {
	return s.RunPrefix() + ".pipedeck/manifests/" + stage + "/" + output + "/"
}

// OutputKeyPrefix is the longest text that all keys of an output begin with.
func (s *Spec) OutputKeyPrefix(st *Stage, o *Output) string {
	prefix := s.RunPrefix()
	parts, err := splitTemplate(o.Key)
	if err != nil {
		return prefix
	}
	vars := Vars{Stage: st.Name, Run: s.Run}
	for _, p := range parts {
		switch {
		case p.name == "path":
			prefix += literalPrefix(o.Match)
			if isLiteral(o.Match) && o.Format != FormatMarker {
				continue
			}
			return prefix
		case p.name != "":
			value, _ := vars.value(p.name)
			prefix += value
		default:
			prefix += p.text
		}
	}
	return prefix
}

// Abs makes a path of the spec absolute on the node.
func (s *Spec) Abs(p string) string {
	if path.IsAbs(p) {
		return path.Clean(p)
	}
	return path.Join(s.Workdir, p)
}

// Stage returns the stage of that name, or nil.
func (s *Spec) Stage(name string) *Stage {
	for i := range s.Stages {
		if s.Stages[i].Name == name {
			return &s.Stages[i]
		}
	}
	return nil
}

// FindOutput finds "stage/output", or an output whose bare name is unique.
// The error lists what could have been meant.
func (s *Spec) FindOutput(name string) (*Stage, *Output, error) {
	var (
		stage  *Stage
		output *Output
		full   []string
		all    []string
	)
	for i := range s.Stages {
		st := &s.Stages[i]
		for j := range st.Outputs {
			o := &st.Outputs[j]
			id := st.Name + "/" + o.Name
			all = append(all, id)
			if name == id {
				return st, o, nil
			}
			if name == o.Name {
				stage, output, full = st, o, append(full, id)
			}
		}
	}
	switch {
	case len(full) == 1:
		return stage, output, nil
	case len(full) > 1:
		return nil, nil, fmt.Errorf("cannot find output %q: it could be %s", name, strings.Join(full, " or "))
	case len(all) == 0:
		return nil, nil, fmt.Errorf("cannot find output %q: the spec has no outputs", name)
	}
	return nil, nil, fmt.Errorf("cannot find output %q: there are %s", name, strings.Join(all, ", "))
}

// ArtifactMatches says whether the file rel, slash-separated below Workdir,
// is an artifact. Temporary files, the state directory and directories of
// outputs whose files go away after upload never are.
func (s *Spec) ArtifactMatches(rel string) bool {
	if !s.artifactGlob(rel) {
		return false
	}
	for name := range strings.SplitSeq(rel, "/") {
		if temporary(name) || name == ".pipedeck" {
			return false
		}
	}
	if _, in := within(s.Abs(rel), s.StateDir); in {
		return false
	}
	for i := range s.Stages {
		st := &s.Stages[i]
		for j := range st.Outputs {
			o := &st.Outputs[j]
			if o.AfterUpload != AfterKeep && s.holds(st, o, rel) {
				return false
			}
		}
	}
	return true
}

// artifactGlob: a path without wildcards also stands for everything below it.
func (s *Spec) artifactGlob(rel string) bool {
	for _, glob := range s.Artifacts {
		glob = path.Clean(glob)
		if matches(glob, rel) || isLiteral(glob) && strings.HasPrefix(rel, glob+"/") {
			return true
		}
	}
	return false
}

// holds says whether rel lies in one of the output's directories. Of Workdir
// itself an output holds only what it matches.
func (s *Spec) holds(st *Stage, o *Output, rel string) bool {
	dir := s.dirText(st, o)
	if dir == "." {
		return o.Owns(rel)
	}
	segments, below := strings.Split(dir, "/"), strings.Split(rel, "/")
	if len(below) <= len(segments) {
		return false
	}
	for i, seg := range segments {
		if !tokensMeet(tokensOf(seg), tokensOf(quoteGlob(below[i]))) {
			return false
		}
	}
	return true
}

// dirText is an output's dir relative to Workdir as a glob that matches the
// directories of all ranks and nothing else.
func (s *Spec) dirText(st *Stage, o *Output) string {
	return s.relative(s.templateGlob(o.Dir, st))
}

// templateGlob turns a path template into a glob.
func (s *Spec) templateGlob(tmpl string, st *Stage) string {
	parts, err := splitTemplate(tmpl)
	if err != nil {
		return quoteGlob(tmpl)
	}
	vars := Vars{Stage: st.Name, Run: s.Run, Workdir: s.Workdir}
	var b strings.Builder
	for _, p := range parts {
		value, known := vars.value(p.name)
		switch {
		case p.name == "":
			b.WriteString(quoteGlob(p.text))
		case p.name == "rank" || p.name == "world":
			b.WriteString(digits)
		case known && value != "":
			b.WriteString(quoteGlob(value))
		default:
			b.WriteByte('*')
		}
	}
	return b.String()
}

// relative writes a path relative to Workdir if it lies there, else absolute.
func (s *Spec) relative(p string) string {
	p = s.Abs(p)
	if rel, ok := within(p, s.Workdir); ok {
		return rel
	}
	return p
}

// within returns p relative to dir ("." for dir itself) if it lies there.
func within(p, dir string) (string, bool) {
	if p == dir {
		return ".", true
	}
	rel, ok := strings.CutPrefix(p, strings.TrimSuffix(dir, "/")+"/")
	return rel, ok
}
