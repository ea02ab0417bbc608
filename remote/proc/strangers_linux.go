package proc

import (
	"bytes"
	"cmp"
	"context"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"pipedeck/pipeline"
)

// simWorker is the argument that makes this program a worker of a demo.
const simWorker = "sim-worker"

// maxArgv bounds what is read of a command line.
const maxArgv = 64 << 10

// census is all processes at one moment, with those that workers own.
type census struct {
	t       *table
	environ environ
	owner   map[int]string              // launch by pid: shims and the sets of living launches
	leftOf  map[string]*pipeline.Launch // the newest launch of each worker that has ended, by id
}

// census reads all processes. A launch lives while its leader or its shim does;
// what a dead one left behind is owned by nobody.
func (h *Host) census() (*census, error) {
	procs, err := h.fs.all()
	if err != nil {
		return nil, err
	}
	c := &census{t: newTable(procs), owner: make(map[int]string), leftOf: make(map[string]*pipeline.Launch)}
	c.environ = h.onceEnviron()
	h.mu.Lock()
	defer h.mu.Unlock()
	if err := h.reload(); err != nil {
		return nil, err
	}
	for _, l := range h.cache.launches {
		l.update()
		if s, ok := c.t.find(l.shim()); ok && h.isHere(l) {
			c.owner[s.PID] = l.rec.Launch.ID
		}
	}
	for _, l := range h.allNewest() {
		if !h.isHere(l) {
			continue
		}
		shim := locked(l.dir)
		if !shim && !h.leaderLives(l, &pipeline.LaunchSeen{}) {
			c.leftOf[l.rec.Launch.ID] = &l.rec.Launch
			continue
		}
		env := c.environ
		if shim {
			env = nil
		}
		for pid := range l.attribute(c.t, env, h.self()).by {
			c.owner[pid] = l.rec.Launch.ID
		}
	}
	return c, nil
}

// isHere says whether the pids of a launch mean anything in this process.
func (h *Host) isHere(l *launch) bool {
	return !l.copied && l.rec.BootID == h.here.bootID && l.rec.PIDNS == h.here.pidNS
}

func (l *launch) shim() identity {
	if l.started == nil {
		return identity{}
	}
	return l.started.Shim
}

// onceEnviron reads each environment once.
func (h *Host) onceEnviron() environ {
	type got struct {
		m   mark
		err error
	}
	seen := make(map[identity]got)
	return func(s procStat) (mark, error) {
		id := identity{PID: s.PID, Ticks: s.Ticks}
		g, ok := seen[id]
		if !ok {
			g.m, g.err = h.freshEnviron(s)
			seen[id] = g
		}
		return g.m, g.err
	}
}

// Strangers implements pipeline.Adopter. Of processes that carry this deck's
// mark it lists the topmost; those below them are their children.
func (h *Host) Strangers(ctx context.Context, pids []int) ([]pipeline.Stranger, error) {
	if h.err != nil {
		return nil, h.err
	}
	for _, pid := range pids {
		if pid <= 1 {
			return nil, pipeline.Problemf(pipeline.ProblemUsage, "name processes by their numbers, 2 and up",
				"cannot look at process %d: it is no process that could be taken over or ended", pid)
		}
	}
	c, err := h.census()
	if err != nil {
		return nil, err
	}
	named := len(pids) > 0
	if !named {
		pids = h.strays(c)
	}
	out := []pipeline.Stranger{}
	for _, pid := range pids {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		s, ok := c.t.procs[pid]
		if !ok || s.Kernel || c.owner[pid] != "" || h.isOwn(c.t, pid) {
			continue
		}
		if who, ok := h.stranger(c.t, s); ok && (named || who.Ours) {
			out = append(out, who)
		}
	}
	slices.SortFunc(out, func(a, b pipeline.Stranger) int { return cmp.Compare(a.PID, b.PID) })
	return slices.CompactFunc(out, func(a, b pipeline.Stranger) bool { return a.PID == b.PID }), nil
}

// strays lists the topmost processes that carry this deck's mark and that no
// worker owns.
func (h *Host) strays(c *census) []int {
	marked := make(map[int]bool)
	for pid, s := range c.t.procs {
		if s.Kernel || c.owner[pid] != "" {
			continue
		}
		if m, err := c.environ(s); err == nil && m.deck == h.here.deckID {
			marked[pid] = true
		}
	}
	var out []int
	for pid := range marked {
		if !marked[c.t.procs[pid].PPID] {
			out = append(out, pid)
		}
	}
	return out
}

// isOwn says that a process is pipedeck itself: this one and what started it
// and what it started, or another agent, shim or console.
func (h *Host) isOwn(t *table, pid int) bool {
	if t.lineage(h.self())[pid] || t.lineage(pid)[h.self()] {
		return true
	}
	self, err := os.Readlink(h.fs.path(h.self(), "exe"))
	if err != nil {
		return false
	}
	exe, err := os.Readlink(h.fs.path(pid, "exe"))
	if err != nil || program(exe) != program(self) {
		return false
	}
	argv, err := h.fs.argv(pid)
	return err != nil || len(argv) < 2 || argv[1] != simWorker
}

// program is the name of an executable, also after an upgrade replaced it.
func program(exe string) string { return filepath.Base(strings.TrimSuffix(exe, " (deleted)")) }

// stranger describes a process, or says that it has ended.
func (h *Host) stranger(t *table, s procStat) (pipeline.Stranger, bool) {
	if n, err := h.fs.liveThreads(s.PID); err != nil || n == 0 {
		return pipeline.Stranger{}, false
	}
	who := pipeline.Stranger{
		PID: s.PID, StartTicks: s.Ticks, StartedAt: startedAt(s), User: h.owner(s.PID),
		Argv: []string{},
	}
	if tags, err := h.fs.tags(s.PID); err == nil {
		who.Run = pipeline.Clean(tags.run)
		who.Ours = tags.deck == h.here.deckID
	}
	who.Dir, _ = os.Readlink(h.fs.path(s.PID, "cwd"))
	argv, _ := h.fs.argv(s.PID)
	if len(argv) == 0 {
		argv = []string{"[" + s.Comm + "]"}
	}
	for _, arg := range argv {
		who.Argv = append(who.Argv, pipeline.Clean(arg))
	}
	below := make(map[int]string)
	t.descend(s, below)
	who.Set = []int{s.PID}
	for pid := range below {
		if !t.procs[pid].dead() {
			who.Set = append(who.Set, pid)
		}
	}
	slices.Sort(who.Set)
	who.Children = len(who.Set) - 1
	who.GPUs, who.GPUMem = h.fs.gpusOf(who.Set)
	// What was read must be of the process that it is said to be of.
	again, err := h.fs.stat(s.PID)
	return who, err == nil && again.is(identity{PID: s.PID, Ticks: s.Ticks})
}

// argv reads the beginning of a command line.
func (p procFS) argv(pid int) ([]string, error) {
	f, err := os.Open(p.path(pid, "cmdline"))
	if err != nil {
		return nil, err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxArgv))
	if err != nil {
		return nil, err
	}
	data = bytes.TrimRight(data, "\x00")
	if len(data) == 0 {
		return nil, fs.ErrNotExist
	}
	return strings.Split(string(data), "\x00"), nil
}
