package deck

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"pipedeck/pipeline"
	"pipedeck/pipeline/engine"
	"pipedeck/pipeline/spec"
)

// The stages of an escalation after the grace, and of the proof.
const (
	termPatience = 5 * time.Second  // SIGTERM to the whole set
	killPatience = 30 * time.Second // SIGKILL, repeated; D state outlasts it
	proofGap     = 500 * time.Millisecond
	gpuPatience  = 60 * time.Second // until the driver gave the memory back
	// namedPatience is how long memory may be held by a process that lives, is
	// named and is not ours: only its owner can end that.
	namedPatience = 5 * time.Second
)

// stopping is one stop of some workers of one stage.
type stopping struct {
	action string
	step   int
	st     *spec.Stage
	ranks  []int
	report func(string)
}

// stopWorkers drains workers with a signal to each leader, escalates to the
// whole set after the grace, and proves by fresh observation that all is gone.
func (d *Deck) stopWorkers(ctx context.Context, j engine.Job) engine.Outcome {
	stop, whole, out := d.stopOf(j)
	if out != nil {
		return *out
	}
	since, err := d.wantStopped(stop, whole)
	if err != nil {
		return failed("%v", err)
	}
	if len(stop.ranks) == 0 {
		return verified("no worker was ever started")
	}
	if err := d.drain(ctx, stop, since); err != nil {
		return unknown("%v", err)
	}
	if err := d.escalate(ctx, stop); err != nil {
		return unknown("%v", err)
	}
	return d.proveStopped(ctx, stop)
}

// knownRanks lists the ranks of a stage that are wanted or were ever seen.
func (d *Deck) knownRanks(stage string) []int {
	var out []int
	for rank := range d.seenAll()[stage] {
		out = append(out, rank)
	}
	for rank := range d.wants.stage(stage).Workers {
		if !slices.Contains(out, rank) {
			out = append(out, rank)
		}
	}
	slices.Sort(out)
	return out
}

// wantStopped records that the workers are being stopped, before any signal,
// and returns since when each that was asked before has its grace: a stop that
// is resumed asks nobody twice.
func (d *Deck) wantStopped(stop stopping, whole bool) (map[int]time.Time, error) {
	now := d.p.Now()
	since := map[int]time.Time{}
	err := d.wants.change(stop.st.Name, func(w *pipeline.StageWant) {
		if whole {
			w.Want = pipeline.WantStopped
		}
		for _, rank := range stop.ranks {
			x := w.Workers[rank]
			if !x.Stopping || x.StopSentAt.IsZero() {
				x.Stopping, x.StopSentAt, x.Asked = true, now, false
			}
			if x.Asked {
				since[rank] = x.StopSentAt
			}
			w.Workers[rank] = x
		}
	})
	d.fold(pipeline.WantsReading{At: now, Stages: d.wants.stages()})
	return since, err
}

// left lists the launches of the stop that still have a living process.
func (d *Deck) left(stop stopping) map[int]pipeline.LaunchSeen {
	out := map[int]pipeline.LaunchSeen{}
	seen := d.seenAll()[stop.st.Name]
	for _, rank := range stop.ranks {
		if l, ok := seen[rank]; ok && alive(l) {
			out[rank] = l
		}
	}
	return out
}

// drain asks each leader once and waits for the grace. That it is asked is
// recorded one by one: an agent that dies in between leaves one in doubt, and
// the others to be asked by the next.
func (d *Deck) drain(ctx context.Context, stop stopping, since map[int]time.Time) error {
	left, end := d.left(stop), time.Time{}
	for _, rank := range slices.Sorted(maps.Keys(left)) {
		at, asked := since[rank]
		if !asked {
			at = d.p.Now()
			if err := d.wants.change(stop.st.Name, func(w *pipeline.StageWant) {
				x := w.Workers[rank]
				x.Asked = true
				w.Workers[rank] = x
			}); err != nil {
				return fmt.Errorf("%s was not asked to stop: %w", workerID(stop.st.Name, rank), err)
			}
			d.send(ctx, stop, rank, left[rank], stop.st.Workers.Stop.Signal, pipeline.ToLeader)
		}
		if e := at.Add(stop.st.Workers.Stop.Grace); e.After(end) {
			end = e
		}
	}
	return d.awaitGone(ctx, stop, end, "draining")
}

// send signals one worker and journals what was sent to whom.
func (d *Deck) send(ctx context.Context, stop stopping, rank int, l pipeline.LaunchSeen, sig string, to pipeline.Scope) {
	sent, err := d.p.Host.Signal(ctx, l.ID, sig, to)
	rec := pipeline.JournalRecord{
		At: d.p.Now(), Kind: engine.KindSent, Action: stop.action, Step: stop.step, Data: sent,
		Text: fmt.Sprintf("%s to the %s of %s", sig, to, workerID(stop.st.Name, rank)),
	}
	if err != nil {
		rec.Text += fmt.Sprintf(": %v", err)
		d.notice(pipeline.Error, workerID(stop.st.Name, rank), "cannot send %s: %v", sig, err)
	}
	if err := d.p.Journal.Append(rec); err != nil {
		d.notice(pipeline.Error, "agent", "cannot write the journal: %v", err)
	}
}

