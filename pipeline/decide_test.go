package pipeline

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"pipedeck/pipeline/spec"
)

// plainSteps is a plan's steps in one line.
func plainSteps(p Plan) string {
	out := make([]string, 0, len(p.Steps))
	for _, s := range p.Steps {
		out = append(out, fmt.Sprintf("%s %s", s.Kind, strings.Join(s.On, ",")))
	}
	return strings.Join(out, "; ")
}

func snapshotOf(change func(*bench)) Snapshot {
	b := newBench()
	b.want(0)
	b.look(0)
	change(b)
	return b.w.Snapshot(at(50))
}

func idleWorld(*bench) {}

func runningWorld(b *bench) {
	b.start(0, 2)
	b.run(1, 50, 2, func(t float64, _ int) int64 { return int64(t) })
}

func stoppedWorld(b *bench) {
	runningWorld(b)
	w := b.wants["extract"]
	w.Want = WantStopped
	b.wants["extract"] = w
	for rank := range 2 {
		b.edit(50, rank, func(w *WorkerWant) { w.Stopping, w.StopSentAt = true, at(49) })
		b.change(50, rank, func(l *LaunchSeen) { l.State = ProcExited; l.Exit = &Exit{Code: new(143), At: at(50)} })
	}
}

func heldWorld(b *bench) {
	runningWorld(b)
	b.edit(50, 1, func(w *WorkerWant) { w.Held = "too often" })
	b.change(50, 1, func(l *LaunchSeen) { l.State = ProcExited; l.Exit = &Exit{Code: new(1), At: at(50)} })
}

func TestDecide(t *testing.T) {
	t.Parallel()
	const stopDeck, yes, none = "deck", "y", ""
	for _, tc := range []struct {
		name    string
		world   func(*bench)
		verb    Verb
		target  string
		steps   string
		confirm string
		blocked string
	}{
		{"start", idleWorld, VerbStart, "extract", "gpus_free extract; done_set extract; record extract; start_workers extract", none, ""},
		{"start without a done-set", idleWorld, VerbStart, "tokenize", "record tokenize; start_workers tokenize", none, ""},
		{"start again", runningWorld, VerbStart, "extract", "", none, ""},
		{"start a living worker", runningWorld, VerbStart, "extract/0", "", none, ""},
		{"start what is held", heldWorld, VerbStart, "extract", "gpus_free extract/1; done_set extract; record extract; start_workers extract/1", none, ""},
		{"start one that is held", heldWorld, VerbStart, "extract/1", "gpus_free extract/1; done_set extract; record extract; start_workers extract/1", none, ""},
		{"start after a stop", stoppedWorld, VerbStart, "extract", "gpus_free extract; done_set extract; record extract; start_workers extract", none, ""},
		{"stop", runningWorld, VerbStop, "extract", "stop_workers extract", stopDeck, ""},
		{"stop one", runningWorld, VerbStop, "extract/1", "stop_workers extract/1", yes, ""},
		{"stop nothing", idleWorld, VerbStop, "extract", "", none, ""},
		{"stop again", stoppedWorld, VerbStop, "extract", "", none, ""},
		{"restart", runningWorld, VerbRestart, "extract", "stop_workers extract; gpus_free extract; done_set extract; record extract; start_workers extract", stopDeck, ""},
		{"restart one", runningWorld, VerbRestart, "extract/0", "stop_workers extract/0; gpus_free extract/0; done_set extract; record extract; start_workers extract/0", yes, ""},
		{"restart what is stopped", stoppedWorld, VerbRestart, "extract", "gpus_free extract; done_set extract; record extract; start_workers extract", none, ""},
		{"settle", runningWorld, VerbSettle, "extract/hidden", "settle extract/hidden", none, ""},
		{"settle by a bare name", idleWorld, VerbSettle, "tokens", "settle tokenize/tokens", none, ""},
		{"settle a stage", idleWorld, VerbSettle, "extract", "settle extract/hidden", none, ""},
		{"settle under pause", func(b *bench) { b.w.Fold(MoverReading{At: at(50), Paused: true}) }, VerbSettle, "tokens", "settle tokenize/tokens", none, "uploads are paused"},
		{"pause", idleWorld, VerbPause, "", "pause_uploads ", none, ""},
		{"pause again", func(b *bench) { b.w.Fold(MoverReading{At: at(50), Paused: true}) }, VerbPause, "", "", none, ""},
		{"resume", func(b *bench) { b.w.Fold(MoverReading{At: at(50), Paused: true}) }, VerbResume, "", "resume_uploads ", none, ""},
		{"resume again", idleWorld, VerbResume, "", "", none, ""},
		{"push", idleWorld, VerbPush, "", "settle artifacts", none, ""},
	} {
		p, err := Decide(extractSpec(), snapshotOf(tc.world), Facts{}, Intent{Verb: tc.verb, Target: tc.target}, at(50), "p-1")
		if err != nil {
			t.Errorf("%s: %v", tc.name, err)
			continue
		}
		confirm := ""
		if p.Confirm != nil {
			confirm = *p.Confirm
		}
		if plainSteps(p) != tc.steps || confirm != tc.confirm || p.Executable != (tc.blocked == "") || !strings.Contains(strings.Join(p.Blocked, ";"), tc.blocked) {
			t.Errorf("%s: steps %q confirm %q blocked %v", tc.name, plainSteps(p), confirm, p.Blocked)
		}
	}
}

