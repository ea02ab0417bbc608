package deck

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"pipedeck/pipeline"
)

const states = "extract/states"

// sixFiles are three proven ones and three that are not.
func sixFiles(w *world) {
	for i, class := range []pipeline.FileClass{
		pipeline.ClassProven, pipeline.ClassProven, pipeline.ClassProven,
		pipeline.ClassMissing, pipeline.ClassUnknown, pipeline.ClassMismatched,
	} {
		w.custody.put(states, string(rune('a'+i)), uint64(i+1), class)
	}
}

// withSixFiles runs a test in virtual time on an agent of a deck with six files.
func withSixFiles(t *testing.T, test func(t *testing.T, w *world, d *Deck)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "count: 1", 0)
		sixFiles(w)
		d, end := w.agent(t)
		defer end()
		test(t, w, d)
	})
}

func wipePlan(t *testing.T, d *Deck, in pipeline.Intent) pipeline.Plan {
	t.Helper()
	p, err := d.Plan(t.Context(), in)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func applied(t *testing.T, d *Deck, p pipeline.Plan, confirm string) pipeline.Action {
	t.Helper()
	a, err := d.Apply(t.Context(), pipeline.ApplyRequest{Plan: p.ID, Confirm: confirm, By: "tester"})
	for err == nil && a.EndedAt == nil {
		a, err = d.Action(t.Context(), a.ID, time.Minute)
	}
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func wipe(target string) pipeline.Intent {
	return pipeline.Intent{Verb: pipeline.VerbWipe, Target: target}
}

func TestWipeStopsCountsAndMovesWhatWasListed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "per_gpu: 1", 2)
		w.host.onSig = func(l *pipeline.LaunchSeen, _ string, _ pipeline.Scope) { w.host.exit(l, 0) }
		sixFiles(w)
		d, end := w.agent(t)
		defer end()
		if a := do(t, d, pipeline.VerbStart, "extract"); a.Result != pipeline.Verified {
			t.Fatal(*a.Reason)
		}
		p := wipePlan(t, d, wipe("states"))
		if p.Loss.Files != 6 || p.Loss.Proven != 3 || p.Loss.LostFiles != 3 || *p.Confirm != "3 d" {
			t.Fatalf("loss %+v, confirm %q", p.Loss, *p.Confirm)
		}
		if p.Safer == nil || p.Safer.Action != pipeline.VerbSettle || p.Undo.Until == nil {
			t.Errorf("safer %+v, undo %+v", p.Safer, p.Undo)
		}
		page, err := d.PlanFiles(t.Context(), p.ID, 0, 4)
		if err != nil || page.Total != 6 || len(page.Files) != 4 || !page.Files[2].Lost() || page.Files[3].Lost() {
			t.Errorf("page %+v, %v", page, err)
		}
		var undone string
		w.custody.onTrash = func() {
			w.custody.mu.Lock()
			defer w.custody.mu.Unlock()
			if len(w.custody.suspended) != 1 {
				t.Error("the mover was not kept off")
			}
			if len(w.host.sent()) != 2 {
				t.Errorf("workers were signalled %d times before anything moved", len(w.host.sent()))
			}
		}
		a := applied(t, d, p, "3 d")
		if a.Result != pipeline.Verified {
			t.Fatal(*a.Reason)
		}
		undone = a.ID
		if left := w.custody.names(states); len(left) != 0 {
			t.Errorf("left: %v", left)
		}
		if w.custody.held() != 0 {
			t.Error("the mover is still kept off")
		}
		if a := do(t, d, pipeline.VerbUndo, undone); a.Result != pipeline.Verified {
			t.Fatal(*a.Reason)
		}
		if left := w.custody.names(states); len(left) != 6 {
			t.Errorf("after undo: %v", left)
		}
	})
}

