package deck

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"pipedeck/pipeline"
)

// A number that another process got between plan and execution is nobody that
// was shown: it is neither adopted nor ended.
func TestARecycledPidIsNotTheProcessThatWasShown(t *testing.T) {
	for _, verb := range []pipeline.Verb{pipeline.VerbAdopt, pipeline.VerbReap} {
		t.Run(string(verb), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, "per_gpu: 1", 2)
				w.adopter.strangers = []pipeline.Stranger{
					{PID: 71, StartTicks: 1, Ours: true, StartedAt: time.Now()},
					{PID: 72, StartTicks: 2, Ours: true, StartedAt: time.Now()},
				}
				d, end := w.agent(t)
				defer end()
				in := pipeline.Intent{Verb: verb, PIDs: []int{71, 72}}
				if verb == pipeline.VerbAdopt {
					in.Target = "extract"
				}
				p := wipePlan(t, d, in)
				w.adopter.strangers[1].StartTicks = 9
				a := applied(t, d, p, "d")
				if verb == pipeline.VerbReap {
					if a.Result != pipeline.Verified || !slices.Equal(w.adopter.reaped, []int{71}) {
						t.Errorf("%s, reaped %v", a.Result, w.adopter.reaped)
					}
					return
				}
				if a.Result != pipeline.ActionFailed || !strings.Contains(*a.Reason, "process 72 is not the one that was shown") {
					t.Errorf("%+v", a)
				}
				if len(w.host.procs) != 0 {
					t.Errorf("some were adopted all the same: %v", w.host.procs)
				}
			})
		})
	}
}

func TestAProcessIsNotNamedTwice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "per_gpu: 1", 2)
		w.adopter.strangers = []pipeline.Stranger{{PID: 71, StartedAt: time.Now()}}
		d, end := w.agent(t)
		defer end()
		p := wipePlan(t, d, pipeline.Intent{Verb: pipeline.VerbAdopt, Target: "extract", PIDs: []int{71, 71}})
		if p.Executable || !strings.Contains(strings.Join(p.Blocked, " "), "named twice") {
			t.Errorf("%v", p.Blocked)
		}
	})
}

// What an action has changed is looked at again at once, and a plan that was
// used says so whatever it changed.
func TestPlansAfterAnActionSeeWhatItDid(t *testing.T) {
	withSixFiles(t, func(t *testing.T, _ *world, d *Deck) {
		p := wipePlan(t, d, wipe(states))
		if a := applied(t, d, p, "3 d"); a.Result != pipeline.Verified {
			t.Fatal(*a.Reason)
		}
		if next := wipePlan(t, d, wipe(states)); next.Loss.Files != 0 {
			t.Errorf("counted from before the wipe: %+v", next.Loss)
		}
		_, err := d.Apply(t.Context(), pipeline.ApplyRequest{Plan: p.ID, Confirm: "3 d"})
		var prob *pipeline.Problem
		if !errors.As(err, &prob) || prob.Kind != pipeline.ProblemRefused || !strings.Contains(prob.Text, "applied it before") {
			t.Errorf("%v", err)
		}
	})
}

// An agent that goes on with a half-filled trash tells of all that is in it.
func TestAResumedWipeCountsWhatWasMovedBefore(t *testing.T) {
	withSixFiles(t, func(t *testing.T, w *world, d *Deck) {
		p := wipePlan(t, d, wipe(states))
		w.custody.onTrash = func() {
			d.mu.Lock()
			action := d.holder
			d.mu.Unlock()
			w.custody.mu.Lock()
			defer w.custody.mu.Unlock()
			w.custody.trash[action] = map[string]*diskFile{states + "\x00z": {}} // as if an agent had moved one
		}
		a := applied(t, d, p, "3 d")
		i := slices.IndexFunc(a.Steps, func(s pipeline.StepResult) bool { return s.Kind == pipeline.StepTrash })
		if a.Result != pipeline.Verified || i < 0 || !strings.Contains(a.Steps[i].Text, "7 files moved to the trash") {
			t.Fatalf("%+v", a)
		}
	})
}

// A plan whose action could not be recorded was not used: it says why, in the
// journal too, and can be applied when there is room.
func TestAPlanThatCouldNotBeginIsNotUsed(t *testing.T) {
	withSixFiles(t, func(t *testing.T, w *world, d *Deck) {
		p := wipePlan(t, d, wipe(states))
		files := d.p.Files
		d.p.Files = fullDisk{files}
		_, err := d.Apply(t.Context(), pipeline.ApplyRequest{Plan: p.ID, Confirm: "3 d"})
		if err == nil || !strings.Contains(err.Error(), "no space left") {
			t.Fatalf("%v", err)
		}
		recs, err := w.journal.Read(0)
		if err != nil || len(recs) == 0 || recs[len(recs)-1].Kind != "refused" {
			t.Errorf("%+v, %v", recs, err)
		}
		d.p.Files = files
		if a := applied(t, d, p, "3 d"); a.Result != pipeline.Verified {
			t.Error(*a.Reason)
		}
	})
}

type fullDisk struct{ pipeline.Files }

func (fullDisk) WriteFile(string, []byte) error { return errors.New("no space left on device") }

// A trash that the mover purged early is gone for good: the journal says so
// once, under its action.
func TestAnEarlyPurgeIsInTheJournal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "count: 1", 0)
		d, end := w.agent(t)
		defer end()
		w.mover.set(pipeline.MoverReading{Events: []pipeline.Event{
			{At: time.Now(), Text: "all is well"}, {At: time.Now(), Text: "purged early", Action: "a-1"},
		}})
		d.foldMover()
		d.foldMover()
		recs, err := w.journal.Read(0)
		if err != nil {
			t.Fatal(err)
		}
		n := 0
		for _, r := range recs {
			if r.Action == "a-1" && r.Text == "purged early" {
				n++
			}
			if r.Text == "all is well" {
				t.Error("an event of no action is in the journal")
			}
		}
		if n != 1 {
			t.Errorf("it is in the journal %d times", n)
		}
	})
}
