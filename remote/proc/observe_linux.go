package proc

import (
	"context"
	"time"

	"pipedeck/pipeline"
	"pipedeck/remote/logs"
)

const (
	// Observe reads every process of the node at most every scanEvery, and
	// less often where that is slow: with scanShare to at most 0.5 % of a core,
	// up to every scanSlow. The leaders are looked at each time.
	scanEvery = 2 * time.Second
	scanSlow  = 10 * time.Second
	scanShare = 200
	// recordGrace is how long a living shim may take to record an end.
	recordGrace = 3 * time.Second
)

// scan returns all processes; repeated calls return the first table.
type scan func() (*table, error)

func (h *Host) oneScan() scan {
	var t *table
	var err error
	return func() (*table, error) {
		if t == nil && err == nil {
			var procs map[int]procStat
			procs, err = h.fs.all()
			if err == nil {
				t = newTable(procs)
			}
		}
		return t, err
	}
}

// Observe implements pipeline.Host.
func (h *Host) Observe(ctx context.Context) ([]pipeline.LaunchSeen, error) {
	if h.err != nil {
		return nil, h.err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if err := h.reload(); err != nil {
		return nil, err
	}
	h.at(adoptListed)
	scan := h.oneScan()
	began := time.Now()
	due := !began.Before(h.cache.nextScan)
	if due {
		if _, err := scan(); err != nil {
			return nil, err
		}
		took := time.Since(began)
		h.cache.nextScan = began.Add(min(max(scanEvery, scanShare*took), scanSlow))
		h.forgetEnviron(scan)
	}
	var out []pipeline.LaunchSeen
	for _, l := range h.allNewest() {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		if due && l.final == nil {
			h.measure(l, scan)
			h.holdSlots(l)
		}
		out = append(out, h.look(l, scan))
		h.at(adoptLooked)
	}
	return out, nil
}

// forgetEnviron drops what is remembered of processes that ended.
func (h *Host) forgetEnviron(scan scan) {
	if len(h.cache.envs) == 0 {
		return
	}
	t, err := scan()
	if err != nil {
		return
	}
	for id := range h.cache.envs {
		if _, ok := t.find(id); !ok {
			delete(h.cache.envs, id)
		}
	}
}

// look observes one launch.
func (h *Host) look(l *launch, scan scan) pipeline.LaunchSeen {
	if l.final != nil {
		return *l.final
	}
	shim := locked(l.dir) // before the records: one that ended has written them
	l.update()
	seen := h.base(l)
	closed := false
	switch {
	case l.copied:
		closed = true
		seen.PID, seen.StartTicks = 0, 0
		l.ended(&seen, "copied: it was started from another directory, what it started is not this deck's")
	case l.rec.BootID != h.here.bootID:
		closed = true
		l.ended(&seen, "reboot: the node was started anew since")
	case l.rec.PIDNS != h.here.pidNS:
		h.lookAbroad(l, &seen, shim)
	default:
		closed = h.lookHere(l, &seen, scan, shim)
	}
	if closed {
		l.final = &seen
		h.dropSlots(l.dir)
	}
	return seen
}

// base fills in what the records tell.
func (h *Host) base(l *launch) pipeline.LaunchSeen {
	r := l.rec.Launch
	if n, err := logs.Written(r.Log); err == nil {
		l.logged = max(l.logged, n)
	}
	seen := pipeline.LaunchSeen{
		ID: r.ID, Stage: r.Stage, Rank: r.Rank, World: r.World, GPUs: r.GPUs, Log: r.Log,
		State: pipeline.ProcIntended, StartedAt: l.rec.At,
		CPUSeconds: seconds(l.cpu), ReadBytes: l.read, LogBytes: l.logged, Stragglers: l.lost,
	}
	if l.started != nil {
		seen.StartedAt = l.started.At
		seen.PID, seen.StartTicks = l.started.Worker.PID, l.started.Worker.Ticks
	}
	return seen
}

// ended sets the state of a launch whose leader is gone.
func (l *launch) ended(seen *pipeline.LaunchSeen, reason string) {
	switch {
	case l.exit == nil:
		seen.State, seen.Reason = pipeline.ProcLost, reason
	case l.exit.NoExec != "":
		seen.State, seen.Reason = pipeline.ProcNoExec, l.exit.NoExec
	default:
		exit := l.exit.Exit
		seen.State, seen.Exit = pipeline.ProcExited, &exit
	}
}

// lookAbroad observes a launch of another container over the same folder: its
// pids mean nothing here, its lock and records do.
func (h *Host) lookAbroad(l *launch, seen *pipeline.LaunchSeen, shim bool) {
	seen.PID, seen.StartTicks = 0, 0
	if shim && l.exit == nil {
		seen.State, seen.Reason = pipeline.ProcRunning, "runs in another pid namespace: it can not be seen or signalled from here"
		return
	}
	l.ended(seen, "was started in another pid namespace, and its shim is gone")
}

// lookHere observes a launch of this boot and pid namespace, and says whether
// nothing of it is left.
func (h *Host) lookHere(l *launch, seen *pipeline.LaunchSeen, scan scan, shim bool) bool {
	if l.exit == nil && h.leaderLives(l, seen) {
		l.endedAt = time.Time{}
		seen.State = pipeline.ProcRunning
		h.watch.add(h, l.dir, identity{PID: seen.PID, Ticks: seen.StartTicks})
		return false
	}
	if l.exit == nil && shim {
		h.lookPending(l, seen)
		return false
	}
	set, ok := h.rest(l, scan, shim)
	if !ok {
		l.ended(seen, "cannot list processes to look for it")
		return false
	}
	if l.started == nil && l.exit == nil && len(set) > 0 {
		h.lookUnrecorded(l, seen, set)
		return false
	}
	l.lost = len(set)
	seen.Stragglers = l.lost
	l.ended(seen, lostReason(l))
	return !shim && l.lost == 0
}

func lostReason(l *launch) string {
	if l.rec.Adopted != nil {
		return "exited, code unknown: it was adopted, and no shim waited for it"
	}
	if l.started == nil && l.leader == (identity{}) {
		return "the shim ended before it recorded a worker; if one ran, its code is unknown"
	}
	return "exited, code unknown: its shim was gone before it"
}

// leaderLives checks the recorded worker. A leader whose first thread has
// ended lives on in its other threads.
func (h *Host) leaderLives(l *launch, seen *pipeline.LaunchSeen) bool {
	id := l.leader
	if l.started != nil {
		id = l.started.Worker
	}
	s, err := h.fs.stat(id.PID)
	if id.PID <= 1 || err != nil || !s.is(id) {
		return false
	}
	seen.PID, seen.StartTicks = id.PID, id.Ticks
	if !s.dead() {
		return true
	}
	n, err := h.fs.liveThreads(id.PID)
	if err != nil || n == 0 {
		return false
	}
	seen.Reason = "its main thread has ended, " + pipeline.Counted(n, "other lives on", "others live on")
	return true
}

// lookPending is a launch that its shim is about to record.
func (h *Host) lookPending(l *launch, seen *pipeline.LaunchSeen) {
	if l.started == nil {
		seen.Reason = "starting"
		return
	}
	if l.endedAt.IsZero() {
		l.endedAt = time.Now()
	}
	if time.Since(l.endedAt) < recordGrace {
		seen.State, seen.Reason = pipeline.ProcRunning, "ended: its exit record is awaited"
		return
	}
	l.ended(seen, "exited, code unknown: its shim has not recorded it yet")
}

// rest returns the living members of a launch without a living leader.
func (h *Host) rest(l *launch, scan scan, shim bool) ([]procStat, bool) {
	t, err := scan()
	if err != nil {
		return nil, false
	}
	var env environ
	if !shim && !l.reaped {
		env = h.cachedEnviron
	}
	m := l.attribute(t, env, h.self())
	var out []procStat
	for pid := range m.by {
		if s := t.procs[pid]; !s.dead() {
			out = append(out, s)
		}
	}
	return out, true
}

// lookUnrecorded is a worker whose shim was killed between fork and record: it
// carries the launch in its environment and leads a session.
func (h *Host) lookUnrecorded(l *launch, seen *pipeline.LaunchSeen, set []procStat) {
	first := set[0]
	for _, s := range set {
		leads := s.PID == s.SID
		if leads != (first.PID == first.SID) {
			if leads {
				first = s
			}
			continue
		}
		if s.Ticks < first.Ticks {
			first = s
		}
	}
	l.leader = identity{PID: first.PID, Ticks: first.Ticks}
	seen.State, seen.Reason = pipeline.ProcRunning, "its start was not recorded: found by its environment"
	seen.PID, seen.StartTicks = first.PID, first.Ticks
	seen.Stragglers = len(set) - 1
}

// measure sums up CPU time and disk reads of the set and its shim, in which
// the kernel gathers those of the members that it reaped. Sums never fall.
func (h *Host) measure(l *launch, scan scan) {
	if l.copied || l.rec.BootID != h.here.bootID || l.rec.PIDNS != h.here.pidNS {
		return
	}
	t, err := scan()
	if err != nil {
		return
	}
	shim := locked(l.dir)
	l.update()
	var env environ
	if !shim && !l.reaped {
		env = h.cachedEnviron
	}
	m := l.attribute(t, env, h.self())
	stats := make([]procStat, 0, len(m.by)+1)
	living := 0
	for pid, by := range m.by {
		s := t.procs[pid]
		stats = append(stats, s)
		if by != byLeader && !s.dead() {
			living++
		}
	}
	l.lost = living
	l.writeKin()
	if l.started != nil {
		if s, ok := t.find(l.started.Shim); ok {
			stats = append(stats, s)
		}
	}
	h.sum(l, stats)
	if !shim && living > 0 && l.rec.Adopted == nil {
		// Nobody else bounds the log of a worker that lost its shim.
		_, _ = logs.Rotate(l.rec.Launch.Log, l.rec.Launch.LogMaxBytes, l.rec.Launch.LogKeep)
	}
}

func (h *Host) sum(l *launch, stats []procStat) {
	var cpu uint64
	var read int64
	known := len(stats) > 0
	for _, s := range stats {
		cpu += s.CPU
		n, err := h.fs.readBytes(s.PID)
		if err != nil {
			known = known && s.dead()
			continue
		}
		read += n
	}
	l.cpu = max(l.cpu, cpu)
	if known {
		l.read = max(l.read, read)
	}
}
