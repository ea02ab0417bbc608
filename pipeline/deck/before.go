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

// gpusFree waits until the GPUs that a start wants are free: the driver may
// give memory back some seconds after a process is gone.
func (d *Deck) gpusFree(ctx context.Context, j engine.Job) engine.Outcome {
	name, ranks, err := d.stepRanks(j.Step)
	if err != nil {
		return failed("%v", err)
	}
	st := d.sp.Stage(name)
	if st == nil {
		return failed("the spec has no stage %q", name)
	}
	placed, err := d.place(ctx, st, j.Plan.Intent)
	if err != nil {
		return asReason(err)
	}
	uuids := wantedGPUs(placed, ranks)
	began := d.p.Now()
	for {
		reading := d.p.Sensor.GPUs(ctx)
		ours := d.isOfStage(name)
		verdict, checks := pipeline.JudgeFree(reading, uuids, d.wants.baselines(), ours, d.p.Now())
		limit := gpuPatience
		if pipeline.HeldByOthers(reading, uuids, ours) {
			limit = namedPatience
		}
		if verdict != pipeline.ActionFailed || d.p.Now().Sub(began) >= limit {
			return engine.Outcome{Result: verdict, Text: freeText(verdict, checks), Checks: checks}
		}
		j.Report(freeText(verdict, checks))
		if err := pause(ctx, 2*proofGap); err != nil {
			return unknown("interrupted")
		}
	}
}

func wantedGPUs(placed placed, ranks []int) []string {
	var out []string
	for _, rank := range placed.ranks() {
		if ranks != nil && !slices.Contains(ranks, rank) {
			continue
		}
		for _, ref := range placed.held(rank) {
			if !slices.Contains(out, ref.UUID) {
				out = append(out, ref.UUID)
			}
		}
	}
	return out
}

// isOfStage recognises the GPU processes of a stage's living workers, as the
// fold attributed them.
func (d *Deck) isOfStage(stage string) func(pipeline.GPUProcess) bool {
	d.mu.Lock()
	snap := d.world.Snapshot(d.p.Now())
	d.mu.Unlock()
	ours := map[int]bool{}
	for _, n := range snap.Nodes {
		for _, g := range n.GPUs {
			for _, p := range g.Processes {
				if p.Worker != nil && strings.HasPrefix(*p.Worker, stage+"/") {
					ours[p.PID] = true
				}
			}
		}
	}
	for _, l := range d.seenAll()[stage] {
		if l.State == pipeline.ProcRunning {
			ours[l.PID] = true
		}
	}
	return func(p pipeline.GPUProcess) bool { return ours[p.PID] }
}

func freeText(v pipeline.Verdict, checks []pipeline.Check) string {
	if v == pipeline.Verified {
		return pipeline.Counted(len(checks), "GPU is free", "GPUs are free")
	}
	var bad []string
	for _, c := range checks {
		if c.Result != pipeline.Verified {
			bad = append(bad, c.Name+" does not hold: "+c.Observed)
		}
	}
	return strings.Join(bad, "; ")
}

// writeRecord says in the bucket how this run's outputs are made. A store that
// cannot be asked does not hold up a start of a run that this node knows.
func (d *Deck) writeRecord(ctx context.Context, j engine.Job) engine.Outcome {
	for _, stage := range j.Step.On {
		st := d.sp.Stage(stage)
		if st == nil {
			return failed("the spec has no stage %q", stage)
		}
		text, err := d.recordStage(ctx, st, j.Plan.Intent)
		if err != nil {
			return asReason(err)
		}
		j.Report(text)
		if len(j.Step.On) == 1 {
			return verified("%s", text)
		}
	}
	return verified("recorded")
}

func (d *Deck) recordStage(ctx context.Context, st *spec.Stage, in pipeline.Intent) (string, error) {
	bounded, cancel := context.WithTimeout(ctx, 2*factsPatience)
	defer cancel()
	placed, err := d.place(ctx, st, in)
	if err != nil {
		return "", err
	}
	now, err := d.p.Custody.DescribeInputs(bounded, st.Name)
	if err != nil {
		return fmt.Sprintf("not recorded: %v", err), nil
	}
	now.Schema, now.Deck, now.Run, now.Stage, now.World = pipeline.SchemaVersion, d.sp.Deck, d.sp.Run, st.Name, placed.world
	now.Code = d.wants.code()
	for try := 1; ; try++ {
		was, known, err := d.p.Custody.StageRecord(bounded, st.Name)
		if err != nil {
			return lateRecord(known, err)
		}
		if sameRecord(was, now) {
			return "the record in the bucket agrees", nil
		}
		if err := d.refuseRecord(st, was, now, in, try > 1); err != nil {
			return "", err
		}
		if was != nil {
			now.ETag = was.ETag
		}
		now.At = d.p.Now().UTC().Truncate(time.Millisecond)
		if err = d.p.Custody.WriteStageRecord(bounded, st.Name, now); err == nil {
			return "recorded in the bucket", nil
		}
		// Refused: somebody else wrote it just now, as nodes that start together do.
		if p, ok := errors.AsType[*pipeline.Problem](err); !ok || p.Kind != pipeline.ProblemRefused || try == recordTries {
			return lateRecord(known, err)
		}
	}
}

// recordTries is how often a record is written that others write too.
const recordTries = 4

func sameRecord(was *pipeline.StageRecord, now pipeline.StageRecord) bool {
	return was != nil && was.Inputs == now.Inputs && was.Command == now.Command && was.World == now.World && was.Deck == now.Deck && was.Code == now.Code
}

// refuseRecord refuses to replace a record of another deck, or one that came
// since the plan was made and differs in what nobody accepted.
func (d *Deck) refuseRecord(st *spec.Stage, was *pipeline.StageRecord, now pipeline.StageRecord, in pipeline.Intent, since bool) error {
	if was == nil {
		return nil
	}
	if was.Deck != now.Deck {
		return pipeline.Problemf(pipeline.ProblemRefused, "name a new `run` in the spec",
			"cannot start %q: run %q in this bucket belongs to deck %q", st.Name, d.sp.Run, was.Deck)
	}
	what := ""
	switch {
	case was.Inputs != now.Inputs && !slices.Contains(in.Accept, pipeline.DiffInputs):
		what = pipeline.DiffInputs
	case was.Command != now.Command && !slices.Contains(in.Accept, pipeline.DiffCommand):
		what = pipeline.DiffCommand
	}
	if !since || what == "" {
		return nil
	}
	return pipeline.Problemf(pipeline.ProblemRefused, "the nodes must have the same; or `--accept "+what+"`",
		"cannot start %q: another node has just recorded this run with other %s than this one has", st.Name, what)
}

func lateRecord(known bool, err error) (string, error) {
	if !known {
		return "", pipeline.Problemf(pipeline.ProblemUnreachable, "`pipedeck check` tells what the store says",
			"cannot record how the outputs are made: %w", err)
	}
	return fmt.Sprintf("not recorded now, this node knows the run: %v", err), nil
}
