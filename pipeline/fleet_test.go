package pipeline

import (
	"strings"
	"testing"

	"pgregory.net/rapid"

	"pipedeck/pipeline/spec"
)

func TestJoinIsAsBadAsTheWorstNodeAndNamesIt(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		var nodes []Snapshot
		worst := 0
		for i := range rapid.IntRange(1, 5).Draw(t, "nodes") {
			h := rapid.SampledFrom([]Health{Healthy, Degraded, Failed, Stale}).Draw(t, "health")
			s := Snapshot{Health: h, HealthReasons: []string{}, Nodes: []NodeSnapshot{{Name: string(rune('a' + i))}}}
			if h != Healthy {
				s.HealthReasons = []string{"it is " + string(h)}
			}
			worst = max(worst, s.ExitCode())
			nodes = append(nodes, s)
		}
		got := Join("d", "r", dawn, nodes)
		if got.ExitCode() != worst || len(got.Nodes) != len(nodes) {
			t.Fatalf("%+v of %+v", got, nodes)
		}
		for i, n := range got.Nodes {
			if n.Name != nodes[i].Nodes[0].Name {
				t.Fatalf("node %d is %s", i, n.Name)
			}
		}
		if worst > 0 && !strings.HasSuffix(got.HealthReasons[0], string(got.Health)) {
			t.Fatalf("the worst is not first: %q", got.HealthReasons)
		}
		for _, r := range got.HealthReasons {
			if !strings.HasPrefix(r, "node ") {
				t.Fatalf("%q names no node", r)
			}
		}
	})
	if got := Join("d", "r", dawn, nil); got.Health != Stale {
		t.Errorf("of nothing: %s", got.Health)
	}
}

func TestUnseenOfClaimsNothing(t *testing.T) {
	t.Parallel()
	sp := &spec.Spec{Deck: "d", Run: "r", Stages: []spec.Stage{{Name: "extract"}, {Name: "train"}}}
	s := UnseenOf(sp, "b", Link{State: LinkLost, Reason: new("no route")}, dawn)
	if s.ExitCode() != exitUnknown || len(s.Nodes[0].Stages) != 2 {
		t.Fatalf("%+v", s)
	}
	for _, st := range s.Nodes[0].Stages {
		if st.State != StageUnknown || st.StateReason == nil || st.Done != nil || st.DoneReason == nil || st.ETASeconds != nil || st.ETAReason == nil {
			t.Errorf("%+v", st)
		}
	}
	if joined := Join("d", "r", dawn, []Snapshot{s}); joined.HealthReasons[0] != "node b: link lost: no route" {
		t.Errorf("%q", joined.HealthReasons)
	}
}

func TestTheLostFilesOfAllNodesMustBeRead(t *testing.T) {
	t.Parallel()
	plan := func(node, confirm string, lost int64, seconds float64) Plan {
		p := Plan{Action: VerbWipe, Target: "extract/o", Deck: "deck", Node: node, Loss: Loss{Files: lost + 1, Proven: 1, Missing: lost, LostFiles: lost, RecomputeSeconds: &seconds}}
		if confirm != "" {
			p.Confirm = &confirm
		}
		if seconds < 0 {
			p.Loss.RecomputeSeconds, p.Loss.RecomputeReason = nil, new("no rate")
		}
		return p
	}
	for _, tc := range []struct {
		plans   []Plan
		confirm string
		seconds float64
	}{
		{[]Plan{plan("a", "3 deck", 3, 10), plan("b", "4 deck", 4, 30)}, "7 deck", 30},
		{[]Plan{plan("a", "3 deck", 3, 10), plan("b", "wipe deck", 0, 0)}, "3 deck", 10},
		{[]Plan{plan("a", "wipe deck", 0, 0), plan("b", "3 deck", 3, -1)}, "3 deck", -1},
		{[]Plan{plan("a", "3 deck", 3, -1), plan("b", "3 deck", 3, 5)}, "6 deck", -1},
		{[]Plan{plan("a", "", 0, 0), plan("b", "wipe deck", 0, 0)}, "wipe deck", -1},
		{[]Plan{plan("a", "", 5, 0), plan("b", "", 0, 0)}, "", 0},
	} {
		got := JointConfirm(tc.plans)
		if (got == nil) != (tc.confirm == "") || got != nil && *got != tc.confirm {
			t.Errorf("%v, want %q", got, tc.confirm)
		}
		l := JointLoss(tc.plans)
		if l.Files != tc.plans[0].Loss.Files+tc.plans[1].Loss.Files || l.Proven != 2 || l.Missing != l.LostFiles {
			t.Errorf("%+v", l)
		}
		if tc.seconds > 0 && (l.RecomputeSeconds == nil || *l.RecomputeSeconds != tc.seconds) ||
			tc.seconds < 0 && (l.RecomputeSeconds != nil || l.RecomputeReason == nil) {
			t.Errorf("recompute %v %v, want %v", l.RecomputeSeconds, l.RecomputeReason, tc.seconds)
		}
	}
	pivot := plan("a", "3 train", 3, 1)
	pivot.Action, pivot.Target = VerbPivot, "train"
	if got := JointConfirm([]Plan{pivot, pivot}); *got != "6 train" {
		t.Errorf("%q", *got)
	}
}
