package pipeline

import (
	"testing"
)

func TestOutOfMemory(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name  string
		used  int64
		exit  Exit
		state WorkerState
	}{
		{"kernel says so", 1, Exit{Code: new(137), Signal: "SIGKILL", OOM: true}, WorkerOOM},
		{"killed with memory full", 99, Exit{Code: new(137), Signal: "SIGKILL"}, WorkerOOM},
		{"killed with memory free", 10, Exit{Code: new(137), Signal: "SIGKILL"}, WorkerExited},
		{"crash with memory full", 99, Exit{Code: new(1)}, WorkerExited},
	} {
		b := newBench()
		b.w.Fold(MachineReading{At: at(0), MemUsedBytes: new(tc.used), MemTotalBytes: new(int64(100))})
		b.start(0, 1)
		b.change(5, 0, func(l *LaunchSeen) { l.State = ProcExited; l.Exit = &tc.exit })
		if got := b.worker(5, 0).State; got != tc.state {
			t.Errorf("%s: %s, want %s", tc.name, got, tc.state)
		}
	}
}

func TestGPUEvents(t *testing.T) {
	t.Parallel()
	b := newBench()
	b.start(0, 1)
	g := GPUSnapshot{Index: 0, UUID: "GPU-a", State: GPUOK, MemUsedBytes: new(int64(7)), Processes: []GPUProcess{{PID: 100, MemBytes: new(int64(5))}, {PID: 9}}}
	b.w.Fold(GPUReading{At: at(1), Kind: "nvml", GPUs: []GPUSnapshot{g}})
	s := b.w.Snapshot(at(1)).Nodes[0]
	if *s.GPUs[0].Processes[0].Worker != "extract/0" || s.GPUs[0].Processes[1].Worker != nil || *s.Stages[0].Workers[0].GPUMemBytes != 5 {
		t.Fatalf("%+v", s.GPUs[0])
	}
	g.State, g.StateReason, g.Processes = GPULost, new("XID 79"), nil
	b.w.Fold(GPUReading{At: at(2), Kind: "nvml", GPUs: []GPUSnapshot{g}})
	b.look(2)
	wantEvent(t, b, "gpu: GPU 0 is lost: XID 79")
	wantWorker(t, b.worker(2, 0), WorkerLost, "XID 79")
	if h := b.w.Snapshot(at(2)); h.Health != Failed {
		t.Fatalf("health %s", h.Health)
	}
	b.w.Fold(GPUReading{At: at(3), Kind: "none", Reason: "nvidia-smi is gone"})
	wantEvent(t, b, "GPU readings are gone: nvidia-smi is gone")
	s = b.w.Snapshot(at(3)).Nodes[0]
	if len(s.GPUs) != 1 || s.GPUs[0].State != GPUUnknown || s.GPUs[0].MemUsedBytes != nil {
		t.Fatalf("%+v", s.GPUs)
	}
}

// An error event is told once, also while the GPU works on.
func TestXIDEvents(t *testing.T) {
	t.Parallel()
	b := newBench()
	g := GPUSnapshot{Index: 1, UUID: "GPU-b", State: GPUOK, More: &GPUMore{XIDs: []GPUXID{}}}
	fold := func(t float64, xids ...GPUXID) {
		g.More = &GPUMore{XIDs: xids}
		b.w.Fold(GPUReading{At: at(t), Kind: "nvml", GPUs: []GPUSnapshot{g}})
	}
	fold(1)
	first, second := GPUXID{At: at(2), Code: 31}, GPUXID{At: at(3), Code: 79}
	fold(2, first)
	fold(3, first)
	fold(4, second, first)
	fold(5, second, first)
	wantEvent(t, b, "GPU 1: error event XID 31 of the driver")
	wantEvent(t, b, "GPU 1: error event XID 79 of the driver")
	if got := b.texts(); len(got) != 2 {
		t.Errorf("told %q", got)
	}
}

func TestDiskEvents(t *testing.T) {
	t.Parallel()
	b := newBench()
	const tb = int64(1e12)
	fold := func(t float64, free int64) {
		b.w.Fold(DisksReading{At: at(t), Disks: []DiskReading{{At: at(t), Path: "/w", FreeBytes: new(free), UsedBytes: new(tb - free), TotalBytes: new(tb)}}})
	}
	for i := 0.0; i <= 300; i += 5 {
		fold(i, tb/2-int64(i*1e8))
	}
	d := b.w.Snapshot(at(300)).Nodes[0].Disks[0]
	if d.FullInSeconds == nil || *d.FullInSeconds < 4600 || *d.FullInSeconds > 4800 {
		t.Fatalf("full in %v %v", d.FullInSeconds, d.FullReason)
	}
	fold(305, tb/100)
	wantEvent(t, b, "disk: /w is nearly full: 10.0 GB free")
	if s := b.w.Snapshot(at(305)); s.Health != Degraded {
		t.Fatalf("health %s", s.Health)
	}
}

func TestActionIsShownWhileItRuns(t *testing.T) {
	t.Parallel()
	b := newBench()
	b.w.Fold(ActionReading{At: at(0), Action: &Action{ID: "a-1", Steps: []StepResult{{N: 1}}}})
	if a := b.w.Snapshot(at(0)).Nodes[0].Action; a == nil || a.Steps[0].Checks == nil {
		t.Fatalf("%+v", a)
	}
	b.w.Fold(ActionReading{At: at(1), Action: &Action{ID: "a-1", EndedAt: new(at(1))}})
	if a := b.w.Snapshot(at(1)).Nodes[0].Action; a != nil {
		t.Fatalf("%+v", a)
	}
}
