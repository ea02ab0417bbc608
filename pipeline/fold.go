package pipeline

import (
	"time"
)

// foldLaunches takes a look at the processes. A failed one leaves what was
// known, which goes stale.
func (w *World) foldLaunches(r LaunchesReading) {
	if r.Err != "" {
		if w.launches.err == "" {
			w.note(r.At, Warn, "agent", "cannot observe the workers: %s", r.Err)
		}
		w.launches.err = r.Err
		return
	}
	first := !w.launches.any
	w.launches = lookWorld{good: r.At, any: true}
	seen := map[*workerWorld]bool{}
	for i := range r.Seen {
		l := r.Seen[i]
		st := w.stage(l.Stage)
		if st == nil {
			continue
		}
		wk := st.worker(l.Rank)
		if wk == nil || seen[wk] {
			continue
		}
		seen[wk] = true
		w.foldLaunch(st, wk, &l, r.At, first)
	}
	for _, st := range w.stages {
		for _, wk := range st.workers {
			if !seen[wk] {
				wk.seen = nil
			}
		}
	}
	w.reviewAll(r.At, first)
	w.reviewHealth(r.At)
}

func (w *World) foldLaunch(st *stageWorld, wk *workerWorld, l *LaunchSeen, at time.Time, first bool) {
	if wk.launch != l.ID {
		adopted := first && at.Sub(l.StartedAt) > maxStep
		wk.launch = l.ID
		wk.declared.launched(adopted)
		wk.files.launched(adopted)
		wk.motion, wk.trail = motionWorld{}, trailWorld{}
		if !st.anyAlive() {
			st.produced = false
			st.total.launched(adopted)
		}
	}
	wk.seen = l
	if l.State == ProcRunning {
		wk.motion.observe(l, w.workerMemory(st, wk), at)
		wk.motion.oom = w.memoryTight()
		wk.trail.observe(w.look(st, wk, at))
	}
}

func (s *stageWorld) anyAlive() bool {
	for _, wk := range s.workers {
		if wk.seen != nil && wk.seen.State == ProcRunning {
			return true
		}
	}
	return false
}

// observe notes what moved since the last look at a living process.
func (m *motionWorld) observe(l *LaunchSeen, mem *int64, at time.Time) {
	const (
		cpuMoves = 0.01    // seconds of CPU
		memMoves = 1 << 20 // bytes
	)
	if m.at.IsZero() {
		if !l.StartedAt.IsZero() {
			m.alive = max(0, at.Sub(l.StartedAt))
		}
	}
	dt := step(m.at, at)
	m.alive += dt
	m.still += dt
	moved := l.CPUSeconds-m.cpu > cpuMoves || l.ReadBytes > m.read || l.LogBytes > m.log
	if mem != nil && max(*mem-m.mem, m.mem-*mem) >= memMoves {
		moved = true
		m.mem = *mem
	}
	if moved || m.at.IsZero() {
		m.still = 0
		m.cpu, m.read, m.log = l.CPUSeconds, l.ReadBytes, l.LogBytes
	}
	m.at = at
}

func (w *World) memoryTight() bool {
	used, total := count(w.machine.MemUsedBytes), count(w.machine.MemTotalBytes)
	return used != nil && total != nil && *total > 0 && float64(*used) >= 0.95*float64(*total)
}

func (w *World) foldProgress(r ProgressReading) {
	st := w.stage(r.Stage)
	if st == nil {
		return
	}
	src, wk := &st.whole, (*workerWorld)(nil)
	if r.Rank >= 0 {
		if wk = st.worker(r.Rank); wk == nil {
			return
		}
		src = &wk.source
	}
	src.take(r)
	if wk != nil {
		if n := count(r.Done); n != nil {
			wk.observeRate(rateDeclared, r.At, *n)
			wk.declared.observe(r.At, progressOf(src), r.ChangedAt, wk.startedAt())
		} else {
			wk.declared.missing(r.At)
		}
	}
	w.afterCounts(st, r.At)
}

// take keeps the last counts where the new reading has none.
func (s *sourceWorld) take(r ProgressReading) {
	s.any = true
	s.err = r.Err
	if r.Err == "" && r.Done == nil {
		s.err = "no count in it yet"
	}
	for _, c := range []struct {
		to  **int64
		now *int64
	}{{&s.done, r.Done}, {&s.total, r.Total}, {&s.skipped, r.Skipped}, {&s.failed, r.Failed}} {
		if n := count(c.now); n != nil {
			*c.to = n
		}
	}
	s.changedAt = r.ChangedAt
}

// progressOf is everything a script has dealt with: skipping is progress too.
func progressOf(s *sourceWorld) int64 {
	return saturate(valueOf(s.done), valueOf(s.skipped), valueOf(s.failed))
}

func valueOf(n *int64) int64 {
	if n == nil {
		return 0
	}
	return max(0, *n)
}

// saturate adds counts without overflow.
func saturate(ns ...int64) int64 {
	const most = 1 << 60
	sum := int64(0)
	for _, n := range ns {
		sum = min(most, sum+min(most, max(0, n)))
	}
	return sum
}

func (wk *workerWorld) startedAt() time.Time {
	if wk.seen == nil {
		return time.Time{}
	}
	return wk.seen.StartedAt
}

