package deck

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"pipedeck/pipeline"
	"pipedeck/pipeline/engine"
	"pipedeck/pipeline/spec"
)

// okayAfter is how long a worker must live to count as started: an import
// error or a bad flag ends it sooner.
const okayAfter = 2 * time.Second

// startWorkers wants the workers of one stage running and waits until each is
// verified alive or has ended with 0. On names the stage for all ranks, or
// single workers.
func (d *Deck) startWorkers(ctx context.Context, j engine.Job) engine.Outcome {
	s, report := j.Step, j.Report
	name, ranks, err := d.stepRanks(s)
	if err != nil {
		return failed("%v", err)
	}
	st := d.sp.Stage(name)
	if st == nil {
		return failed("the spec has no stage %q", name)
	}
	if err := d.p.Mover.Activate(ctx, name); err != nil {
		return asReason(err)
	}
	d.p.Mover.QueueArtifacts()
	d.sayWhatIsLeftOut(st)
	ranks, err = d.wantRunning(ctx, st, ranks, j.Plan.Intent)
	if err != nil {
		return asReason(err)
	}
	d.nudge()
	return d.awaitStarted(ctx, st, ranks, s, report)
}

// sayWhatIsLeftOut names what the spec declares and this build does not do.
func (d *Deck) sayWhatIsLeftOut(st *spec.Stage) {
	if len(st.Gates) > 0 {
		d.notice(pipeline.Warn, st.Name, "its %d gates are not checked by this version: check the data yourself", len(st.Gates))
	}
	if len(st.Setup) > 0 {
		d.notice(pipeline.Warn, st.Name, "its setup commands are not run by this version: run them yourself")
	}
}

// stepRanks reads a step's On: one stage (ranks nil: all), or workers of one.
func (d *Deck) stepRanks(s pipeline.Step) (string, []int, error) {
	var name string
	var ranks []int
	for _, on := range s.On {
		if !strings.Contains(on, "/") {
			return on, nil, nil
		}
		stage, rank, err := splitWorker(on)
		if err != nil {
			return "", nil, err
		}
		if name != "" && stage != name {
			return "", nil, fmt.Errorf("workers of two stages in one step: %q and %q", name, stage)
		}
		name = stage
		ranks = append(ranks, rank)
	}
	if name == "" {
		return "", nil, errors.New("a step names no worker")
	}
	return name, ranks, nil
}

// wantRunning records that the given ranks (nil: all) should run. Workers that
// live stay as they are. It returns the ranks.
func (d *Deck) wantRunning(ctx context.Context, st *spec.Stage, ranks []int, in pipeline.Intent) ([]int, error) {
	placed, err := d.place(ctx, st, in)
	if err != nil {
		return nil, err
	}
	if ranks == nil {
		ranks = placed.ranks()
	}
	for _, rank := range ranks {
		if !placed.has(rank) {
			return nil, pipeline.Problemf(pipeline.ProblemUsage, "", "cannot start %q: the stage has %s here", workerID(st.Name, rank), pipeline.Counted(len(placed.gpus), "rank", "ranks"))
		}
	}
	seen := d.seenAll()[st.Name]
	if !anyAlive(seen) {
		if err := d.noteBaseline(placed.gpus, d.p.Sensor.GPUs(ctx)); err != nil {
			return nil, err
		}
	}
	now := d.p.Now()
	err = d.wants.change(st.Name, func(w *pipeline.StageWant) {
		all := ranks
		if w.Want != pipeline.WantRunning || w.World != placed.world || !samePart(w.Place, placed.part) {
			all = wholeWorld(placed, ranks, w)
		}
		if w.Want != pipeline.WantRunning {
			w.Since = now
		}
		w.Want, w.World, w.Place = pipeline.WantRunning, placed.world, placed.part
		for _, rank := range all {
			w.Workers[rank] = wantedWorker(w.Workers[rank], seen[rank], placed.held(rank), slices.Contains(ranks, rank))
		}
	})
	d.fold(pipeline.WantsReading{At: now, Stages: d.wants.stages()})
	return ranks, err
}

