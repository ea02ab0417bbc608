package deck

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"pipedeck/pipeline"
	"pipedeck/pipeline/engine"
	"pipedeck/pipeline/spec"
)

// killWorkers is a stop without a grace: SIGKILL to the whole recorded set,
// then the same proof.
func (d *Deck) killWorkers(ctx context.Context, j engine.Job) engine.Outcome {
	stop, whole, out := d.stopOf(j)
	if out != nil {
		return *out
	}
	if _, err := d.wantStopped(stop, whole); err != nil {
		return failed("%v", err)
	}
	if len(stop.ranks) == 0 {
		return verified("no worker was ever started")
	}
	for rank, l := range d.left(stop) {
		d.send(ctx, stop, rank, l, "SIGKILL", pipeline.ToSet)
	}
	if err := d.awaitGone(ctx, stop, d.p.Now().Add(termPatience), "SIGKILL sent"); err != nil {
		return unknown("%v", err)
	}
	if err := d.escalate(ctx, stop); err != nil {
		return unknown("%v", err)
	}
	return d.proveStopped(ctx, stop)
}

// stopOf resolves whom a stop or kill is for.
func (d *Deck) stopOf(j engine.Job) (stop stopping, whole bool, out *engine.Outcome) {
	name, ranks, err := d.stepRanks(j.Step)
	if err != nil {
		return stop, false, new(failed("%v", err))
	}
	st := d.sp.Stage(name)
	if st == nil {
		return stop, false, new(failed("the spec has no stage %q", name))
	}
	stop = stopping{action: j.Action, step: j.Step.N, st: st, ranks: ranks, report: j.Report}
	if ranks == nil {
		stop.ranks = d.knownRanks(name)
	}
	return stop, ranks == nil, nil
}

// adoptProcesses records processes that were started by hand as the workers of
// a stage; from then on they are supervised like any other.
func (d *Deck) adoptProcesses(ctx context.Context, j engine.Job) engine.Outcome {
	name, _, err := d.stepRanks(j.Step)
	if err != nil {
		return failed("%v", err)
	}
	st := d.sp.Stage(name)
	if st == nil {
		return failed("the spec has no stage %q", name)
	}
	pids := j.Plan.Intent.PIDs
	found, err := d.Strangers(ctx, pids)
	if err != nil {
		return asReason(err)
	}
	found = j.Plan.Shown(found)
	to := d.placeAdopted(ctx, st, j.Plan.Intent)
	for i, pid := range pids {
		if d.adopted(name, to.first+i, pid) {
			continue // by the agent that was interrupted here
		}
		if !slices.ContainsFunc(found, func(s pipeline.Stranger) bool { return s.PID == pid }) {
			return failed("process %d is not the one that was shown any more, or has ended; nothing was done to the others", pid)
		}
	}
	if err := d.noteAdopted(found); err != nil {
		return failed("%v", err)
	}
	for i, pid := range pids {
		if out := d.adoptOne(ctx, st, to.first+i, to.world, pid, found); out != nil {
			return *out
		}
	}
	if err := d.p.Mover.Activate(ctx, name); err != nil {
		return asReason(err)
	}
	if err := d.wantAdopted(st, len(pids), to); err != nil {
		return failed("%v", err)
	}
	d.nudge()
	return d.awaitStarted(ctx, st, to.ranks()[:len(pids)], j.Step, j.Report)
}

// placeAdopted gives processes the first ranks of this node; there may be more
// of them than the node has GPUs.
func (d *Deck) placeAdopted(ctx context.Context, st *spec.Stage, in pipeline.Intent) placed {
	to, err := d.place(ctx, st, in)
	if err != nil && to.part == nil {
		to = placed{}
	}
	for len(to.gpus) < len(in.PIDs) {
		to.gpus = append(to.gpus, nil)
	}
	to.world = max(to.world, to.first+len(to.gpus))
	return to
}