// The confirmation must be read: nothing else does anything.
func TestWipeTakesOnlyItsOwnWords(t *testing.T) {
	withSixFiles(t, func(t *testing.T, w *world, d *Deck) {
		for _, typed := range []string{"", "y", "d", "wipe d", "6 d", "3", "3  d", " 3 d", "3 d ", "3 D"} {
			p := wipePlan(t, d, wipe(states))
			_, err := d.Apply(t.Context(), pipeline.ApplyRequest{Plan: p.ID, Confirm: typed})
			var prob *pipeline.Problem
			if !errors.As(err, &prob) || prob.Kind != pipeline.ProblemRefused {
				t.Errorf("%q: %v", typed, err)
			}
		}
		if left := w.custody.names(states); len(left) != 6 {
			t.Errorf("left: %v", left)
		}
	})
}

func TestWipeProvenOnlyLosesNothing(t *testing.T) {
	withSixFiles(t, func(t *testing.T, w *world, d *Deck) {
		p := wipePlan(t, d, pipeline.Intent{Verb: pipeline.VerbWipe, Target: states, ProvenOnly: true})
		if p.Loss.LostFiles != 0 || *p.Confirm != "wipe d" {
			t.Fatalf("%+v %q", p.Loss, *p.Confirm)
		}
		if a := applied(t, d, p, "wipe d"); a.Result != pipeline.Verified {
			t.Fatal(*a.Reason)
		}
		if left := w.custody.names(states); !slices.Equal(left, []string{"d", "e", "f"}) {
			t.Errorf("left: %v", left)
		}
	})
}

// Between plan and execution anything may happen to a file. In no case is one
// lost that the plan did not list as lost.
func TestRacesBetweenPlanAndApply(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(w *world)
		left   []string
		result pipeline.Verdict
		says   string
	}{
		"a file appears": {
			func(w *world) { w.custody.put(states, "new", 99, pipeline.ClassMissing) },
			[]string{"new"},
			pipeline.Verified, "",
		},
		"a file changes": {
			func(w *world) { w.custody.put(states, "d", 98, pipeline.ClassMissing) },
			[]string{"d"},
			pipeline.Verified, "",
		},
		"a proven file is replaced": {
			func(w *world) { w.custody.put(states, "a", 97, pipeline.ClassMissing) },
			[]string{"a"},
			pipeline.Verified, "",
		},
		"a file vanishes": {
			func(w *world) { delete(w.custody.files[states], "d") },
			nil, pipeline.Verified, "",
		},
		"an upload finishes": {
			func(w *world) { w.custody.put(states, "d", 4, pipeline.ClassProven) },
			nil, pipeline.Verified, "",
		},
		"an object is deleted behind our back": {
			func(w *world) { w.custody.put(states, "a", 1, pipeline.ClassMissing) },
			[]string{"a", "b", "c", "d", "e", "f"},
			pipeline.ActionFailed, "nothing was moved",
		},
		"the store goes away": {
			func(w *world) {
				for i, n := range []string{"a", "b", "c"} {
					w.custody.put(states, n, uint64(i+1), pipeline.ClassUnknown)
				}
			},
			[]string{"a", "b", "c", "d", "e", "f"},
			pipeline.ActionFailed, "3 files that the plan counted as proven",
		},
	} {
		t.Run(name, func(t *testing.T) {
			withSixFiles(t, func(t *testing.T, w *world, d *Deck) {
				p := wipePlan(t, d, wipe(states))
				tc.change(w)
				a := applied(t, d, p, *p.Confirm)
				if a.Result != tc.result || tc.says != "" && !strings.Contains(*a.Reason, tc.says) {
					t.Errorf("%s: %v", a.Result, a.Reason)
				}
				if left := w.custody.names(states); !slices.Equal(left, tc.left) {
					t.Errorf("left: %v, want %v", left, tc.left)
				}
				if w.custody.held() != 0 {
					t.Error("the mover is still kept off")
				}
			})
		})
	}
}