// wantedWorker is the want of one rank after a start: a living one stays, so
// does one that is being launched and was not looked at since; one that was not
// asked for stays down.
func wantedWorker(old pipeline.WorkerWant, seen pipeline.LaunchSeen, place []pipeline.GPURef, asked bool) pipeline.WorkerWant {
	if seen.State == pipeline.ProcRunning && seen.ID == old.Launch {
		old.Stopping, old.Held, old.Done = false, "", false
		return old
	}
	if old.Launch != "" && old.Launch != seen.ID && !old.Stopping && !old.Done && old.Held == "" {
		return old
	}
	return pipeline.WorkerWant{Launches: old.Launches, GPUs: place, Stopping: !asked}
}

func samePart(a, b *pipeline.Placement) bool {
	return a == nil && b == nil || a != nil && b != nil && *a == *b
}

// wholeWorld lists every rank when a stage that was down comes up, so that
// ranks that were not asked for get their place too.
func wholeWorld(placed placed, asked []int, w *pipeline.StageWant) []int {
	all := slices.Clone(asked)
	for _, rank := range placed.ranks() {
		if _, known := w.Workers[rank]; !known && !slices.Contains(all, rank) {
			all = append(all, rank)
		}
	}
	return all
}

// awaitStarted watches until every rank lives okayAfter or ended with 0.
func (d *Deck) awaitStarted(ctx context.Context, st *spec.Stage, ranks []int, s pipeline.Step, report func(string)) engine.Outcome {
	deadline := time.NewTimer(stepTimeout(s))
	defer deadline.Stop()
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	for {
		up, bad := d.startState(st.Name, ranks)
		if len(bad) > 0 {
			return failed("%s", strings.Join(bad, "; "))
		}
		words := pipeline.CountedOf(up, len(ranks), "worker", "workers", "is", "are")
		if up == len(ranks) {
			return engine.Outcome{
				Result: pipeline.Verified, Text: words + " alive or ended with 0",
				Checks: d.startChecks(st.Name, ranks),
			}
		}
		report(words + " up")
		d.nudge()
		select {
		case <-ctx.Done():
			return unknown("interrupted")
		case <-deadline.C:
			return unknown("%s up; the others have not been seen", words)
		case <-tick.C:
		}
	}
}

// stepTimeout is a step's own limit; a plan without one gets a minute.
func stepTimeout(s pipeline.Step) time.Duration {
	if s.TimeoutSeconds <= 0 {
		return time.Minute
	}
	return time.Duration(s.TimeoutSeconds * float64(time.Second))
}

// startState counts the ranks that are up and says what failed.
func (d *Deck) startState(stage string, ranks []int) (up int, bad []string) {
	seen, want := d.seenAll()[stage], d.wants.stage(stage)
	for _, rank := range ranks {
		w := want.Workers[rank]
		l, ok := seen[rank]
		fresh := ok && l.ID == w.Launch && w.Launch != ""
		switch {
		case w.Done:
			up++
		case w.Held != "":
			bad = append(bad, workerID(stage, rank)+": "+w.Held)
		case fresh && l.State == pipeline.ProcRunning && d.p.Now().Sub(l.StartedAt) >= okayAfter:
			up++
		case fresh && (l.State == pipeline.ProcExited || l.State == pipeline.ProcLost) && !endedWell(l):
			bad = append(bad, fmt.Sprintf("%s %s (see `pipedeck logs %s`)", workerID(stage, rank), pipeline.EndText(l), workerID(stage, rank)))
		}
	}
	return up, bad
}

func endedWell(l pipeline.LaunchSeen) bool {
	return l.Exit != nil && l.Exit.Code != nil && *l.Exit.Code == 0
}

func (d *Deck) startChecks(stage string, ranks []int) []pipeline.Check {
	seen, now := d.seenAll()[stage], d.p.Now()
	out := make([]pipeline.Check, 0, len(ranks))
	for _, rank := range ranks {
		l := seen[rank]
		text := fmt.Sprintf("pid %d alive", l.PID)
		if l.State != pipeline.ProcRunning {
			text = pipeline.EndText(l)
		}
		out = append(out, pipeline.Check{Name: workerID(stage, rank), Result: pipeline.Verified, Observed: text, At: now})
	}
	return out
}
