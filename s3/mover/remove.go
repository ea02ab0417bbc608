package mover

import (
	"context"
	"fmt"
	"time"

	"pipedeck/pipeline"
	"pipedeck/pipeline/spec"
	"pipedeck/s3/local"
)

const (
	// removeAgain is when a file that somebody has open is tried again.
	removeAgain = 2 * time.Second
	deniedAgain = 60 * time.Second
)

func (m *Mover) removeLoop(ctx context.Context) {
	for {
		f := m.nextLeaving()
		if f == nil {
			select {
			case <-m.wakeRemove:
				continue
			case <-ctx.Done():
				return
			}
		}
		if ctx.Err() != nil {
			return
		}
		m.remove(f)
	}
}

func (m *Mover) nextLeaving() *file {
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.leaving) == 0 || m.noDeletes != "" {
		return nil
	}
	f := m.leaving[0]
	m.leaving = m.leaving[1:]
	if len(m.leaving) > 0 {
		nudge(m.wakeRemove)
	}
	return f
}

// remove is the only way a local file leaves. It runs after the ledger's
// commit of the proof, for the very identity that was proven.
func (m *Mover) remove(f *file) {
	m.mu.Lock()
	ok := f.proven() && f.state == stateRemoving
	want := f.id
	if ok && !f.out.mine() {
		f.setState(stateKept)
		ok = false
	}
	if ok {
		f.out.removing++
		defer m.removalEnded(f.out)
	}
	m.mu.Unlock()
	if !ok {
		return
	}
	remover, err := m.remover(f.root.dir)
	if err != nil {
		m.stays(f, err.Error(), deniedAgain)
		return
	}
	m.hook(HookBeforeRemove)
	var out local.Outcome
	placeholder := f.out.spec.AfterUpload == spec.AfterPlaceholder
	if placeholder {
		out, err = remover.Placeholder(f.root.dir, f.rel, want)
	} else {
		out, err = remover.Remove(f.root.dir, f.rel, want)
	}
	m.removed(f, out, err, placeholder)
}

func (m *Mover) removalEnded(o *output) {
	m.mu.Lock()
	o.removing--
	m.mu.Unlock()
	m.quieter(o)
}

// removed counts what came of a removal.
func (m *Mover) removed(f *file, out local.Outcome, err error, placeholder bool) {
	switch {
	case local.IsFull(err):
		m.makeRoom(err)
		m.stays(f, err.Error(), removeAgain)
	case err != nil:
		m.stays(f, err.Error(), deniedAgain)
	case out.Status == local.StatusRemoved:
		m.hook(HookRemoved)
		m.mu.Lock()
		f.dropped = true
		f.out.drop(f)
		m.mu.Unlock()
		if placeholder {
			m.noteHolder(f)
		} else if f.unit != "" {
			m.goneFromUnit(f)
			_, _ = local.RemoveEmptyDir(f.root.dir, f.unit)
		}
	case out.Status == local.StatusVanished:
		m.mu.Lock()
		m.vanish(f)
		m.mu.Unlock()
	case out.Status == local.StatusChanged:
		m.mu.Lock()
		m.judgeAgain(f)
		m.mu.Unlock()
	case out.Status == local.StatusOpen:
		m.stays(f, out.Reason, removeAgain)
	case out.Status == local.StatusKept:
		m.notify(pipeline.Warn, fmt.Sprintf("%q stays aside at %s: %s", f.rel, out.Aside, out.Reason))
		m.mu.Lock()
		m.judgeAgain(f)
		m.mu.Unlock()
	default:
		m.stays(f, out.Reason, deniedAgain)
	}
}

// stays keeps a proven file on the disk for now. It is judged again later.
func (m *Mover) stays(f *file, reason string, again time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	f.reason = "cannot be removed: " + reason
	f.setState(stateHeld)
	f.judgeAt.at(m.toJudge, f, m.opt.Clock().Add(m.pause(again)))
}

func (m *Mover) noteHolder(f *file) {
	src, err := local.Open(f.root.dir, f.rel)
	if err != nil {
		return
	}
	defer func() { _ = src.Close() }()
	if id, err := src.Identity(); err == nil && local.IsPlaceholder(id) {
		m.mu.Lock()
		f.out.holders[f.key] = id.CTimeNS
		m.mu.Unlock()
	}
}

func (m *Mover) remover(root string) (*local.Remover, error) {
	aside, err := local.AsideDir(m.opt.StateDir, root)
	if err != nil {
		return nil, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	r := m.removers[aside]
	if r == nil {
		r = local.NewRemover(aside)
		r.Now, r.Hook = m.opt.Clock, m.opt.Hook
		m.removers[aside] = r
	}
	return r, nil
}
