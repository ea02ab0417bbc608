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
)

func TestStartRunsEveryRankOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "count: 3", 0)
		d, end := w.agent(t)
		defer end()
		if a := do(t, d, pipeline.VerbStart, "extract"); a.Result != pipeline.Verified {
			t.Fatalf("start: %s, %v", a.Result, *a.Reason)
		}
		if got := w.host.launches(); len(got) != 3 {
			t.Errorf("launched %v", got)
		}
		if w.mover.doneSets == 0 {
			t.Error("no done-set was written before the start")
		}
		again := do(t, d, pipeline.VerbStart, "extract")
		if again.Result != pipeline.Verified || len(w.host.launches()) != 3 {
			t.Errorf("a second start: %s, launched %v", again.Result, w.host.launches())
		}
	})
}

func TestAStageWithoutADoneSetStarts(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "count: 1", 0)
		w.sp.Stages[0].DoneSet = nil
		w.mover.doneErr = errors.New("the spec has none")
		d, end := w.agent(t)
		defer end()
		if a := do(t, d, pipeline.VerbStart, "extract"); a.Result != pipeline.Verified {
			t.Fatalf("start: %s, %v", a.Result, *a.Reason)
		}
	})
}

func TestStartWithoutTheStoreIsUnknown(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "count: 1", 0)
		w.mover.doneErr = pipeline.Problemf(pipeline.ProblemUnreachable, "is it up?", "cannot tell what is done")
		d, end := w.agent(t)
		defer end()
		a := do(t, d, pipeline.VerbStart, "extract")
		if a.Result != pipeline.Unverified || !strings.Contains(*a.Reason, "is it up?") {
			t.Errorf("start: %s, %v", a.Result, a.Reason)
		}
		if got := w.host.launches(); len(got) != 0 {
			t.Errorf("launched %v without knowing what is done", got)
		}
	})
}

func TestStartSaysWhatItsDoneSetMayLack(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "count: 1", 0)
		w.mover.doneLacks = "what other nodes stored since may be missing"
		d, end := w.agent(t)
		defer end()
		a := do(t, d, pipeline.VerbStart, "extract")
		if a.Result != pipeline.Verified || !strings.Contains(fmt.Sprint(a.Steps), "0 ids are done; what other nodes stored since may be missing") {
			t.Errorf("start: %s, %+v", a.Result, a.Steps)
		}
	})
}

func TestStartFailsWhenAWorkerDiesAtOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "count: 2", 0)
		w.host.onStart = func(l *pipeline.LaunchSeen) {
			if l.Rank == 1 {
				w.host.exit(l, 2)
			}
		}
		d, end := w.agent(t)
		defer end()
		a := do(t, d, pipeline.VerbStart, "extract")
		if a.Result != pipeline.ActionFailed || !strings.Contains(*a.Reason, "extract/1 ended with code 2") {
			t.Errorf("start: %s, %v", a.Result, a.Reason)
		}
	})
}

func TestCrashIsRestartedThenHeld(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "count: 1", 0)
		d, end := w.agent(t)
		defer end()
		do(t, d, pipeline.VerbStart, "extract")
		for n := range 3 {
			launches := w.host.launches()
			if len(launches) != n+1 {
				t.Fatalf("before crash %d: launched %v", n+1, launches)
			}
			w.host.end(launches[n], 1)
			time.Sleep(time.Minute) // virtual: longer than every backoff
		}
		if got := w.host.launches(); len(got) != 3 {
			t.Errorf("launched %v, want 1 start and 2 restarts", got)
		}
		s, err := d.Snapshot(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if worker := s.Nodes[0].Stages[0].Workers[0]; worker.State != pipeline.WorkerFailed || worker.Restarts != 2 {
			t.Errorf("worker = %s, restarts %d", worker.State, worker.Restarts)
		}
		if a := do(t, d, pipeline.VerbStart, "extract"); a.Result != pipeline.Verified {
			t.Errorf("an operator's start of a held worker: %s", a.Result)
		}
	})
}

