package deck

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"pipedeck/pipeline"
	"pipedeck/pipeline/spec"
)

const twoStages = `version: 1
deck: d
run: r1
workdir: /w
store: {bucket: bucket, endpoint: "http://127.0.0.1:1", region: x, path_style: true}
stages:
  extract:
    total: 100
    workers:
      per_gpu: 1
      command: [work, "{rank}"]
      stop: {signal: SIGINT, grace: 20s}
    outputs:
      states: {dir: out, match: "*.safetensors", format: safetensors, id: '(\d+)\.safetensors', key: "states/{path}"}
    done_set: {file: done.txt, form: lines}
    scratch: [/dev/shm/all, "/dev/shm/d_{rank}"]
  train:
    workers:
      per_gpu: 1
      command: [train]
    gates: [{command: [check, it]}]
`

func pivotWorld(t *testing.T) *world {
	t.Helper()
	w := newWorld(t, "count: 1", 2)
	sp, err := spec.Parse("pipedeck.yaml", []byte(twoStages))
	if err != nil {
		t.Fatal(err)
	}
	w.sp = sp
	w.host.onSig = func(l *pipeline.LaunchSeen, _ string, _ pipeline.Scope) { w.host.exit(l, 0) }
	w.mover.set(pipeline.MoverReading{At: time.Now(), Outputs: []pipeline.OutputReading{{
		Stage: "extract", Name: "states", Settled: true, LocalFiles: new(int64(0)), VerifiedFiles: new(int64(3)),
	}}})
	return w
}

func kinds(p pipeline.Plan) string {
	out := make([]string, 0, len(p.Steps))
	for _, s := range p.Steps {
		out = append(out, string(s.Kind))
	}
	return strings.Join(out, " ")
}

func TestPivotSettlesClearsScratchAndStarts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := pivotWorld(t)
		dirs := []string{"/dev/shm/all", "/dev/shm/d_0", "/dev/shm/d_1"}
		for _, dir := range dirs {
			w.custody.put(dir, "shard", 1, pipeline.ClassOther)
		}
		w.custody.noUndo = true
		d, end := w.agent(t)
		defer end()
		do(t, d, pipeline.VerbStart, "extract")
		p := wipePlan(t, d, pipeline.Intent{Verb: pipeline.VerbPivot, Target: "train"})
		if got, want := kinds(p), "stop_workers settle recount trash gpus_free gates start_workers"; got != want {
			t.Fatalf("steps %q", got)
		}
		if *p.Confirm != "train" || p.Loss.OtherFiles != 3 || p.Loss.LostFiles != 0 || p.Undo.Until != nil {
			t.Errorf("%q %+v %+v", *p.Confirm, p.Loss, p.Undo)
		}
		if a := applied(t, d, p, "train"); a.Result != pipeline.Verified {
			t.Fatal(*a.Reason)
		}
		for _, dir := range dirs {
			if left := w.custody.names(dir); len(left) != 0 {
				t.Errorf("scratch %s: %v", dir, left)
			}
		}
		if got := w.host.launches(); !slices.Equal(got[2:], []string{"train-0-1", "train-1-1"}) {
			t.Errorf("launched %v", got)
		}
	})
}

func TestPivotDiscardAsksForTheNumberAndTheStage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := pivotWorld(t)
		sixFiles(w)
		d, end := w.agent(t)
		defer end()
		do(t, d, pipeline.VerbStart, "extract")
		p := wipePlan(t, d, pipeline.Intent{Verb: pipeline.VerbPivot, Target: "train", Leave: pipeline.LeaveDiscard})
		if *p.Confirm != "3 train" || p.Safer == nil {
			t.Fatalf("%q %+v", *p.Confirm, p.Safer)
		}
		if a := applied(t, d, p, "3 train"); a.Result != pipeline.Verified {
			t.Fatal(*a.Reason)
		}
		if left := w.custody.names(states); len(left) != 0 {
			t.Errorf("left %v", left)
		}
	})
}

func TestPivotKeepLeavesTheFilesAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := pivotWorld(t)
		sixFiles(w)
		d, end := w.agent(t)
		defer end()
		do(t, d, pipeline.VerbStart, "extract")
		p := wipePlan(t, d, pipeline.Intent{Verb: pipeline.VerbPivot, Target: "train", Leave: pipeline.LeaveKeep})
		if *p.Confirm != "train" || p.Loss.LostFiles != 0 {
			t.Fatalf("%q %+v", *p.Confirm, p.Loss)
		}
		if a := applied(t, d, p, "train"); a.Result != pipeline.Verified {
			t.Fatal(*a.Reason)
		}
		if left := w.custody.names(states); len(left) != 6 || !slices.Equal(w.custody.left, []string{"extract"}) {
			t.Errorf("left %v, stages %v", left, w.custody.left)
		}
	})
}

// The GPUs must be free before the next stage: whoever holds one is named.
func TestPivotStopsAtAGPUThatSomebodyHolds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := pivotWorld(t)
		d, end := w.agent(t)
		defer end()
		do(t, d, pipeline.VerbStart, "extract")
		p := wipePlan(t, d, pipeline.Intent{Verb: pipeline.VerbPivot, Target: "train"})
		w.sensor.setUsed(1, 58<<30)
		a := applied(t, d, p, "train")
		if a.Result == pipeline.Verified || !strings.Contains(*a.Reason, "GPU 1") {
			t.Fatalf("%s %v", a.Result, a.Reason)
		}
		if got := w.host.launches(); len(got) != 2 {
			t.Errorf("launched %v", got)
		}
	})
}

func TestAGateThatFailsStopsThePivot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := pivotWorld(t)
		w.runner.code = 3
		d, end := w.agent(t)
		defer end()
		a := do(t, d, pipeline.VerbStart, "train")
		if a.Result != pipeline.ActionFailed || !strings.Contains(*a.Reason, "it ended with 3: said") {
			t.Fatalf("%s %v", a.Result, a.Reason)
		}
	})
}

func TestStartComparesWithTheRecordOfTheRun(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(*fakeCustody)
		accept []string
		kind   pipeline.ProblemKind
		says   string
	}{
		"nothing recorded": {func(*fakeCustody) {}, nil, "", ""},
		"the same":         {func(c *fakeCustody) { c.record = &pipeline.StageRecord{Deck: "d", Inputs: "same", Command: "cmd"} }, nil, "", ""},
		"another deck": {
			func(c *fakeCustody) { c.record = &pipeline.StageRecord{Deck: "other", Inputs: "same", Command: "cmd"} },
			[]string{"inputs"},
			pipeline.ProblemRefused, `belongs to deck "other"`,
		},
		"other inputs": {
			func(c *fakeCustody) { c.record = &pipeline.StageRecord{Deck: "d", Inputs: "old", Command: "cmd"} },
			nil, pipeline.ProblemRefused, "inputs of \"extract\" changed",
		},
		"other inputs, accepted": {
			func(c *fakeCustody) { c.record = &pipeline.StageRecord{Deck: "d", Inputs: "old", Command: "cmd"} },
			[]string{"inputs"},
			"", "",
		},
		"other command, inputs accepted": {
			func(c *fakeCustody) { c.record = &pipeline.StageRecord{Deck: "d", Inputs: "old", Command: "old"} },
			[]string{"inputs"},
			pipeline.ProblemRefused, "command of \"extract\" changed",
		},
		"unreadable, and the run is known": {func(c *fakeCustody) { c.recordErr = errors.New("503") }, nil, "", ""},
		"unreadable on a new node": {
			func(c *fakeCustody) { c.recordErr, c.known = errors.New("503"), false },
			nil, pipeline.ProblemUnreachable, "does not know the run: 503",
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, "count: 1", 0)
				tc.change(w.custody)
				d, end := w.agent(t)
				defer end()
				p := wipePlan(t, d, pipeline.Intent{Verb: pipeline.VerbStart, Target: "extract", Accept: tc.accept})
				_, err := d.Apply(t.Context(), pipeline.ApplyRequest{Plan: p.ID})
				var prob *pipeline.Problem
				if tc.kind == "" {
					if err != nil {
						t.Fatal(err)
					}
					return
				}
				if !errors.As(err, &prob) || prob.Kind != tc.kind || !strings.Contains(prob.Text, tc.says) {
					t.Errorf("%v", err)
				}
			})
		})
	}
}

