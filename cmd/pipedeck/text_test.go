package main

import (
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"

	"pipedeck/pipeline"
)

// misfit finds a number beside a noun that does not go with it.
var misfit = regexp.MustCompile(`\b1 (files|samples|nodes|workers|bytes|GPUs|stages|steps)\b|\b[02] (file|sample|node|worker|byte|GPU|stage|step)\b`)

// Whatever the count, the words around it fit.
func TestCountsRead(t *testing.T) {
	t.Parallel()
	for n := range int64(3) {
		p := pipeline.Plan{
			Action: "wipe", Target: "extract/states", Deck: "d", Node: "n", Executable: true, ExpiresAt: time.Unix(60, 0),
			Steps: []pipeline.Step{{N: 1, Kind: "trash", Proof: "gone"}},
			Loss: pipeline.Loss{
				Files: n, Bytes: n, Missing: n, LostFiles: n, LostBytes: n, OtherFiles: 1, OtherBytes: n,
				RecomputeReason: new("no rate is known"),
			},
			Store:   pipeline.PlanStore{Bucket: "b", Prefix: "p", StoredFiles: &n, Total: &n},
			Confirm: new(fmt.Sprintf("%d d", n)),
		}
		s := pipeline.Snapshot{Deck: "d", Nodes: []pipeline.NodeSnapshot{{Name: "n", Stages: []pipeline.StageSnapshot{{
			Name: "extract", Done: &n, Total: &n,
			Outputs: []pipeline.OutputSnapshot{{
				Name: "states", State: "running", LocalFiles: &n, VerifiedFiles: &n, FailedFiles: &n, QuarantinedFiles: &n,
				Queue:    pipeline.Queue{WaitingFiles: n, InFlight: n},
				Coverage: &pipeline.CoverageCounts{Local: 3 * n, Unproven: n, Mismatched: n, Unknown: n},
			}},
		}}}}}
		for name, text := range map[string]string{"plan": planText(p), "plans": plansText([]pipeline.Plan{p, p}), "snapshot": snapshotText(s)} {
			if m := misfit.FindString(text); m != "" {
				t.Errorf("%q in the %s:\n%s", m, name, text)
			}
		}
		if want := fmt.Sprintf("LOST: %s, ", pipeline.Counted(n, "file", "files")); n > 0 && !strings.Contains(planText(p), want) {
			t.Errorf("no %q in the plan:\n%s", want, planText(p))
		}
	}
}

// What the store does not prove is told, and nothing is said where nothing is.
func TestSnapshotTextTellsDoubts(t *testing.T) {
	t.Parallel()
	zero := int64(0)
	tests := map[string]struct {
		coverage    *pipeline.CoverageCounts
		quarantined *int64
		reason      *string
		want        string
	}{
		"nothing known": {nil, nil, nil, "output o: running, - verified, - local, 0 waiting, 0 in flight, - failed\n"},
		"all well":      {&pipeline.CoverageCounts{Local: 5, Proven: 4, Missing: 1}, &zero, nil, " - failed\n"},
		"doubts": {
			&pipeline.CoverageCounts{Local: 2003, Unproven: 2000, Mismatched: 2, Unknown: 1}, new(int64(4)), nil,
			" - failed, 4 quarantined, 2,000 unproven, 2 mismatched, 1 unknown\n",
		},
		"a reason": {nil, nil, new("the endpoint slows down"), "output o: running (the endpoint slows down), -"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			text := stageText(pipeline.StageSnapshot{Outputs: []pipeline.OutputSnapshot{{
				Name: "o", State: "running", StateReason: tc.reason, Coverage: tc.coverage, QuarantinedFiles: tc.quarantined,
			}}})
			if !strings.Contains(text, tc.want) {
				t.Errorf("no %q in:\n%s", tc.want, text)
			}
		})
	}
}
