package pipeline

import (
	"fmt"
	"slices"

	"pipedeck/pipeline/spec"
)

// Placement is which ranks of a stage one node of several runs: Count of them,
// from First on, of the deck's World.
type Placement struct {
	First int `json:"first"`
	Count int `json:"count"`
	World int `json:"world"`
}

// Has says whether a rank is the node's.
func (p Placement) Has(rank int) bool { return rank >= p.First && rank < p.First+p.Count }

// String names the ranks for the operator.
func (p Placement) String() string {
	switch p.Count {
	case 0:
		return fmt.Sprintf("no rank of %d", p.World)
	case 1:
		return fmt.Sprintf("rank %d of %d", p.First, p.World)
	}
	return fmt.Sprintf("ranks %d to %d of %d", p.First, p.First+p.Count-1, p.World)
}

// share is the node's part of n samples, as a script cuts them by rank. The
// shares of all nodes sum to n.
func (p Placement) share(n int64) int64 {
	cut := func(rank int) int64 {
		w := int64(p.World)
		return n/w*int64(rank) + n%w*int64(rank)/w
	}
	return cut(p.First+p.Count) - cut(p.First)
}

// Place divides a stage's ranks over the nodes of the spec: contiguous, in the
// spec's order. GPU ranks go where the GPUs are, those of `count` evenly, the
// first nodes taking one more. slots is how many GPUs each node has for the
// deck, nil: not known; it counts only for a node whose GPUs the spec does not
// list. unknown are the nodes without which the ranks cannot be told.
func Place(st *spec.Stage, nodes []spec.Node, slots []*int) (placed []Placement, unknown []string) {
	counts := make([]int, len(nodes))
	world := 0
	for i, n := range nodes {
		switch {
		case st.Workers.PerGPU == 0:
			counts[i] = (st.Workers.Count + len(nodes) - 1 - i) / len(nodes)
		case !n.GPUs.All:
			counts[i] = (len(n.GPUs.Indexes) + len(n.GPUs.UUIDs)) * st.Workers.PerGPU
		case i >= len(slots) || slots[i] == nil:
			unknown = append(unknown, n.Name)
		default:
			counts[i] = *slots[i] * st.Workers.PerGPU
		}
		world += counts[i]
	}
	if len(unknown) > 0 {
		return nil, unknown
	}
	first := 0
	for _, n := range counts {
		placed = append(placed, Placement{First: first, Count: n, World: world})
		first += n
	}
	return placed, nil
}

// NeedsSlots says whether a node must be asked how many GPUs it has before the
// ranks of a stage can be told.
func NeedsSlots(st *spec.Stage, n spec.Node) bool { return st.Workers.PerGPU > 0 && n.GPUs.All }

// GPUSlots is how many GPUs a node has for the deck, nil while that is not
// known: MIG instances count each, a lost GPU does not.
func GPUSlots(n NodeSnapshot, set spec.GPUSet) *int {
	if n.GPUSource.AgeSeconds == nil || n.GPUSource.Kind == sourceNone || len(n.GPUs) == 0 {
		return nil
	}
	return new(usableSlots(n.GPUs, set))
}

func usableSlots(gpus []GPUSnapshot, set spec.GPUSet) int {
	n := 0
	for _, g := range gpus {
		if g.State == GPUOK && (set.All || slices.Contains(set.Indexes, g.Index) || slices.Contains(set.UUIDs, g.UUID)) {
			n += len(g.Slots())
		}
	}
	return n
}

// Ranks are those that this node runs, from first up to end.
func (w StageWant) Ranks() (first, end int) {
	if w.Place == nil {
		return 0, max(0, min(w.World, maxRanks))
	}
	first = max(0, min(w.Place.First, maxRanks))
	return first, max(first, min(w.Place.First+w.Place.Count, maxRanks))
}

// placed is where the target's ranks are: as the intent says, else as the last
// start had it. Nil in a deck of one node, or while nobody told.
func (d *decision) placed(t target) *Placement {
	switch {
	case len(d.sp.Nodes) < 2:
		return nil
	case d.in.Place != nil:
		return d.in.Place
	}
	return t.seen.Placement
}

// placeable blocks a start whose ranks are not known or would overlap with
// those that live. all: nothing of the stage goes on as it is.
func (d *decision) placeable(t target, all bool) {
	if len(d.sp.Nodes) < 2 {
		return
	}
	p, kept := d.placed(t), t.seen.Placement
	switch {
	case p == nil:
		d.block("which ranks of %q are this node's is not known: all nodes must be asked how many GPUs they have", t.st.Name)
	case p.World < 1 || p.First < 0 || p.Count < 0 || p.First+p.Count > p.World:
		d.block("%s is no placement", *p)
	case !all && kept != nil && *kept != *p && slices.ContainsFunc(t.seen.Workers, func(w WorkerSnapshot) bool { return w.PID != nil }):
		d.block("stage %q runs here as %s and would be %s: its shards would overlap; `pipedeck restart %s` on all nodes", t.st.Name, *kept, *p, t.st.Name)
	case t.rank >= 0 && !p.Has(t.rank):
		d.block("rank %d is not this node's, which has %s", t.rank, *p)
	}
}

// noRanks says whether the node has no part in a stage.
func (d *decision) noRanks(t target) bool {
	p := d.placed(t)
	if p == nil || p.Count > 0 {
		return false
	}
	d.note(fmt.Sprintf("stage %q has %s on this node", t.st.Name, *p))
	return true
}
