package deck

import (
	"context"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"pipedeck/pipeline"
	"pipedeck/pipeline/spec"
)

// ofTwo makes the world's deck one of two nodes.
func ofTwo(w *world) *world {
	w.sp.Nodes = append(w.sp.Nodes, spec.Node{Name: "other", SSH: "other", GPUs: spec.GPUSet{All: true}})
	return w
}

func startAs(t *testing.T, d *Deck, verb pipeline.Verb, target string, part *pipeline.Placement) pipeline.Action {
	t.Helper()
	p := wipePlan(t, d, pipeline.Intent{Verb: verb, Target: target, Place: part})
	confirm := ""
	if p.Confirm != nil {
		confirm = *p.Confirm
	}
	return applied(t, d, p, confirm)
}

func worlds(w *world) []int {
	w.host.mu.Lock()
	defer w.host.mu.Unlock()
	var out []int
	for _, id := range w.host.order {
		out = append(out, w.host.procs[id].World)
	}
	return out
}

// The part of the ranks that a start was given holds for the restarts that the
// agent makes by itself, for the next agent, and for its starts.
func TestAPartOfTheRanksIsKept(t *testing.T) {
	t.Parallel()
	for _, workers := range []string{"per_gpu: 1", "count: 4"} {
		t.Run(workers, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				w := ofTwo(newWorld(t, workers, 2))
				w.host.onSig = func(l *pipeline.LaunchSeen, _ string, _ pipeline.Scope) { w.host.exit(l, 0) }
				d, end := w.agent(t)
				if a := startAs(t, d, pipeline.VerbStart, "extract", &pipeline.Placement{First: 2, Count: 2, World: 4}); a.Result != pipeline.Verified {
					t.Fatalf("start: %v", *a.Reason)
				}
				if w.custody.record.World != 4 {
					t.Errorf("the record's world is %d", w.custody.record.World)
				}
				w.host.mu.Lock()
				w.host.exit(w.host.procs["extract-3-1"], 1)
				w.host.mu.Unlock()
				time.Sleep(time.Minute)
				end()
				d, end = w.agent(t)
				defer end()
				w.host.mu.Lock()
				w.host.exit(w.host.procs["extract-2-1"], 1)
				w.host.mu.Unlock()
				time.Sleep(time.Minute)
				want := []string{"extract-2-1", "extract-3-1", "extract-3-2", "extract-2-2"}
				if got := w.host.launches(); !slices.Equal(got, want) || slices.ContainsFunc(worlds(w), func(n int) bool { return n != 4 }) {
					t.Errorf("launched %v of %v", got, worlds(w))
				}
				if a := startAs(t, d, pipeline.VerbRestart, "extract", nil); a.Result != pipeline.Verified {
					t.Fatalf("restart: %v", *a.Reason)
				}
				want = append(want, "extract-2-3", "extract-3-3")
				if got := w.host.launches(); !slices.Equal(got, want) || slices.ContainsFunc(worlds(w), func(n int) bool { return n != 4 }) {
					t.Errorf("launched %v of %v", got, worlds(w))
				}
			})
		})
	}
}

func TestAStartOfAPartWithoutItsGPUsIsRefused(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := ofTwo(newWorld(t, "per_gpu: 1", 2))
		d, end := w.agent(t)
		defer end()
		a := startAs(t, d, pipeline.VerbStart, "extract", &pipeline.Placement{First: 2, Count: 3, World: 5})
		if a.Result != pipeline.ActionFailed || !strings.Contains(*a.Reason, "ranks 2 to 4 of 5") || len(w.host.launches()) > 0 {
			t.Errorf("%s: %v, launched %v", a.Result, a.Reason, w.host.launches())
		}
	})
}

// racing is a store in which another node is a moment faster.
type racing struct {
	*fakeCustody
	theirs *pipeline.StageRecord
}

func (r *racing) WriteStageRecord(ctx context.Context, stage string, rec pipeline.StageRecord) error {
	if r.theirs != nil {
		r.record, r.theirs = r.theirs, nil
		return pipeline.Problemf(pipeline.ProblemRefused, "", "cannot write the record: somebody else wrote it")
	}
	return r.fakeCustody.WriteStageRecord(ctx, stage, rec)
}

func TestNodesThatStartTogetherAgreeOnTheRecord(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		theirs, says string
		result       pipeline.Verdict
	}{
		{theirs: "same", result: pipeline.Verified},
		{theirs: "others", result: pipeline.ActionFailed, says: "with other inputs than this one has"},
	} {
		t.Run(tc.theirs, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				w := ofTwo(newWorld(t, "count: 2", 0))
				r := &racing{fakeCustody: w.custody, theirs: &pipeline.StageRecord{Deck: "d", Command: "cmd", Inputs: tc.theirs, World: 2}}
				d, end := w.agentOver(t, r)
				defer end()
				a := startAs(t, d, pipeline.VerbStart, "extract", &pipeline.Placement{First: 1, Count: 1, World: 2})
				reason := ""
				if a.Reason != nil {
					reason = *a.Reason
				}
				if a.Result != tc.result || !strings.Contains(reason, tc.says) {
					t.Errorf("%s: %s", a.Result, reason)
				}
			})
		})
	}
}
