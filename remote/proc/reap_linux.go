package proc

import (
	"context"
	"maps"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"pipedeck/pipeline"
)

const (
	reapGrace    = 5 * time.Second  // between SIGTERM and SIGKILL
	reapPatience = 30 * time.Second // in all
	reapPause    = 50 * time.Millisecond
)

// Reap implements pipeline.Adopter.
func (h *Host) Reap(ctx context.Context, who pipeline.Stranger) ([]pipeline.Process, error) {
	if h.err != nil {
		return nil, h.err
	}
	l, err := h.mayReap(who)
	if l == nil || err != nil {
		return nil, err
	}
	began := time.Now()
	if _, err := h.signalSet(ctx, l, unix.SIGTERM); err != nil {
		return h.remains(l, err)
	}
	if gone, err := h.awaitEmpty(ctx, l, began.Add(reapGrace)); gone || err != nil {
		return h.remains(l, err)
	}
	for time.Since(began) < reapPatience {
		// Whoever is stopped can not fork away from the kill that follows.
		_, _ = h.signalSet(ctx, l, unix.SIGSTOP)
		// A set that keeps forking is an error here and tried again.
		_, _ = h.signalSet(context.WithoutCancel(ctx), l, unix.SIGKILL)
		if gone, err := h.awaitEmpty(ctx, l, time.Now().Add(reapPatience/30)); gone || err != nil {
			return h.remains(l, err)
		}
	}
	return h.remains(l, nil)
}

// mayReap returns the set of a stray as if it were an adopted launch; nil if
// it has ended already.
func (h *Host) mayReap(who pipeline.Stranger) (*launch, error) {
	id := identity{PID: who.PID, Ticks: who.StartTicks}
	c, err := h.census()
	if err != nil {
		return nil, err
	}
	s, ok := c.t.find(id)
	if n, err := h.fs.liveThreads(id.PID); !ok || err != nil || n == 0 {
		return nil, nil //nolint:nilerr // who is gone needs no end
	}
	refuse := func(why string, args ...any) (*launch, error) {
		return nil, pipeline.Problemf(pipeline.ProblemRefused, "", "cannot end process %d: "+why, append([]any{who.PID}, args...)...)
	}
	t, err := h.fs.tags(id.PID)
	switch {
	case err != nil:
		return refuse("its environment cannot be read: %w", err)
	case t.deck != h.here.deckID || t.launch == "":
		return refuse("it does not carry this deck's mark, and pipedeck ends nobody else's processes")
	case h.isOwn(c.t, id.PID):
		return refuse("it is pipedeck itself")
	}
	l := newLaunch("", runRecord{
		DeckID: h.here.deckID, Ticks: s.Ticks,
		Adopted: &adoption{startedRecord: startedRecord{Worker: id, SID: s.SID}, Tag: t.launch},
	})
	l.rec.Launch.ID = t.launch
	for pid := range l.attribute(c.t, c.environ, h.self()).by {
		if launch := c.owner[pid]; launch != "" {
			return refuse("process %d of the worker %q is in its set", pid, launch)
		}
	}
	return l, nil
}

// awaitEmpty waits until two looks in a row find nobody alive.
func (h *Host) awaitEmpty(ctx context.Context, l *launch, deadline time.Time) (bool, error) {
	tick := time.NewTicker(reapPause)
	defer tick.Stop()
	empty := 0
	for {
		left, err := h.remains(l, nil)
		if err != nil {
			return false, err
		}
		if empty++; len(left) > 0 {
			empty = 0
		}
		if empty == 2 {
			return true, nil
		}
		if empty == 0 && time.Now().After(deadline) {
			return false, nil
		}
		select {
		case <-ctx.Done():
			return false, ctx.Err()
		case <-tick.C:
		}
	}
}

// remains describes who of a set lives, and passes cause on.
func (h *Host) remains(l *launch, cause error) ([]pipeline.Process, error) {
	procs, err := h.fs.all()
	if err != nil {
		return nil, err
	}
	t := newTable(procs)
	m := l.attribute(t, h.freshEnviron, h.self())
	var out []pipeline.Process
	for _, pid := range slices.Sorted(maps.Keys(m.by)) {
		if p, ok := h.describe(t.procs[pid], m.by[pid]); ok && p.Threads > 0 {
			out = append(out, p)
		}
	}
	return out, cause
}
