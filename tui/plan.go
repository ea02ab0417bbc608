package tui

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"time"

	"pipedeck/pipeline"
)

const (
	// graceTime is how long keys do not count after a plan appeared: they may
	// have been meant for what was there before.
	graceTime = 500 * time.Millisecond
	// planLife is how long a plan on the screen is good.
	planLife = 60 * time.Second
	// renewBefore is how long before its end a shown plan is made again.
	renewBefore = 10 * time.Second
	// renewEvery is how often it is made again while nothing is typed.
	renewEvery = 10 * time.Second
	// checkEvery is how often an unfinished check is asked about.
	checkEvery = time.Second
)

// planView shows a plan on the whole screen and takes its confirmation. The
// default is No: everything but the right text and Enter does nothing.
type planView struct {
	plan     pipeline.Plan
	effect   planEffect
	typed    string
	note     string
	at       choice    // what Enter is for
	drawn    time.Time // when what is asked for was first on the screen; zero: not yet
	got      time.Time // when this version of the plan arrived
	renewing bool
	sent     bool
	top      int // of the steps
	files    *fileList
}

// choice is what Tab goes through.
type choice int

const (
	toField choice = iota
	toSafer
	toRenew
	toFiles
)

func (v *planView) scope() scope { return inPlan }

// planned takes the agent's answer to a plan request.
func (m *model) planned(node string, msg planMsg) []effect {
	if v, ok := m.ui.top().(*planView); ok && v.renewing && v.effect.same(msg.effect) && node == m.node() {
		return v.renew(m, msg)
	}
	m.ui.note = note{}
	if !m.visit(node) {
		m.ui.say(warn, fmt.Sprintf("nothing was done: the plan to %s on %s came while another node was looked at", msg.effect.intent.Verb, node))
		return nil
	}
	if msg.err != nil {
		m.ui.open(&noticeView{title: "cannot plan " + string(msg.effect.intent.Verb) + " " + msg.effect.intent.Target, err: msg.err})
		return nil
	}
	if asksNothing(msg.plan) {
		return m.atOnce(msg.plan, msg.effect)
	}
	m.ui.open(&planView{plan: msg.plan, effect: msg.effect, got: m.ui.now})
	return nil
}

// same says whether two requests are one and the same.
func (e planEffect) same(other planEffect) bool {
	return e.quiet == other.quiet && e.intent.Same(other.intent) && e.then.Same(other.then)
}

// asksNothing says whether a plan loses and stops nothing, so that it is done
// at once.
func asksNothing(p pipeline.Plan) bool {
	return p.Executable && p.Confirm == nil && p.Checking == nil
}

// atOnce does what asks nothing, if there is anything to do.
func (m *model) atOnce(p pipeline.Plan, e planEffect) []effect {
	if len(p.Steps) > 0 {
		return []effect{m.apply(p, e, "")}
	}
	text := fmt.Sprintf("%s %s: nothing to do", p.Action, p.Target)
	if len(p.Notes) > 0 {
		text += ": " + p.Notes[0]
	}
	m.ui.say(plain, text)
	return nil
}

func (m *model) apply(p pipeline.Plan, e planEffect, confirm string) effect {
	return applyEffect{
		quiet: e.quiet, then: e.then,
		req: pipeline.ApplyRequest{Plan: p.ID, Confirm: confirm, By: m.by, From: m.origin(), Key: "console-" + p.ID},
	}
}

func (v *planView) renew(m *model, msg planMsg) []effect {
	v.renewing = false
	if msg.err != nil {
		m.ui.close()
		m.ui.open(&noticeView{title: "the plan could not be made again; nothing was done", err: msg.err})
		return nil
	}
	if asksNothing(msg.plan) && v.plan.Checking != nil {
		m.ui.close()
		return m.atOnce(msg.plan, v.effect)
	}
	if !sameHarm(v.plan, msg.plan) {
		if v.typed != "" {
			v.note = "the plan changed: read again and type again"
		}
		v.typed, v.at, v.drawn = "", toField, time.Time{}
	}
	v.plan, v.got = msg.plan, m.ui.now
	if v.files != nil {
		return v.files.renew(v.plan)
	}
	return nil
}

func (m *model) origin() string {
	if n := m.do.node(m.node()); n.From != nil {
		return n.From()
	}
	return ""
}

// sameHarm says whether two versions of a plan do the same harm by the same
// steps, so that what was typed for one is meant for the other.
func sameHarm(a, b pipeline.Plan) bool {
	harm := func(p pipeline.Plan) string {
		l := p.Loss
		return fmt.Sprint(deref(p.Confirm), p.Confirm == nil, p.Executable, p.Checking == nil, p.Blocked,
			l.LostFiles, l.LostBytes, l.OtherFiles, l.OtherBytes)
	}
	return harm(a) == harm(b) && slices.EqualFunc(a.Steps, b.Steps, func(s, t pipeline.Step) bool {
		return s.Kind == t.Kind && slices.Equal(s.On, t.On)
	})
}