func (w *World) foldMover(r MoverReading) {
	w.mover = lookWorld{good: r.At, any: true}
	w.paused, w.store.problem, w.store.credentials = r.Paused, r.Problem, r.Credentials
	for _, e := range r.Events {
		w.events.add(e)
	}
	for i := range r.Outputs {
		o := r.Outputs[i]
		st := w.stage(o.Stage)
		if st == nil {
			continue
		}
		for _, out := range st.outputs {
			if out.name == o.Name {
				w.foldOutput(st.sp.Name+"/"+o.Name, out, &o, r.At)
			}
		}
	}
	if w.artifacts != nil && r.Artifacts != nil {
		w.foldOutput(artifactsTarget, w.artifacts, r.Artifacts, r.At)
	}
	for _, st := range w.stages {
		st.foldRanks(r.At)
		w.afterCounts(st, r.At)
	}
}

func (w *World) foldOutput(id string, out *outputWorld, o *OutputReading, at time.Time) {
	out.reading = o
	out.files.observe(at, o.VerifiedTotalFiles)
	out.bytes.observe(at, o.VerifiedTotalBytes)
	out.produced.observe(at, o.ProducedTotalBytes)
	before := out.state
	out.state = o.State
	if before == o.State || before == "" {
		return
	}
	switch o.State {
	case OutputBlocked:
		w.note(at, Error, id, "uploads blocked: %s", o.StateReason)
	case OutputThrottled, OutputBacklog, OutputStopped:
		w.note(at, Warn, id, "uploads %s: %s", o.State, o.StateReason)
	case OutputPaused:
		w.note(at, Info, id, "uploads paused")
	case OutputRunning:
		if before != OutputIdle {
			w.note(at, Info, id, "uploads running again")
		}
	case OutputIdle, OutputUnknown:
	}
}

// foldRanks sums what each rank has produced over the stage's outputs.
func (s *stageWorld) foldRanks(at time.Time) {
	sums := s.filesByRank()
	s.byRank = s.byRank || len(sums) > 0
	if !s.byRank {
		return
	}
	for _, rank := range s.ranks() {
		wk := s.worker(rank)
		f := sums[rank]
		if f.NewestAt.After(wk.newest) {
			wk.newest = f.NewestAt
		}
		wk.files.observe(at, f.Done, f.NewestAt, wk.startedAt())
		if wk.source.done == nil {
			wk.observeRate(rateFiles, at, f.Done)
		}
	}
}

func (s *stageWorld) filesByRank() map[int]RankFiles {
	sums := map[int]RankFiles{}
	for _, out := range s.outputs {
		if out.reading == nil || out.reading.LocalFiles == nil {
			continue
		}
		for rank, f := range out.reading.ByRank {
			sum := sums[rank]
			sum.Done = saturate(sum.Done, f.Done)
			if f.NewestAt.After(sum.NewestAt) {
				sum.NewestAt = f.NewestAt
			}
			sums[rank] = sum
		}
	}
	return sums
}

// rateSource is what a worker's rate is made from.
type rateSource int

const (
	rateNone rateSource = iota
	rateFiles
	rateDeclared
)

func (wk *workerWorld) observeRate(from rateSource, at time.Time, n int64) {
	if wk.rateFrom != from {
		wk.rate, wk.rateFrom = counter{}, from
	}
	wk.rate.observe(at, n)
}

// afterCounts brings the stage's own count and rate up to date.
func (w *World) afterCounts(st *stageWorld, at time.Time) {
	c := st.counts()
	if c.done != nil {
		all := saturate(*c.done, valueOf(c.skipped), valueOf(c.failed))
		if c.basis == st.basis {
			st.rate.observe(at, *c.done)
			st.total.observe(at, all, time.Time{}, time.Time{})
		} else {
			st.rate.rebase(at, *c.done)
			st.total.rebase(at, all)
			st.basis = c.basis
		}
	}
	if !st.produced && st.hasProduced() {
		st.produced = true
		st.rate.restart()
	}
	w.reviewStage(st, at, false)
}

func (s *stageWorld) hasProduced() bool {
	if s.total.produced {
		return true
	}
	for _, wk := range s.workers {
		if wk.declared.produced || wk.files.produced {
			return true
		}
	}
	return false
}

func (w *World) foldDisks(r DisksReading) {
	for _, d := range r.Disks {
		disk := w.disk(d.Path)
		if disk == nil {
			continue
		}
		at := d.At
		if at.IsZero() {
			at = r.At
		}
		disk.reading = d
		if free := count(d.FreeBytes); free != nil {
			disk.trend.observe(at, *free)
		}
		tight := nearlyFull(d.FreeBytes, d.TotalBytes)
		switch {
		case tight && !disk.tight:
			w.note(at, Warn, "disk", "%s is nearly full: %s free", d.Path, humanBytes(*d.FreeBytes))
		case !tight && disk.tight && d.FreeBytes != nil:
			w.note(at, Info, "disk", "%s has room again: %s free", d.Path, humanBytes(*d.FreeBytes))
		}
		disk.tight = tight
	}
}

// nearlyFull is under 2 % free; or under 1 GiB, if that is little of the disk.
func nearlyFull(free, total *int64) bool {
	f, t := count(free), count(total)
	if f == nil || t == nil || *t == 0 {
		return false
	}
	share := float64(*f) / float64(*t)
	return share < 0.02 || (*f < 1<<30 && share < 0.1)
}

func (w *World) disk(path string) *diskWorld {
	for _, d := range w.disks {
		if d.reading.Path == path {
			return d
		}
	}
	if len(w.disks) >= maxDisks {
		return nil
	}
	d := &diskWorld{reading: DiskReading{Path: path}}
	w.disks = append(w.disks, d)
	return d
}
