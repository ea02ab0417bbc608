package pipeline

import (
	"slices"
	"strings"
	"testing"
	"time"
)

func wantWorker(t *testing.T, w WorkerSnapshot, state WorkerState, reason string) {
	t.Helper()
	if w.State != state || !strings.Contains(orElse(w.StateReason, ""), reason) {
		t.Fatalf("worker %s is %s (%s), want %s (%s)", w.ID, w.State, orElse(w.StateReason, ""), state, reason)
	}
}

func wantEvent(t *testing.T, b *bench, text string) {
	t.Helper()
	if !slices.ContainsFunc(b.texts(), func(s string) bool { return strings.Contains(s, text) }) {
		t.Fatalf("no event %q in\n%s", text, strings.Join(b.texts(), "\n"))
	}
}

func TestIdleDeckIsHealthy(t *testing.T) {
	t.Parallel()
	b := newBench()
	b.want(0)
	b.look(0)
	s := b.w.Snapshot(at(1))
	if s.Health != Healthy || s.ExitCode() != 0 || len(s.HealthReasons) != 0 {
		t.Fatalf("health %s %v", s.Health, s.HealthReasons)
	}
	st := s.Nodes[0].Stages
	if len(st) != 2 || st[0].Name != "extract" || st[1].Name != "tokenize" || st[0].State != StageIdle {
		t.Fatalf("stages %+v", st)
	}
	if st[0].ETASeconds != nil || *st[0].ETAReason != "not started" {
		t.Fatalf("eta %v %v", st[0].ETASeconds, st[0].ETAReason)
	}
}

func TestLoadingIsNotStalled(t *testing.T) {
	t.Parallel()
	b := newBench()
	b.start(0, 2)
	b.run(1, 300, 2, func(float64, int) int64 { return 0 })
	w := b.worker(300, 0)
	wantWorker(t, w, WorkerLoading, "no output yet")
	wantWorker(t, w, WorkerLoading, "have not moved for")
	st := b.stage(300)
	if st.State != StageStarting || st.ETASeconds != nil || *st.ETAReason != "no output yet" {
		t.Fatalf("stage %s, eta %v %q", st.State, st.ETASeconds, *st.ETAReason)
	}
	if st.SamplesPerSecond == nil || *st.SamplesPerSecond != 0 {
		t.Fatal("a rate of nothing is a real zero")
	}
	if h := b.w.Snapshot(at(300)).Health; h != Healthy {
		t.Fatalf("health %s while loading", h)
	}
	b.run(301, 1205, 2, func(float64, int) int64 { return 0 })
	wantWorker(t, b.worker(1205, 0), WorkerStalled, "no output since its start")
}

func TestMovingWorkerLoadsWithoutComplaint(t *testing.T) {
	t.Parallel()
	b := newBench()
	b.start(0, 1)
	for s := 1.0; s < 200; s++ {
		b.change(s, 0, func(l *LaunchSeen) { l.ReadBytes += 1 << 30 })
		b.progress(s, 0, 0)
	}
	w := b.worker(199, 0)
	wantWorker(t, w, WorkerLoading, "no output yet")
	if strings.Contains(*w.StateReason, "not moved") {
		t.Fatal(*w.StateReason)
	}
}

