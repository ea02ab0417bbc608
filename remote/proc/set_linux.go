package proc

import (
	"errors"
	"io/fs"
	"maps"
	"slices"

	"golang.org/x/sys/unix"
)

// How a process was attributed to a launch.
const (
	byLeader      = "leader"
	bySession     = "session"
	byDescent     = "descendant"
	byEnvironment = "environment"
	byGroup       = "process group"
	byRecord      = "an earlier look"
)

// table is all processes at one moment.
type table struct {
	procs map[int]procStat
	kids  map[int][]int
}

func newTable(procs map[int]procStat) *table {
	t := &table{procs: procs, kids: make(map[int][]int)}
	for pid, s := range procs {
		t.kids[s.PPID] = append(t.kids[s.PPID], pid)
	}
	return t
}

// find returns the process with this identity.
func (t *table) find(id identity) (procStat, bool) {
	s, ok := t.procs[id.PID]
	return s, ok && id.PID > 1 && s.is(id)
}

// members is the process set of one launch, by pid. It is made of ties that a
// recycled pid can not fake: the recorded identity, the shim's descendants, the
// session while its leader is the recorded worker, and the environment.
type members struct {
	by        map[int]string
	strangers []int // in a session of the recorded number, but no tie
	unread    []int // environment not readable
}

// environ tells the mark of a process.
type environ func(procStat) (mark, error)

// attribute finds the set of a launch in a table. env is nil where the other
// ties suffice: while the shim lives every descendant hangs below it.
func (l *launch) attribute(t *table, env environ, self int) members {
	if l.rec.Adopted != nil {
		return l.attributeAdopted(t, env, self)
	}
	m := members{by: make(map[int]string)}
	var shim identity
	if l.started != nil {
		shim = l.started.Shim
		l.bySession(t, &m)
		if s, ok := t.find(shim); ok {
			t.descend(s, m.by)
		}
	}
	if env != nil {
		l.byEnvironment(t, &m, env)
	}
	for _, pid := range slices.Collect(maps.Keys(m.by)) {
		t.descend(t.procs[pid], m.by)
	}
	if s, ok := t.find(shim); ok {
		delete(m.by, s.PID)
	}
	delete(m.by, self)
	return m
}

func (l *launch) bySession(t *table, m *members) {
	worker := l.started.Worker
	_, trusted := t.find(worker)
	if trusted {
		m.by[worker.PID] = byLeader
	} else if _, ok := t.procs[l.started.SID]; ok {
		return // the number went to another process: the session had no member left
	}
	for pid, s := range t.procs {
		if s.SID != l.started.SID || pid == worker.PID || s.Ticks < worker.Ticks {
			continue
		}
		if trusted {
			m.by[pid] = bySession
		} else {
			m.strangers = append(m.strangers, pid)
		}
	}
}

func (l *launch) byEnvironment(t *table, m *members, env environ) {
	for pid, s := range t.procs {
		if m.by[pid] != "" || s.Kernel || s.State == 'Z' || s.Ticks+ticksPerSecond < l.rec.Ticks {
			continue
		}
		got, err := env(s)
		switch {
		case errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ESRCH):
		case err != nil && !t.olderSession(s, l.rec.Ticks):
			m.unread = append(m.unread, pid)
		case err != nil:
		case got == l.mark():
			m.by[pid] = byEnvironment
		}
	}
}

// olderSession says that a process is in a session whose leader is older than
// a launch: nobody joins a session later but by birth, so it is none of it.
func (t *table) olderSession(s procStat, launch uint64) bool {
	leader, ok := t.procs[s.SID]
	return ok && leader.SID == s.SID && leader.Ticks+ticksPerSecond < launch
}

// descend adds everything below a process. A child is never older than its
// parent: one that is got there by a recycled number.
func (t *table) descend(root procStat, by map[int]string) {
	for _, pid := range t.kids[root.PID] {
		s := t.procs[pid]
		if s.Ticks < root.Ticks {
			continue
		}
		if by[pid] == "" {
			by[pid] = byDescent
			t.descend(s, by)
		}
	}
}

// freshEnviron reads environments anew.
func (h *Host) freshEnviron(s procStat) (mark, error) {
	t, err := h.fs.tags(s.PID)
	return mark{t.launch, t.deck}, err
}

// cachedEnviron remembers environments of processes that are over a second
// old: a younger one may not have run exec yet. Good enough to watch with.
func (h *Host) cachedEnviron(s procStat) (mark, error) {
	id := identity{PID: s.PID, Ticks: s.Ticks}
	if m, ok := h.cache.envs[id]; ok {
		return m, nil
	}
	m, err := h.freshEnviron(s)
	if err == nil && s.Ticks+ticksPerSecond < bootTicks() {
		h.cache.envs[id] = m
	}
	return m, err
}