func TestOneShotIsDone(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "count: 1", 0)
		w.host.onStart = func(l *pipeline.LaunchSeen) { w.host.exit(l, 0) }
		d, end := w.agent(t)
		defer end()
		if a := do(t, d, pipeline.VerbStart, "extract"); a.Result != pipeline.Verified {
			t.Fatalf("start: %s, %v", a.Result, a.Reason)
		}
		time.Sleep(5 * time.Minute)
		if got := w.host.launches(); len(got) != 1 {
			t.Errorf("a finished worker was started again: %v", got)
		}
		s, _ := d.Snapshot(t.Context())
		if st := s.Nodes[0].Stages[0]; st.State != pipeline.StageDone {
			t.Errorf("stage = %s", st.State)
		}
	})
}

func TestStopDrainsByTheLeaderOnly(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "count: 2", 0)
		w.host.onSig = func(l *pipeline.LaunchSeen, _ string, _ pipeline.Scope) { w.host.exit(l, 0) }
		d, end := w.agent(t)
		defer end()
		do(t, d, pipeline.VerbStart, "extract")
		a := do(t, d, pipeline.VerbStop, "extract")
		if a.Result != pipeline.Verified {
			t.Fatalf("stop: %s, %v", a.Result, *a.Reason)
		}
		sent := w.host.sent()
		slices.Sort(sent)
		if want := []string{"extract-0-1 SIGINT leader", "extract-1-1 SIGINT leader"}; !slices.Equal(sent, want) {
			t.Errorf("signals = %q, want %q", sent, want)
		}
		time.Sleep(5 * time.Minute)
		if got := w.host.launches(); len(got) != 2 {
			t.Errorf("a stopped worker was started again: %v", got)
		}
	})
}

func TestStopEscalatesAfterTheGrace(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "count: 1", 0)
		w.host.onSig = func(l *pipeline.LaunchSeen, sig string, _ pipeline.Scope) {
			if sig == "SIGKILL" {
				w.host.exit(l, 137)
			}
		}
		d, end := w.agent(t)
		defer end()
		do(t, d, pipeline.VerbStart, "extract")
		began := time.Now()
		a := do(t, d, pipeline.VerbStop, "extract")
		if a.Result != pipeline.Verified {
			t.Fatalf("stop: %s, %v", a.Result, *a.Reason)
		}
		want := []string{"extract-0-1 SIGINT leader", "extract-0-1 SIGTERM set", "extract-0-1 SIGKILL set"}
		if got := w.host.sent(); !slices.Equal(got, want) {
			t.Errorf("signals = %q", got)
		}
		if took := time.Since(began); took < 20*time.Second {
			t.Errorf("escalated after %s, the grace is 20 s", took)
		}
	})
}

func TestStopIsNotDoneWhileAProcessLives(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "count: 1", 0)
		d, end := w.agent(t)
		defer end()
		do(t, d, pipeline.VerbStart, "extract")
		a := do(t, d, pipeline.VerbStop, "extract")
		if a.Result != pipeline.ActionFailed || a.Reason == nil {
			t.Errorf("stop of a process that outlives SIGKILL: %s", a.Result)
		}
	})
}

func TestStopLooksAgainWhereSomebodyDiedDuringTheCheck(t *testing.T) {
	t.Parallel()
	for late, want := range map[int]pipeline.Verdict{1: pipeline.Verified, 2: pipeline.ActionFailed} {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t, "count: 1", 0)
			w.host.onSig = func(l *pipeline.LaunchSeen, _ string, _ pipeline.Scope) { w.host.exit(l, 0); w.host.late = late }
			d, end := w.agent(t)
			defer end()
			do(t, d, pipeline.VerbStart, "extract")
			if a := do(t, d, pipeline.VerbStop, "extract"); a.Result != want {
				t.Errorf("alive at %d looks: %s, %v", late, a.Result, a.Reason)
			}
		})
	}
}

func TestStopWaitsForTheGPUMemory(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "per_gpu: 1", 1)
		w.host.onStart = func(*pipeline.LaunchSeen) { w.sensor.setUsed(0, 50<<30) }
		w.host.onSig = func(l *pipeline.LaunchSeen, _ string, _ pipeline.Scope) {
			w.host.exit(l, 0)
			time.AfterFunc(12*time.Second, func() { w.sensor.setUsed(0, 0) })
		}
		d, end := w.agent(t)
		defer end()
		do(t, d, pipeline.VerbStart, "extract")
		began := time.Now()
		a := do(t, d, pipeline.VerbStop, "extract")
		if a.Result != pipeline.Verified {
			t.Fatalf("stop: %s, %v", a.Result, *a.Reason)
		}
		if took := time.Since(began); took < 12*time.Second {
			t.Errorf("verified after %s, before the memory was free", took)
		}
	})
}

