package pipeline

import (
	"cmp"
	"math"
	"time"

	"pipedeck/pipeline/spec"
)

// stageCounts is how far a stage is. Where a count is nil, why says so.
type stageCounts struct {
	done, skipped, failed, total *int64
	whole                        *int64 // total of the deck, where this node has a part
	why, whyTotal                string
	basis                        countBasis
	slack                        int64 // by how much a part's total may be off
}

// countBasis is what a stage's count is made of. When it changes, a jump of the
// count is no production.
type countBasis struct {
	ranks int  // that have told a count
	files bool // output files are counted
	exact bool // by sample id
}

// counts adds up the declared source over the ranks. Distinct sample ids that
// are stored or complete outrank it: a script that starts again may count from
// zero.
func (s *stageWorld) counts() stageCounts {
	c := s.declaredCounts()
	ids, exact := s.outputCount()
	c.basis.files, c.basis.exact = ids != nil, exact
	switch {
	case c.done == nil && ids != nil && s.others(*ids):
		c.why = cmp.Or(c.why, "counted by output files") + ": the store's ids are of other nodes too"
	case c.done == nil && ids != nil:
		c.done = ids
		if s.declares() {
			c.why = "counted by output files: " + c.why
		} else {
			c.why = ""
		}
	case c.done != nil && ids != nil && exact && *ids > *c.done && !s.others(*ids):
		c.done = ids
	}
	if s.sp.Total > 0 {
		c.total, c.whyTotal = new(s.sp.Total), ""
	}
	c.whole = c.total
	if s.part() && s.sp.Total > 0 {
		c.total, c.slack = new(s.want.Place.share(s.sp.Total)), int64(s.want.Place.Count)
	}
	if c.total == nil && c.whyTotal == "" {
		c.whyTotal = "neither the spec nor the progress source tells the total"
	}
	return c
}

// part says whether other nodes have ranks of the stage too.
func (s *stageWorld) part() bool {
	p := s.want.Place
	return p != nil && p.World > 0 && p.Count < p.World
}

// others says whether a count of stored ids holds more than this node's part:
// what other nodes stored is known here too, once the bucket was read.
func (s *stageWorld) others(ids int64) bool {
	return s.part() && s.sp.Total > 0 && ids > s.want.Place.share(s.sp.Total)
}

func (s *stageWorld) declares() bool { return s.sp.Progress != (spec.Progress{}) }

func (s *stageWorld) declaredCounts() stageCounts {
	c := stageCounts{why: "no count yet"}
	if !s.declares() {
		c.skipped, c.failed = new(int64(0)), new(int64(0))
		c.why = "the output directory was not looked at yet"
		return c
	}
	if s.whole.any {
		c.done, c.total, c.basis.ranks = s.whole.done, s.whole.total, 1
		c.skipped, c.failed = s.orZero(s.whole.skipped, s.sp.Progress.Skipped), s.orZero(s.whole.failed, s.sp.Progress.Failed)
		c.why = s.whole.err
		return c
	}
	c.skipped, c.failed = s.orZero(nil, s.sp.Progress.Skipped), s.orZero(nil, s.sp.Progress.Failed)
	s.sumRanks(&c)
	return c
}

// sumRanks adds up what each worker declares.
func (s *stageWorld) sumRanks(c *stageCounts) {
	c.why = ""
	totals := 0
	ranks := s.ranks()
	for _, rank := range ranks {
		wk := s.workers[rank]
		if wk == nil || wk.source.done == nil {
			c.why = cmp.Or(c.why, s.id(rank)+" has told no count yet")
			continue
		}
		src := &wk.source
		if src.err != "" {
			c.why = cmp.Or(c.why, s.id(rank)+": last known count, "+src.err)
		}
		c.basis.ranks++
		c.done = sum(c.done, src.done)
		c.skipped, c.failed = sum(c.skipped, src.skipped), sum(c.failed, src.failed)
		if src.total != nil {
			c.total = sum(c.total, src.total)
			totals++
		}
	}
	switch {
	case len(ranks) == 0:
		c.why = "not started"
	case totals == 0:
		c.total = nil
	case totals < len(ranks):
		c.total, c.whyTotal = nil, "not every worker has told its total yet"
	}
}

// orZero: a count that the spec names no key for is not counted, so it is 0.
func (s *stageWorld) orZero(n *int64, key string) *int64 {
	if n == nil && key == "" {
		return new(int64(0))
	}
	return n
}

func sum(a, b *int64) *int64 {
	if a == nil {
		return b
	}
	if b == nil {
		return a
	}
	return new(saturate(*a, *b))
}

// outputCount is the done count by files. exact: by distinct sample ids, of
// which a sample counts when every output with ids has it.
func (s *stageWorld) outputCount() (n *int64, exact bool) {
	var files *int64
	for i, out := range s.outputs {
		if out.reading == nil {
			continue
		}
		ids := count(out.reading.DoneIDs)
		if ids == nil {
			continue
		}
		if s.sp.Outputs[i].ID == "" {
			files = sum(files, ids)
			continue
		}
		if !exact || *ids < *n {
			n, exact = ids, true
		}
	}
	if exact {
		return n, true
	}
	return files, false
}

