package proc

import (
	"maps"
	"path/filepath"
	"slices"
)

// attributeAdopted finds the set of an adopted process. Its session is not
// this deck's: it may be the operator's shell. So the set is the process, its
// descendants, its process group if it leads one, those who carry its tag, and
// whoever was one of these at an earlier look: a child whose parent ended
// belongs to nobody by then.
func (l *launch) attributeAdopted(t *table, env environ, self int) members {
	m := members{by: make(map[int]string)}
	own := t.lineage(self)
	for pid := range own {
		m.by[pid] = byLeader // what is below the agent is not below the worker
	}
	l.byGroup(t, &m)
	for id := range l.kin {
		if s, ok := t.find(id); ok && m.by[s.PID] == "" {
			m.by[s.PID] = byRecord
		}
	}
	if env != nil && l.marked() {
		l.byEnvironment(t, &m, env)
	}
	for _, pid := range slices.Collect(maps.Keys(m.by)) {
		if !own[pid] {
			t.descend(t.procs[pid], m.by)
		}
	}
	for pid := range own {
		delete(m.by, pid)
	}
	kin := make(map[identity]bool, len(m.by))
	for pid := range m.by {
		if s := t.procs[pid]; s.State != 'X' { // a zombie's threads may live on
			kin[identity{PID: pid, Ticks: s.Ticks}] = true
		}
	}
	l.kin = kin
	return m
}

// byGroup adds the leader and, while it leads its process group, the group.
func (l *launch) byGroup(t *table, m *members) {
	worker := l.started.Worker
	leader, lives := t.find(worker)
	switch _, taken := t.procs[worker.PID]; {
	case lives:
		m.by[worker.PID] = byLeader
		if leader.PGID != leader.PID {
			return
		}
	case taken: // by another process: the group had no member left
		return
	}
	for pid, s := range t.procs {
		if s.PGID != worker.PID || pid == worker.PID || s.Ticks < worker.Ticks || m.by[pid] != "" {
			continue
		}
		if lives {
			m.by[pid] = byGroup
		} else {
			m.strangers = append(m.strangers, pid)
		}
	}
}

// lineage is a process with its ancestors, but for init.
func (t *table) lineage(pid int) map[int]bool {
	out := make(map[int]bool)
	for pid > 1 && !out[pid] {
		s, ok := t.procs[pid]
		if !ok {
			break
		}
		out[pid] = true
		pid = s.PPID
	}
	return out
}

// lookForKin notes who belongs to an adopted process, before a signal makes
// them orphans.
func (h *Host) lookForKin(l *launch) error {
	if l.rec.Adopted == nil {
		return nil
	}
	procs, err := h.fs.all()
	if err != nil {
		return err
	}
	l.attribute(newTable(procs), h.freshEnviron, h.self())
	h.keepKin(l)
	return nil
}

// keepKin hands what a private copy of a launch found to all later looks.
func (h *Host) keepKin(l *launch) {
	if l.rec.Adopted == nil || l.dir == "" {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if cached := h.cache.launches[l.dir]; cached != nil {
		all := maps.Clone(l.kin)
		maps.Copy(all, cached.kin) // one that ended is not found again
		cached.kin = all
		cached.writeKin()
	}
}

// writeKin keeps the kin for the next agent.
func (l *launch) writeKin() {
	if l.rec.Adopted == nil || maps.Equal(l.kin, l.kept) {
		return
	}
	ids := slices.Collect(maps.Keys(l.kin))
	if writeNote(filepath.Join(l.dir, kinFile), ids) == nil {
		l.kept = l.kin
	}
}

// recallKin reads what an earlier agent kept.
func (l *launch) recallKin() {
	if l.rec.Adopted == nil {
		return
	}
	var ids []identity
	if readRecord(filepath.Join(l.dir, kinFile), &ids) != nil {
		return // the next look finds those who still hang together
	}
	l.kin = make(map[identity]bool, len(ids))
	for _, id := range ids {
		l.kin[id] = true
	}
}