func TestAPlanRunsOnceAndTwoOperatorsGetOneAction(t *testing.T) {
	withSixFiles(t, func(t *testing.T, w *world, d *Deck) {
		first, second := wipePlan(t, d, wipe(states)), wipePlan(t, d, wipe(states))
		hold := make(chan struct{})
		w.custody.onTrash = func() { <-hold }
		a, err := d.Apply(t.Context(), pipeline.ApplyRequest{Plan: first.ID, Confirm: *first.Confirm, By: "ann@a"})
		if err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		_, err = d.Apply(t.Context(), pipeline.ApplyRequest{Plan: second.ID, Confirm: *second.Confirm, By: "bob@b"})
		if err == nil || !strings.Contains(err.Error(), "by ann@a") {
			t.Errorf("the second operator: %v", err)
		}
		_, err = d.Apply(t.Context(), pipeline.ApplyRequest{Plan: first.ID, Confirm: *first.Confirm, By: "ann@a"})
		if err == nil || !strings.Contains(err.Error(), "applied it before") {
			t.Errorf("the same plan again: %v", err)
		}
		close(hold)
		for a.EndedAt == nil {
			if a, err = d.Action(t.Context(), a.ID, time.Minute); err != nil {
				t.Fatal(err)
			}
		}
		w.custody.put(states, "a", 77, pipeline.ClassMissing)
		if b := applied(t, d, second, *second.Confirm); b.Result != pipeline.Verified || len(w.custody.names(states)) != 1 {
			t.Errorf("the other plan afterwards: %+v, left %v", b, w.custody.names(states))
		}
	})
}

func TestAnExpiredPlanIsRefused(t *testing.T) {
	withSixFiles(t, func(t *testing.T, _ *world, d *Deck) {
		p := wipePlan(t, d, wipe(states))
		time.Sleep(16 * time.Minute)
		_, err := d.Apply(t.Context(), pipeline.ApplyRequest{Plan: p.ID, Confirm: *p.Confirm})
		if err == nil || !strings.Contains(err.Error(), "expired") {
			t.Errorf("%v", err)
		}
		recs, _ := d.History(t.Context(), 0)
		if last := recs[len(recs)-1]; last.Kind != "expired" || last.Plan != p.ID {
			t.Errorf("the refusal is not in the journal: %+v", last)
		}
	})
}

// A wall clock that is set while a plan is open or a wipe is under way loses
// nothing: at worst the plan must be made again.
func TestTheClockIsSetAroundAWipe(t *testing.T) {
	for _, step := range []time.Duration{-24 * time.Hour, -time.Minute, time.Minute, 24 * time.Hour} {
		t.Run(step.String(), func(t *testing.T) {
			withSixFiles(t, func(t *testing.T, w *world, d *Deck) {
				p := wipePlan(t, d, wipe(states))
				w.step.Store(int64(step))
				if _, err := d.Apply(t.Context(), pipeline.ApplyRequest{Plan: p.ID, Confirm: "no"}); err == nil || len(w.custody.names(states)) != 6 {
					t.Fatalf("a wrong text: %v", err)
				}
				p = wipePlan(t, d, wipe(states))
				w.custody.onTrash = func() { w.step.Add(int64(step)) }
				a := applied(t, d, p, *p.Confirm)
				if a.Result != pipeline.Verified || len(w.custody.names(states)) != 0 {
					t.Fatalf("%s %v, left %v", a.Result, a.Reason, w.custody.names(states))
				}
				time.Sleep(time.Minute) // the purge looks meanwhile: it goes by the boot clock
				if b := do(t, d, pipeline.VerbUndo, a.ID); b.Result != pipeline.Verified || len(w.custody.names(states)) != 6 {
					t.Errorf("undo: %s %v", b.Result, b.Reason)
				}
			})
		})
	}
}