func TestAdoptTakesOverAndSupervises(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "per_gpu: 1", 2)
		w.adopter.strangers = []pipeline.Stranger{
			{PID: 71, User: "root", Argv: []string{"python3", "x.py"}, StartedAt: time.Now(), GPUMem: 50 << 30, GPUs: []string{"GPU-0"}},
			{PID: 72, User: "root", Argv: []string{"python3", "x.py"}, StartedAt: time.Now(), GPUMem: -1, GPUs: []string{"GPU-1"}},
		}
		d, end := w.agent(t)
		p := wipePlan(t, d, pipeline.Intent{Verb: pipeline.VerbAdopt, Target: "extract", PIDs: []int{71, 72}})
		if !p.Executable || *p.Confirm != "d" || !strings.Contains(strings.Join(p.Notes, " "), "pid 71 of root") {
			t.Fatalf("%+v", p)
		}
		if a := applied(t, d, p, "d"); a.Result != pipeline.Verified {
			t.Fatal(*a.Reason)
		}
		end()
		next, stop := w.agent(t)
		defer stop()
		snap, err := next.Snapshot(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for rank, ws := range snap.Nodes[0].Stages[0].Workers {
			if ws.PID == nil || *ws.PID != 71+rank {
				t.Errorf("worker %d: %+v", rank, ws)
			}
		}
		if n := len(w.host.launches()); n != 2 {
			t.Errorf("%d launches", n)
		}
		missing := wipePlan(t, next, pipeline.Intent{Verb: pipeline.VerbReap, PIDs: []int{99}})
		if missing.Executable {
			t.Error("a process that is not there can be ended")
		}
		foreign := wipePlan(t, next, pipeline.Intent{Verb: pipeline.VerbReap, PIDs: []int{71}})
		if foreign.Executable || !strings.Contains(fmt.Sprint(foreign.Blocked), "nobody else's") {
			t.Errorf("%+v", foreign.Blocked)
		}
	})
}

func TestAfterStartChecksGoFromLoadingToProven(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "count: 1", 0)
		on := func(verified, local, done int64) pipeline.OutputReading {
			return pipeline.OutputReading{
				Stage: "extract", Name: "states", VerifiedFiles: &verified, DoneIDs: &done, LocalFiles: &local, LocalBytes: new(local * 10), DeletedLocalFiles: new(verified),
			}
		}
		w.mover.set(pipeline.MoverReading{Outputs: []pipeline.OutputReading{on(3, 2, 5)}})
		d, end := w.agent(t)
		defer end()
		a := do(t, d, pipeline.VerbStart, "extract")
		a, err := d.Action(t.Context(), a.ID, 5*time.Second)
		if err != nil {
			t.Fatal(err)
		}
		for len(a.After) == 0 {
			if a, err = d.Action(t.Context(), a.ID, 5*time.Second); err != nil {
				t.Fatal(err)
			}
		}
		if !pipeline.Pending(a.After) {
			t.Fatalf("decided at once: %+v", a.After)
		}
		// A worker that skips what is done counts it, and one file is stored.
		w.mover.set(pipeline.MoverReading{At: time.Now(), Outputs: []pipeline.OutputReading{on(4, 1, 50)}})
		time.Sleep(5 * time.Second)
		if a, err = d.Action(t.Context(), a.ID, 0); err != nil {
			t.Fatal(err)
		}
		for _, c := range a.After {
			if c.Name == "first output" && c.Result != pipeline.Running {
				t.Errorf("nothing was written, and it says %+v", c)
			}
		}
		w.mover.set(pipeline.MoverReading{At: time.Now(), Outputs: []pipeline.OutputReading{on(4, 2, 51)}})
		for pipeline.Pending(a.After) {
			if a, err = d.Action(t.Context(), a.ID, time.Minute); err != nil {
				t.Fatal(err)
			}
		}
		for _, c := range a.After {
			if c.Result != pipeline.Verified && c.Result != pipeline.NotApplicable {
				t.Errorf("%+v", c)
			}
		}
	})
}
