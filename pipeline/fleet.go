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

// JointLoss sums what the plans of several nodes would lose. They compute side
// by side, so that the slowest tells how long it takes to make it again.
func JointLoss(plans []Plan) Loss {
	var out Loss
	for _, p := range plans {
		l := p.Loss
		out.Files, out.Bytes = out.Files+l.Files, out.Bytes+l.Bytes
		out.Proven, out.Unproven, out.Mismatched = out.Proven+l.Proven, out.Unproven+l.Unproven, out.Mismatched+l.Mismatched
		out.Missing, out.Unknown, out.BeingWritten = out.Missing+l.Missing, out.Unknown+l.Unknown, out.BeingWritten+l.BeingWritten
		out.LostFiles, out.LostBytes, out.InFlight = out.LostFiles+l.LostFiles, out.LostBytes+l.LostBytes, out.InFlight+l.InFlight
		out.OtherFiles, out.OtherBytes = out.OtherFiles+l.OtherFiles, out.OtherBytes+l.OtherBytes
		switch {
		case l.LostFiles == 0 || out.RecomputeReason != nil:
		case l.RecomputeSeconds == nil:
			out.RecomputeSeconds, out.RecomputeReason = nil, new("node "+p.Node+": "+orElse(l.RecomputeReason, "not known"))
		case out.RecomputeSeconds == nil || *l.RecomputeSeconds > *out.RecomputeSeconds:
			out.RecomputeSeconds = new(*l.RecomputeSeconds)
		}
	}
	if out.RecomputeSeconds == nil && out.RecomputeReason == nil {
		out.RecomputeReason = new("nothing is lost")
	}
	return out
}

// JointConfirm is what confirms the plans of one action on several nodes at
// once, nil where none of them asks: the lost files of all, or the text that
// they ask for.
func JointConfirm(plans []Plan) *string {
	var lost int64
	var text *string
	for _, p := range plans {
		if p.Confirm == nil {
			continue
		}
		lost += p.Loss.LostFiles
		if text == nil {
			text = p.Confirm
		}
	}
	if text == nil || lost == 0 {
		return text
	}
	word := plans[0].Deck
	if plans[0].Action == VerbPivot {
		word = plans[0].Target
	}
	return new(fmt.Sprintf("%d %s", lost, word))
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
