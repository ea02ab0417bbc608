package deck

import (
	"context"
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
	placed, err := d.place(ctx, st)
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

func wantedGPUs(placed [][]pipeline.GPURef, ranks []int) []string {
	var out []string
	for rank, refs := range placed {
		if ranks != nil && !slices.Contains(ranks, rank) {
			continue
		}
		for _, ref := range refs {
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
		return plural(len(checks), "GPU is free", "GPUs are free")
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
		text, err := d.recordStage(ctx, st)
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

func (d *Deck) recordStage(ctx context.Context, st *spec.Stage) (string, error) {
	bounded, cancel := context.WithTimeout(ctx, 2*factsPatience)
	defer cancel()
	now, err := d.p.Custody.DescribeInputs(bounded, st.Name)
	if err != nil {
		return fmt.Sprintf("not recorded: %v", err), nil
	}
	was, known, err := d.p.Custody.StageRecord(bounded, st.Name)
	if err != nil {
		return lateRecord(known, err)
	}
	placed, err := d.place(ctx, st)
	if err != nil {
		return "", err
	}
	now.Schema, now.Deck, now.Run, now.Stage, now.World = pipeline.SchemaVersion, d.sp.Deck, d.sp.Run, st.Name, len(placed)
	now.Code = d.wants.code()
	if was != nil && was.Inputs == now.Inputs && was.Command == now.Command && was.World == now.World && was.Deck == now.Deck && was.Code == now.Code {
		return "the record in the bucket agrees", nil
	}
	if was != nil && was.Deck != now.Deck {
		return "", pipeline.Problemf(pipeline.ProblemRefused, "name a new `run` in the spec",
			"cannot start %q: run %q in this bucket belongs to deck %q", st.Name, d.sp.Run, was.Deck)
	}
	if was != nil {
		now.ETag = was.ETag
	}
	now.At = d.p.Now().UTC().Truncate(time.Millisecond)
	if err := d.p.Custody.WriteStageRecord(bounded, st.Name, now); err != nil {
		return lateRecord(known, err)
	}
	return "recorded in the bucket", nil
}

func lateRecord(known bool, err error) (string, error) {
	if !known {
		return "", pipeline.Problemf(pipeline.ProblemUnreachable, "`pipedeck check` tells what the store says",
			"cannot record how the outputs are made: %w", err)
	}
	return fmt.Sprintf("not recorded now, this node knows the run: %v", err), nil
}
