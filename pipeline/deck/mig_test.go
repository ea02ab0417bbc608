package deck

import (
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"pipedeck/pipeline"
)

// A GPU in MIG mode is as many places as it has instances, beside whole GPUs.
func TestEachMIGInstanceIsAPlace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "per_gpu: 1", 2)
		w.sp.Stages[0].IDsDependOnWorld = true
		gb := func(n int64) *int64 { return new(n << 30) }
		w.sensor.more = &pipeline.GPUMore{MIG: []pipeline.MIGInstance{
			{UUID: "MIG-1", MemUsedBytes: gb(0), MemTotalBytes: gb(20)}, {UUID: "MIG-2", MemUsedBytes: gb(0), MemTotalBytes: gb(20)},
		}}
		w.host.onSig = func(l *pipeline.LaunchSeen, _ string, _ pipeline.Scope) { w.host.exit(l, 0) }
		d, end := w.agent(t)
		defer end()
		for range 2 { // the second one finds the record of the first one's world
			a := do(t, d, pipeline.VerbStart, "extract")
			if a.Result != pipeline.Verified {
				t.Fatalf("start: %s, %v", a.Result, *a.Reason)
			}
			var at []string
			for _, id := range w.host.launches()[len(w.host.launches())-3:] {
				for _, g := range w.host.procs[id].GPUs {
					at = append(at, g.UUID)
				}
			}
			if !slices.Equal(at, []string{"MIG-1", "MIG-2", "GPU-1"}) {
				t.Fatalf("workers are at %q", at)
			}
			// What an instance's processes hold is not told, so its memory has to prove the stop.
			if a := do(t, d, pipeline.VerbStop, "extract"); a.Result != pipeline.Verified {
				t.Fatalf("stop: %s, %v", a.Result, *a.Reason)
			}
		}
	})
}

func TestALostGPULeavesTheOthersAtWork(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "per_gpu: 1", 2)
		d, end := w.agent(t)
		defer end()
		if a := do(t, d, pipeline.VerbStart, "extract"); a.Result != pipeline.Verified {
			t.Fatal(*a.Reason)
		}
		w.sensor.mu.Lock()
		w.sensor.lost = map[int]string{0: "the GPU is lost; XID 79"}
		w.sensor.mu.Unlock()
		time.Sleep(time.Minute)
		s, err := d.Snapshot(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		workers := s.Nodes[0].Stages[0].Workers
		if workers[0].State != pipeline.WorkerLost || !strings.Contains(*workers[0].StateReason, "XID 79") {
			t.Errorf("the worker on the lost GPU: %s, %v", workers[0].State, *workers[0].StateReason)
		}
		if workers[1].State != pipeline.WorkerLoading || workers[1].PID == nil || len(w.host.launches()) != 2 {
			t.Errorf("the other one: %s, pid %v; launches %q", workers[1].State, workers[1].PID, w.host.launches())
		}
		if s.Health != pipeline.Failed || !strings.Contains(strings.Join(s.HealthReasons, " "), "GPU 0: lost: the GPU is lost; XID 79") {
			t.Errorf("health %s, %q", s.Health, s.HealthReasons)
		}
	})
}
