package deck

import (
	"context"
	"slices"

	"pipedeck/pipeline"
	"pipedeck/pipeline/spec"
)

// place decides the world size of a stage and which GPU slots each rank
// holds, from a fresh look at the GPUs where the stage needs any.
func (d *Deck) place(ctx context.Context, st *spec.Stage) ([][]pipeline.GPURef, error) {
	if st.Workers.PerGPU == 0 {
		refs, err := d.heldGPUs(ctx, st)
		if err != nil {
			return nil, err
		}
		out := make([][]pipeline.GPURef, st.Workers.Count)
		for rank := range out {
			// All ranks of a counted stage share its GPUs, each in its own slot.
			out[rank] = slices.Clone(refs)
			for i := range out[rank] {
				out[rank][i].Slot = rank
			}
		}
		return out, nil
	}
	gpus, err := d.usableGPUs(ctx, st)
	if err != nil {
		return nil, err
	}
	var out [][]pipeline.GPURef
	for _, g := range gpus {
		for slot := range st.Workers.PerGPU {
			out = append(out, []pipeline.GPURef{{Index: g.Index, UUID: g.UUID, Slot: slot}})
		}
	}
	return out, nil
}

func (d *Deck) heldGPUs(ctx context.Context, st *spec.Stage) ([]pipeline.GPURef, error) {
	set := st.Workers.GPUs
	if !set.All && len(set.Indexes) == 0 && len(set.UUIDs) == 0 {
		return nil, nil
	}
	gpus, err := d.usableGPUs(ctx, st)
	if err != nil {
		return nil, err
	}
	var out []pipeline.GPURef
	for _, g := range gpus {
		if selects(set, g) {
			out = append(out, pipeline.GPURef{Index: g.Index, UUID: g.UUID})
		}
	}
	return out, nil
}

// usableGPUs lists the node's GPUs that the deck may use. No GPU at all is a
// refusal that says why; a lost one is left out with a word.
func (d *Deck) usableGPUs(ctx context.Context, st *spec.Stage) ([]pipeline.GPUSnapshot, error) {
	reading := d.p.Sensor.GPUs(ctx)
	d.fold(reading)
	var out []pipeline.GPUSnapshot
	for _, g := range reading.GPUs {
		if !selects(d.node.GPUs, g) {
			continue // MIG instances are chosen by their GPU
		}
		if g.State != pipeline.GPUOK {
			d.notice(pipeline.Warn, st.Name, "GPU %d is %s and is not used", g.Index, g.State)
			continue
		}
		out = append(out, g.Slots()...)
	}
	if len(out) > 0 {
		return out, nil
	}
	reason := reading.Reason
	if reason == "" {
		reason = "none of the node's GPUs is selected and working"
	}
	return nil, pipeline.Problemf(pipeline.ProblemRefused,
		"`pipedeck check` says what was tried; a stage without GPUs uses `count: N` instead of `per_gpu`",
		"cannot start %q: it needs GPUs and there are none: %s", st.Name, reason)
}

func selects(set spec.GPUSet, g pipeline.GPUSnapshot) bool {
	return set.All || slices.Contains(set.Indexes, g.Index) || slices.Contains(set.UUIDs, g.UUID)
}

// noteBaseline records what the GPUs hold before a start, as the level that a
// later stop must bring them back to.
func (d *Deck) noteBaseline(ranks [][]pipeline.GPURef, reading pipeline.GPUReading) error {
	used := map[string]int64{}
	for _, refs := range ranks {
		for _, ref := range refs {
			if g := pipeline.FindGPU(reading.GPUs, ref.UUID); g != nil && g.MemUsedBytes != nil {
				used[g.UUID] = *g.MemUsedBytes
			}
		}
	}
	if len(used) == 0 {
		return nil
	}
	return d.wants.setBaseline(used)
}
