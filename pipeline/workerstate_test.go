package pipeline

import (
	"strings"
	"testing"
	"time"
)

func TestJudgeWorker(t *testing.T) {
	t.Parallel()
	running := func(*workerFacts) {}
	ended := func(code int, sig string) func(*workerFacts) {
		return func(f *workerFacts) {
			f.seen.State, f.seen.Exit = ProcExited, &Exit{Code: new(code), Signal: sig, At: at(90)}
		}
	}
	both := func(fs ...func(*workerFacts)) func(*workerFacts) {
		return func(f *workerFacts) {
			for _, g := range fs {
				g(f)
			}
		}
	}
	stopped := func(f *workerFacts) { f.want.Stopping, f.want.StopSentAt = true, at(80) }
	for _, tc := range []struct {
		name   string
		change func(*workerFacts)
		state  WorkerState
		reason string
	}{
		{"never seen", func(f *workerFacts) { f.seen, f.want.Launch = nil, "" }, WorkerInit, "not started"},
		{"being started", func(f *workerFacts) { f.seen = nil }, WorkerInit, "being started"},
		{"next launch is on its way", both(ended(1, ""), func(f *workerFacts) { f.want.Launch = "l-2" }), WorkerInit, "being started"},
		{"an older launch still lives", func(f *workerFacts) { f.want.Launch = "l-2" }, WorkerRunning, ""},
		{"intended", func(f *workerFacts) { f.seen.State = ProcIntended }, WorkerInit, "recorded"},
		{"exec failed", func(f *workerFacts) { f.seen.State, f.seen.Reason = ProcNoExec, "no such file" }, WorkerFailed, "no such file"},
		{"running", running, WorkerRunning, ""},
		{"loading", func(f *workerFacts) { f.produced = false }, WorkerLoading, "no output yet; GPU"},
		{"loading, still", func(f *workerFacts) { f.produced, f.motionless, f.seesMotion = false, 2*time.Minute, true }, WorkerStalled, "have not moved for 2 min"},
		{"loading, still as far as can be seen", func(f *workerFacts) { f.produced, f.motionless = false, 2*time.Minute }, WorkerLoading, "have not moved for 2 min"},
		{"loading too long", func(f *workerFacts) { f.produced, f.alive = false, 21*time.Minute }, WorkerStalled, "no output since its start"},
		{"still for less than stall_after", func(f *workerFacts) { f.still = time.Minute }, WorkerRunning, ""},
		{"stalled", func(f *workerFacts) { f.still = 61 * time.Second }, WorkerStalled, "no output for 61 s; GPU"},
		{"stalled as a stage", func(f *workerFacts) { f.still, f.shared = 61*time.Second, true }, WorkerStalled, "the stage made no output"},
		{"nothing counts it", func(f *workerFacts) { f.counted, f.readErr = false, "denied" }, WorkerLoading, "denied"},
		{"nothing ever counts it", func(f *workerFacts) { f.counted, f.alive = false, time.Hour }, WorkerRunning, "cannot be read"},
		{"no work left", func(f *workerFacts) { f.workLeft, f.still = false, time.Hour }, WorkerIdle, "no work"},
		{"draining", stopped, WorkerDraining, "asked to stop 20 s ago"},
		{"GPU lost", func(f *workerFacts) { f.gpuLost = "GPU 0 is lost: XID" }, WorkerLost, "XID; process 7"},
		{"code 1", ended(1, ""), WorkerExited, "ended with code 1"},
		{"killed", ended(137, "SIGKILL"), WorkerExited, "SIGKILL (code 137)"},
		{"killed, memory full", both(ended(137, "SIGKILL"), func(f *workerFacts) { f.memTight = true }), WorkerOOM, "nearly out of memory"},
		{"OOM", both(ended(137, "SIGKILL"), func(f *workerFacts) { f.seen.Exit.OOM = true }), WorkerOOM, "out of memory"},
		{"code 0", ended(0, ""), WorkerDone, "code 0"},
		{"code 0 after a stop", both(ended(0, ""), stopped), WorkerExited, "after it was asked to stop"},
		{"code 0 before a stop", both(ended(0, ""), func(f *workerFacts) { f.want.Stopping, f.want.StopSentAt = true, at(95) }), WorkerDone, "code 0"},
		{"terminated by a stop", both(ended(143, "SIGTERM"), stopped), WorkerExited, "after it was asked to stop"},
		{"restart to come", both(ended(1, ""), func(f *workerFacts) { f.want.NextAt = at(108); f.want.Restarts = 1 }), WorkerExited, "restart 2 of 3 in 8 s"},
		{"held", both(ended(1, ""), func(f *workerFacts) { f.want.Held = "too often" }), WorkerFailed, "held: too often"},
		{"lost", func(f *workerFacts) { f.seen.State = ProcLost; f.seen.Reason = "the node rebooted" }, WorkerLost, "rebooted"},
		{"lost, but it left an exit", func(f *workerFacts) { f.seen.State = ProcLost; f.seen.Exit = &Exit{Code: new(3)} }, WorkerExited, "code 3"},
		{"ended without a code", func(f *workerFacts) { f.seen.State = ProcExited; f.seen.Exit = &Exit{} }, WorkerExited, "code unknown"},
		{"odd", func(f *workerFacts) { f.seen.State = "odd" }, WorkerUnknown, "not known"},
	} {
		f := workerFacts{
			want: WorkerWant{Launch: "l-1"}, running: true, now: at(100), counted: true, produced: true, workLeft: true,
			seen:  &LaunchSeen{ID: "l-1", State: ProcRunning, PID: 7},
			alive: time.Minute, evidence: "; GPU memory 1 GB", loadingTimeout: 20 * time.Minute, stallAfter: time.Minute, maxRestarts: 3,
		}
		tc.change(&f)
		state, reason := judgeWorker(f)
		if state != tc.state || !strings.Contains(reason, tc.reason) {
			t.Errorf("%s: %s (%s), want %s (%s)", tc.name, state, reason, tc.state, tc.reason)
		}
		if reason == "" && state != WorkerRunning {
			t.Errorf("%s: %s without a reason", tc.name, state)
		}
	}
}