func TestOneWorkerStalls(t *testing.T) {
	t.Parallel()
	b := newBench()
	b.start(0, 2)
	b.w.Fold(GPUReading{At: at(0), Kind: "nvml", GPUs: []GPUSnapshot{
		{Index: 0, UUID: "GPU-a", State: GPUOK, MemUsedBytes: new(int64(51_900_000_000)), UtilPercent: new(17.0)},
	}})
	rate := func(t float64, rank int) int64 {
		if rank == 0 {
			t = min(t, 100)
		}
		return int64(t)
	}
	b.run(1, 150, 2, rate)
	wantWorker(t, b.worker(150, 0), WorkerRunning, "")
	b.run(151, 165, 2, rate)
	b.w.Fold(GPUReading{At: at(166), Kind: "nvml", GPUs: []GPUSnapshot{
		{Index: 0, UUID: "GPU-a", State: GPUOK, MemUsedBytes: new(int64(51_900_000_000)), UtilPercent: new(17.0)},
	}})
	b.run(166, 170, 2, rate)
	wantWorker(t, b.worker(170, 0), WorkerStalled, "no output for 70 s; GPU memory 51.9 GB, util 17 %")
	wantWorker(t, b.worker(170, 1), WorkerRunning, "")
	wantEvent(t, b, "extract/0: stalled: no output for")
	s := b.w.Snapshot(at(170))
	if s.Health != Degraded || s.ExitCode() != 1 || !strings.HasPrefix(s.HealthReasons[0], "worker extract/0: stalled") {
		t.Fatalf("health %s %v", s.Health, s.HealthReasons)
	}
	if r := b.worker(170, 0).SamplesPerSecond; r == nil || *r != 0 {
		t.Fatalf("rate of a stalled worker: %v", r)
	}
	b.run(171, 180, 2, func(t float64, _ int) int64 { return int64(t) })
	wantWorker(t, b.worker(180, 0), WorkerRunning, "")
	wantEvent(t, b, "extract/0: producing again")
}

func TestUtilisationAloneNeverAccuses(t *testing.T) {
	t.Parallel()
	b := newBench()
	b.start(0, 1)
	b.w.Fold(GPUReading{At: at(0), Kind: "nvml", GPUs: []GPUSnapshot{{Index: 0, UUID: "GPU-a", State: GPUOK, UtilPercent: new(0.0)}}})
	b.run(1, 200, 1, func(t float64, _ int) int64 { return int64(t) })
	wantWorker(t, b.worker(200, 0), WorkerRunning, "")
}

func TestClockStepIsNoStall(t *testing.T) {
	t.Parallel()
	for _, jump := range []float64{3600, -3600} {
		b := newBench()
		b.start(0, 1)
		b.run(1, 60, 1, func(t float64, _ int) int64 { return int64(t) })
		b.run(61+jump, 63+jump, 1, func(float64, int) int64 { return 60 })
		wantWorker(t, b.worker(63+jump, 0), WorkerRunning, "")
		if r := b.worker(63+jump, 0).SamplesPerSecond; r != nil && *r < 0 {
			t.Fatalf("rate %v", *r)
		}
	}
}

func TestCrashRestartAndHold(t *testing.T) {
	t.Parallel()
	b := newBench()
	b.start(0, 2)
	b.run(1, 20, 2, func(t float64, _ int) int64 { return int64(t) })
	b.change(21, 0, func(l *LaunchSeen) {
		l.State = ProcExited
		l.Exit = &Exit{Code: new(137), Signal: "SIGKILL", At: at(20.5)}
	})
	w := b.worker(21, 0)
	wantWorker(t, w, WorkerExited, "ended by SIGKILL (code 137)")
	if w.PID != nil || *w.ExitCode != 137 || !w.StateSince.Equal(at(20.5)) {
		t.Fatalf("%+v", w)
	}
	b.edit(21, 0, func(w *WorkerWant) { w.NextAt = at(31) })
	b.look(21.5)
	wantWorker(t, b.worker(21.5, 0), WorkerExited, "restart 1 of 3 in")
	wantEvent(t, b, "extract/0: restart 1 of 3 in 10 s")
	if st := b.stage(22); st.State != StageRunning {
		t.Fatalf("stage %s", st.State)
	}
	b.edit(31, 0, func(w *WorkerWant) {
		w.Restarts = 3
		w.NextAt = time.Time{}
		w.Held = "ended with code 1 after 3 automatic restarts"
	})
	wantWorker(t, b.worker(31, 0), WorkerFailed, "held: ended with code 1 after 3")
	wantEvent(t, b, "extract/0: held")
	b.look(32)
	if s := b.w.Snapshot(at(32)); s.Health != Degraded {
		t.Fatalf("health %s: one of two is held", s.Health)
	}
	b.edit(33, 1, func(w *WorkerWant) { w.Held = "no" })
	b.change(33, 1, func(l *LaunchSeen) { l.State = ProcExited; l.Exit = &Exit{Code: new(1), At: at(33)} })
	s := b.w.Snapshot(at(33))
	if s.Health != Failed || s.ExitCode() != 2 || s.Nodes[0].Stages[0].State != StageFailed {
		t.Fatalf("health %s, stage %s", s.Health, s.Nodes[0].Stages[0].State)
	}
}