// watch renews the plan while it is shown and gives up when the link is lost.
// Once something is typed it is left alone as long as it is good.
func (v *planView) watch(m *model, _ board) []effect {
	age := m.ui.now.Sub(v.got)
	due := v.left(m.ui.now) < renewBefore || v.typed == "" && age >= renewEvery || v.plan.Checking != nil && age >= checkEvery
	switch {
	case v.sent || v.renewing:
		return nil
	case m.linked() != "":
		if m.ui.top() == view(v) {
			m.ui.close()
			m.ui.say(warn, "link lost: the plan was dropped, nothing was done")
		}
		return nil
	case due:
		v.renewing = true
		return []effect{v.effect}
	}
	return nil
}

// left is how long the plan is still good, by this side's clock.
func (v *planView) left(now time.Time) time.Duration {
	return min(planLife, v.plan.ExpiresAt.Sub(v.plan.MadeAt)) - now.Sub(v.got)
}

// choices are what Tab can go to now.
func (v *planView) choices() []choice {
	var out []choice
	if v.asks() {
		out = append(out, toField)
	}
	if v.plan.Safer != nil {
		out = append(out, toSafer)
	}
	out = append(out, toRenew)
	if v.plan.Loss.Files+v.plan.Loss.OtherFiles > 0 {
		out = append(out, toFiles)
	}
	return out
}

// asks says whether there is anything to confirm: not while the loss is
// unknown, not when something forbids it.
func (v *planView) asks() bool { return v.plan.Executable && v.plan.Checking == nil }

func (v *planView) typeKey(m *model, name, text string) []effect {
	if v.files != nil {
		return v.files.typeKey(v, name)
	}
	switch {
	case name == "esc":
		m.ui.close()
		if !v.sent {
			m.ui.say(plain, "nothing was done")
		}
		return nil
	case name == "pgdown" || name == "pgup" || name == "down" || name == "up":
		mv := map[string]move{"pgdown": movePageDown, "pgup": movePageUp, "down": moveDown, "up": moveUp}[name]
		v.top = mv.offset(v.top, 1<<16, 5) // drawing knows how many lines there are
		return nil
	case v.sent:
		return nil
	case v.drawn.IsZero() || m.ui.now.Sub(v.drawn) < graceTime:
		v.note = "keys of the first half second do not count"
		return nil
	case name == "tab" || name == "shift+tab":
		v.tab(name)
		return nil
	case name == "enter":
		return v.enter(m)
	case v.at == toField && v.asks():
		v.note = ""
		v.typed = edit(v.typed, name, text)
	}
	return nil
}

func (v *planView) tab(name string) {
	list := v.choices()
	at := slices.Index(list, v.at) // -1: on a field that is not there
	if name == "tab" {
		at++
	} else {
		at += len(list) - btoi(at >= 0)
	}
	v.at, v.note = list[at%len(list)], ""
}

// enter does what Tab chose; on the field it confirms.
func (v *planView) enter(m *model) []effect {
	switch v.at {
	case toField:
		return v.confirm(m)
	case toSafer:
		return v.safer(m)
	case toRenew:
		if v.renewing {
			return nil
		}
		v.renewing, v.note = true, "the agent counts again"
		return []effect{v.effect}
	case toFiles:
		v.files, v.typed = &fileList{plan: v.plan.ID}, ""
		return v.files.ask()
	}
	return nil
}

// safer asks for the plan that loses less, in place of this one.
func (v *planView) safer(m *model) []effect {
	in := v.effect.intent
	e := planEffect{intent: pipeline.Intent{Verb: v.plan.Safer.Action, Target: in.Target}, then: in}
	if in.Verb == pipeline.VerbPivot {
		e = planEffect{intent: in}
		e.intent.Leave = pipeline.LeaveSettle
	}
	m.ui.close()
	m.ui.say(plain, fmt.Sprintf("asking the agent for a plan: %s %s", e.intent.Verb, e.intent.Target))
	return []effect{e}
}

// confirm applies the plan if everything is right; else it says what is not.
func (v *planView) confirm(m *model) []effect {
	switch {
	case !v.asks():
		v.note = "this plan cannot be executed"
	case !v.fits(size{m.size.w, m.size.h - 1}):
		v.note = "the window is too small to show the counts"
	case m.unlocked() != "":
		v.note = m.unlocked()
	case v.renewing || v.left(m.ui.now) <= 0:
		v.note = "the plan is being made again"
	case v.typed != deref(v.plan.Confirm):
		v.note, v.typed = "that is not the text: nothing was done", ""
	default:
		v.sent, v.note = true, "sent to the agent"
		return []effect{m.apply(v.plan, v.effect, v.typed)}
	}
	return nil
}

func (v *planView) paste(string) { v.note = "pasted text does not count: type it" }

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

// problemOf is problemText, "" where there is no error.
func problemOf(err error) string {
	if err == nil {
		return ""
	}
	return problemText(err)
}

// problemText is an error in one line, with its hint.
func problemText(err error) string {
	var p *pipeline.Problem
	if errors.As(err, &p) && p.Hint != "" {
		return p.Text + " (" + p.Hint + ")"
	}
	return cmp.Or(err.Error(), "unknown error")
}
