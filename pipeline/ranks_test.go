package pipeline

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"pipedeck/pipeline/spec"
)

// drawNodes makes a spec's nodes and what each would answer about its GPUs.
func drawNodes(t *rapid.T) (nodes []spec.Node, slots []*int) {
	for i := range rapid.IntRange(1, 6).Draw(t, "nodes") {
		n := spec.Node{Name: fmt.Sprintf("n%d", i), GPUs: spec.GPUSet{All: true}}
		if rapid.Bool().Draw(t, "listed") {
			n.GPUs = spec.GPUSet{Indexes: make([]int, rapid.IntRange(1, 8).Draw(t, "list"))}
		}
		var s *int
		if rapid.IntRange(0, 9).Draw(t, "asked") > 0 {
			s = new(rapid.IntRange(0, 8).Draw(t, "slots"))
		}
		nodes, slots = append(nodes, n), append(slots, s)
	}
	return nodes, slots
}

func TestPlacedRanksAreDisjointCompleteAndStable(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		nodes, slots := drawNodes(t)
		st := &spec.Stage{Workers: spec.Workers{Count: rapid.IntRange(0, 40).Draw(t, "count")}}
		if st.Workers.Count == 0 {
			st.Workers.PerGPU = rapid.IntRange(1, 3).Draw(t, "per_gpu")
		}
		placed, unknown := Place(st, nodes, slots)
		var want []string
		for i, n := range nodes {
			if NeedsSlots(st, n) && slots[i] == nil {
				want = append(want, n.Name)
			}
		}
		if !slices.Equal(unknown, want) {
			t.Fatalf("unknown %q, want %q", unknown, want)
		}
		if len(unknown) > 0 {
			if placed != nil {
				t.Fatalf("%v, though %q are not known", placed, unknown)
			}
			return
		}
		next, samples, total := 0, int64(0), rapid.Int64Range(0, 1<<50).Draw(t, "total")
		for i, p := range placed {
			if p.First != next || p.World != placed[0].World {
				t.Fatalf("node %d has %+v, want from %d on: %v", i, p, next, placed)
			}
			next += p.Count
			if p.World > 0 {
				samples += p.share(total)
			}
			if st.Workers.PerGPU == 0 && (p.Count > placed[0].Count || p.Count < placed[0].Count-1) {
				t.Fatalf("%d ranks are not even: %v", st.Workers.Count, placed)
			}
		}
		if next != placed[0].World || st.Workers.PerGPU == 0 && next != st.Workers.Count {
			t.Fatalf("%d ranks of %d: %v", next, placed[0].World, placed)
		}
		if placed[0].World > 0 && samples != total {
			t.Fatalf("the shares sum to %d of %d: %v", samples, total, placed)
		}
		// What a listed or counted node would answer changes nothing.
		for i := range slots {
			if !NeedsSlots(st, nodes[i]) {
				slots[i] = nil
			}
		}
		if again, _ := Place(st, nodes, slots); !slices.Equal(again, placed) {
			t.Fatalf("%v, before %v", again, placed)
		}
	})
}

func TestGPUSlotsCountsWhatIsKnownToWork(t *testing.T) {
	t.Parallel()
	all := spec.GPUSet{All: true}
	n := NodeSnapshot{GPUSource: GPUSourceInfo{Kind: "nvml"}, GPUs: []GPUSnapshot{{UUID: "a", State: GPUOK}, {Index: 1, UUID: "b", State: GPULost}, {Index: 2, UUID: "c", State: GPUOK}}}
	if got := GPUSlots(n, all); got != nil {
		t.Errorf("before the first reading: %d", *got)
	}
	n.GPUSource.AgeSeconds = new(0.0)
	if got := GPUSlots(n, all); got == nil || *got != 2 {
		t.Errorf("%v", got)
	}
	if got := GPUSlots(n, spec.GPUSet{UUIDs: []string{"a"}}); got == nil || *got != 1 {
		t.Errorf("%v", got)
	}
	n.GPUs, n.GPUSource.Kind = nil, sourceNone
	if got := GPUSlots(n, all); got != nil {
		t.Errorf("without a source: %d", *got)
	}
}

// placing is a deck of two nodes whose stage extract is as seen on the second.
func placing(kept *Placement, alive bool) (*spec.Spec, Snapshot) {
	sp := extractSpec()
	sp.Nodes = []spec.Node{{Name: "a", GPUs: spec.GPUSet{All: true}}, {Name: "b", SSH: "b", GPUs: spec.GPUSet{All: true}}}
	st := StageSnapshot{Name: "extract", State: StageIdle, Placement: kept, Workers: []WorkerSnapshot{}}
	if alive {
		st.State = StageRunning
		st.Workers = []WorkerSnapshot{{ID: "extract/2", Rank: 2, PID: new(7), State: WorkerRunning}}
	}
	return sp, Snapshot{Nodes: []NodeSnapshot{{Name: "b", Stages: []StageSnapshot{st}}}}
}