func TestAllRestartingIsDegraded(t *testing.T) {
	t.Parallel()
	b := newBench()
	b.start(0, 1)
	b.change(5, 0, func(l *LaunchSeen) { l.State = ProcExited; l.Exit = &Exit{Code: new(1), At: at(5)} })
	b.edit(5, 0, func(w *WorkerWant) { w.NextAt = at(15) })
	s := b.w.Snapshot(at(5))
	if s.Health != Degraded || s.Nodes[0].Stages[0].State != StageStarting {
		t.Fatalf("health %s, stage %s", s.Health, s.Nodes[0].Stages[0].State)
	}
}

func TestRestartLoadsAgain(t *testing.T) {
	t.Parallel()
	b := newBench()
	b.start(0, 1)
	b.run(1, 60, 1, func(t float64, _ int) int64 { return int64(t) })
	b.edit(61, 0, func(w *WorkerWant) { w.Launch = "extract-0-2"; w.Restarts = 1 })
	delete(b.seen, "extract-0-1")
	b.look(61)
	wantWorker(t, b.worker(61, 0), WorkerInit, "being started")
	b.seen["extract-0-2"] = LaunchSeen{ID: "extract-0-2", Stage: "extract", State: ProcRunning, PID: 200, StartedAt: at(62), GPUs: gpuRef(0)}
	// The script writes its old count, then none, and counts from zero.
	b.run(62, 200, 1, func(t float64, _ int) int64 {
		if t < 65 {
			return 60
		}
		return 0
	})
	w := b.worker(200, 0)
	wantWorker(t, w, WorkerLoading, "no output yet")
	if *w.PID != 200 || w.Restarts != 1 {
		t.Fatalf("%+v", w)
	}
	b.run(201, 210, 1, func(t float64, _ int) int64 { return int64(t) - 200 })
	wantWorker(t, b.worker(210, 0), WorkerRunning, "")
	if r := b.worker(210, 0).SamplesPerSecond; r == nil || *r < 0 || *r > 2 {
		t.Fatalf("rate after a restart: %v", r)
	}
}

func TestAdoptedWorkerKeepsRunning(t *testing.T) {
	t.Parallel()
	b := newBench()
	b.start(-3600, 1)
	b.w = NewWorld(extractSpec(), "local", AgentInfo{})
	b.want(0)
	b.look(0)
	b.progress(0, 0, 500)
	wantWorker(t, b.worker(0, 0), WorkerRunning, "")
	if n := len(b.w.EventsAfter(0)); n != 0 {
		t.Fatalf("adoption is no news of the fold: %v", b.texts())
	}
	b.run(1, 70, 1, func(float64, int) int64 { return 500 })
	wantWorker(t, b.worker(70, 0), WorkerStalled, "no output for 70 s")
}

func TestOneShotIsDone(t *testing.T) {
	t.Parallel()
	b := newBench()
	b.start(0, 1)
	b.run(1, 20, 1, func(t float64, _ int) int64 { return int64(t) })
	b.change(21, 0, func(l *LaunchSeen) { l.State = ProcExited; l.Exit = &Exit{Code: new(0), At: at(21)} })
	b.edit(21, 0, func(w *WorkerWant) { w.Done = true })
	wantWorker(t, b.worker(21, 0), WorkerDone, "code 0")
	st := b.stage(21)
	if st.State != StageDone || *st.ETAReason != "done" || !strings.Contains(*st.StateReason, "980 of 1000") {
		t.Fatalf("%s %s %v", st.State, *st.ETAReason, st.StateReason)
	}
	wantEvent(t, b, "extract: done: every worker")
	if s := b.w.Snapshot(at(21)); s.Health != Degraded || !strings.Contains(s.HealthReasons[0], "980 of 1000 samples are not accounted for") {
		t.Fatalf("%s %v", s.Health, s.HealthReasons)
	}
	// A stop afterwards marks the worker too, and changes nothing of it.
	b.edit(30, 0, func(w *WorkerWant) { w.Stopping = true; w.StopSentAt = at(30) })
	wantWorker(t, b.worker(30, 0), WorkerDone, "")
}

