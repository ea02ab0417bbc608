package pipeline

import (
	"fmt"
	"slices"
	"time"
)

// Exit codes of the commands that show a Snapshot.
const (
	exitHealthy = iota
	exitDegraded
	exitFailed
	exitUnknown
)

// ExitCode is what `pipedeck --json` ends with: 0 healthy, 1 degraded, 2
// failed, 3 stale or unknown.
func (s Snapshot) ExitCode() int {
	switch s.Health {
	case Healthy:
		return exitHealthy
	case Degraded:
		return exitDegraded
	case Failed:
		return exitFailed
	case Stale:
	}
	return exitUnknown
}

// current says whether what came over a link still holds.
func (l Link) current() bool { return l.State == LinkLive || l.State == LinkSlow }

// WithLink returns s as seen over a client's link to a node. On a link that is
// not current, rates and ETAs of the node are null and health is stale: what
// was last seen may be over. s itself is not changed.
func WithLink(s Snapshot, node string, l Link) Snapshot {
	s.Nodes = slices.Clone(s.Nodes)
	for i := range s.Nodes {
		if s.Nodes[i].Name == node {
			s.Nodes[i].Link = l
			if !l.current() {
				dropRates(&s.Nodes[i])
			}
		}
	}
	if l.current() {
		return s
	}
	why := fmt.Sprintf("node %s: link %s", node, l.State)
	if l.AgeSeconds != nil {
		why += fmt.Sprintf(", last data %.0f s ago", *l.AgeSeconds)
	}
	if l.Reason != nil {
		why += ": " + *l.Reason
	}
	s.Health = Stale
	s.HealthReasons = append([]string{Clean(why)}, s.HealthReasons...)
	return s
}

// dropRates replaces what only holds for a moment by "stale".
func dropRates(n *NodeSnapshot) {
	stale := new("stale")
	n.Stages = slices.Clone(n.Stages)
	for i := range n.Stages {
		st := &n.Stages[i]
		st.SamplesPerSecond, st.RateReason = nil, stale
		st.ETASeconds, st.ETAReason = nil, stale
		st.Workers = slices.Clone(st.Workers)
		for j := range st.Workers {
			st.Workers[j].SamplesPerSecond, st.Workers[j].RateReason = nil, stale
		}
		st.Outputs = slices.Clone(st.Outputs)
		for j := range st.Outputs {
			dropOutputRates(&st.Outputs[j])
		}
	}
	if n.Artifacts != nil {
		a := *n.Artifacts
		dropOutputRates(&a)
		n.Artifacts = &a
	}
	if n.Store != nil {
		st := *n.Store
		st.CredentialsEndInSeconds, st.CredentialsReason = nil, stale
		n.Store = &st
	}
	n.Disks = slices.Clone(n.Disks)
	for i := range n.Disks {
		n.Disks[i].FullInSeconds, n.Disks[i].FullReason = nil, stale
	}
}

func dropOutputRates(o *OutputSnapshot) {
	o.FilesPerSecond, o.BytesPerSecond, o.ProducedBytesPerSecond = nil, nil, nil
	if o.Reason == nil {
		o.Reason = new("stale")
	}
}

// Unseen is the Snapshot of a node that no agent has told anything of.
func Unseen(deck, run, node string, l Link, now time.Time) Snapshot {
	why := new("no agent was reached")
	s := Snapshot{
		Schema: SchemaVersion, Deck: deck, Run: run, At: wireTime(now), HealthReasons: []string{},
		Nodes: []NodeSnapshot{{
			Name: node, Host: MachineSnapshot{Reason: why}, GPUSource: GPUSourceInfo{Kind: sourceNone, Reason: why},
			GPUs: []GPUSnapshot{}, Stages: []StageSnapshot{}, Disks: []DiskSnapshot{}, Events: []Event{},
		}},
	}
	s = WithLink(s, node, l)
	s.Health = Stale
	return s
}
