package proc

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"pipedeck/pipeline"
)

const (
	// signalRounds bounds how often the set is looked at again for members
	// that were forked meanwhile.
	signalRounds = 100
	signalPause  = 5 * time.Millisecond
)

// Signal implements pipeline.Host. For the whole set it sends until a fresh
// look finds no new member; SIGKILL is preceded by SIGSTOP, because a stopped
// process cannot fork away from the kill.
func (h *Host) Signal(ctx context.Context, launch, sig string, to pipeline.Scope) ([]pipeline.Signalled, error) {
	num := unix.SignalNum(sig)
	if num == 0 {
		return nil, fmt.Errorf("cannot send signal %q: unknown name", sig)
	}
	l, err := h.find(launch)
	if err != nil {
		return nil, err
	}
	l.update()
	if l.copied || l.rec.BootID != h.here.bootID {
		return nil, nil
	}
	if l.rec.PIDNS != h.here.pidNS {
		return nil, pipeline.Problemf(pipeline.ProblemRefused, "run pipedeck where it was started",
			"cannot signal %q: it was started in another pid namespace", launch)
	}
	if to == pipeline.ToLeader {
		if err := h.lookForKin(l); err != nil {
			return nil, err
		}
		return h.signalLeader(l, num), nil
	}
	if num == unix.SIGKILL {
		// Whatever comes of it: nothing may be left stopped.
		_, _ = h.signalSet(ctx, l, unix.SIGSTOP)
		ctx = context.WithoutCancel(ctx)
	}
	return h.signalSet(ctx, l, num)
}

func (h *Host) signalLeader(l *launch, sig unix.Signal) []pipeline.Signalled {
	id := l.leader
	if l.started != nil {
		id = l.started.Worker
	}
	if s, sent := h.send(id, sig); sent {
		return []pipeline.Signalled{s}
	}
	return nil
}

func (h *Host) signalSet(ctx context.Context, l *launch, sig unix.Signal) ([]pipeline.Signalled, error) {
	var out []pipeline.Signalled
	tried := make(map[identity]bool)
	for range signalRounds {
		if err := ctx.Err(); err != nil {
			return out, err
		}
		ids, err := h.untried(l, tried)
		if err != nil || len(ids) == 0 {
			return out, err
		}
		for _, id := range ids {
			if s, sent := h.send(id, sig); sent {
				out = append(out, s)
			}
		}
		time.Sleep(signalPause)
	}
	if sig != unix.SIGKILL {
		return out, nil // who is left shows in the next look
	}
	return out, fmt.Errorf("cannot kill the whole set of %q: it keeps forking", l.rec.Launch.ID)
}

// untried returns the members of a launch that are there now and were not
// before, and marks them.
func (h *Host) untried(l *launch, tried map[identity]bool) ([]identity, error) {
	procs, err := h.fs.all()
	if err != nil {
		return nil, err
	}
	t := newTable(procs)
	var out []identity
	m := l.attribute(t, h.freshEnviron, h.self())
	h.keepKin(l)
	for _, pid := range slices.Sorted(maps.Keys(m.by)) {
		id := identity{PID: pid, Ticks: t.procs[pid].Ticks}
		if !tried[id] && t.procs[pid].State != 'X' {
			tried[id] = true
			out = append(out, id)
		}
	}
	return out, nil
}

// send signals one process through a pidfd, which can not come to mean another
// process once its identity was checked. It reports false where there was
// nobody to signal.
func (h *Host) send(id identity, sig unix.Signal) (pipeline.Signalled, bool) {
	out := pipeline.Signalled{PID: id.PID, Signal: unix.SignalName(sig)}
	if id.PID <= 1 || id.PID == h.self() {
		return out, false
	}
	if pgid, err := unix.Getpgid(id.PID); err == nil && pgid == unix.Getpgrp() {
		out.Err = "refused: it is in the agent's own process group"
		return out, true
	}
	fd, err := unix.PidfdOpen(id.PID, 0)
	if errors.Is(err, unix.ENOSYS) {
		fd, err = -1, nil
	}
	if err != nil {
		return out, false
	}
	if fd >= 0 {
		defer unix.Close(fd)
	}
	if s, err := h.fs.stat(id.PID); err != nil || !s.is(id) {
		return out, false
	}
	if fd >= 0 {
		err = unix.PidfdSendSignal(fd, sig, nil, 0)
	} else {
		err = unix.Kill(id.PID, sig)
	}
	if errors.Is(err, unix.ESRCH) {
		return out, false
	}
	if err != nil {
		out.Err = err.Error()
	}
	return out, true
}