func TestStopDrainsThenStops(t *testing.T) {
	t.Parallel()
	b := newBench()
	b.start(0, 1)
	b.run(1, 10, 1, func(t float64, _ int) int64 { return int64(t) })
	want := b.wants["extract"]
	want.Want = WantStopped
	b.wants["extract"] = want
	b.edit(11, 0, func(w *WorkerWant) { w.Stopping = true; w.StopSentAt = at(11) })
	wantWorker(t, b.worker(12, 0), WorkerDraining, "asked to stop")
	if st := b.stage(12); st.State != StageDraining || *st.ETAReason != "stopped" {
		t.Fatalf("stage %s", st.State)
	}
	b.run(13, 140, 1, func(float64, int) int64 { return 10 })
	if st := b.stage(140); st.State != StageStopping {
		t.Fatalf("stage %s after its grace", st.State)
	}
	b.change(141, 0, func(l *LaunchSeen) {
		l.State = ProcExited
		l.Exit = &Exit{Code: new(143), Signal: "SIGTERM", At: at(141)}
	})
	wantWorker(t, b.worker(141, 0), WorkerExited, "after it was asked to stop")
	if s := b.w.Snapshot(at(141)); s.Health != Healthy || s.Nodes[0].Stages[0].State != StageStopped {
		t.Fatalf("%s %v %s", s.Health, s.HealthReasons, s.Nodes[0].Stages[0].State)
	}
}

func TestStaleObservationIsUnknown(t *testing.T) {
	t.Parallel()
	b := newBench()
	b.start(0, 1)
	b.run(1, 10, 1, func(t float64, _ int) int64 { return int64(t) })
	b.w.Fold(LaunchesReading{At: at(11), Err: "proc is gone"})
	wantWorker(t, b.worker(14, 0), WorkerRunning, "")
	w := b.worker(17, 0)
	wantWorker(t, w, WorkerUnknown, "proc is gone")
	if w.SamplesPerSecond != nil || *w.RateReason != "stale" {
		t.Fatalf("rate %v", w.SamplesPerSecond)
	}
	st := b.stage(17)
	if st.State != StageUnknown || *st.ETAReason != "stale" {
		t.Fatalf("stage %s %s", st.State, *st.ETAReason)
	}
	if s := b.w.Snapshot(at(17)); s.Health != Degraded {
		t.Fatalf("health %s", s.Health)
	}
}

func TestETA(t *testing.T) {
	t.Parallel()
	b := newBench()
	b.start(0, 4)
	// A minute of loading, then one sample a second from each.
	b.run(1, 60, 4, func(float64, int) int64 { return 0 })
	b.run(61, 160, 4, func(t float64, _ int) int64 { return int64(t) - 60 })
	st := b.stage(160)
	if *st.Done != 400 || st.SamplesPerSecond == nil || *st.SamplesPerSecond < 3.9 || *st.SamplesPerSecond > 4.1 {
		t.Fatalf("done %d rate %v", *st.Done, *st.SamplesPerSecond)
	}
	if st.ETASeconds == nil || *st.ETASeconds < 145 || *st.ETASeconds > 155 {
		t.Fatalf("eta %v, %v: loading must not count", st.ETASeconds, st.ETAReason)
	}
	b.run(161, 300, 4, func(float64, int) int64 { return 100 })
	if st := b.stage(300); st.ETASeconds != nil || *st.ETAReason != "stalled" {
		t.Fatalf("eta of a stalled stage: %v", st.ETASeconds)
	}
}

func TestAgentRestartIsNoBurst(t *testing.T) {
	t.Parallel()
	b := newBench()
	b.start(-3600, 4)
	b.w = NewWorld(extractSpec(), "local", AgentInfo{})
	b.want(0)
	// Ranks tell their counts one after the other.
	for i := range 20 {
		b.look(float64(i))
		for rank := range min(4, i+1) {
			b.progress(float64(i)+float64(rank)/10, rank, int64(100+i))
		}
	}
	st := b.stage(20)
	if st.SamplesPerSecond == nil || *st.SamplesPerSecond > 6 {
		t.Fatalf("rate %v", *st.SamplesPerSecond)
	}
}

