package mover

import (
	"context"
	"errors"
	"path"
	"strings"

	"pipedeck/pipeline"
	"pipedeck/s3/local"
)

// ofScratch finds the files of a scratch directory. One that matches an
// output's pattern is held against the store like that output's: it may be the
// only copy of what took hours to compute.
func (l *look) ofScratch(ctx context.Context, dir string) {
	p := &part{holding: pipeline.Holding{
		Name: dir, Scratch: true, Dirs: []string{dir}, At: l.m.opt.Clock(), Complete: true, StoredFiles: -1,
	}}
	l.parts = append(l.parts, p)
	same, err := local.SameFilesystem(l.m.opt.StateDir, dir)
	p.holding.Undoable = err == nil && same || isGone(err)
	s := scratchLook{look: l, dir: dir, spots: map[string]*spot{}, audits: map[*output]*audit{}}
	problems, err := local.Scan(ctx, dir, nil, func(e local.Entry) {
		if e.Kind == local.KindRegular && !s.match(e) {
			p.other = append(p.other, pipeline.ListedFile{Root: dir, Path: e.Rel, ID: fileID(e.ID), Class: pipeline.ClassOther})
		}
	})
	if err != nil && !errors.Is(err, local.ErrNoDir) {
		p.doubt(err)
	}
	for _, problem := range problems {
		p.doubt(problem.Err)
	}
	for _, o := range l.m.outputs {
		if a := s.audits[o]; a != nil {
			a.sort(true)
			p.audits = append(p.audits, a)
		}
	}
}

type scratchLook struct {
	*look
	dir    string
	spots  map[string]*spot
	audits map[*output]*audit
}

// match adds a file that matches an output's pattern by its path below the
// scratch directory, or by its name alone.
func (s *scratchLook) match(e local.Entry) bool {
	under, base := path.Split(e.Rel)
	under = strings.TrimSuffix(under, "/")
	for _, o := range s.m.outputs {
		whole := o.spec.Owns(e.Rel)
		switch {
		case o.isArtifacts():
			continue
		case whole:
			s.add(o, "", e.Rel, e.ID)
			return true
		case o.spec.Owns(base):
			s.add(o, under, base, e.ID)
			return true
		}
	}
	return false
}

func (s *scratchLook) add(o *output, under, rel string, id local.Identity) {
	at := s.spots[under]
	if at == nil {
		at = &spot{root: &root{dir: path.Join(s.dir, under), rank: -1}, base: s.dir, under: under}
		s.spots[under] = at
	}
	if s.audits[o] == nil {
		s.audits[o] = s.audit(o)
	}
	s.audits[o].add(at, rel, id)
}
