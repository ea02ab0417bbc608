package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"pipedeck/pipeline"
	"pipedeck/pipeline/spec"
)

// specFile is a spec with the node of it that this command is about.
type specFile struct {
	*spec.Spec
	node spec.Node
	far  bool // this is a node of a console elsewhere
}

// loadSpec reads the spec of this invocation. All its errors are shown at once.
func (a *app) loadSpec() (specFile, error) {
	s, err := loadSpecFile(a.flag.spec, a.flag.node)
	if a.flag.here && s.node.SSH != "" {
		s.node.SSH, s.far = "", true
	}
	return s, err
}

func loadSpecFile(path, node string) (specFile, error) {
	raw, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return specFile{}, pipeline.Problemf(pipeline.ProblemUsage,
			"name a spec with -f PATH, or see it all with `pipedeck demo`", "cannot read %q: no such file", path)
	}
	if err != nil {
		return specFile{}, pipeline.Problemf(pipeline.ProblemUsage, "", "cannot read %q: %v", path, cause(err))
	}
	sp, err := spec.Parse(filepath.Base(path), raw)
	if err != nil {
		return specFile{}, &pipeline.Problem{Kind: pipeline.ProblemUsage, Text: fmt.Sprintf("cannot use %q:\n%s", path, specErrors(err)), Err: err}
	}
	n, err := pickNode(sp, node)
	return specFile{Spec: sp, node: n}, err
}

// specErrors are all faults of a spec, one line each, with what to do below.
func specErrors(err error) string {
	all, ok := errors.AsType[spec.Errors](err)
	if !ok {
		return err.Error()
	}
	var b strings.Builder
	for _, e := range all {
		fmt.Fprintln(&b, e.Error())
		if e.Hint != "" {
			fmt.Fprintf(&b, "    hint: %s\n", e.Hint)
		}
	}
	return strings.TrimSuffix(b.String(), "\n")
}

// cause strips the path that an fs.PathError repeats.
func cause(err error) error {
	if pe, ok := errors.AsType[*fs.PathError](err); ok {
		return pe.Err
	}
	return err
}

func pickNode(sp *spec.Spec, name string) (spec.Node, error) {
	if name == "" {
		return sp.Nodes[0], nil
	}
	var names []string
	for _, n := range sp.Nodes {
		if n.Name == name {
			return n, nil
		}
		names = append(names, n.Name)
	}
	return spec.Node{}, pipeline.Problemf(pipeline.ProblemUsage, fmt.Sprintf("the spec has %q", names),
		"cannot use node %q: the spec has no such node", name)
}
