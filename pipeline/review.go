package pipeline

import (
	"maps"
	"strings"
	"time"

	"pipedeck/pipeline/spec"
)

func (w *World) reviewAll(at time.Time, first bool) {
	for _, st := range w.stages {
		w.reviewStage(st, at, first)
	}
}

// reviewStage judges the workers of a stage again and tells of what changed.
// first: nothing was known before, so nothing has changed either.
func (w *World) reviewStage(st *stageWorld, at time.Time, first bool) {
	c := st.counts()
	for _, rank := range st.ranks() {
		wk := st.worker(rank)
		state, reason := judgeWorker(w.facts(st, wk, c, at))
		if state != wk.state {
			if !first {
				w.tell(st, wk, state, reason, at)
			}
			wk.state, wk.since = state, since(wk, state, at)
		}
		wk.reason = reason
	}
	done := st.want.Want == WantRunning && len(st.ranks()) > 0
	for _, rank := range st.ranks() {
		done = done && st.workers[rank].state == WorkerDone
	}
	if done && !st.wasDone && !first {
		w.note(at, Info, st.sp.Name, "done: every worker ended with code 0%s", leftText(c))
	}
	st.wasDone = done
}

func leftText(c stageCounts) string {
	if left := c.left(); left != nil && *left > 0 {
		return ", but not every sample is accounted for"
	}
	return ""
}

// since is when a state began: an exit tells its own time.
func since(wk *workerWorld, state WorkerState, at time.Time) time.Time {
	ended := state == WorkerExited || state == WorkerDone || state == WorkerOOM
	switch {
	case wk.seen == nil:
	case ended && wk.seen.Exit != nil && !wk.seen.Exit.At.IsZero():
		return wk.seen.Exit.At
	case state == WorkerLoading && !wk.seen.StartedAt.IsZero():
		return wk.seen.StartedAt
	}
	return at
}

func (w *World) facts(st *stageWorld, wk *workerWorld, c stageCounts, at time.Time) workerFacts {
	sp := &st.sp.Workers
	f := workerFacts{
		want: st.want.Workers[wk.rank], running: st.want.Want == WantRunning, seen: wk.seen, now: at,
		gpuLost: w.gpuLost(wk), memTight: wk.motion.oom, workLeft: true,
		alive: wk.motion.alive, motionless: wk.motion.still,
		loadingTimeout: sp.LoadingTimeout, stallAfter: sp.StallAfter, maxRestarts: sp.Restart.Max,
		readErr: wk.source.err, adopted: wk.declared.adopted,
	}
	if wk.seen == nil || wk.seen.State != ProcRunning {
		return f
	}
	f.fromCounters(st, wk)
	f.seesMotion = wk.seen.ReadBytes >= 0 && (st.gpuOf(wk) == nil || w.workerMemory(st, wk) != nil)
	if text := w.evidenceOf(st, wk, f).Text; text != "" {
		f.evidence = "; " + text
	}
	if left := c.left(); left != nil && *left == 0 {
		f.workLeft = false
	}
	if total := count(wk.source.total); total != nil && *total > 0 && progressOf(&wk.source) >= *total {
		f.workLeft = false
	}
	return f
}

// fromCounters takes the worker's own counters; where none tells of it alone,
// the count of the whole stage.
func (f *workerFacts) fromCounters(st *stageWorld, wk *workerWorld) {
	own := []*tracker{}
	if wk.declared.have {
		own = append(own, &wk.declared)
	}
	if st.byRank && wk.files.have {
		own = append(own, &wk.files)
	}
	if len(own) == 0 && st.total.have && !tellsEachRank(st.sp.Progress) {
		own = append(own, &st.total)
		f.shared = true
	}
	for i, t := range own {
		f.counted = true
		f.produced = f.produced || t.produced
		if i == 0 || t.still < f.still {
			f.still = t.still
		}
	}
}

// tellsEachRank says whether a declared source is one worker's own: until it
// can be read, the others' work says nothing of this one.
func tellsEachRank(p spec.Progress) bool {
	return p.Log != "" || strings.Contains(p.JSON, "{rank}")
}

// tell writes the event for a worker that goes from one state to another.
func (w *World) tell(st *stageWorld, wk *workerWorld, to WorkerState, reason string, at time.Time) {
	id := st.id(wk.rank)
	wasAlive := isLiving(wk.state)
	switch to {
	case WorkerLoading, WorkerRunning, WorkerIdle:
		switch {
		case !wasAlive && wk.seen != nil:
			w.note(at, Info, id, "started, pid %d", wk.seen.PID)
		case wk.state == WorkerStalled:
			w.note(at, Info, id, "producing again")
		case wk.state == WorkerLoading && to == WorkerRunning:
			w.note(at, Info, id, "first output since its start")
		}
	case WorkerStalled:
		w.note(at, Warn, id, "stalled: %s", reason)
	case WorkerExited:
		if st.want.Workers[wk.rank].Stopping || st.want.Want != WantRunning {
			w.note(at, Info, id, "%s", reason)
			return
		}
		w.note(at, Warn, id, "%s", reason)
	case WorkerOOM, WorkerLost, WorkerFailed:
		w.note(at, Error, id, "%s", reason)
	case WorkerDone:
		w.note(at, Info, id, "%s", reason)
	case WorkerInit, WorkerWaiting, WorkerDraining, WorkerUnknown:
	}
}

func isLiving(s WorkerState) bool {
	switch s {
	case WorkerLoading, WorkerRunning, WorkerIdle, WorkerWaiting, WorkerStalled, WorkerDraining:
		return true
	case WorkerInit, WorkerExited, WorkerFailed, WorkerOOM, WorkerLost, WorkerDone, WorkerUnknown:
	}
	return false
}

// foldWants takes what is wanted now, and tells of restarts to come.
func (w *World) foldWants(r WantsReading) {
	for _, st := range w.stages {
		before, next := st.want, r.Stages[st.sp.Name]
		next.Workers = maps.Clone(next.Workers)
		st.want = next
		for _, rank := range st.ranks() {
			b, n := before.Workers[rank], next.Workers[rank]
			ended := st.worker(rank).seen != nil && st.worker(rank).seen.State != ProcRunning
			if ended && n.Held == "" && !n.NextAt.IsZero() && b.NextAt.IsZero() && n.Launch == b.Launch {
				w.note(r.At, Warn, st.id(rank), "%s", restartText(n, st.sp.Workers.Restart.Max, r.At))
			}
		}
		w.reviewStage(st, r.At, !w.launches.any)
	}
}

// reviewHealth tells of a change of the deck's health.
func (w *World) reviewHealth(at time.Time) {
	s := w.Snapshot(at)
	w.reviewCredentials(s, at)
	before := w.health
	w.health = s.Health
	if before == s.Health || before == "" {
		return
	}
	level, why := Info, ""
	if s.Health == Degraded {
		level = Warn
	}
	if s.Health == Failed {
		level = Error
	}
	if len(s.HealthReasons) > 0 {
		why = ": " + s.HealthReasons[0]
	}
	w.note(at, level, "deck", "%s%s", s.Health, why)
}