func TestStopNamesTheGPUThatIsNotFreed(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "per_gpu: 1", 1)
		w.host.onStart = func(*pipeline.LaunchSeen) { w.sensor.setUsed(0, 50<<30) }
		w.host.onSig = func(l *pipeline.LaunchSeen, _ string, _ pipeline.Scope) { w.host.exit(l, 0) }
		d, end := w.agent(t)
		defer end()
		do(t, d, pipeline.VerbStart, "extract")
		a := do(t, d, pipeline.VerbStop, "extract")
		if a.Result == pipeline.Verified || !strings.Contains(*a.Reason, "GPU") {
			t.Errorf("stop with 50 GB still held: %s, %v", a.Result, a.Reason)
		}
	})
}

// An agent that dies at any journal record of a stop leaves a stop that the
// next agent finishes, without a second signal within the grace.
func TestANewAgentFinishesAStop(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "count: 1", 0)
		d, end := w.agent(t)
		do(t, d, pipeline.VerbStart, "extract")
		p, err := d.Plan(t.Context(), pipeline.Intent{Verb: pipeline.VerbStop, Target: "extract"})
		if err != nil {
			t.Fatal(err)
		}
		a, err := d.Apply(t.Context(), pipeline.ApplyRequest{Plan: p.ID, Confirm: confirmOf(p)})
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(5 * time.Second)
		end()
		if got := w.host.sent(); len(got) != 1 {
			t.Fatalf("signals before the restart: %q", got)
		}
		d, end = w.agent(t)
		defer end()
		time.Sleep(2 * time.Second)
		w.host.end("extract-0-1", 0)
		for a.EndedAt == nil {
			if a, err = d.Action(t.Context(), a.ID, time.Minute); err != nil {
				t.Fatal(err)
			}
		}
		if a.Result != pipeline.Verified {
			t.Errorf("resumed stop: %s, %v", a.Result, a.Reason)
		}
		if got := w.host.sent(); len(got) != 1 {
			t.Errorf("signals = %q: the grace was begun twice", got)
		}
	})
}

func TestOneWorkerOfAStageThatNeverStarted(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "count: 3", 0)
		d, end := w.agent(t)
		defer end()
		if a := do(t, d, pipeline.VerbStart, "extract/1"); a.Result != pipeline.Verified {
			t.Fatalf("start: %s, %v", a.Result, *a.Reason)
		}
		time.Sleep(time.Minute)
		if got := w.host.launches(); !slices.Equal(got, []string{"extract-1-1"}) {
			t.Errorf("launched %v", got)
		}
		do(t, d, pipeline.VerbStart, "extract")
		got := w.host.launches()
		slices.Sort(got)
		if want := []string{"extract-0-1", "extract-1-1", "extract-2-1"}; !slices.Equal(got, want) {
			t.Errorf("launched %v, want %v", got, want)
		}
	})
}

func TestANewRunWantsNothingOfTheOldOne(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "count: 1", 0)
		d, end := w.agent(t)
		do(t, d, pipeline.VerbStart, "extract")
		end()
		w.host.end("extract-0-1", 1)
		w.sp.Run = "r2"
		d, end = w.agent(t)
		defer end()
		time.Sleep(5 * time.Minute)
		if got := w.host.launches(); len(got) != 1 {
			t.Fatalf("a new run launched %v by itself", got)
		}
		if a := do(t, d, pipeline.VerbStart, "extract"); a.Result != pipeline.Verified {
			t.Fatalf("start: %s, %v", a.Result, *a.Reason)
		}
		if got := w.host.launches(); !slices.Equal(got, []string{"extract-0-1", "extract-0-2"}) {
			t.Errorf("launched %v: a launch id is used once", got)
		}
	})
}

