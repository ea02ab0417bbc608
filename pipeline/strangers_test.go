package pipeline

import (
	"slices"
	"testing"
)

func TestJoinGPUs(t *testing.T) {
	t.Parallel()
	mem := func(n int64) *int64 { return &n }
	two := []GPUSnapshot{
		{UUID: "GPU-a", Processes: []GPUProcess{{PID: 7, MemBytes: mem(100)}, {PID: 8, MemBytes: mem(50)}}},
		{UUID: "GPU-b", Processes: []GPUProcess{{PID: 8, MemBytes: mem(5)}, {PID: 9, MemBytes: mem(1), Worker: new("w/0")}}},
	}
	for name, c := range map[string]struct {
		who  Stranger
		gpus []GPUSnapshot
		mem  int64
		on   []string
	}{
		"one":                  {Stranger{PID: 7, GPUMem: -1}, two, 100, []string{"GPU-a"}},
		"by its children":      {Stranger{PID: 3, Set: []int{3, 7, 8}, GPUMem: -1}, two, 155, []string{"GPU-a", "GPU-b"}},
		"not listed":           {Stranger{PID: 3, GPUMem: -1}, two, -1, nil},
		"no GPU is read":       {Stranger{PID: 7, GPUMem: -1}, nil, -1, nil},
		"nobody is listed":     {Stranger{PID: 7, GPUMem: -1}, []GPUSnapshot{{UUID: "GPU-a"}}, -1, nil},
		"no device is open":    {Stranger{PID: 3, GPUMem: 0}, []GPUSnapshot{{UUID: "GPU-a"}}, 0, nil},
		"amount not told":      {Stranger{PID: 7, GPUMem: -1}, []GPUSnapshot{{UUID: "GPU-a", Processes: []GPUProcess{{PID: 7}}}}, -1, []string{"GPU-a"}},
		"numbers of elsewhere": {Stranger{PID: 7, GPUMem: -1}, []GPUSnapshot{{UUID: "GPU-a", Processes: []GPUProcess{{PID: 7, MemBytes: mem(1), Foreign: true}}}}, -1, nil},
		"known by its device":  {Stranger{PID: 3, GPUMem: -1, GPUs: []string{"GPU-b"}}, []GPUSnapshot{{UUID: "GPU-b"}}, -1, []string{"GPU-b"}},
	} {
		got := JoinGPUs([]Stranger{c.who}, c.gpus)[0]
		if got.GPUMem != c.mem || !slices.Equal(got.GPUs, c.on) {
			t.Errorf("%s: %d bytes on %q, want %d on %q", name, got.GPUMem, got.GPUs, c.mem, c.on)
		}
	}
	used := func(g GPUSnapshot, n int64) GPUSnapshot { g.MemUsedBytes = &n; return g }
	gpus := []GPUSnapshot{used(two[0], 170), used(two[1], 4), {UUID: "GPU-c", MemUsedBytes: mem(9)}}
	if got := BaselinesWithout([]Stranger{{PID: 3, Set: []int{3, 8}}, {PID: 7}}, gpus); len(got) != 2 || got["GPU-a"] != 20 || got["GPU-b"] != 0 {
		t.Errorf("baselines are %v", got)
	}
	gpus[0].Processes[1].MemBytes = nil
	if got := BaselinesWithout([]Stranger{{PID: 3, Set: []int{3, 8}}, {PID: 7}}, gpus); len(got) != 1 {
		t.Errorf("baselines are %v", got)
	}
	if got := GPUHolders(two); !slices.Equal(got, []int{7, 8}) {
		t.Errorf("holders are %v", got)
	}
}