// Nobody is answered from an old look: what appeared since counts.
func TestEachPlanLooksAfresh(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "count: 1", 0)
		d, end := w.agent(t)
		defer end()
		if p := wipePlan(t, d, wipe(states)); p.Loss.Files != 0 || p.Confirm != nil {
			t.Fatalf("%+v", p.Loss)
		}
		sixFiles(w)
		if p := wipePlan(t, d, wipe(states)); p.Loss.LostFiles != 3 {
			t.Errorf("%+v", p.Loss)
		}
	})
}

// A long look at the files does not hold up the answer.
func TestAPlanSaysHowFarItsLookIs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "count: 1", 0)
		sixFiles(w)
		w.custody.slow = make(chan struct{})
		d, end := w.agent(t)
		defer end()
		p := wipePlan(t, d, wipe(states))
		if p.Checking == nil || p.Checking.Done != 3 || p.Executable {
			t.Fatalf("%+v", p)
		}
		_, err := d.Apply(t.Context(), pipeline.ApplyRequest{Plan: p.ID, Confirm: "0 d"})
		if err == nil || !strings.Contains(err.Error(), "still being found out") {
			t.Errorf("%v", err)
		}
		close(w.custody.slow)
		synctest.Wait()
		if p = wipePlan(t, d, wipe(states)); p.Checking != nil || p.Loss.LostFiles != 3 {
			t.Errorf("%+v", p)
		}
	})
}

// An agent that dies at any record of a wipe leaves it to the next one, which
// finishes it: nothing is lost but what was confirmed.
func TestWipeGoesOnAfterEveryRecord(t *testing.T) {
	full := records(t)
	for cut := 1; cut < len(full); cut++ {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t, "count: 1", 0)
			sixFiles(w)
			d, end := w.agent(t)
			p := wipePlan(t, d, wipe(states))
			held := d.plans[p.ID]
			end()
			// The records of an agent that died after the cut-th of them, with the
			// effects of those that are verified.
			begin := time.Now()
			for i, r := range full[:cut] {
				if r.Kind == "begin" {
					r.Data = p
				}
				r.At, r.Plan = begin, p.ID
				if err := w.journal.Append(r); err != nil {
					t.Fatal(err)
				}
				moved := r.Step == stepOf(p, pipeline.StepTrash) && (r.Kind == "verified" || i == cut-1)
				if moved { // killed in the middle of it, too
					n := len(held.list)
					if r.Kind == "intent" {
						n /= 2
					}
					if _, err := w.custody.Trash(t.Context(), full[0].Action, held.list[:n], nil); err != nil {
						t.Fatal(err)
					}
				}
			}
			if err := d.writeList(full[0].Action, held.list); err != nil {
				t.Fatal(err)
			}
			w.custody.put(states, "later", 50, pipeline.ClassMissing)
			next, stop := w.agent(t)
			defer stop()
			a, err := next.Action(t.Context(), full[0].Action, time.Minute)
			for err == nil && a.EndedAt == nil {
				a, err = next.Action(t.Context(), a.ID, time.Minute)
			}
			if err != nil || a.Result != pipeline.Verified {
				t.Fatalf("after %d records: %+v, %v", cut, a, err)
			}
			if left := w.custody.names(states); !slices.Equal(left, []string{"later"}) {
				t.Errorf("after %d records: left %v", cut, left)
			}
			if n := len(w.custody.trash[full[0].Action]); n != 6 {
				t.Errorf("after %d records: %d files can be brought back", cut, n)
			}
		})
	}
}

func stepOf(p pipeline.Plan, kind pipeline.StepKind) int {
	for _, s := range p.Steps {
		if s.Kind == kind {
			return s.N
		}
	}
	return -1
}

// records is the journal of one wipe from its begin to its end.
func records(t *testing.T) (out []pipeline.JournalRecord) {
	t.Helper()
	withSixFiles(t, func(t *testing.T, _ *world, d *Deck) {
		p := wipePlan(t, d, wipe(states))
		applied(t, d, p, *p.Confirm)
		recs, err := d.History(context.Background(), 0)
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range recs {
			if r.Action != "" {
				out = append(out, r)
			}
		}
	})
	return out
}

