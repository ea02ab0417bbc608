package main

import (
	"fmt"
	"strings"
	"time"

	"github.com/dustin/go-humanize"

	"pipedeck/pipeline"
)

// snapshotText shows a snapshot where there is no console: in a pipe, on a
// dumb terminal.
func snapshotText(s pipeline.Snapshot) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s run %s: %s at %s\n", s.Deck, s.Run, s.Health, s.At.UTC().Format("15:04:05Z"))
	for _, r := range s.HealthReasons {
		fmt.Fprintf(&b, "  %s\n", r)
	}
	for _, n := range s.Nodes {
		if len(s.Nodes) > 1 && n.Link.State == pipeline.LinkLive {
			fmt.Fprintf(&b, "node %s: link %s%s\n", n.Name, n.Link.State, withoutAgent(n))
		}
		b.WriteString(nodeText(n))
		for _, st := range n.Stages {
			b.WriteString(stageText(st))
		}
	}
	return b.String()
}

// withoutAgent marks what a node's own programs tell.
func withoutAgent(n pipeline.NodeSnapshot) string {
	if n.Agent != nil {
		return ""
	}
	return ", without an agent: by its own programs"
}

// nodeText is what is worth a line of a node itself.
func nodeText(n pipeline.NodeSnapshot) string {
	var b strings.Builder
	if n.Link.State != pipeline.LinkLive {
		fmt.Fprintf(&b, "node %s: link %s%s\n", n.Name, n.Link.State, because(n.Link.Reason))
	}
	if n.Action != nil && n.Action.EndedAt == nil {
		fmt.Fprintf(&b, "node %s: %s %s is under way, by %s\n", n.Name, n.Action.Verb, n.Action.Target, n.Action.By)
	}
	for _, g := range n.GPUs {
		fmt.Fprintf(&b, "GPU %d: %s%s, %s of %s in use\n", g.Index, g.State, because(g.StateReason), bytesText(g.MemUsedBytes), bytesText(g.MemTotalBytes))
	}
	for _, d := range n.Disks {
		full := "-" + because(d.FullReason)
		if d.FullInSeconds != nil {
			full = secondsText(*d.FullInSeconds)
		}
		fmt.Fprintf(&b, "disk %s: %s free of %s, full in %s\n", d.Path, bytesText(d.FreeBytes), bytesText(d.TotalBytes), full)
	}
	return b.String()
}

func because(reason *string) string {
	if reason == nil {
		return ""
	}
	return " (" + *reason + ")"
}

func bytesText(n *int64) string {
	if n == nil {
		return "-"
	}
	return humanize.Bytes(uint64(max(0, *n)))
}

func secondsText(s float64) string {
	return (time.Duration(s) * time.Second).String()
}

func stageText(st pipeline.StageSnapshot) string {
	var b strings.Builder
	part := ""
	if st.Placement != nil {
		part = " (" + st.Placement.String() + ")"
	}
	fmt.Fprintf(&b, "stage %s%s: %s, done %s of %s, %s/s, ETA %s\n", st.Name, part, st.State,
		orDash(st.Done), orDash(st.Total), rateText(st.SamplesPerSecond), etaText(st))
	var t table
	for _, k := range st.Workers {
		reason := ""
		if k.StateReason != nil {
			reason = *k.StateReason
		}
		t.row("  "+k.ID, string(k.State), "done "+orDash(k.Done), rateText(k.SamplesPerSecond)+"/s", reason)
	}
	_ = t.print(&b) // a strings.Builder takes everything
	for _, o := range st.Outputs {
		fmt.Fprintf(&b, "  output %s: %s%s, %s verified, %s local, %d waiting, %d in flight, %s failed%s\n", o.Name, o.State, because(o.StateReason),
			orDash(o.VerifiedFiles), orDash(o.LocalFiles), o.Queue.WaitingFiles, o.Queue.InFlight, orDash(o.FailedFiles), doubtsText(o))
	}
	return b.String()
}

// doubtsText tells of files that the queue alone would not bring into the store,
// or that were put aside: most of the time there are none.
func doubtsText(o pipeline.OutputSnapshot) string {
	var quarantined int64
	if o.QuarantinedFiles != nil {
		quarantined = *o.QuarantinedFiles
	}
	c := o.Coverage
	if c == nil {
		c = &pipeline.CoverageCounts{}
	}
	var b strings.Builder
	for _, d := range []struct {
		n    int64
		word string
	}{{quarantined, "quarantined"}, {c.Unproven, "unproven"}, {c.Mismatched, "mismatched"}, {c.Unknown, "unknown"}} {
		if d.n > 0 {
			fmt.Fprintf(&b, ", %s %s", humanize.Comma(d.n), d.word)
		}
	}
	return b.String()
}

func orDash(n *int64) string {
	if n == nil {
		return "-"
	}
	return humanize.Comma(*n)
}

func rateText(r *float64) string {
	if r == nil {
		return "-"
	}
	return fmt.Sprintf("%.1f", *r)
}

func etaText(st pipeline.StageSnapshot) string {
	if st.ETASeconds != nil {
		return secondsText(*st.ETASeconds)
	}
	return "-" + because(st.ETAReason)
}
