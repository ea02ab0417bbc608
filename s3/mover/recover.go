package mover

import (
	"context"
	"errors"
	"fmt"

	"pipedeck/pipeline"
	"pipedeck/s3/local"
)

// recoverAside puts back what a killed agent had moved aside. It is judged
// anew like any file.
func (m *Mover) recoverAside(ctx context.Context) error {
	seen := map[string]bool{}
	for _, o := range m.outputs {
		for i := range o.roots {
			dir, err := local.AsideDir(m.opt.StateDir, o.roots[i].dir)
			if errors.Is(err, local.ErrNoDir) {
				dir = m.opt.StateDir + "/aside"
			} else if err != nil {
				m.notify(pipeline.Warn, err.Error())
				continue
			}
			if seen[dir] {
				continue
			}
			seen[dir] = true
			if err := m.restoreFrom(ctx, dir); err != nil {
				return err
			}
		}
	}
	return nil
}

func (m *Mover) restoreFrom(ctx context.Context, dir string) error {
	files, problems, err := local.RecoverAside(ctx, dir)
	if err != nil {
		return err
	}
	for _, p := range problems {
		m.notify(pipeline.Warn, fmt.Sprintf("cannot look at %q aside: %v", p.Path, p.Err))
	}
	for _, a := range files {
		out, err := local.Restore(a)
		if err != nil {
			m.notify(pipeline.Warn, fmt.Sprintf("cannot put %q back: %v", a.Rel, err))
		} else if out.Status == local.StatusKept {
			m.notify(pipeline.Warn, fmt.Sprintf("%q stays aside at %s: %s", a.Rel, out.Aside, out.Reason))
		}
	}
	_ = local.NewRemover(dir).Tidy() // empty folders and half-written names do no harm
	return nil
}
