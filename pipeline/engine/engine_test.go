package engine

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strconv"
	"testing"
	"time"

	"pipedeck/pipeline"
)

// memJournal keeps records as the file would give them back: through JSON.
type memJournal struct {
	recs   []pipeline.JournalRecord
	failAt int // the n-th append fails, from 1; 0 never
}

func (j *memJournal) Append(rec pipeline.JournalRecord) error {
	if j.failAt > 0 && len(j.recs)+1 == j.failAt {
		return errors.New("disk full")
	}
	raw, err := json.Marshal(rec)
	if err != nil {
		return err
	}
	var back pipeline.JournalRecord
	if err := json.Unmarshal(raw, &back); err != nil {
		return err
	}
	j.recs = append(j.recs, back)
	return nil
}

func (j *memJournal) Read(int) ([]pipeline.JournalRecord, error) { return j.recs, nil }

func (j *memJournal) kinds() []string {
	out := make([]string, 0, len(j.recs))
	for _, r := range j.recs {
		out = append(out, r.Kind)
	}
	return out
}

// scripted answers each step with its outcome and notes which were done.
type scripted struct {
	outcomes []Outcome
	did      []int
	during   func(n int)
}

func (s *scripted) Do(_ context.Context, j Job) Outcome {
	st := j.Step
	s.did = append(s.did, st.N)
	j.Report("working")
	if s.during != nil {
		s.during(st.N)
	}
	return s.outcomes[st.N-1]
}

func threeSteps() pipeline.Plan {
	return pipeline.Plan{ID: "p-1", Action: pipeline.VerbRestart, Target: "extract", Steps: []pipeline.Step{
		{N: 1, Kind: pipeline.StepStopWorkers, On: []string{"extract"}},
		{N: 2, Kind: pipeline.StepDoneSet, On: []string{"extract"}},
		{N: 3, Kind: pipeline.StepStartWorkers, On: []string{"extract"}},
	}}
}

func newEngine(j *memJournal, x Executor) *Engine {
	at := time.Date(2026, 11, 30, 10, 0, 0, 0, time.UTC)
	return &Engine{Journal: j, Exec: x, Now: func() time.Time { return at }, Observe: func(pipeline.Action) {}}
}

func ok() Outcome { return Outcome{Result: pipeline.Verified} }

func TestRunJournalsEachStepBeforeAndAfter(t *testing.T) {
	t.Parallel()
	j, x := &memJournal{}, &scripted{outcomes: []Outcome{ok(), ok(), ok()}}
	e := newEngine(j, x)
	a, err := e.Begin("a-1", threeSteps(), pipeline.ApplyRequest{By: "alice@laptop"})
	if err != nil {
		t.Fatal(err)
	}
	a = e.Run(t.Context(), threeSteps(), a, 0)
	if a.Result != pipeline.Verified || a.EndedAt == nil {
		t.Errorf("action = %+v", a)
	}
	want := []string{"begin", "intent", "verified", "intent", "verified", "intent", "verified", "end"}
	if got := j.kinds(); !slices.Equal(got, want) {
		t.Errorf("journal = %v, want %v", got, want)
	}
}

func TestRunStopsAtTheFirstStepThatIsNotVerified(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		second Outcome
		want   pipeline.Verdict
	}{
		"failed":  {Outcome{Result: pipeline.ActionFailed, Text: "no"}, pipeline.ActionFailed},
		"unknown": {Outcome{Result: pipeline.Unverified}, pipeline.Unverified},
		"silence": {Outcome{}, pipeline.Unverified},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			j, x := &memJournal{}, &scripted{outcomes: []Outcome{ok(), tc.second, ok()}}
			e := newEngine(j, x)
			a, err := e.Begin("a-1", threeSteps(), pipeline.ApplyRequest{})
			if err != nil {
				t.Fatal(err)
			}
			a = e.Run(t.Context(), threeSteps(), a, 0)
			if a.Result != tc.want || a.Reason == nil {
				t.Errorf("result %q, reason %v", a.Result, a.Reason)
			}
			if !slices.Equal(x.did, []int{1, 2}) {
				t.Errorf("did steps %v", x.did)
			}
		})
	}
}

// Whatever append fails, no step runs that was not recorded first, and nothing
// unrecorded is called verified.
func TestAFailingJournalNeverHidesAStep(t *testing.T) {
	t.Parallel()
	for n := 1; n <= 8; n++ {
		t.Run(strconv.Itoa(n), func(t *testing.T) {
			t.Parallel()
			j, x := &memJournal{failAt: n}, &scripted{outcomes: []Outcome{ok(), ok(), ok()}}
			e := newEngine(j, x)
			a, err := e.Begin("a-1", threeSteps(), pipeline.ApplyRequest{})
			if n == 1 {
				if err == nil {
					t.Fatal("begun without a record")
				}
				return
			}
			x.during = func(step int) {
				last := j.recs[len(j.recs)-1]
				if last.Kind != KindIntent || last.Step != step {
					t.Errorf("step %d runs after record %q of step %d", step, last.Kind, last.Step)
				}
			}
			a = e.Run(t.Context(), threeSteps(), a, 0)
			if a.Result == pipeline.Verified {
				t.Error("verified although a record is missing")
			}
		})
	}
}

// An agent that dies after any record leaves a journal from which the next one
// repeats no verified step.
func TestUnfinishedAfterEveryRecord(t *testing.T) {
	t.Parallel()
	full := &memJournal{}
	e := newEngine(full, &scripted{outcomes: []Outcome{ok(), ok(), ok()}})
	a, err := e.Begin("a-1", threeSteps(), pipeline.ApplyRequest{By: "alice"})
	if err != nil {
		t.Fatal(err)
	}
	e.Run(t.Context(), threeSteps(), a, 0)
	for cut := 1; cut <= len(full.recs); cut++ {
		open, ended, err := Unfinished(full.recs[:cut])
		if err != nil {
			t.Fatal(err)
		}
		if cut == len(full.recs) {
			if len(open) != 0 {
				t.Errorf("an ended action is open: %+v", open)
			}
			if ended == nil || ended.ID != "a-1" || ended.Result != pipeline.Verified || ended.EndedAt == nil || ended.Reason != nil {
				t.Errorf("it ended as %+v", ended)
			}
			continue
		}
		if len(open) != 1 || ended != nil {
			t.Fatalf("after %d records: %d open actions", cut, len(open))
		}
		verified := 0
		for _, r := range full.recs[:cut] {
			if r.Kind == string(pipeline.Verified) {
				verified++
			}
		}
		if open[0].First != verified || len(open[0].Plan.Steps) != 3 || open[0].Action.By != "alice" {
			t.Errorf("after %d records: first %d, want %d", cut, open[0].First, verified)
		}
	}
}

func TestAnEndingAgentLeavesTheActionOpen(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	j, x := &memJournal{}, &scripted{outcomes: []Outcome{ok(), {Result: pipeline.Unverified}, ok()}}
	x.during = func(step int) {
		if step == 2 {
			cancel()
		}
	}
	e := newEngine(j, x)
	a, err := e.Begin("a-1", threeSteps(), pipeline.ApplyRequest{})
	if err != nil {
		t.Fatal(err)
	}
	e.Run(ctx, threeSteps(), a, 0)
	open, _, err := Unfinished(j.recs)
	if err != nil || len(open) != 1 || open[0].First != 1 {
		t.Errorf("open = %+v, %v", open, err)
	}
}
