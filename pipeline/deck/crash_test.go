package deck

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"pipedeck/pipeline"
)

// dyingJournal kills the agent at its n-th record from now: the record is on
// disk, and whoever wrote it does nothing more.
type dyingJournal struct {
	*memJournal
	mu      sync.Mutex
	n       int
	died    chan struct{}
	release chan struct{}
}

func (j *dyingJournal) Append(rec pipeline.JournalRecord) error {
	j.mu.Lock()
	select {
	case <-j.died:
		j.mu.Unlock()
		<-j.release
		return errors.New("dead")
	default:
	}
	err := j.memJournal.Append(rec)
	j.n--
	dead := j.n == 0
	if dead {
		close(j.died)
	}
	j.mu.Unlock()
	if dead {
		<-j.release
		return errors.New("dead")
	}
	return err
}

// actionCase is one action in a world that is ready for it.
type actionCase struct {
	in    pipeline.Intent
	ready func(t *testing.T, w *world, d *Deck)
	check func(t *testing.T, w *world)
}

func actionCases() map[string]actionCase {
	running := func(t *testing.T, _ *world, d *Deck) { do(t, d, pipeline.VerbStart, "extract") }
	filled := func(t *testing.T, w *world, d *Deck) { sixFiles(w); running(t, w, d) }
	alive := func(want ...string) func(*testing.T, *world) {
		return func(t *testing.T, w *world) {
			t.Helper()
			var got []string
			w.host.mu.Lock()
			for _, id := range w.host.order {
				if w.host.procs[id].State == pipeline.ProcRunning {
					got = append(got, id)
				}
			}
			w.host.mu.Unlock()
			slices.Sort(got)
			if !slices.Equal(got, want) {
				t.Errorf("alive are %v, want %v", got, want)
			}
		}
	}
	files := func(n int) func(*testing.T, *world) {
		return func(t *testing.T, w *world) {
			t.Helper()
			if got := w.custody.names(states); len(got) != n {
				t.Errorf("%d files are left: %v, want %d", len(got), got, n)
			}
		}
	}
	both := func(a, b func(*testing.T, *world)) func(*testing.T, *world) {
		return func(t *testing.T, w *world) { t.Helper(); a(t, w); b(t, w) }
	}
	verb := func(v pipeline.Verb) pipeline.Intent { return pipeline.Intent{Verb: v, Target: "extract"} }
	pivot := func(how pipeline.LeaveHow) pipeline.Intent {
		return pipeline.Intent{Verb: pipeline.VerbPivot, Target: "train", Leave: how}
	}
	first := []string{"extract-0-1", "extract-1-1"}
	second := []string{"extract-0-2", "extract-1-2"}
	trained := []string{"train-0-1", "train-1-1"}
	return map[string]actionCase{
		"start":         {verb(pipeline.VerbStart), func(*testing.T, *world, *Deck) {}, alive(first...)},
		"stop":          {verb(pipeline.VerbStop), running, alive()},
		"kill":          {verb(pipeline.VerbKill), filled, both(alive(), files(6))},
		"restart":       {verb(pipeline.VerbRestart), filled, both(alive(second...), files(6))},
		"settle":        {pipeline.Intent{Verb: pipeline.VerbSettle, Target: states}, filled, files(6)},
		"wipe":          {wipe(states), filled, both(alive(), files(0))},
		"wipe proven":   {pipeline.Intent{Verb: pipeline.VerbWipe, Target: states, ProvenOnly: true}, filled, files(3)},
		"pivot":         {pivot(pipeline.LeaveSettle), filled, both(alive(trained...), files(6))},
		"pivot keep":    {pivot(pipeline.LeaveKeep), filled, both(alive(trained...), files(6))},
		"pivot discard": {pivot(pipeline.LeaveDiscard), filled, both(alive(trained...), files(0))},
		"undo": {pipeline.Intent{Verb: pipeline.VerbUndo, Target: "a-0"}, func(t *testing.T, w *world, _ *Deck) {
			sixFiles(w)
			h, err := w.custody.Holdings(t.Context(), pipeline.HoldingsRequest{Outputs: []string{states}}, nil)
			if err == nil {
				_, err = w.custody.Trash(t.Context(), "a-0", h[0].Files, nil)
			}
			if err != nil {
				t.Fatal(err)
			}
		}, files(6)},
		"adopt": {pipeline.Intent{Verb: pipeline.VerbAdopt, Target: "extract", PIDs: []int{71, 72}}, func(_ *testing.T, w *world, _ *Deck) {
			w.adopter.strangers = []pipeline.Stranger{{PID: 71, StartedAt: time.Now(), GPUs: []string{"GPU-0"}}, {PID: 72, StartedAt: time.Now(), GPUs: []string{"GPU-1"}}}
		}, alive(first...)},
	}
}

