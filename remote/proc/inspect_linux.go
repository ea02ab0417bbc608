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

	"pipedeck/pipeline"
)

func (h *Host) self() int { return os.Getpid() }

// Inspect implements pipeline.Host.
func (h *Host) Inspect(ctx context.Context, launch string) (pipeline.ProcessSet, error) {
	l, err := h.find(launch)
	if err != nil {
		return pipeline.ProcessSet{}, err
	}
	if err := ctx.Err(); err != nil {
		return pipeline.ProcessSet{}, err
	}
	set := pipeline.ProcessSet{ShimAlive: locked(l.dir)}
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
	return &launch{dir: l.dir, rec: l.rec, leader: l.leader, copied: l.copied}, nil
}

// doubts lists what could hide a member once the shim is gone without having
// seen the last descendant end.
func (h *Host) doubts(t *table, m members) []string {
	var out []string
	for _, pid := range m.strangers {
		if m.by[pid] == "" {
			out = append(out, fmt.Sprintf("process %d is in a session with the worker's number but carries no run id", pid))
		}
	}
	if n := len(m.unread); n > 0 {
		out = append(out, fmt.Sprintf("environment of %d processes not readable, the first is %d", n, slices.Min(m.unread)))
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

// Strays lists living processes that carry this deck's mark but belong to no
// worker's newest launch: leftovers of earlier ones. By names their launch.
func (h *Host) Strays(ctx context.Context) ([]pipeline.Process, error) {
	if h.err != nil {
		return nil, h.err
	}
	newest, err := h.newestIDs()
	if err != nil {
		return nil, err
	}
	procs, err := h.fs.all()
	if err != nil {
		return nil, err
	}
	var out []pipeline.Process
	for pid, s := range procs {
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		launch, deck, err := h.fs.marks(pid)
		if err != nil || deck != h.here.deckID || newest[launch] || pid == h.self() {
			continue
		}
		if p, ok := h.describe(s, launch); ok && p.Threads > 0 {
			out = append(out, p)
		}
	}
	slices.SortFunc(out, func(a, b pipeline.Process) int { return a.PID - b.PID })
	return out, nil
}

func (h *Host) newestIDs() (map[string]bool, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if err := h.reload(); err != nil {
		return nil, err
	}
	ids := make(map[string]bool)
	for _, l := range h.allNewest() {
		ids[l.rec.Launch.ID] = true
	}
	return ids, nil
}
