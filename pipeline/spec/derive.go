package spec

import (
	"path"
	"regexp"
	"strings"
	"time"
)

// defaultEvery is how often a growing or periodic output is uploaded.
const defaultEvery = 30 * time.Minute

// derive fills the defaults that depend on other keys.
func (s *Spec) derive(r *reader) {
	if strings.HasPrefix(s.Workdir, "/") {
		s.Workdir = path.Clean(s.Workdir)
	}
	s.StateDir = s.Abs(s.StateDir)
	s.Store.Prefix = strings.TrimSuffix(s.Store.Prefix, "/")
	if !r.given("store", "path_style") {
		s.Store.PathStyle = s.Store.Endpoint != ""
	}
	if len(s.Nodes) == 0 {
		s.Nodes = []Node{{Name: "local", GPUs: GPUSet{All: true}}}
	}
	for i := range s.Stages {
		st := &s.Stages[i]
		for j := range st.Outputs {
			o := &st.Outputs[j]
			s.deriveOutput(o)
			if growing := o.Format == FormatMarker || o.Format == FormatJSONL; growing &&
				!r.given("stages", st.Name, "outputs", o.Name, "every") {
				o.Every = defaultEvery
			}
		}
	}
}

func (s *Spec) deriveOutput(o *Output) {
	if o.Format == "" {
		o.Format = FormatAny
		if o.Marker != "" {
			o.Format = FormatMarker
		} else if f := inferFormat(o.Match); f != "" {
			o.Format = f
		}
	}
	if o.Key == "" {
		o.Key = o.Name + "/{path}"
	}
	o.compiled = &compiled{run: s.Run, workdir: s.Workdir}
	if re, err := regexp.Compile(o.ID); err == nil && o.ID != "" {
		o.compiled.id = re
	}
}