// crashAt runs an action on an agent that dies at its n-th record, lets the
// next agent finish, and says whether there were that many records.
func crashAt(t *testing.T, c actionCase, n int) (died bool) {
	t.Helper()
	w := pivotWorld(t)
	w.custody.noUndo = false
	j := &dyingJournal{memJournal: w.journal, died: make(chan struct{}), release: make(chan struct{})}
	d, end := w.agentWith(t, j)
	c.ready(t, w, d)
	p := wipePlan(t, d, c.in)
	j.mu.Lock()
	j.n = n
	j.mu.Unlock()
	applied := make(chan error, 1)
	go func() {
		_, err := d.Apply(context.WithoutCancel(t.Context()), pipeline.ApplyRequest{Plan: p.ID, Confirm: confirmOf(p), By: "tester"})
		applied <- err
	}()
	timer := time.NewTimer(10 * time.Minute)
	defer timer.Stop()
	select {
	case <-j.died:
		died = true
	case <-timer.C:
	}
	gone := make(chan struct{})
	go func() { defer close(gone); end() }()
	synctest.Wait()
	next, stop := w.agent(t)
	if died {
		waitForEnd(t, next, w)
	}
	c.check(t, w)
	askedOnce(t, w)
	if t.Failed() {
		recs, _ := w.journal.Read(0)
		for _, r := range recs {
			t.Log(r.At.Format("04:05.000"), r.Kind, r.Action, r.Step, r.Text)
		}
	}
	stop()
	close(j.release)
	<-gone
	<-applied
	return died
}

// askedOnce: workers that obey are asked once each, and never with their
// children.
func askedOnce(t *testing.T, w *world) {
	t.Helper()
	times := map[string]int{}
	for _, s := range w.host.sent() {
		if times[s]++; strings.Contains(s, " SIGTERM ") && (times[s] > 1 || !strings.HasSuffix(s, string(pipeline.ToLeader))) {
			t.Errorf("sent: %s", s)
		}
	}
}

// waitForEnd follows whatever action the journal knows to its end.
func waitForEnd(t *testing.T, d *Deck, w *world) {
	t.Helper()
	recs, err := w.journal.Read(0)
	if err != nil {
		t.Fatal(err)
	}
	id := ""
	for _, r := range recs {
		if r.Kind == "begin" {
			id = r.Action
		}
	}
	a, err := d.Action(t.Context(), id, time.Minute)
	for range 100 {
		if err != nil || a.EndedAt != nil {
			break
		}
		a, err = d.Action(t.Context(), id, time.Minute)
	}
	if err != nil || a.EndedAt == nil || a.Result != pipeline.Verified {
		t.Fatalf("the next agent ends it as %+v, %v", a, err)
	}
}

// Every action survives a kill at each of its records: the next agent finishes
// it, no worker is started twice, no file is lost that was not confirmed.
func TestCrashMatrix(t *testing.T) {
	for name, c := range actionCases() {
		t.Run(name, func(t *testing.T) {
			for n := 1; ; n++ {
				if n > 40 {
					t.Fatal("an action without an end")
				}
				more := true
				t.Run(strconv.Itoa(n), func(t *testing.T) {
					synctest.Test(t, func(t *testing.T) { more = crashAt(t, c, n) })
				})
				if !more || t.Failed() {
					t.Logf("%d records", n-1)
					return
				}
			}
		})
	}
}