func TestAStageThatShrankShowsNoOldRank(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "count: 2", 0)
		w.host.onSig = func(l *pipeline.LaunchSeen, _ string, _ pipeline.Scope) { w.host.exit(l, 143) }
		d, end := w.agent(t)
		do(t, d, pipeline.VerbStart, "extract")
		do(t, d, pipeline.VerbStop, "extract")
		end()
		w.sp.Stages[0].Workers.Count = 1
		d, end = w.agent(t)
		defer end()
		do(t, d, pipeline.VerbStart, "extract")
		s, _ := d.Snapshot(t.Context())
		if got := s.Nodes[0].Stages[0].Workers; len(got) != 1 || s.Health != pipeline.Healthy {
			t.Errorf("%d workers, %s %v", len(got), s.Health, s.HealthReasons)
		}
	})
}

func TestANewAgentTellsTheMoverWhatWasStarted(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "count: 1", 0)
		d, end := w.agent(t)
		do(t, d, pipeline.VerbStart, "extract")
		end()
		w.mover.active = nil // as after a lost ledger
		_, end = w.agent(t)
		defer end()
		synctest.Wait()
		if !slices.Contains(w.mover.active, "extract") {
			t.Error("the mover does not know the stage")
		}
	})
}

func TestAStartAfterAStopTellsNothingOfThePast(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "count: 1", 0)
		w.host.onSig = func(l *pipeline.LaunchSeen, _ string, _ pipeline.Scope) { w.host.exit(l, 0) }
		d, end := w.agent(t)
		defer end()
		do(t, d, pipeline.VerbStart, "extract")
		do(t, d, pipeline.VerbStop, "extract")
		s, _ := d.Snapshot(t.Context())
		last := s.Nodes[0].Events[len(s.Nodes[0].Events)-1].Seq
		do(t, d, pipeline.VerbStart, "extract")
		evs, err := d.Events(t.Context(), last, 0)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range evs {
			if strings.Contains(e.Text, "ended") || strings.Contains(e.Text, "done") {
				t.Errorf("event: %s %s", e.Source, e.Text)
			}
		}
	})
}

func TestANewAgentAdoptsAndStartsNothingTwice(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "count: 2", 0)
		d, end := w.agent(t)
		do(t, d, pipeline.VerbStart, "extract")
		end()
		w.host.end("extract-1-1", 1) // while nobody watches
		d, end = w.agent(t)
		defer end()
		time.Sleep(time.Minute)
		want := []string{"extract-0-1", "extract-1-1", "extract-1-2"}
		got := w.host.launches()
		slices.Sort(got)
		if !slices.Equal(got, want) {
			t.Errorf("launched %v, want %v", got, want)
		}
		s, _ := d.Snapshot(t.Context())
		for _, worker := range s.Nodes[0].Stages[0].Workers {
			if worker.PID == nil {
				t.Errorf("%s has no process", worker.ID)
			}
		}
	})
}

func TestRefusals(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "count: 1", 0)
		d, end := w.agent(t)
		defer end()
		do(t, d, pipeline.VerbStart, "extract")
		stop := func() pipeline.Plan {
			p, err := d.Plan(t.Context(), pipeline.Intent{Verb: pipeline.VerbStop, Target: "extract"})
			if err != nil {
				t.Fatal(err)
			}
			return p
		}
		refused := func(name string, req pipeline.ApplyRequest, want string) {
			_, err := d.Apply(t.Context(), req)
			var p *pipeline.Problem
			if !errors.As(err, &p) || p.Kind != pipeline.ProblemRefused || !strings.Contains(err.Error(), want) {
				t.Errorf("%s: %v", name, err)
			}
		}
		refused("no plan", pipeline.ApplyRequest{Plan: "p-x"}, "no such plan")
		p := stop()
		refused("wrong text", pipeline.ApplyRequest{Plan: p.ID, Confirm: "yes"}, `"d"`)
		time.Sleep(16 * time.Minute)
		refused("expired", pipeline.ApplyRequest{Plan: p.ID, Confirm: "d"}, "expired")
		if len(w.host.sent()) != 0 {
			t.Fatalf("a refused plan sent %q", w.host.sent())
		}
		p, other := stop(), stop()
		if _, err := d.Apply(t.Context(), pipeline.ApplyRequest{Plan: p.ID, Confirm: "d", By: "alice"}); err != nil {
			t.Fatal(err)
		}
		refused("twice", pipeline.ApplyRequest{Plan: p.ID, Confirm: "d"}, "applied it before")
		refused("lease", pipeline.ApplyRequest{Plan: other.ID, Confirm: "d"}, "alice")
	})
}

