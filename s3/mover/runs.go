package mover

import (
	"context"
	"fmt"

	"pipedeck/pipeline"
	"pipedeck/pipeline/spec"
	"pipedeck/s3/ledger"
	"pipedeck/s3/local"
)

// inherit records, when the run has just changed and nobody of the new one can
// have written yet, that what lies in the outputs' directories is the former
// run's. A directory that cannot be read refuses the change: its files would
// be taken for the new run's later.
func (m *Mover) inherit(ctx context.Context) error {
	former := m.opt.Ledger.Before()
	if former == "" {
		return nil
	}
	var held []ledger.Held
	for _, o := range m.outputs {
		if o.isArtifacts() {
			continue // the same inputs, checkpoints and scripts serve every run
		}
		n := len(held)
		for i := range o.roots {
			if err := m.inheritRoot(ctx, o, o.roots[i].dir, former, &held); err != nil {
				return pipeline.Problemf(pipeline.ProblemRefused,
					fmt.Sprintf("make the directory readable, or go back to `run: %s`", former),
					"cannot change the run: which files of %s belong to run %q is not known: %w", o.name, former, err)
			}
		}
		if found := len(held) - n; found > 0 {
			m.note(pipeline.Warn, fmt.Sprintf("%s in %s %s; %s", pipeline.Counted(found, "file", "files"), o.dir,
				pipeline.Fit(found, "is of a former run: it stays as it is", "are of a former run: they stay as they are"), goBack(former)))
		}
	}
	return m.opt.Ledger.Hold(held)
}

func (m *Mover) inheritRoot(ctx context.Context, o *output, root, former string, held *[]ledger.Held) error {
	var failed error
	problems, err := local.Scan(ctx, root, m.wanted(o), func(e local.Entry) {
		if e.Kind != local.KindRegular || failed != nil {
			return
		}
		h, known, err := m.opt.Ledger.Held(ctx, e.ID.Dev, e.ID.Ino)
		if err != nil {
			failed = err
		}
		if known && o.isStill(h, e.ID) {
			return // of an even older run, or of this one
		}
		*held = append(*held, ledger.Held{Dev: e.ID.Dev, Ino: e.ID.Ino, Size: e.ID.Size, MTimeNS: e.ID.MTimeNS, Run: former})
	})
	switch {
	case failed != nil:
		return failed
	case err != nil && !isGone(err):
		return err
	case len(problems) > 0:
		return problems[0].Err
	}
	return nil
}

// ownerOf is the run, other than this one, that a file belongs to, "" if none.
func (m *Mover) ownerOf(ctx context.Context, o *output, id local.Identity) (string, error) {
	if o.isArtifacts() || !m.opt.Ledger.AnyHeld() {
		return "", nil
	}
	h, ok, err := m.opt.Ledger.Held(ctx, id.Dev, id.Ino)
	if err != nil || !ok || h.Run == m.opt.Spec.Run || !o.isStill(h, id) {
		return "", err
	}
	return h.Run, nil
}

// isStill says whether a file is the one that was recorded. One that was
// written anew is its writer's; to a jsonl file the writer only added lines.
func (o *output) isStill(h ledger.Held, id local.Identity) bool {
	return h.Size == id.Size && h.MTimeNS == id.MTimeNS || o.spec.Format == spec.FormatJSONL && h.Size > 0 && id.Size >= h.Size
}

func goBack(run string) string {
	return fmt.Sprintf("go back to `run: %s` to have them stored, or `touch` a file to make it this run's", run)
}