func TestDecideDetails(t *testing.T) {
	t.Parallel()
	p, err := Decide(extractSpec(), snapshotOf(runningWorld), Facts{}, Intent{Verb: VerbRestart, Target: "extract"}, at(50), "p-1")
	if err != nil {
		t.Fatal(err)
	}
	stop := p.Steps[0]
	if stop.N != 1 || stop.TimeoutSeconds < 120 || !strings.Contains(stop.Proof, "GPU memory at baseline") {
		t.Fatalf("%+v", stop)
	}
	if p.ExpiresAt.Sub(p.MadeAt) != 15*time.Minute || p.ID != "p-1" || p.Node != "local" || p.Deck != "deck" || p.Fingerprint == "" {
		t.Fatalf("%+v", p)
	}
	if p.Loss != (Loss{RecomputeReason: p.Loss.RecomputeReason}) {
		t.Fatalf("a restart loses nothing: %+v", p.Loss)
	}
	raw, err := json.Marshal(p)
	if err != nil {
		t.Fatal(err)
	}
	if bad := complain(compileSchema(t, PlanSchema), raw); bad != "" {
		t.Fatal(bad)
	}
}

func TestDecideUsage(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		verb         Verb
		target       string
		says, advice string
	}{
		{VerbStart, "extrct", `cannot plan "start extrct": the spec has no stage "extrct"; it has extract, tokenize`, `did you mean "extract"?`},
		{VerbStart, "", `the spec has no stage ""`, ""},
		{VerbStop, "zzzzzz/0", `no stage "zzzzzz"`, ""},
		{VerbStop, "extract/7", `stage "extract" has no rank 7`, "extract/0, extract/1"},
		{VerbStop, "extract/x", `"x" is no rank`, "STAGE/RANK"},
		{VerbStop, "extract/01", `"01" is no rank`, ""},
		{VerbStop, "tokenize/0", `stage "tokenize" has no workers yet`, "pipedeck start tokenize"},
		{VerbSettle, "extract/hiden", `no output "extract/hiden"; it has extract/hidden, tokenize/tokens`, `did you mean "extract/hidden"?`},
		{VerbPause, "extract", "it takes no name", "pipedeck pause"},
		{"fly", "extract/hidden", `cannot plan "fly extract/hidden": no plan is known for this verb`, "the verbs are start, stop"},
		{VerbKill, "extract/9", "no rank 9", ""},
		{VerbPivot, "extract/0", "a pivot goes to a whole stage", ""},
		{VerbUndo, "a-1", "nothing of it is in the trash", "nothing can be brought back"},
		{VerbReap, "", "no process is named", ""},
		{"", "", `cannot plan ""`, ""},
	} {
		_, err := Decide(extractSpec(), snapshotOf(runningWorld), Facts{}, Intent{Verb: tc.verb, Target: tc.target}, at(50), "p-1")
		var prob *Problem
		if !errors.As(err, &prob) || prob.Kind != ProblemUsage {
			t.Errorf("%s %s: %v", tc.verb, tc.target, err)
			continue
		}
		if !strings.Contains(prob.Text, tc.says) || !strings.Contains(prob.Hint, tc.advice) {
			t.Errorf("%s %s: %q, hint %q", tc.verb, tc.target, prob.Text, prob.Hint)
		}
	}
}

// TestDecideRoom: too little room is 64 MiB, and less on a small disk: an empty
// one of 64 MB can be started on.
func TestDecideRoom(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		free, total int64
		runs        bool
	}{
		{64e6, 64e6, true},
		{3e6, 64e6, false},
		{60 << 20, 1e12, false},
		{70 << 20, 1e12, true},
	} {
		s := snapshotOf(func(b *bench) {
			b.w.Fold(DisksReading{At: at(50), Disks: []DiskReading{{At: at(50), Path: "/", FreeBytes: new(tc.free), UsedBytes: new(tc.total - tc.free), TotalBytes: new(tc.total)}}})
		})
		p, err := Decide(extractSpec(), s, Facts{}, Intent{Verb: VerbStart, Target: "extract"}, at(50), "p")
		if err != nil {
			t.Fatal(err)
		}
		if full := strings.Contains(strings.Join(p.Blocked, "; "), "full before the first upload"); full == tc.runs {
			t.Errorf("%d of %d bytes free: %v", tc.free, tc.total, p.Blocked)
		}
	}
}