func TestDecideStartsOnlyRanksThatAreTheNodes(t *testing.T) {
	t.Parallel()
	part, other := &Placement{First: 2, Count: 2, World: 4}, &Placement{First: 3, Count: 2, World: 5}
	for name, tc := range map[string]struct {
		in    Intent
		kept  *Placement
		alive bool
		want  string // "" executable, else in what blocks it, or the error
	}{
		"told":                {in: Intent{Verb: VerbStart, Target: "extract", Place: part}},
		"kept":                {in: Intent{Verb: VerbStart, Target: "extract"}, kept: part},
		"neither":             {in: Intent{Verb: VerbStart, Target: "extract"}, want: "is not known"},
		"other while alive":   {in: Intent{Verb: VerbStart, Target: "extract/3", Place: other}, kept: part, alive: true, want: "shards would overlap"},
		"other, all restart":  {in: Intent{Verb: VerbRestart, Target: "extract", Place: other}, kept: part, alive: true},
		"other, one restarts": {in: Intent{Verb: VerbRestart, Target: "extract/2", Place: &Placement{First: 2, Count: 3, World: 5}}, kept: part, alive: true, want: "shards would overlap"},
		"other, nothing":      {in: Intent{Verb: VerbStart, Target: "extract", Place: other}, kept: part},
		"not its rank":        {in: Intent{Verb: VerbStart, Target: "extract/0", Place: part}, want: "no workers yet"},
		"its rank":            {in: Intent{Verb: VerbStart, Target: "extract/3", Place: part}},
		"nonsense":            {in: Intent{Verb: VerbStart, Target: "extract", Place: &Placement{First: 3, Count: 2, World: 4}}, want: "is no placement"},
		"no rank":             {in: Intent{Verb: VerbStart, Target: "extract", Place: &Placement{World: 4}}},
	} {
		sp, snap := placing(tc.kept, tc.alive)
		p, err := Decide(sp, snap, Facts{}, tc.in, dawn, "p-1")
		said := strings.Join(p.Blocked, " ")
		if err != nil {
			said = err.Error()
		}
		if tc.want == "" && !p.Executable || !strings.Contains(said, tc.want) {
			t.Errorf("%s: executable %t, %q", name, p.Executable, said)
		}
		if name == "no rank" && len(p.Steps) > 0 {
			t.Errorf("%s: %v", name, p.Steps)
		}
	}
}

func TestDecideComparesTheWorldOfAllNodesWithTheRecord(t *testing.T) {
	t.Parallel()
	sp, snap := placing(nil, false)
	sp.Stages[0].IDsDependOnWorld = true
	rec := StageRecord{Deck: "deck", World: 4}
	in := Intent{Verb: VerbStart, Target: "extract", Place: &Placement{First: 2, Count: 2, World: 4}}
	p, err := Decide(sp, snap, Facts{Made: &MadeFacts{Recorded: &rec}}, in, dawn, "p-1")
	if err != nil || !p.Executable {
		t.Errorf("%v %q", err, p.Blocked)
	}
	rec.World = 2
	if p, err = Decide(sp, snap, Facts{Made: &MadeFacts{Recorded: &rec}}, in, dawn, "p-1"); err != nil || p.Executable {
		t.Errorf("a world of 2 became 4: %v %q", err, p.Blocked)
	}
}

// A node with a part of the ranks counts its part of the samples, also where it
// learnt from the bucket what others stored.
func TestAPartOfTheRanksHasItsPartOfTheSamples(t *testing.T) {
	t.Parallel()
	b := newBench()
	b.wants["extract"] = StageWant{
		Want: WantRunning, World: 4, Place: &Placement{First: 2, Count: 2, World: 4}, Since: dawn,
		Workers: map[int]WorkerWant{2: {Launch: "extract-2-1"}, 3: {Launch: "extract-3-1"}},
	}
	b.w.Fold(WantsReading{At: dawn, Stages: b.wants})
	for rank := 2; rank < 4; rank++ {
		b.w.Fold(ProgressReading{At: dawn, Stage: "extract", Rank: rank, Done: new(int64(100)), Skipped: new(int64(0))})
	}
	mover := func(ids int64) StageSnapshot {
		b.w.Fold(MoverReading{At: dawn, Outputs: []OutputReading{{Stage: "extract", Name: "hidden", DoneIDs: new(ids)}}})
		return b.w.Snapshot(dawn.Add(time.Second)).Nodes[0].Stages[0]
	}
	s := mover(210)
	if *s.Total != 500 || *s.Done != 210 || len(s.Workers) != 2 || s.Workers[0].ID != "extract/2" || s.Placement == nil || s.Placement.First != 2 {
		t.Errorf("%d of %d, %d workers, %+v", *s.Done, *s.Total, len(s.Workers), s.Placement)
	}
	if s := mover(700); *s.Done != 200 {
		t.Errorf("%d of %d with the ids of other nodes", *s.Done, *s.Total)
	}
}
