package main

import (
	"fmt"
	"strings"
	"time"

	"pipedeck/pipeline"
)

// planText shows a plan on a plain terminal: what blocks it, what happens, what
// would be lost, and what to type.
func planText(p pipeline.Plan) string {
	var b strings.Builder
	line := func(format string, args ...any) { b.WriteString(pipeline.Clean(fmt.Sprintf(format, args...)) + "\n") }
	line("Plan %s: %s of deck %s on %s", p.ID, strings.TrimSpace(string(p.Action)+" "+p.Target), p.Deck, p.Node)
	for _, why := range p.Blocked {
		line("  not possible: %s", why)
	}
	for _, s := range p.Steps {
		line("  %d. %s", s.N, strings.TrimSpace(string(s.Kind)+" "+strings.Join(s.On, " ")))
		line("     proof: %s", s.Proof)
	}
	if len(p.Steps) == 0 && p.Executable {
		line("  nothing to do")
	}
	for _, note := range p.Notes {
		line("  note: %s", note)
	}
	lossText(p, line)
	if p.Safer != nil {
		line("  safer: %s first, then %s%s", p.Safer.Action, p.Safer.Then, about(p.Safer.Seconds))
	}
	if len(p.Steps) > 0 && p.Undo.Reason != nil {
		line("  undo: %s", *p.Undo.Reason)
	}
	if p.Confirm != nil {
		line("  to confirm: %s (until %s)", *p.Confirm, p.ExpiresAt.Local().Format("15:04:05"))
	}
	return b.String()
}

// plansText shows the plans of one action on several nodes, what they would
// lose together, and the one text that confirms them all.
func plansText(plans []pipeline.Plan) string {
	var b strings.Builder
	line := func(format string, args ...any) { b.WriteString(pipeline.Clean(fmt.Sprintf(format, args...)) + "\n") }
	for _, p := range plans {
		p.Confirm = nil
		b.WriteString(planText(p))
	}
	l := pipeline.JointLoss(plans)
	line("On %s together", pipeline.Counted(len(plans), "node", "nodes"))
	if l.Files > 0 || l.OtherFiles > 0 {
		line("  local files: %d, %s", l.Files, pipeline.HumanBytes(l.Bytes))
		line("  LOST: %s, %s%s", pipeline.Counted(l.LostFiles, "file", "files"), pipeline.HumanBytes(l.LostBytes), recompute(l))
	} else {
		line("  no local file is removed")
	}
	if confirm := pipeline.JointConfirm(plans); confirm != nil {
		until := plans[0].ExpiresAt
		for _, p := range plans {
			if p.ExpiresAt.Before(until) {
				until = p.ExpiresAt
			}
		}
		line("  to confirm: %s (until %s)", *confirm, until.Local().Format("15:04:05"))
	}
	return b.String()
}

func lossText(p pipeline.Plan, line func(string, ...any)) {
	l := p.Loss
	if l.Files == 0 && l.OtherFiles == 0 {
		line("  no local file is removed")
		return
	}
	line("  local files: %d, %s", l.Files, pipeline.HumanBytes(l.Bytes))
	for _, c := range []struct {
		n    int64
		text string
	}{
		{l.Proven, "proven in the store"},
		{l.Unproven, "in the store, content not compared"},
		{l.Mismatched, "other content in the store"},
		{l.Missing, "not in the store"},
		{l.Unknown, "not known, which counts as not in the store"},
		{l.BeingWritten, "being written"},
	} {
		if c.n > 0 {
			line("    %7d (%5.1f %%) %s", c.n, 100*float64(c.n)/float64(max(1, l.Files)), c.text)
		}
	}
	if l.OtherFiles > 0 {
		line("  other files in scratch: %d, %s", l.OtherFiles, pipeline.HumanBytes(l.OtherBytes))
	}
	line("  LOST: %s, %s%s", pipeline.Counted(l.LostFiles, "file", "files"), pipeline.HumanBytes(l.LostBytes), recompute(l))
	if s := p.Store; s.StoredFiles != nil {
		total := ""
		if s.Total != nil {
			total = " of " + pipeline.Counted(*s.Total, "sample", "samples")
		}
		line("  store: %s stored%s below %s/%s", pipeline.Counted(*s.StoredFiles, "file", "files"), total, s.Bucket, s.Prefix)
	}
}

func recompute(l pipeline.Loss) string {
	switch {
	case l.LostFiles == 0:
		return ""
	case l.RecomputeSeconds != nil:
		return "; to compute them again takes" + about(l.RecomputeSeconds)
	case l.RecomputeReason != nil:
		return "; how long computing them again takes is not known: " + *l.RecomputeReason
	}
	return ""
}

func about(seconds *float64) string {
	if seconds == nil {
		return ""
	}
	return " about " + pipeline.HumanTime(time.Duration(*seconds*float64(time.Second)))
}