func mover(t float64, ids, verified int64, byRank map[int]RankFiles) MoverReading {
	return MoverReading{At: at(t), Outputs: []OutputReading{{
		Stage: "extract", Name: "hidden", State: OutputRunning, LocalFiles: new(int64(0)), LocalBytes: new(int64(0)),
		VerifiedFiles: new(verified), VerifiedBytes: new(verified * 10), DeletedLocalFiles: new(verified), FailedFiles: new(int64(0)),
		QuarantinedFiles: new(int64(0)), VerifiedTotalFiles: verified, VerifiedTotalBytes: verified * 10, ProducedTotalBytes: ids * 10,
		DoneIDs: new(ids), ByRank: byRank,
	}}}
}

func TestStoredIDsOutrankACounterThatRestarted(t *testing.T) {
	t.Parallel()
	b := newBench()
	b.start(0, 1)
	b.w.Fold(mover(1, 700, 700, nil))
	b.progress(1, 0, 3)
	if st := b.stage(1); *st.Done != 700 {
		t.Fatalf("done %d", *st.Done)
	}
}

func TestOutputRates(t *testing.T) {
	t.Parallel()
	b := newBench()
	b.want(0)
	for i := range 40 {
		b.w.Fold(mover(float64(i), int64(3*i), int64(2*i), nil))
	}
	o := b.stage(39).Outputs[0]
	if *o.FilesPerSecond != 2 || *o.BytesPerSecond != 20 || *o.ProducedBytesPerSecond != 30 {
		t.Fatalf("%v %v %v", *o.FilesPerSecond, *o.BytesPerSecond, *o.ProducedBytesPerSecond)
	}
	o = b.stage(60).Outputs[0]
	if o.FilesPerSecond != nil || o.State != OutputUnknown || o.Reason == nil {
		t.Fatalf("a silent mover: %v %s", o.FilesPerSecond, o.State)
	}
}

func TestSharedCountAccusesNobody(t *testing.T) {
	t.Parallel()
	b := newBench()
	b.w.sp.Stages[0].Progress = b.w.sp.Stages[1].Progress
	b.start(0, 2)
	for i := 1.0; i <= 200; i++ {
		b.look(i)
		b.w.Fold(mover(i, int64(min(i, 100)), 0, nil))
	}
	w := b.worker(200, 1)
	wantWorker(t, w, WorkerStalled, "the stage made no output for")
	if w.Done != nil || w.RateReason == nil {
		t.Fatalf("%+v", w)
	}
}

func TestFilesByRankTellWhoStalls(t *testing.T) {
	t.Parallel()
	b := newBench()
	b.w.sp.Stages[0].Progress = b.w.sp.Stages[1].Progress
	b.start(0, 2)
	for i := 1.0; i <= 200; i++ {
		b.look(i)
		b.w.Fold(mover(i, int64(2*i), 0, map[int]RankFiles{
			0: {Done: int64(i), NewestAt: at(i)}, 1: {Done: int64(min(i, 100)), NewestAt: at(min(i, 100))},
		}))
	}
	wantWorker(t, b.worker(200, 0), WorkerRunning, "")
	wantWorker(t, b.worker(200, 1), WorkerStalled, "no output for 1")
	if *b.worker(200, 0).Done != 200 || !b.worker(200, 1).LastOutputAt.Equal(at(100)) {
		t.Fatalf("%+v", b.worker(200, 1))
	}
}

func TestFirstFileOfARankCounts(t *testing.T) {
	t.Parallel()
	b := newBench()
	b.start(0, 2)
	b.w.Fold(mover(3, 1, 0, map[int]RankFiles{0: {Done: 1, NewestAt: at(2)}}))
	wantWorker(t, b.worker(3, 0), WorkerRunning, "")
	wantWorker(t, b.worker(3, 1), WorkerLoading, "no output yet")
	b = newBench()
	b.start(0, 1)
	b.w.Fold(mover(3, 1, 0, map[int]RankFiles{0: {Done: 500, NewestAt: at(-100)}}))
	wantWorker(t, b.worker(3, 0), WorkerLoading, "no output yet")
}
