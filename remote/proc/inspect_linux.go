package proc

import (
	"context"
	"fmt"
	"maps"
	"os"
	"os/user"
	"slices"
	"strconv"
	"syscall"
	"time"

	"pipedeck/pipeline"
)

func (h *Host) self() int { return os.Getpid() }

// moreLooks is how often a set without a shim is looked at again.
const moreLooks = 3

// Inspect implements pipeline.Host.
func (h *Host) Inspect(ctx context.Context, launch string) (pipeline.ProcessSet, error) {
	l, err := h.find(launch)
	if err != nil {
		return pipeline.ProcessSet{}, err
	}
	if err := ctx.Err(); err != nil {
		return pipeline.ProcessSet{}, err
	}
	set, err := h.inspect(l)
	if err != nil || holds(set) {
		return set, err
	}
	if !set.ShimAlive {
		// Without a shim that knows, a set that forks without end may be missed
		// by a look, hardly by several.
		for n := 0; n < moreLooks && err == nil && !l.reaped && !holds(set); n++ {
			set, err = h.inspect(l)
		}
		return set, err
	}
	// A shim that has nothing left to wait for is about to record that and end.
	// One that does not waits for somebody whom the look has missed.
	if h.awaitShim(ctx, l) {
		return h.inspect(l)
	}
	return set, ctx.Err()
}

// holds says whether anybody of a set lives.
func holds(set pipeline.ProcessSet) bool {
	return slices.ContainsFunc(set.Members, func(p pipeline.Process) bool { return p.Threads > 0 })
}

func (h *Host) awaitShim(ctx context.Context, l *launch) bool {
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(recordGrace); time.Now().Before(deadline); {
		if !locked(l.dir) {
			return true
		}
		select {
		case <-ctx.Done():
			return false
		case <-tick.C:
		}
	}
	return false
}

func (h *Host) inspect(l *launch) (pipeline.ProcessSet, error) {
	set := pipeline.ProcessSet{ShimAlive: locked(l.dir), User: h.owner(h.self())}
	l.update()
	if l.exit != nil {
		exit := l.exit.Exit
		set.Exit = &exit
	}
	set.At = now()
	if l.copied || l.rec.BootID != h.here.bootID {
		return set, nil
	}
	if l.rec.PIDNS != h.here.pidNS {
		if set.ShimAlive || !l.reaped {
			set.Unknown = append(set.Unknown, "it was started in another pid namespace")
		}
		return set, nil
	}
	procs, err := h.fs.all()
	if err != nil {
		return pipeline.ProcessSet{}, err
	}
	t := newTable(procs)
	m := l.attribute(t, h.freshEnviron, h.self())
	h.keepKin(l)
	for _, pid := range slices.Sorted(maps.Keys(m.by)) {
		if p, ok := h.describe(t.procs[pid], m.by[pid]); ok {
			set.Members = append(set.Members, p)
		}
	}
	if !set.ShimAlive && !l.reaped {
		set.Unknown = append(set.Unknown, h.doubts(t, m)...)
	}
	return set, nil
}

// find returns a private copy of a launch, so that slow looks do not hold up
// Observe.
func (h *Host) find(id string) (*launch, error) {
	if h.err != nil {
		return nil, h.err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if err := h.reload(); err != nil {
		return nil, err
	}
	l := h.byID(id)
	if l == nil {
		return nil, fmt.Errorf("cannot find launch %q: no run directory", id)
	}
	own := newLaunch(l.dir, l.rec)
	own.leader, own.copied, own.kin = l.leader, l.copied, l.kin
	return own, nil
}

// doubts lists what could hide a member once the shim is gone without having
// seen the last descendant end.
func (h *Host) doubts(t *table, m members) []string {
	var out []string
	for _, pid := range m.strangers {
		if m.by[pid] == "" {
			out = append(out, fmt.Sprintf("process %d is in a session or group with the worker's number but has no other tie to it", pid))
		}
	}
	if n := len(m.unread); n > 0 {
		out = append(out, fmt.Sprintf("environment of %s not readable, the first is %d", pipeline.Counted(n, "process", "processes"), slices.Min(m.unread)))
	}
	if _, ok := t.procs[1]; !ok {
		out = append(out, "processes of other users are hidden (hidepid)")
	}
	return out
}

func (h *Host) describe(s procStat, by string) (pipeline.Process, bool) {
	p := pipeline.Process{
		PID: s.PID, StartTicks: s.Ticks, State: string(s.State), Comm: s.Comm, By: by,
		User: h.owner(s.PID),
	}
	n, err := h.fs.liveThreads(s.PID)
	if err != nil {
		return p, false // ended meanwhile
	}
	p.Threads = n
	if s.State == 'D' {
		if w, err := os.ReadFile(h.fs.path(s.PID, "wchan")); err == nil {
			p.WaitChan = string(w)
		}
	}
	return p, true
}

func (h *Host) owner(pid int) string {
	info, err := os.Stat(h.fs.path(pid, ""))
	if err != nil {
		return ""
	}
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return ""
	}
	uid := strconv.FormatUint(uint64(st.Uid), 10)
	if u, err := user.LookupId(uid); err == nil {
		return u.Username
	}
	return uid
}