// escalate ends what outlived its grace: the set by SIGTERM, then SIGKILL.
func (d *Deck) escalate(ctx context.Context, stop stopping) error {
	for _, stage := range []struct {
		sig      string
		patience time.Duration
	}{{"SIGTERM", termPatience}, {"SIGKILL", killPatience}} {
		rest := d.left(stop)
		if len(rest) == 0 {
			return nil
		}
		for rank, l := range rest {
			d.notice(pipeline.Warn, workerID(stop.st.Name, rank), "outlived its grace: %s to the whole set", stage.sig)
			d.send(ctx, stop, rank, l, stage.sig, pipeline.ToSet)
		}
		if err := d.awaitGone(ctx, stop, d.p.Now().Add(stage.patience), stage.sig+" sent"); err != nil {
			return err
		}
	}
	return nil
}

// awaitGone watches until nothing of the stop lives or end has come; only ctx
// makes it an error.
func (d *Deck) awaitGone(ctx context.Context, stop stopping, end time.Time, what string) error {
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	for {
		rest := d.left(stop)
		if len(rest) == 0 {
			return nil
		}
		remain := end.Sub(d.p.Now())
		if remain <= 0 {
			return nil
		}
		stop.report(fmt.Sprintf("%s: %d of %d gone, %.0f s left", what, len(stop.ranks)-len(rest), len(stop.ranks), remain.Seconds()))
		d.nudge()
		select {
		case <-ctx.Done():
			return fmt.Errorf("interrupted while %s", what)
		case <-tick.C:
		}
	}
}

// proveStopped looks afresh, twice, at the processes and the GPUs. Memory may
// come back later than the process goes, so GPUs get some time.
func (d *Deck) proveStopped(ctx context.Context, stop stopping) engine.Outcome {
	began := d.p.Now()
	for {
		ev, err := d.stopEvidence(ctx, stop)
		if err != nil {
			return unknown("cannot look at what is left: %v", err)
		}
		verdict, checks := pipeline.JudgeStop(ev)
		again := memoryOutstanding(checks) || slices.ContainsFunc(ev.Launches, pipeline.LaunchEvidence.EndedBetween)
		if verdict == pipeline.Verified || !again || d.p.Now().Sub(began) >= d.patience(ev.GPUs, stop.st.Name) {
			return engine.Outcome{Result: verdict, Text: stopText(verdict, checks, len(stop.ranks)), Checks: checks}
		}
		stop.report("the processes are gone; looking until that is proven")
		if err := pause(ctx, 2*proofGap); err != nil {
			return unknown("interrupted")
		}
	}
}

// patience is how long to wait for the memory of GPUs.
func (d *Deck) patience(gpus []pipeline.GPUEvidence, stage string) time.Duration {
	for _, g := range gpus {
		if n := len(g.Reads); n > 0 && pipeline.HeldByOthers(g.Reads[n-1], []string{g.UUID}, d.isOfStage(stage)) {
			return namedPatience
		}
	}
	return gpuPatience
}

// memoryOutstanding says whether only a GPU check stands between a stop and
// its proof: all else would not change by waiting.
func memoryOutstanding(checks []pipeline.Check) bool {
	waiting := false
	for _, c := range checks {
		if c.Result == pipeline.Verified || c.Result == pipeline.NotApplicable {
			continue
		}
		if !strings.HasPrefix(c.Name, pipeline.GPUCheckPrefix) {
			return false
		}
		waiting = true
	}
	return waiting
}

func stopText(v pipeline.Verdict, checks []pipeline.Check, n int) string {
	if v == pipeline.Verified {
		return pipeline.Counted(n, "worker is gone", "workers are gone")
	}
	var bad []string
	for _, c := range checks {
		if c.Result != pipeline.Verified && c.Result != pipeline.NotApplicable {
			bad = append(bad, c.Name+": "+c.Observed)
		}
	}
	return strings.Join(bad, "; ")
}

func (d *Deck) stopEvidence(ctx context.Context, stop stopping) (pipeline.StopEvidence, error) {
	ev := pipeline.StopEvidence{Now: d.p.Now()}
	seen := d.seenAll()[stop.st.Name]
	first := map[int]pipeline.ProcessSet{}
	before := d.p.Sensor.GPUs(ctx)
	for _, rank := range stop.ranks {
		if l, ok := seen[rank]; ok {
			set, err := d.p.Host.Inspect(ctx, l.ID)
			if err != nil {
				return ev, err
			}
			first[rank] = set
		}
	}
	if err := pause(ctx, proofGap); err != nil {
		return ev, err
	}
	held := map[string]bool{}
	for _, rank := range stop.ranks {
		l, ok := seen[rank]
		if !ok {
			continue
		}
		second, err := d.p.Host.Inspect(ctx, l.ID)
		if err != nil {
			return ev, err
		}
		ev.Launches = append(ev.Launches, pipeline.LaunchEvidence{
			ID: l.ID, Worker: workerID(stop.st.Name, rank), First: first[rank], Second: second,
		})
		for _, ref := range l.GPUs {
			held[ref.UUID] = true
		}
	}
	gpus := []pipeline.GPUReading{before, d.p.Sensor.GPUs(ctx)}
	for uuid := range held {
		ev.GPUs = append(ev.GPUs, pipeline.GPUEvidence{UUID: uuid, BaselineBytes: d.wants.baseline(uuid), Reads: gpus})
	}
	return ev, nil
}

// pause waits, or returns the error of ctx.
func pause(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
		return nil
	}
}
