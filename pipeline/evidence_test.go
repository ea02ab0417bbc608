package pipeline

import (
	"strings"
	"testing"
)

// still drives a worker that made outputs for 100 s and none since, whose GPU
// and CPU then look as given.
func still(util, power, cores float64, change func(*GPUSnapshot)) *bench {
	b := newBench()
	b.start(0, 1)
	cpu := 0.0
	for s := 1.0; s <= 180; s++ {
		g := GPUSnapshot{Index: 0, UUID: "GPU-a", State: GPUOK, MemUsedBytes: new(int64(50e9)), UtilPercent: new(90.0), PowerWatts: new(400.0)}
		if s > 100 {
			g.UtilPercent, g.PowerWatts = &util, &power
			cpu += cores
			change(&g)
		} else {
			cpu += 0.5
		}
		b.w.Fold(GPUReading{At: at(s), Kind: "nvml", GPUs: []GPUSnapshot{g}})
		b.change(s, 0, func(l *LaunchSeen) { l.CPUSeconds, l.ReadBytes = cpu, 0 })
		b.progress(s, 0, int64(min(s, 100)))
	}
	return b
}

func TestHowAWorkerStandsStill(t *testing.T) {
	t.Parallel()
	own := func(percent float64) func(*GPUSnapshot) {
		return func(g *GPUSnapshot) { g.Processes = []GPUProcess{{PID: 100, UtilPercent: &percent}, {PID: 999}} }
	}
	asIs := func(*GPUSnapshot) {}
	for _, tc := range []struct {
		name               string
		util, power, cores float64
		change             func(*GPUSnapshot)
		kind               EvidenceKind
		text               string
	}{
		{"a loop at full power", 100, 390, 1, asIs, EvidenceSpinningGPU, "spins on the GPU (a loop"},
		{"waiting for another rank", 100, 120, 1, asIs, EvidenceSpinningGPU, "busy at little power"},
		{"a loop in Python", 0, 118, 1, asIs, EvidenceSpinningCPU, "spins on the CPU"},
		{"a lock", 0, 118, 0, asIs, EvidenceWaiting, "GPU memory 50.0 GB, util 0 %, 118 W, usually 395 W, 0.0 CPU cores: it waits"},
		{"a stranger's load on its GPU", 100, 390, 0, own(0), EvidenceWaiting, "it waits"},
		{"its own load beside a stranger", 30, 390, 0, own(100), EvidenceSpinningGPU, "spins on the GPU"},
		{"something in between", 40, 200, 0.4, asIs, EvidenceUnclear, "util 40 %"},
		{"a GPU that tells nothing", 0, 0, 0.5, func(g *GPUSnapshot) { g.UtilPercent, g.PowerWatts = nil, nil }, EvidenceUnclear, "0.5 CPU cores"},
	} {
		b := still(tc.util, tc.power, tc.cores, tc.change)
		e := b.w.Evidence("extract", 0, at(180))
		if e == nil || e.Kind != tc.kind || !strings.Contains(e.Text, tc.text) {
			t.Errorf("%s: %+v", tc.name, e)
			continue
		}
		if *e.OutputStillSeconds != 80 {
			t.Errorf("%s: output still for %v s", tc.name, *e.OutputStillSeconds)
		}
		wantWorker(t, b.worker(180, 0), WorkerStalled, tc.text)
	}
}

func TestEvidenceOfOthers(t *testing.T) {
	t.Parallel()
	b := newBench()
	b.start(0, 1)
	if b.w.Evidence("extract", 3, at(1)) != nil || b.w.Evidence("nothing", 0, at(1)) != nil {
		t.Error("evidence of nobody")
	}
	if e := b.w.Evidence("extract", 0, at(1)); e == nil || e.Kind != EvidenceLoading || e.CPUCores != nil || e.UtilPercent != nil {
		t.Errorf("evidence at the start: %+v", e)
	}
	b.run(1, 30, 1, func(t float64, _ int) int64 { return int64(t) })
	if e := b.w.Evidence("extract", 0, at(30)); e.Kind != EvidenceWorking {
		t.Errorf("evidence of work: %+v", e)
	}
	b.change(31, 0, func(l *LaunchSeen) { l.State, l.Exit = ProcExited, &Exit{Code: new(1)} })
	if b.w.Evidence("extract", 0, at(31)) != nil {
		t.Error("evidence of a process that has ended")
	}
}

// A GPU reading that is old says nothing of what the worker does now.
func TestOldReadingsAreNoEvidence(t *testing.T) {
	t.Parallel()
	b := newBench()
	b.start(0, 1)
	b.w.Fold(GPUReading{At: at(0), Kind: "nvml", GPUs: []GPUSnapshot{{Index: 0, UUID: "GPU-a", State: GPUOK, UtilPercent: new(100.0)}}})
	b.run(1, 60, 1, func(float64, int) int64 { return 1 })
	if e := b.w.Evidence("extract", 0, at(60)); e.UtilPercent != nil {
		t.Errorf("evidence = %+v", e)
	}
}