func TestDecideBlocks(t *testing.T) {
	t.Parallel()
	sp := extractSpec()
	sp.Stages[1].Workers.GPUs = spec.GPUSet{Indexes: []int{1}}
	start := func() Plan {
		p, err := Decide(sp, snapshotOf(runningWorld), Facts{}, Intent{Verb: VerbStart, Target: "tokenize"}, at(50), "p")
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	if p := start(); p.Executable || p.Blocked[0] != "GPU 1 is held by extract/1; stop it first" {
		t.Fatalf("%v", p.Blocked)
	}
	sp.Stages[1].Workers.GPUs = spec.GPUSet{Indexes: []int{2}}
	if p := start(); !p.Executable {
		t.Fatalf("GPU 2 is free: %v", p.Blocked)
	}
	sp.Stages[1].Launcher = spec.LauncherSlurm
	if p := start(); p.Executable {
		t.Fatal("Slurm is not driven")
	}
}

func TestDecideIsDeterministic(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		world := rapid.SampledFrom([]func(*bench){idleWorld, runningWorld, stoppedWorld, heldWorld}).Draw(t, "world")
		in := Intent{
			Verb:   rapid.SampledFrom([]Verb{VerbStart, VerbStop, VerbRestart, VerbSettle, VerbPause, VerbResume, VerbPush, VerbWipe}).Draw(t, "verb"),
			Target: rapid.SampledFrom([]string{"", "extract", "extract/0", "extract/9", "tokens", "extract/hidden", "/", "é/0"}).Draw(t, "target"),
		}
		s := snapshotOf(world)
		a, errA := Decide(extractSpec(), s, Facts{}, in, at(50), "p")
		b, errB := Decide(extractSpec(), s, Facts{}, in, at(50), "p")
		if !reflect.DeepEqual(a, b) || (errA == nil) != (errB == nil) {
			t.Fatalf("%+v %v\n%+v %v", a, errA, b, errB)
		}
		if errA != nil {
			return
		}
		if len(a.Steps) == 0 && a.Confirm != nil {
			t.Fatal("nothing is done, but a confirmation is asked")
		}
		for i, st := range a.Steps {
			if st.N != i+1 || st.TimeoutSeconds <= 0 || st.Proof == "" || st.On == nil {
				t.Fatalf("%+v", st)
			}
		}
	})
}

// A stop of what is stopped says so without asking, unless it would come back:
// then it says by whom.
func TestStopOfWhatIsStopped(t *testing.T) {
	t.Parallel()
	sp := newBench().w.sp
	oneStopped := func(b *bench) {
		runningWorld(b)
		b.edit(50, 1, func(w *WorkerWant) { w.Stopping, w.StopSentAt = true, at(49) })
		b.change(50, 1, func(l *LaunchSeen) { l.State, l.PID = ProcExited, 0; l.Exit = &Exit{Code: new(143), At: at(50)} })
	}
	withOrphan := func(b *bench) {
		oneStopped(b)
		b.change(50, 1, func(l *LaunchSeen) { l.Stragglers = 1 })
	}
	under := func(verb Verb, target string) *Action {
		return &Action{ID: "a-9", Verb: verb, Target: target, By: "ann", Steps: []StepResult{{N: 1, Kind: StepStopWorkers, EndedAt: new(at(1))}, {N: 2, Kind: StepSettle}}}
	}
	for name, c := range map[string]struct {
		world   func(*bench)
		action  *Action
		target  string
		steps   int
		blocked string
	}{
		"a worker":                    {oneStopped, nil, "extract/1", 0, ""},
		"a worker with an orphan":     {withOrphan, nil, "extract/1", 1, ""},
		"a stage":                     {stoppedWorld, nil, "extract", 0, ""},
		"a stage under a pivot":       {stoppedWorld, under(VerbPivot, "train"), "extract", 0, "pivot of \"train\" by ann is under way (action a-9, at step 2 of 2, settle)"},
		"a stage under its restart":   {stoppedWorld, under(VerbRestart, "extract/0"), "extract", 0, "restart of \"extract/0\""},
		"a stage under another's":     {stoppedWorld, under(VerbRestart, "other"), "extract", 0, ""},
		"a stage under its wipe":      {stoppedWorld, under(VerbWipe, "extract/hs"), "extract", 0, ""},
		"a running one under a pivot": {runningWorld, under(VerbPivot, "train"), "extract", 1, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := snapshotOf(c.world)
			s.Nodes[0].Action = c.action
			p, err := Decide(sp, s, Facts{}, Intent{Verb: VerbStop, Target: c.target}, at(50), "p-1")
			if err != nil {
				t.Fatal(err)
			}
			if len(p.Steps) != c.steps || (p.Confirm != nil) != (c.steps > 0) || !strings.Contains(strings.Join(p.Blocked, " "), c.blocked) || (c.blocked == "") != p.Executable {
				t.Errorf("%d steps, confirm %v, blocked %q", len(p.Steps), p.Confirm, p.Blocked)
			}
		})
	}
}
