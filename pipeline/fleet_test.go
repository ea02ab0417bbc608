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
