package pipeline

import (
	"strings"
	"testing"
)

func TestWithLink(t *testing.T) {
	t.Parallel()
	s := snapshotOf(runningWorld)
	for state, health := range map[LinkState]Health{
		LinkLive: Healthy, LinkSlow: Healthy, LinkStale: Stale, LinkLost: Stale, LinkAuth: Stale, LinkVersion: Stale, LinkConnecting: Stale,
	} {
		got := WithLink(s, "local", Link{State: state, AgeSeconds: new(34.0), Reason: new("refused")})
		if got.Health != health || got.Nodes[0].Link.State != state {
			t.Errorf("%s: health %s", state, got.Health)
		}
		st := got.Nodes[0].Stages[0]
		if (st.SamplesPerSecond == nil) != (health == Stale) || (health == Stale && *st.ETAReason != "stale") {
			t.Errorf("%s: rate %v", state, st.SamplesPerSecond)
		}
		if *st.Done != 100 {
			t.Errorf("%s: counts stay, done %v", state, *st.Done)
		}
		if health == Stale && (got.ExitCode() != 3 || !strings.Contains(got.HealthReasons[0], "last data 34 s ago: refused")) {
			t.Errorf("%s: exit %d, %v", state, got.ExitCode(), got.HealthReasons)
		}
	}
	if s.Health != Healthy || s.Nodes[0].Stages[0].SamplesPerSecond == nil {
		t.Fatal("the snapshot that was given has changed")
	}
}

func TestExitCode(t *testing.T) {
	t.Parallel()
	for health, code := range map[Health]int{Healthy: 0, Degraded: 1, Failed: 2, Stale: 3, "": 3} {
		if got := (Snapshot{Health: health}).ExitCode(); got != code {
			t.Errorf("%q: %d, want %d", health, got, code)
		}
	}
}

func TestHealth(t *testing.T) {
	t.Parallel()
	node := func(change func(*NodeSnapshot)) NodeSnapshot {
		n := NodeSnapshot{
			GPUSource: GPUSourceInfo{Kind: "nvml", AgeSeconds: new(1.0)}, GPUs: []GPUSnapshot{{UUID: "GPU-a", State: GPUOK}},
			Stages: []StageSnapshot{{
				Name: "extract", State: StageRunning, Workers: []WorkerSnapshot{{ID: "extract/0", State: WorkerRunning, GPUUUID: new("GPU-a")}},
				Outputs: []OutputSnapshot{{Name: "hidden", State: OutputRunning}},
			}},
			Disks: []DiskSnapshot{{Path: "/w", FreeBytes: new(int64(5e11)), TotalBytes: new(int64(1e12))}},
		}
		change(&n)
		return n
	}
	worker := func(s WorkerState) NodeSnapshot {
		return node(func(n *NodeSnapshot) { n.Stages[0].Workers[0].State = s })
	}
	for _, tc := range []struct {
		name   string
		n      NodeSnapshot
		want   Health
		reason string
	}{
		{"all well", node(func(*NodeSnapshot) {}), Healthy, ""},
		{"loading", worker(WorkerLoading), Healthy, ""},
		{"idle worker", worker(WorkerIdle), Healthy, ""},
		{"stalled", worker(WorkerStalled), Degraded, "worker extract/0: stalled"},
		{"exited", worker(WorkerExited), Degraded, "worker extract/0: exited"},
		{"oom", worker(WorkerOOM), Degraded, "worker extract/0: oom"},
		{"restarting", node(func(n *NodeSnapshot) { n.Stages[0].Workers[0].State, n.Stages[0].Workers[0].Restarts = WorkerInit, 1 }), Degraded, "restarting"},
		{"stage failed", node(func(n *NodeSnapshot) { n.Stages[0].State = StageFailed }), Failed, "stage extract"},
		{"stopped with a failed worker", node(func(n *NodeSnapshot) { n.Stages[0].State, n.Stages[0].Workers[0].State = StageStopped, WorkerFailed }), Healthy, ""},
		{"done", node(func(n *NodeSnapshot) { n.Stages[0].State = StageDone }), Healthy, ""},
		{"files failed", node(func(n *NodeSnapshot) { n.Stages[0].Outputs[0].FailedFiles = new(int64(3)) }), Degraded, "3 files failed"},
		{"mismatched", node(func(n *NodeSnapshot) { n.Stages[0].Outputs[0].Coverage = &CoverageCounts{Mismatched: 2} }), Degraded, "2 files differ"},
		{"blocked", node(func(n *NodeSnapshot) { n.Stages[0].Outputs[0].State = OutputBlocked }), Degraded, "uploads blocked"},
		{"artifacts blocked", node(func(n *NodeSnapshot) { n.Artifacts = &OutputSnapshot{Name: "artifacts", State: OutputBlocked} }), Degraded, "output artifacts"},
		{"GPU of a stage lost", node(func(n *NodeSnapshot) { n.GPUs[0].State = GPULost }), Failed, "GPU 0: lost"},
		{"spare GPU lost", node(func(n *NodeSnapshot) { n.GPUs[0].UUID, n.GPUs[0].State = "GPU-z", GPULost }), Degraded, "GPU 0: lost"},
		{"no GPU readings", node(func(n *NodeSnapshot) { n.GPUSource.Kind = "none" }), Degraded, "no GPU readings"},
		{"no GPU readings, none needed", node(func(n *NodeSnapshot) { n.GPUSource.Kind, n.Stages[0].State = "none", StageIdle }), Healthy, ""},
		{"disk full soon", node(func(n *NodeSnapshot) { n.Disks[0].FullInSeconds = new(600.0) }), Degraded, "full in 10 min"},
		{"disk full later", node(func(n *NodeSnapshot) { n.Disks[0].FullInSeconds = new(7200.0) }), Healthy, ""},
		{"disk nearly full", node(func(n *NodeSnapshot) { n.Disks[0].FreeBytes = new(int64(1e10)) }), Degraded, "nearly full"},
		{"failed comes first", node(func(n *NodeSnapshot) {
			n.Stages[0].Outputs[0].State, n.GPUs[0].State = OutputBlocked, GPULost
		}), Failed, "GPU 0"},
	} {
		got, reasons := judgeHealth(tc.n)
		if got != tc.want || (tc.reason != "" && (len(reasons) == 0 || !strings.Contains(reasons[0], tc.reason))) {
			t.Errorf("%s: %s %v", tc.name, got, reasons)
		}
	}
}
