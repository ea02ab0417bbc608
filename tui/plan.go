package tui

import (
	"cmp"
	"errors"
	"fmt"
	"strings"
	"time"

	"pipedeck/pipeline"
)

// graceTime is how long keys do not count after a plan appeared: they may
// have been meant for what was there before.
const graceTime = 500 * time.Millisecond

// renewBefore is how long before its end a shown plan is made again.
const renewBefore = 10 * time.Second

// planView shows a plan on the whole screen and takes its confirmation. The
// default is No: everything but the right text and Enter does nothing.
type planView struct {
	plan     pipeline.Plan
	effect   planEffect
	typed    string
	note     string
	shown    time.Time // when it first appeared
	got      time.Time // when this version of the plan arrived
	renewing bool
	sent     bool
	top      int
}

func (v *planView) scope() scope { return inPlan }

// planned takes the agent's answer to a plan request.
func (m *model) planned(msg planMsg) []effect {
	if v, ok := m.ui.top().(*planView); ok && v.renewing && v.effect.intent.Same(msg.effect.intent) {
		v.renew(m, msg)
		return nil
	}
	m.ui.note = note{}
	if msg.err != nil {
		m.ui.open(&noticeView{title: "cannot plan " + string(msg.effect.intent.Verb) + " " + msg.effect.intent.Target, err: msg.err})
		return nil
	}
	if msg.plan.Executable && msg.plan.Confirm == nil {
		return []effect{m.apply(msg.plan, msg.effect.quiet, "")}
	}
	m.ui.open(&planView{plan: msg.plan, effect: msg.effect, shown: m.ui.now, got: m.ui.now})
	return nil
}

func (m *model) apply(p pipeline.Plan, quiet bool, confirm string) effect {
	return applyEffect{quiet: quiet, req: pipeline.ApplyRequest{Plan: p.ID, Confirm: confirm, By: m.by, Key: "console-" + p.ID}}
}

func (v *planView) renew(m *model, msg planMsg) {
	v.renewing = false
	if msg.err != nil {
		m.ui.close()
		m.ui.open(&noticeView{title: "the plan ended and could not be made again; nothing was done", err: msg.err})
		return
	}
	if deref(msg.plan.Confirm) != deref(v.plan.Confirm) || (msg.plan.Confirm == nil) != (v.plan.Confirm == nil) {
		v.typed, v.note = "", "the counts changed: read again and type again"
		v.shown = m.ui.now
	}
	v.plan, v.got = msg.plan, m.ui.now
}

// watch renews the plan while it is shown and gives up when the link is lost.
func (v *planView) watch(m *model, _ board) []effect {
	switch {
	case v.sent || v.renewing:
		return nil
	case m.linked() != "":
		if m.ui.top() == view(v) {
			m.ui.close()
			m.ui.say(warn, "link lost: the plan was dropped, nothing was done")
		}
		return nil
	case v.left(m.ui.now) < renewBefore:
		v.renewing = true
		return []effect{v.effect}
	}
	return nil
}

// left is how long the plan is still good, by this side's clock.
func (v *planView) left(now time.Time) time.Duration {
	return v.plan.ExpiresAt.Sub(v.plan.MadeAt) - now.Sub(v.got)
}

func (v *planView) typeKey(m *model, name, text string) []effect {
	switch {
	case name == "esc":
		m.ui.close()
		if !v.sent {
			m.ui.say(plain, "nothing was done")
		}
		return nil
	case name == "pgdown" || name == "pgup" || name == "down" || name == "up":
		mv := map[string]move{"pgdown": movePageDown, "pgup": movePageUp, "down": moveDown, "up": moveUp}[name]
		v.top = mv.offset(v.top, len(v.plan.Steps), 5)
		return nil
	case v.sent:
		return nil
	case m.ui.now.Sub(v.shown) < graceTime:
		v.note = "keys of the first half second do not count"
		return nil
	case name == "enter":
		return v.enter(m)
	}
	v.note = ""
	v.typed = edit(v.typed, name, text)
	return nil
}

// enter confirms if everything is right; else it says what is not.
func (v *planView) enter(m *model) []effect {
	switch {
	case !v.plan.Executable:
		v.note = "this plan cannot be executed"
	case m.size.w < confirmW || m.size.h < confirmH:
		v.note = fmt.Sprintf("the window is too small to show the counts (need %dx%d)", confirmW, confirmH)
	case m.unlocked() != "":
		v.note = m.unlocked()
	case v.renewing || v.left(m.ui.now) <= 0:
		v.note = "the plan is being made again"
	case v.typed != deref(v.plan.Confirm):
		v.note = "that is not the text: nothing was done"
	default:
		v.sent, v.note = true, "sent to the agent"
		return []effect{m.apply(v.plan, v.effect.quiet, v.typed)}
	}
	return nil
}

func (v *planView) paste(string) { v.note = "pasted text does not count: type it" }