// left is how many samples are not accounted for, nil without a total.
func (c stageCounts) left() *int64 {
	if c.total == nil || c.done == nil {
		return nil
	}
	return new(max(0, *c.total-saturate(*c.done, valueOf(c.skipped), valueOf(c.failed))))
}

// tally is the states of a stage's workers, counted.
type tally struct {
	all, alive, done, coming, stopped, draining, young, stalled int
}

func (w *World) tally(st *stageWorld, states map[int]WorkerState) tally {
	var t tally
	for rank, state := range states {
		t.all++
		switch state {
		case WorkerInit:
			t.coming++
		case WorkerLoading:
			t.alive++
			t.young++
		case WorkerRunning, WorkerIdle, WorkerWaiting:
			t.alive++
		case WorkerStalled:
			t.alive++
			t.stalled++
		case WorkerDraining:
			t.alive++
			t.draining++
		case WorkerDone:
			t.done++
		case WorkerExited, WorkerOOM, WorkerLost:
			wk := st.workers[rank]
			if wk != nil && wk.seen != nil && wk.seen.State == ProcRunning {
				t.alive++ // its GPU is lost
			} else if want := st.want.Workers[rank]; want.Stopping {
				t.stopped++
			} else if want.Held == "" {
				t.coming++
			}
		case WorkerFailed, WorkerUnknown:
		}
	}
	return t
}

// judgeStage returns the state of a stage. known is false while its processes
// cannot be observed.
func judgeStage(want Want, grace time.Duration, stopSent, now time.Time, t tally, known bool) (StageState, string) {
	if !known && (want == WantRunning || t.all > 0) {
		return StageUnknown, "its processes cannot be observed"
	}
	switch want {
	case WantRunning:
		return judgeWanted(t)
	case WantStopped:
		if t.alive == 0 {
			return StageStopped, ""
		}
		if !stopSent.IsZero() && now.Sub(stopSent) <= grace {
			return StageDraining, CountedOf(t.alive, t.all, "worker", "workers", "is", "are") + " left"
		}
		return StageStopping, CountedOf(t.alive, t.all, "worker", "workers", "is", "are") + " left"
	case WantNothing:
	}
	if t.alive > 0 {
		return StageRunning, "its workers live, though it was not started by this deck"
	}
	return StageIdle, ""
}

func judgeWanted(t tally) (StageState, string) {
	switch {
	case t.all > 0 && t.done == t.all:
		return StageDone, ""
	case t.stopped > 0 && t.stopped+t.done == t.all:
		return StageStopped, "its workers were stopped one by one"
	case t.alive > 0 && t.draining == t.alive && t.coming == 0:
		return StageDraining, ""
	case t.alive > t.young:
		return StageRunning, ""
	case t.young > 0:
		return StageStarting, "no worker has produced yet"
	case t.coming > 0 || t.all == 0:
		return StageStarting, "no worker lives yet"
	}
	return StageFailed, "no worker lives, and none will be started again by itself"
}

// eta returns the seconds until a stage is done, or why that is not known.
func (w *World) eta(st *stageWorld, state StageState, t tally, c stageCounts, now time.Time) (*float64, string) {
	switch state {
	case StageIdle:
		return nil, "not started"
	case StageStopped, StageStopping, StageDraining:
		return nil, "stopped"
	case StageDone:
		return nil, "done"
	case StageFailed:
		return nil, "no worker is running"
	case StageUnknown:
		return nil, reasonStale
	case StageStarting, StageRunning, StagePausing, StagePaused:
	}
	left := c.left()
	switch {
	case c.total == nil:
		return nil, "total unknown"
	case left != nil && *left == 0:
		return nil, "done"
	case !st.produced || left == nil:
		return nil, "no output yet"
	case t.alive == 0:
		return nil, "no worker is running"
	case t.stalled == t.alive:
		return nil, "stalled"
	}
	rate, why := st.rate.long(now)
	switch {
	case rate == nil:
		return nil, why
	case st.rate.span() < etaSpan:
		return nil, "too little history"
	case *rate <= 0:
		return nil, "rate is zero"
	}
	if eta := finite(new(math.Round(float64(*left) / *rate))); eta != nil {
		return eta, ""
	}
	return nil, "rate is zero"
}

// stageRate is the rate to show, or why there is none.
func (s *stageWorld) stageRate(state StageState, now time.Time) (*float64, string) {
	switch state {
	case StageIdle:
		return nil, "not started"
	case StageStopped:
		return nil, "stopped"
	case StageDone:
		return nil, "done"
	case StageUnknown:
		return nil, reasonStale
	case StageStarting, StageRunning, StagePausing, StagePaused, StageDraining, StageStopping, StageFailed:
	}
	return s.rate.short(now)
}