// noteAdopted records what the GPUs of processes to be adopted hold besides
// them: nobody looked before they were started.
func (d *Deck) noteAdopted(found []pipeline.Stranger) error {
	if base := pipeline.BaselinesWithout(found, d.gpus()); len(base) > 0 {
		return d.wants.setBaseline(base)
	}
	return nil
}

// adoptedLog ends the path of the log that an adopted worker does not have.
const adoptedLog = ".adopted"

// adoptOne takes over one process, unless an interrupted adoption did already.
func (d *Deck) adoptOne(ctx context.Context, st *spec.Stage, rank, world, pid int, found []pipeline.Stranger) *engine.Outcome {
	if d.adopted(st.Name, rank, pid) {
		return nil
	}
	i := slices.IndexFunc(found, func(s pipeline.Stranger) bool { return s.PID == pid })
	w := d.wants.stage(st.Name).Workers[rank]
	id := st.Name + "-" + strconv.Itoa(rank) + "-" + strconv.Itoa(w.Launches+1)
	err := d.wants.change(st.Name, func(s *pipeline.StageWant) {
		s.Workers[rank] = pipeline.WorkerWant{Launch: id, Launches: w.Launches + 1, GPUs: d.refsOf(found[i]), Stopping: true}
	})
	if err != nil {
		return new(failed("%v", err))
	}
	req := pipeline.Launch{
		ID: id, Deck: d.sp.Deck, Run: d.sp.Run, Stage: st.Name, Rank: rank, World: world,
		Argv: found[i].Argv, Dir: found[i].Dir, GPUs: d.refsOf(found[i]), Log: d.logPath(st.Name, rank) + adoptedLog,
	}
	if err := d.p.Adopter.Adopt(ctx, req, found[i]); err != nil {
		return new(asReason(err))
	}
	d.record("worker", "adopted pid %d of %s as %s: %s", pid, found[i].User, workerID(st.Name, rank), strings.Join(found[i].Argv, " "))
	return nil
}

func (d *Deck) adopted(stage string, rank, pid int) bool {
	l, ok := d.seenAll()[stage][rank]
	return ok && l.State == pipeline.ProcRunning && l.PID == pid
}

func (d *Deck) refsOf(s pipeline.Stranger) []pipeline.GPURef {
	var out []pipeline.GPURef
	for _, g := range d.gpus() {
		if slices.Contains(s.GPUs, g.UUID) {
			out = append(out, pipeline.GPURef{Index: g.Index, UUID: g.UUID})
		}
	}
	return out
}

func (d *Deck) wantAdopted(st *spec.Stage, n int, to placed) error {
	now := d.p.Now()
	err := d.wants.change(st.Name, func(s *pipeline.StageWant) {
		s.Want, s.World, s.Place, s.Since = pipeline.WantRunning, to.world, to.part, now
		for i, rank := range to.ranks() {
			w := s.Workers[rank]
			w.Stopping = i >= n
			s.Workers[rank] = w
		}
	})
	d.fold(pipeline.WantsReading{At: now, Stages: d.wants.stages()})
	return err
}

// reapStrays ends processes that carry this deck's run id and belong to no
// worker.
func (d *Deck) reapStrays(ctx context.Context, j engine.Job) engine.Outcome {
	pids := j.Plan.Intent.PIDs
	found, err := d.p.Adopter.Strangers(ctx, pids)
	if err != nil {
		return asReason(err)
	}
	found = j.Plan.Shown(found)
	var left []string
	for _, s := range found {
		rest, err := d.p.Adopter.Reap(ctx, s)
		if err != nil {
			return asReason(err)
		}
		for _, p := range rest {
			left = append(left, fmt.Sprintf("pid %d (%s) of %s in state %s", p.PID, pipeline.Clean(p.Comm), p.User, p.State))
		}
	}
	if len(left) > 0 {
		return failed("still there: %s", strings.Join(left, "; "))
	}
	return verified("%d of %d were there and are gone", len(found), len(pids))
}
