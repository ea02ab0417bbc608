package pipeline

import (
	"bytes"
	"encoding/json"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"pgregory.net/rapid"
)

// Any readings in any order, however odd, make a Snapshot that keeps the
// contract.
func TestFoldIsTotal(t *testing.T) {
	t.Parallel()
	sch := compileSchema(t, SnapshotSchema)
	rapid.Check(t, func(t *rapid.T) {
		w := NewWorld(extractSpec(), "local", AgentInfo{})
		clock := dawn
		for range rapid.IntRange(0, 60).Draw(t, "steps") {
			clock = clock.Add(time.Duration(rapid.SampledFrom([]float64{0.3, 0.5, 1, 1, 2, 7, 70, 4000, -1, -4000}).Draw(t, "dt") * float64(time.Second)))
			r := drawReading(t, clock)
			w.Fold(r)
			if rapid.IntRange(0, 9).Draw(t, "twice") == 0 {
				w.Fold(r)
			}
		}
		now := clock.Add(time.Duration(rapid.IntRange(-10, 30).Draw(t, "late")) * time.Second)
		checkSnapshot(t, sch, w, now)
	})
}

func checkSnapshot(t *rapid.T, sch *jsonschema.Schema, w *World, now time.Time) {
	s := w.Snapshot(now)
	raw, err := json.Marshal(s)
	if err != nil {
		t.Fatal(err)
	}
	again, _ := json.Marshal(w.Snapshot(now))
	if !bytes.Equal(raw, again) {
		t.Fatal("two snapshots of one moment differ")
	}
	stale, err := json.Marshal(WithLink(s, "local", Link{State: LinkStale, AgeSeconds: new(7.0)}))
	if err != nil {
		t.Fatal(err)
	}
	kept, _ := json.Marshal(s)
	if !bytes.Equal(raw, kept) {
		t.Fatal("WithLink changed the snapshot it was given")
	}
	for _, doc := range [][]byte{raw, stale} {
		if bad := complain(sch, doc); bad != "" {
			t.Fatalf("%s\n%s", bad, doc)
		}
		var v any
		if err := json.Unmarshal(doc, &v); err != nil {
			t.Fatal(err)
		}
		if bad := unexplained("", v); len(bad) > 0 {
			t.Fatalf("no reason for %v in\n%s", bad, doc)
		}
	}
	if len(s.Nodes[0].Events) > shownEvents || len(w.EventsAfter(0)) > maxEvents {
		t.Fatal("too many events")
	}
	for _, st := range s.Nodes[0].Stages {
		if st.ETASeconds != nil && (*st.ETASeconds < 0 || math.IsNaN(*st.ETASeconds) || math.IsInf(*st.ETASeconds, 0)) {
			t.Fatalf("eta %v", *st.ETASeconds)
		}
		if (st.ETASeconds == nil) == (st.ETAReason == nil) {
			t.Fatalf("eta %v with reason %v", st.ETASeconds, st.ETAReason)
		}
	}
	if (s.Health == Healthy) != (len(s.HealthReasons) == 0) {
		t.Fatalf("health %s with %v", s.Health, s.HealthReasons)
	}
}

func drawTime(t *rapid.T, clock time.Time) time.Time {
	return rapid.SampledFrom([]time.Time{
		clock, clock, clock, clock.Add(-time.Hour), clock.Add(time.Hour), {}, time.Date(12000, 1, 1, 0, 0, 0, 0, time.UTC), time.Date(-5, 1, 1, 0, 0, 0, 0, time.UTC),
	}).Draw(t, "at")
}

func drawCount(t *rapid.T) *int64 {
	return rapid.SampledFrom([]*int64{nil, new(int64(0)), new(int64(1)), new(int64(40)), new(int64(1000)), new(int64(-3)), new(int64(math.MaxInt64))}).Draw(t, "n")
}

func drawFloat(t *rapid.T) *float64 {
	return rapid.SampledFrom([]*float64{nil, new(0.0), new(17.5), new(-1.0), new(math.NaN()), new(math.Inf(1))}).Draw(t, "f")
}