// What was confirmed long ago is asked for again.
func TestAWipeInterruptedLongAgoWaits(t *testing.T) {
	for _, how := range []pipeline.ResolveHow{pipeline.ResolveResume, pipeline.ResolveAbandon, pipeline.ResolveTakeover} {
		t.Run(string(how), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, "count: 1", 0)
				sixFiles(w)
				d, end := w.agent(t)
				p := wipePlan(t, d, wipe(states))
				list := d.plans[p.ID].list
				end()
				if err := w.journal.Append(pipeline.JournalRecord{At: time.Now(), Kind: "begin", Action: "a-9", Plan: p.ID, By: "ann", Data: p}); err != nil {
					t.Fatal(err)
				}
				if err := d.writeList("a-9", list); err != nil {
					t.Fatal(err)
				}
				time.Sleep(time.Hour)
				next, stop := w.agent(t)
				defer stop()
				a, err := next.Action(t.Context(), "a-9", 0)
				if err != nil || !a.Waits || a.EndedAt != nil || len(w.custody.names(states)) != 6 {
					t.Fatalf("%+v %v", a, err)
				}
				other := wipePlan(t, next, wipe(states))
				if _, err := next.Apply(t.Context(), pipeline.ApplyRequest{Plan: other.ID, Confirm: *other.Confirm}); err == nil {
					t.Error("the lease is not held")
				}
				if _, err := next.Resolve(t.Context(), pipeline.Resolve{Action: "a-9", How: how, By: "bob"}); err != nil {
					t.Fatal(err)
				}
				for a.EndedAt == nil {
					if a, err = next.Action(t.Context(), "a-9", time.Minute); err != nil {
						t.Fatal(err)
					}
				}
				left := len(w.custody.names(states))
				if how == pipeline.ResolveResume && (a.Result != pipeline.Verified || left != 0) {
					t.Errorf("%s: %v, %d left", a.Result, a.Reason, left)
				}
				if how != pipeline.ResolveResume && (a.Result != pipeline.Unverified || left != 6 || !strings.Contains(*a.Reason, "bob")) {
					t.Errorf("%s: %v, %d left", a.Result, a.Reason, left)
				}
				if how != pipeline.ResolveResume {
					again := wipePlan(t, next, wipe(states))
					if a := applied(t, next, again, *again.Confirm); a.Result != pipeline.Verified {
						t.Error("the lease was not freed")
					}
				}
			})
		})
	}
}

func TestTakeoverEndsARunningAction(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "count: 1", 0)
		d, end := w.agent(t)
		defer end()
		do(t, d, pipeline.VerbStart, "extract")
		p := wipePlan(t, d, pipeline.Intent{Verb: pipeline.VerbStop, Target: "extract"})
		a, err := d.Apply(t.Context(), pipeline.ApplyRequest{Plan: p.ID, Confirm: "d", By: "ann"})
		if err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if _, err := d.Resolve(t.Context(), pipeline.Resolve{Action: a.ID, How: pipeline.ResolveAbandon, By: "bob"}); err == nil {
			t.Error("a running action was abandoned")
		}
		a, err = d.Resolve(t.Context(), pipeline.Resolve{Action: a.ID, How: pipeline.ResolveTakeover, By: "bob"})
		if err != nil || a.EndedAt == nil || a.Result != pipeline.Unverified || !strings.Contains(*a.Reason, "taken over by bob") {
			t.Fatalf("%+v %v", a, err)
		}
		again := wipePlan(t, d, pipeline.Intent{Verb: pipeline.VerbKill, Target: "extract"})
		w.host.onSig = func(l *pipeline.LaunchSeen, _ string, _ pipeline.Scope) { w.host.exit(l, 137) }
		if a := applied(t, d, again, "d"); a.Result != pipeline.Verified {
			t.Errorf("%+v", a)
		}
	})
}
