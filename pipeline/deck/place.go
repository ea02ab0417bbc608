package deck

import (
	"context"
	"slices"

	"pipedeck/pipeline"
	"pipedeck/pipeline/spec"
)

// placed is which ranks of a stage are this node's, and what each holds.
type placed struct {
	part  *pipeline.Placement // nil: all of them, in a deck of one node
	first int
	world int
	gpus  [][]pipeline.GPURef // of the ranks from first on
}

func (p placed) ranks() []int {
	out := make([]int, len(p.gpus))
	for i := range out {
		out[i] = p.first + i
	}
	return out
}

func (p placed) has(rank int) bool { return rank >= p.first && rank < p.first+len(p.gpus) }

// held is what a rank holds; nothing where it is not this node's.
func (p placed) held(rank int) []pipeline.GPURef {
	if !p.has(rank) {
		return nil
	}
	return p.gpus[rank-p.first]
}

// place decides which ranks of a stage are this node's and which GPU slots each
// holds, from a fresh look at the GPUs where the stage needs any.
func (d *Deck) place(ctx context.Context, st *spec.Stage, in pipeline.Intent) (placed, error) {
	p := placed{world: st.Workers.Count}
	if len(d.sp.Nodes) > 1 {
		p.part = in.Place
		if p.part == nil {
			p.part = d.wants.stage(st.Name).Place
		}
		if p.part == nil {
			return p, pipeline.Problemf(pipeline.ProblemRefused, "start it from where all nodes can be reached",
				"cannot start %q: which of its ranks are this node's is not known", st.Name)
		}
		p.first, p.world = p.part.First, p.part.World
	}
	var err error
	if st.Workers.PerGPU == 0 {
		n := st.Workers.Count
		if p.part != nil {
			n = p.part.Count
		}
		p.gpus, err = d.sharedGPUs(ctx, st, p.first, n)
		return p, err
	}
	if p.gpus, err = d.ownGPUs(ctx, st); err != nil {
		return p, err
	}
	if p.part == nil {
		p.world = len(p.gpus)
	} else if len(p.gpus) != p.part.Count {
		return p, pipeline.Problemf(pipeline.ProblemRefused, "`pipedeck restart "+st.Name+"` on all nodes divides the ranks anew",
			"cannot start %q: node %q has GPUs for %s now, and its part is %s", st.Name, d.node.Name, pipeline.Counted(len(p.gpus), "rank", "ranks"), *p.part)
	}
	return p, nil
}

// sharedGPUs are those of a counted stage: all its ranks share them, each in its
// own slot.
func (d *Deck) sharedGPUs(ctx context.Context, st *spec.Stage, first, n int) ([][]pipeline.GPURef, error) {
	refs, err := d.heldGPUs(ctx, st)
	if err != nil {
		return nil, err
	}
	out := make([][]pipeline.GPURef, n)
	for i := range out {
		out[i] = slices.Clone(refs)
		for j := range out[i] {
			out[i][j].Slot = first + i
		}
	}
	return out, nil
}

// ownGPUs gives each rank a GPU, or a slot of one.
func (d *Deck) ownGPUs(ctx context.Context, st *spec.Stage) ([][]pipeline.GPURef, error) {
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