func drawText(t *rapid.T) string {
	return rapid.SampledFrom([]string{"", "", "why", "\x1b[31mred\x00\xff", strings.Repeat("long ", 400)}).Draw(t, "text")
}

func drawStage(t *rapid.T) string {
	return rapid.SampledFrom([]string{"extract", "extract", "tokenize", "nobody"}).Draw(t, "stage")
}

func drawRank(t *rapid.T) int {
	return rapid.SampledFrom([]int{0, 1, 2, 3, -1, maxRanks, math.MaxInt}).Draw(t, "rank")
}

func drawReading(t *rapid.T, clock time.Time) Reading {
	switch rapid.IntRange(0, 9).Draw(t, "kind") {
	case 0, 1:
		return drawLaunches(t, clock)
	case 2, 3:
		return ProgressReading{
			At: drawTime(t, clock), Stage: drawStage(t), Rank: drawRank(t), Done: drawCount(t), Total: drawCount(t),
			Skipped: drawCount(t), Failed: drawCount(t), ChangedAt: drawTime(t, clock), Err: drawText(t),
		}
	case 4:
		return drawMover(t, clock)
	case 5:
		return drawWants(t, clock)
	case 6:
		return drawGPUs(t, clock)
	case 7:
		return MachineReading{At: drawTime(t, clock), CPUPercent: drawFloat(t), MemUsedBytes: drawCount(t), MemTotalBytes: drawCount(t), Load1: drawFloat(t), Reason: drawText(t)}
	case 8:
		r := DisksReading{At: drawTime(t, clock)}
		for range rapid.IntRange(0, 2).Draw(t, "disks") {
			r.Disks = append(r.Disks, DiskReading{At: drawTime(t, clock), Path: drawText(t), UsedBytes: drawCount(t), FreeBytes: drawCount(t), TotalBytes: drawCount(t), Reason: drawText(t)})
		}
		return r
	default:
		return rapid.SampledFrom([]Reading{
			ActionReading{At: clock},
			ActionReading{At: clock, Action: &Action{ID: "a", Result: Running, BeganAt: clock, Steps: []StepResult{{N: 1}}}},
			NoticeReading{Event: Event{At: drawTime(t, clock), Level: "odd", Text: drawText(t)}},
		}).Draw(t, "other")
	}
}

func drawLaunches(t *rapid.T, clock time.Time) Reading {
	r := LaunchesReading{At: drawTime(t, clock), Err: rapid.SampledFrom([]string{"", "", "", "denied"}).Draw(t, "err")}
	for range rapid.IntRange(0, 4).Draw(t, "launches") {
		l := LaunchSeen{
			ID: rapid.SampledFrom([]string{"", "extract-0-1", "extract-0-2"}).Draw(t, "id"), Stage: drawStage(t), Rank: drawRank(t),
			State:  rapid.SampledFrom([]ProcState{ProcRunning, ProcRunning, ProcIntended, ProcExited, ProcNoExec, ProcLost, "odd"}).Draw(t, "state"),
			Reason: drawText(t), PID: rapid.IntRange(-1, 3).Draw(t, "pid"), StartedAt: drawTime(t, clock),
			ReadBytes: rapid.Int64().Draw(t, "read"), CPUSeconds: valueOrZero(drawFloat(t)), Log: drawText(t),
		}
		if rapid.Bool().Draw(t, "gpu") {
			l.GPUs = []GPURef{{Index: 0, UUID: "GPU-a"}}
		}
		if rapid.Bool().Draw(t, "exit") {
			l.Exit = &Exit{At: drawTime(t, clock), OOM: rapid.Bool().Draw(t, "oom"), Signal: drawText(t)}
			l.Exit.Code = rapid.SampledFrom([]*int{nil, new(0), new(1), new(137)}).Draw(t, "code")
		}
		r.Seen = append(r.Seen, l)
	}
	return r
}

func valueOrZero(f *float64) float64 {
	if f == nil {
		return 0
	}
	return *f
}