func (v *planView) draw(b board, _ *ui, sz size) []line {
	p := v.plan
	head := bar(sz.w, []part{
		{span: txt(ident, fmt.Sprintf(" %s %s: %s @ %s ", strings.ToUpper(string(p.Action)), p.Target, p.Deck, p.Node))},
		{span: txt(plain, fmt.Sprintf("made %s ago", lasting(max(0, b.now.Sub(v.got).Seconds())))), right: true, drop: 1},
		{span: txt(plain, "Esc = no"), right: true, drop: 2},
	})
	if sz.w < confirmW || sz.h+1 < confirmH {
		return []line{
			head, rowOf(bad, fmt.Sprintf("too small to confirm a plan: need %dx%d", confirmW, confirmH)),
			rowOf(plain, "Nothing will be done. Enlarge the window or press Esc."),
		}
	}
	foot := v.confirmLines(sz.w)
	loss := lossLines(p, sz.w)
	steps := stepLines(p, sz.w)
	room := max(2, sz.h-len(foot)-len(loss)-3)
	if len(steps) > room {
		v.top = max(0, min(v.top, len(steps)-room+1))
		more := fmt.Sprintf("  (%d lines, PgUp PgDn)", len(steps))
		steps = append(append([]line{}, steps[v.top:v.top+room-1]...), rowOf(dim, more))
	}
	out := append([]line{head, rowOf(dim, strings.Repeat("=", sz.w)), rowOf(bold, "What will happen")}, steps...)
	out = append(out, loss...)
	for len(out) < sz.h-len(foot) {
		out = append(out, nil)
	}
	return append(out[:max(0, sz.h-len(foot))], foot...)
}

func stepLines(p pipeline.Plan, w int) []line {
	var out []line
	for _, s := range p.Steps {
		text := fmt.Sprintf("%2d. %s %s", s.N, strings.ReplaceAll(string(s.Kind), "_", " "), strings.Join(s.On, " "))
		if s.TimeoutSeconds > 0 {
			text += fmt.Sprintf(" (up to %s)", lasting(s.TimeoutSeconds))
		}
		for i, part := range wrap(text, w-2) {
			if i > 0 {
				part = "    " + part
			}
			out = append(out, rowOf(plain, part))
		}
		if s.Proof != "" {
			out = append(out, rowOf(dim, cut("    proof: "+clean(s.Proof), w)))
		}
	}
	for _, why := range p.Blocked {
		for _, part := range wrap("cannot be executed: "+why, w) {
			out = append(out, rowOf(bad, part))
		}
	}
	return out
}

func lossLines(p pipeline.Plan, w int) []line {
	l := p.Loss
	out := []line{nil}
	if l.Files == 0 && l.LostFiles == 0 {
		return append(out, rowOf(plain, "No local file is touched."))
	}
	share := func(n int64) string { return right(percent(n, l.Files), 7) }
	item := func(k look, name string, n int64, note string) line {
		return line{txt(k, left("  "+name, 34)), txt(k, right(count(n), 12)), txt(plain, share(n)), txt(k, "  "+note)}
	}
	out = append(out, line{txt(bold, left("Local files", 34)), txt(bold, right(count(l.Files), 12)), txt(plain, "         "+bytesText(l.Bytes))},
		item(plain, "proven in S3", l.Proven, "safe"))
	for _, c := range []struct {
		name string
		n    int64
	}{{"in S3, not proven", l.Unproven}, {"in S3 with other content", l.Mismatched}, {"not in S3", l.Missing}, {"unknown", l.Unknown}, {"being written", l.BeingWritten}} {
		if c.n > 0 {
			out = append(out, item(warn, c.name, c.n, ""))
		}
	}
	if l.LostFiles > 0 {
		note := bytesText(l.LostBytes)
		if l.RecomputeSeconds != nil {
			note += ", about " + lasting(*l.RecomputeSeconds) + " to compute again"
		}
		out = append(out, item(bad, "WILL BE LOST", l.LostFiles, note))
	} else {
		out = append(out, rowOf(good, "  nothing will be lost"))
	}
	if s := p.Safer; s != nil {
		text := fmt.Sprintf("Safer: %s first, then %s", s.Action, s.Then)
		if s.Seconds != nil {
			text += " (about " + lasting(*s.Seconds) + ")"
		}
		out = append(out, rowOf(accent, cut(text, w)))
	}
	return append(out, undoLine(p.Undo))
}

func undoLine(u pipeline.Undo) line {
	if u.Until != nil {
		return rowOf(plain, "Can be undone until "+utc(*u.Until)+"Z")
	}
	if r := deref(u.Reason); r != "" {
		return rowOf(plain, "No undo: "+r)
	}
	return nil
}

func (v *planView) confirmLines(w int) []line {
	rule := rowOf(dim, strings.Repeat("=", w))
	if !v.plan.Executable {
		return []line{rule, rowOf(bad, "This plan cannot be executed. Esc goes back."), rowOf(warn, v.note)}
	}
	ask := "To do it, type exactly:  " + deref(v.plan.Confirm)
	if v.plan.Confirm == nil {
		ask = "To do it, press Enter."
	}
	return []line{rule, rowOf(bold, ask), {txt(plain, "  > "), txt(bold, v.typed), txt(bold, "_")}, rowOf(warn, v.note)}
}

// noticeView says what could not be done and why, until it is closed.
type noticeView struct {
	title string
	err   error
	top   int
}

func (v *noticeView) scope() scope { return inView }
func (v *noticeView) scroll(_ *ui, m move, page int) []effect {
	v.top = m.offset(v.top, 1<<16, page)
	return nil
}

func (v *noticeView) draw(_ board, _ *ui, sz size) []line {
	out := []line{}
	for _, s := range wrap(v.err.Error(), sz.w-2) {
		out = append(out, rowOf(bad, s))
	}
	var p *pipeline.Problem
	if errors.As(v.err, &p) && p.Hint != "" {
		for _, s := range wrap("hint: "+p.Hint, sz.w-2) {
			out = append(out, rowOf(plain, s))
		}
	}
	return append([]line{rowOf(ident, left(" "+clean(v.title), sz.w)), nil}, window(out, &v.top, sz.h-2)...)
}

// problemText is an error in one line, with its hint.
func problemText(err error) string {
	var p *pipeline.Problem
	if errors.As(err, &p) && p.Hint != "" {
		return p.Text + " (" + p.Hint + ")"
	}
	return cmp.Or(err.Error(), "unknown error")
}
