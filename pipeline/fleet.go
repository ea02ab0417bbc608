package pipeline

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"pipedeck/pipeline/spec"
)

// badness orders health as the exit codes do: what is not known is worse than
// what is known to have failed, since anything may be behind it.
func (h Health) badness() int { return Snapshot{Health: h}.ExitCode() }

// Join makes one Snapshot of those of several nodes, in their order. Its health
// is the worst of them; each reason begins with its node.
func Join(deck, run string, now time.Time, nodes []Snapshot) Snapshot {
	out := Snapshot{
		Schema: SchemaVersion, Deck: deck, Run: run, At: wireTime(now),
		Health: Healthy, HealthReasons: []string{}, Nodes: []NodeSnapshot{},
	}
	if len(nodes) == 0 {
		out.Health = Stale
	}
	worst := slices.Clone(nodes)
	slices.SortStableFunc(worst, func(a, b Snapshot) int { return b.Health.badness() - a.Health.badness() })
	for _, s := range worst {
		out.HealthReasons = append(out.HealthReasons, nodeReasons(s)...)
		if s.Health.badness() > out.Health.badness() {
			out.Health = s.Health
		}
	}
	if more := len(out.HealthReasons) - maxReasons; more > 0 {
		out.HealthReasons = append(out.HealthReasons[:maxReasons:maxReasons], fmt.Sprintf("and %d more", more))
	}
	for _, s := range nodes {
		out.Nodes = append(out.Nodes, s.Nodes...)
	}
	return out
}

// nodeReasons are the reasons of one node's health, under its name.
func nodeReasons(s Snapshot) []string {
	if len(s.Nodes) != 1 {
		return s.HealthReasons
	}
	name := "node " + s.Nodes[0].Name + ": "
	out := make([]string, 0, len(s.HealthReasons))
	for _, r := range s.HealthReasons {
		out = append(out, name+strings.TrimPrefix(r, name))
	}
	return out
}

// UnseenOf is Unseen with the stages of the spec: of none is anything known.
func UnseenOf(sp *spec.Spec, node string, l Link, now time.Time) Snapshot {
	s := Unseen(sp.Deck, sp.Run, node, l, now)
	why := new("no agent was reached")
	for i := range sp.Stages {
		s.Nodes[0].Stages = append(s.Nodes[0].Stages, StageSnapshot{
			Name: sp.Stages[i].Name, State: StageUnknown, StateReason: why, DoneReason: why, TotalReason: why,
			RateReason: why, ETAReason: why, Workers: []WorkerSnapshot{}, Services: []ServiceSnapshot{}, Outputs: []OutputSnapshot{},
		})
	}
	return s
}

// LostLink is the link to a node whose agent could not be reached.
func LostLink(err error) Link {
	return Link{State: LinkLost, Reason: new(Clean(err.Error()))}
}
