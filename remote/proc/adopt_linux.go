package proc

import (
	"context"
	"errors"
	"fmt"
	"os"
	"syscall"
	"time"

	"pipedeck/pipeline"
)

var _ pipeline.Adopter = (*Host)(nil)

// Adopt implements pipeline.Adopter. A GPU slot that is free is held by this
// process from then on, and by the next agent after it; one that is taken does
// not keep a process from being adopted that runs anyway.
func (h *Host) Adopt(ctx context.Context, req pipeline.Launch, who pipeline.Stranger) error {
	if h.err != nil {
		return h.err
	}
	if err := checkNames(req); err != nil {
		return err
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	h.startMu.Lock()
	defer h.startMu.Unlock()
	seq, err := h.mayStart(req)
	if err != nil {
		return err
	}
	adopted, err := h.mayAdopt(req, who)
	if err != nil {
		return err
	}
	if len(req.Argv) == 0 {
		req.Argv = who.Argv
	}
	rec := runRecord{
		Launch: req, Seq: seq, DeckID: h.here.deckID, BootID: h.here.bootID,
		PIDNS: h.here.pidNS, Ticks: adopted.Worker.Ticks, At: now(), Adopted: adopted,
	}
	dir := h.runDir(req)
	lock, err := h.makeRun(dir, rec)
	if err != nil {
		return err
	}
	lock.Close()
	l, err := h.find(req.ID)
	if err != nil {
		return err
	}
	if err := h.lookForKin(l); err != nil {
		return err
	}
	h.mu.Lock()
	h.holdSlots(l)
	h.mu.Unlock()
	h.prune(h.workerDir(req))
	return nil
}

// mayAdopt checks that a stranger is still the one that was looked at and that
// nobody else answers for it.
func (h *Host) mayAdopt(req pipeline.Launch, who pipeline.Stranger) (*adoption, error) {
	id := identity{PID: who.PID, Ticks: who.StartTicks}
	refuse := func(hint, format string, args ...any) (*adoption, error) {
		return nil, pipeline.Problemf(pipeline.ProblemRefused, hint, "cannot adopt process %d: %s", who.PID, fmt.Sprintf(format, args...))
	}
	c, err := h.census()
	if err != nil {
		return nil, err
	}
	s, ok := c.t.find(id)
	if n, err := h.fs.liveThreads(id.PID); !ok || err != nil || n == 0 || s.Kernel {
		return refuse("list the processes again", "it is not the one that was shown any more, or has ended")
	}
	if uid, err := h.uid(id.PID); err != nil || os.Geteuid() != 0 && uid != os.Geteuid() {
		return refuse("run the agent as that user", "it is a process of %s, whom this agent may not signal", h.owner(id.PID))
	}
	if launch := c.owner[id.PID]; launch != "" {
		return refuse("", "it belongs to %q already", launch)
	}
	t, err := h.fs.tags(id.PID)
	switch {
	case err != nil:
		return refuse("", "its environment cannot be read: %v", err)
	case t.deck != "" && t.deck != h.here.deckID:
		return refuse("use that deck's console", "it was started by another deck, %q", t.run)
	}
	if left := c.leftOf[t.launch]; t.deck == h.here.deckID && left != nil && (left.Stage != req.Stage || left.Rank != req.Rank) {
		return refuse("stop that worker first, or adopt it as that worker", "it was left behind by %q", left.ID)
	}
	a := &adoption{startedRecord: startedRecord{
		BootID: h.here.bootID, PIDNS: h.here.pidNS, Worker: id, SID: s.SID, At: startedAt(s),
	}}
	if t.deck == h.here.deckID {
		a.Tag = t.launch
	}
	// It must not take what is somebody else's with it.
	if h.isOwn(c.t, id.PID) || c.t.lineage(h.self())[id.PID] {
		return refuse("", "it is pipedeck itself, or started it")
	}
	rec := runRecord{Launch: req, DeckID: h.here.deckID, Ticks: id.Ticks, Adopted: a}
	for pid := range newLaunch("", rec).attribute(c.t, c.environ, h.self()).by {
		if launch := c.owner[pid]; launch != "" {
			return refuse("", "process %d of %q is among its descendants", pid, launch)
		}
	}
	return a, nil
}

// startedAt is when a process started, by the wall clock of now.
func startedAt(s procStat) time.Time {
	age := int64(bootTicks()) - int64(s.Ticks)
	return now().Add(-time.Duration(age) * time.Second / ticksPerSecond)
}

func (h *Host) uid(pid int) (int, error) {
	info, err := os.Stat(h.fs.path(pid, ""))
	if err != nil {
		return 0, err
	}
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return 0, errors.ErrUnsupported
	}
	return int(st.Uid), nil
}

// holdSlots locks the GPU slots of a living adopted launch if they are free;
// the kernel frees them with this process. The caller holds h.mu.
func (h *Host) holdSlots(l *launch) {
	if l.rec.Adopted == nil || len(l.rec.Launch.GPUs) == 0 || h.slots[l.dir] != nil ||
		l.copied || l.rec.BootID != h.here.bootID || l.rec.PIDNS != h.here.pidNS {
		return
	}
	if locks, err := h.takeSlots(l.rec.Launch); err == nil {
		h.slots[l.dir] = locks
	}
}

func (h *Host) dropSlots(dir string) {
	closeAll(h.slots[dir])
	delete(h.slots, dir)
}