func TestJudgeStage(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name  string
		want  Want
		sent  float64
		t     tally
		blind bool
		state StageState
	}{
		{name: "never started", state: StageIdle},
		{name: "never started, cannot look", blind: true, state: StageIdle},
		{name: "alive without a want", t: tally{all: 1, alive: 1}, state: StageRunning},
		{name: "wanted, none yet", want: WantRunning, t: tally{all: 2, coming: 2}, state: StageStarting},
		{name: "loading", want: WantRunning, t: tally{all: 2, alive: 2, young: 2}, state: StageStarting},
		{name: "one produces", want: WantRunning, t: tally{all: 2, alive: 2, young: 1}, state: StageRunning},
		{name: "all stalled", want: WantRunning, t: tally{all: 2, alive: 2, stalled: 2}, state: StageRunning},
		{name: "one done", want: WantRunning, t: tally{all: 2, alive: 1, done: 1}, state: StageRunning},
		{name: "all done", want: WantRunning, t: tally{all: 2, done: 2}, state: StageDone},
		{name: "one done, one held", want: WantRunning, t: tally{all: 2, done: 1}, state: StageFailed},
		{name: "stopped one by one", want: WantRunning, t: tally{all: 2, stopped: 1, done: 1}, state: StageStopped},
		{name: "one stopped, one held", want: WantRunning, t: tally{all: 2, stopped: 1}, state: StageFailed},
		{name: "restart to come", want: WantRunning, t: tally{all: 2, coming: 1}, state: StageStarting},
		{name: "all are being restarted by hand", want: WantRunning, t: tally{all: 2, alive: 2, draining: 2}, state: StageDraining},
		{name: "cannot look", want: WantRunning, t: tally{all: 2, alive: 2}, blind: true, state: StageUnknown},
		{name: "stop asked", want: WantStopped, sent: 95, t: tally{all: 2, alive: 1, draining: 1}, state: StageDraining},
		{name: "stop overdue", want: WantStopped, sent: 10, t: tally{all: 2, alive: 1, draining: 1}, state: StageStopping},
		{name: "stopped", want: WantStopped, sent: 95, t: tally{all: 2}, state: StageStopped},
		{name: "stopped after it was done", want: WantStopped, t: tally{all: 2, done: 2}, state: StageStopped},
	} {
		sent := at(tc.sent)
		if tc.sent == 0 {
			sent = time.Time{}
		}
		if got, _ := judgeStage(tc.want, 30*time.Second, sent, at(100), tc.t, !tc.blind); got != tc.state {
			t.Errorf("%s: %s, want %s", tc.name, got, tc.state)
		}
	}
}
