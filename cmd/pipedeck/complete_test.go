package main

import (
	"slices"
	"testing"

	"pipedeck/pipeline/spec"
)

// Each command is offered what it takes, and ranks as far as the spec tells them.
func TestTargetsOffered(t *testing.T) {
	t.Parallel()
	st := spec.Stage{Name: "s", Outputs: []spec.Output{{Name: "o"}}}
	st.Workers.PerGPU = 2
	sp := &spec.Spec{Nodes: []spec.Node{{GPUs: spec.GPUSet{Indexes: []int{0, 3}}}, {GPUs: spec.GPUSet{UUIDs: []string{"GPU-1"}}}}, Stages: []spec.Stage{st}}
	workers := workersOf(t.Context(), specFile{Spec: sp, node: spec.Node{SSH: "train1"}})
	if want := []string{"s/0", "s/1", "s/2", "s/3", "s/4", "s/5"}; !slices.Equal(workers, want) {
		t.Errorf("workers %q", workers)
	}
	for _, tc := range []struct {
		x    act
		want []string
	}{
		{act{target: "STAGE"}, []string{"s", "w"}},
		{act{target: "STAGE|WORKER"}, []string{"s", "w"}},
		{act{target: "OUTPUT", outputs: true}, []string{"s/o", "w"}},
		{act{target: "WORKER"}, []string{"w"}},
	} {
		if got := targets(sp, tc.x, []string{"w"}); !slices.Equal(got, tc.want) {
			t.Errorf("%+v: %q", tc.x, got)
		}
	}
	sp.Nodes[0].GPUs = spec.GPUSet{All: true}
	if n := ranksTold(sp, st); n != 0 {
		t.Errorf("%d ranks told though only the node knows its GPUs", n)
	}
}