func TestSettleEndsWhenNothingIsLeft(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "count: 1", 0)
		out := pipeline.OutputReading{Stage: "extract", Name: "states"}
		out.Queue.WaitingFiles = 7
		w.mover.set(pipeline.MoverReading{Outputs: []pipeline.OutputReading{out}})
		d, end := w.agent(t)
		defer end()
		time.AfterFunc(30*time.Second, func() {
			out.Queue.WaitingFiles, out.Settled = 0, true
			w.mover.set(pipeline.MoverReading{Outputs: []pipeline.OutputReading{out}})
		})
		began := time.Now()
		a := do(t, d, pipeline.VerbSettle, "extract/states")
		if a.Result != pipeline.Verified || time.Since(began) < 30*time.Second {
			t.Errorf("settle: %s after %s", a.Result, time.Since(began))
		}
		if !slices.Contains(w.mover.active, "extract") {
			t.Error("settle did not name the stage to the mover")
		}
	})
}

func TestSettleEndsWhereItCannot(t *testing.T) {
	t.Parallel()
	two := int64(2)
	for name, tc := range map[string]struct {
		out  pipeline.OutputReading
		want pipeline.Verdict
	}{
		"files that fail": {
			pipeline.OutputReading{FailedFiles: &two, LocalFiles: &two, Queue: pipeline.Queue{WaitingFiles: 2}, StateReason: "permission denied"},
			pipeline.ActionFailed,
		},
		"files that differ from their object": {
			pipeline.OutputReading{FailedFiles: &two, LocalFiles: &two, StateReason: "the object differs"}, pipeline.ActionFailed,
		},
		"a directory that cannot be read": {
			pipeline.OutputReading{Reason: "the output directory cannot be read"}, pipeline.Unverified,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, "count: 1", 0)
				tc.out.Stage, tc.out.Name = "extract", "states"
				w.mover.set(pipeline.MoverReading{Outputs: []pipeline.OutputReading{tc.out}})
				d, end := w.agent(t)
				defer end()
				a := do(t, d, pipeline.VerbSettle, "extract/states")
				if a.Result != tc.want || a.Reason == nil {
					t.Errorf("settle: %s, %v", a.Result, a.Reason)
				}
			})
		})
	}
}

func TestASettleThatFailsNamesAFileAndWhy(t *testing.T) {
	t.Parallel()
	one := int64(1)
	held := pipeline.Failure{Output: "extract/states", Path: "held", Kind: pipeline.FailureHeld, Reason: "open"}
	differs := pipeline.Failure{Output: "extract/states", Path: "hs_3", Kind: pipeline.FailureMismatched, Reason: "another object", Since: time.Unix(9, 0)}
	for want, failures := range map[string][]pipeline.Failure{
		`1 file cannot be stored: "hs_3": another object`:  {held, differs},
		`1 file cannot be stored: the reason is not known`: {held},
	} {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t, "count: 1", 0)
			w.mover.failures = failures
			w.mover.set(pipeline.MoverReading{Outputs: []pipeline.OutputReading{{Stage: "extract", Name: "states", FailedFiles: &one, LocalFiles: &one}}})
			d, end := w.agent(t)
			defer end()
			a := do(t, d, pipeline.VerbSettle, "extract/states")
			if a.Reason == nil || !strings.HasSuffix(*a.Reason, want) {
				t.Errorf("reason %v, want %q", a.Reason, want)
			}
		})
	}
}

func TestARunningActionIsNotSaidToBeVerified(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "count: 1", 0)
		d, end := w.agent(t)
		defer end()
		do(t, d, pipeline.VerbStart, "extract")
		p, err := d.Plan(t.Context(), pipeline.Intent{Verb: pipeline.VerbStop, Target: "extract"})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := d.Apply(t.Context(), pipeline.ApplyRequest{Plan: p.ID, Confirm: confirmOf(p), By: "alice"}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(3 * time.Second)
		s, _ := d.Snapshot(t.Context())
		if a := s.Nodes[0].Action; a == nil || a.Result != pipeline.Running || a.EndedAt != nil {
			t.Errorf("action = %+v", a)
		}
	})
}