func drawMover(t *rapid.T, clock time.Time) Reading {
	r := MoverReading{At: drawTime(t, clock), Paused: rapid.Bool().Draw(t, "paused"), Events: []Event{{Text: drawText(t)}}}
	o := OutputReading{
		Stage: drawStage(t), Name: rapid.SampledFrom([]string{"hidden", "tokens", "x"}).Draw(t, "name"),
		State: rapid.SampledFrom([]OutputState{OutputIdle, OutputRunning, OutputBlocked, OutputPaused, "odd"}).Draw(t, "state"), StateReason: drawText(t), Reason: drawText(t),
		LocalFiles: drawCount(t), LocalBytes: drawCount(t), VerifiedFiles: drawCount(t), DeletedLocalFiles: drawCount(t), FailedFiles: drawCount(t),
		VerifiedTotalBytes: valueOrNought(drawCount(t)), VerifiedTotalFiles: valueOrNought(drawCount(t)), ProducedTotalBytes: valueOrNought(drawCount(t)),
		DoneIDs: drawCount(t), Queue: Queue{WaitingFiles: valueOrNought(drawCount(t)), OldestSeconds: drawFloat(t)},
	}
	if rapid.Bool().Draw(t, "ranks") {
		o.ByRank = map[int]RankFiles{drawRank(t): {Done: valueOrNought(drawCount(t)), NewestAt: drawTime(t, clock)}}
	}
	if rapid.Bool().Draw(t, "coverage") {
		o.Coverage = &CoverageCounts{At: drawTime(t, clock), Mismatched: 1}
	}
	r.Outputs = []OutputReading{o}
	if rapid.Bool().Draw(t, "artifacts") {
		r.Artifacts = &o
	}
	return r
}

func valueOrNought(n *int64) int64 {
	if n == nil {
		return 0
	}
	return *n
}

func drawWants(t *rapid.T, clock time.Time) Reading {
	want := StageWant{
		Want:  rapid.SampledFrom([]Want{WantNothing, WantRunning, WantRunning, WantStopped, "odd"}).Draw(t, "want"),
		World: rapid.SampledFrom([]int{0, 1, 4, -1}).Draw(t, "world"), Workers: map[int]WorkerWant{},
	}
	for range rapid.IntRange(0, 3).Draw(t, "workers") {
		want.Workers[drawRank(t)] = WorkerWant{
			Launch: rapid.SampledFrom([]string{"", "extract-0-1", "extract-0-2"}).Draw(t, "id"), Restarts: rapid.IntRange(-1, 4).Draw(t, "restarts"),
			Held: drawText(t), NextAt: drawTime(t, clock), Done: rapid.Bool().Draw(t, "done"), Stopping: rapid.Bool().Draw(t, "stopping"), StopSentAt: drawTime(t, clock),
		}
	}
	return WantsReading{At: drawTime(t, clock), Stages: map[string]StageWant{drawStage(t): want}}
}

func drawGPUs(t *rapid.T, clock time.Time) Reading {
	r := GPUReading{At: drawTime(t, clock), Kind: rapid.SampledFrom([]string{"", "none", "nvml", "simulated"}).Draw(t, "kind"), Reason: drawText(t)}
	for range rapid.IntRange(0, 2).Draw(t, "gpus") {
		g := GPUSnapshot{
			UUID: rapid.SampledFrom([]string{"GPU-a", "GPU-b"}).Draw(t, "uuid"), State: rapid.SampledFrom([]GPUState{GPUOK, GPULost, GPUUnknown, "odd"}).Draw(t, "state"),
			MemUsedBytes: drawCount(t), MemTotalBytes: drawCount(t), UtilPercent: drawFloat(t), PowerWatts: drawFloat(t), TempCelsius: drawFloat(t),
		}
		if rapid.Bool().Draw(t, "processes") {
			g.Processes = []GPUProcess{{PID: rapid.IntRange(0, 3).Draw(t, "pid"), MemBytes: drawCount(t)}}
		}
		r.GPUs = append(r.GPUs, g)
	}
	return r
}
