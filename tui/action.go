package tui

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"pipedeck/pipeline"
)

// actionView follows an action step by step. Closing it stops nothing: the
// action belongs to the agent.
type actionView struct {
	action pipeline.Action
	then   pipeline.Intent // offered once it is done; may be zero
	err    string          // why the last look failed; the action may still go on
	all    bool            // all evidence is shown, also of what is verified
	top    int
}

func (v *actionView) scope() scope { return inAction }
func (v *actionView) scroll(_ *ui, m move, page int) []effect {
	v.top = m.offset(v.top, 1<<16, page)
	return nil
}

// applied takes the agent's answer to a confirmed plan.
func (m *model) applied(node string, msg appliedMsg) []effect {
	if v, ok := m.ui.top().(*planView); ok && v.sent && node == m.node() {
		m.ui.close()
	}
	if !m.visit(node) {
		m.ui.say(plain, node+": "+cmp.Or(problemOf(msg.err), fmt.Sprintf("%s %s is action %s (its tab, then a)", msg.action.Verb, msg.action.Target, msg.action.ID)))
		m.actions[node] = cmp.Or(msg.action.ID, m.actions[node])
		return nil
	}
	if msg.err != nil {
		m.ui.open(&noticeView{title: whyNotApplied(msg.err), err: msg.err})
		return nil
	}
	a := msg.action
	if msg.effect.quiet {
		m.ui.say(plain, fmt.Sprintf("%s uploads: %s, action %s", a.Verb, a.Result, a.ID))
		return nil
	}
	return m.showAction(a, msg.effect.then)
}

// whyNotApplied tells a refusal, after which nothing was done, from an answer
// that did not come: then the agent may have begun.
func whyNotApplied(err error) string {
	var p *pipeline.Problem
	if errors.As(err, &p) && (p.Kind == pipeline.ProblemRefused || p.Kind == pipeline.ProblemUsage) {
		return "the agent refused: nothing was done"
	}
	return "not known whether it began: see the events, or press a"
}

func (m *model) showAction(a pipeline.Action, then pipeline.Intent) []effect {
	m.actions[m.node()] = a.ID
	if v, ok := m.ui.top().(*actionView); ok && v.action.ID == a.ID {
		v.action = a
	} else {
		m.ui.open(&actionView{action: a, then: then})
	}
	return followOn(a)
}

// openAction shows the action that runs, or the last one that was heard of,
// also one that another console began.
func openAction(m *model) []effect {
	a := pipeline.Action{ID: m.actions[m.node()], Result: pipeline.Unverified}
	if now := m.board().node.Action; now != nil {
		a = *now
	}
	m.ui.open(&actionView{action: a})
	return []effect{followEffect{action: a.ID}}
}

func hasAction(m *model) string {
	if m.actions[m.node()] == "" {
		return "no action runs, and none was begun since this console was opened"
	}
	return ""
}

// followOn waits for more of an action that has not ended, or whose checks after
// the start are open.
func followOn(a pipeline.Action) []effect {
	open := slices.ContainsFunc(a.After, func(c pipeline.Check) bool { return c.Result == pipeline.Running })
	if a.EndedAt != nil && !open {
		return nil
	}
	return []effect{followEffect{action: a.ID, ended: a.EndedAt != nil || a.Waits}}
}

// followed takes news of an action and waits for more while its view is open.
func (m *model) followed(msg actionMsg) []effect {
	for _, v := range m.ui.views {
		av, ok := v.(*actionView)
		if !ok || av.action.ID != msg.id {
			continue
		}
		if msg.err != nil {
			av.err = problemText(msg.err)
			return []effect{followEffect{action: msg.id}}
		}
		av.action, av.err = msg.action, ""
		return followOn(msg.action)
	}
	return nil
}

// offers says whether what was meant to come after this action can come now.
func (v *actionView) offers() bool {
	return v.then.Verb != "" && v.action.EndedAt != nil && v.action.Result == pipeline.Verified
}

func hasNext(m *model) string {
	if v, ok := m.ui.top().(*actionView); ok && v.offers() {
		return ""
	}
	return "nothing follows this action"
}

// planNext asks for the plan that this action was meant to make safe.
func planNext(m *model) []effect {
	v := m.ui.top().(*actionView)
	m.ui.close()
	m.ui.say(plain, fmt.Sprintf("asking the agent for a plan: %s %s", v.then.Verb, v.then.Target))
	return []effect{planEffect{intent: v.then}}
}

func (v *actionView) draw(b board, u *ui, sz size) []line {
	a := v.action
	took := max(0, u.now.Sub(a.BeganAt).Seconds())
	if a.EndedAt != nil {
		took = max(0, a.EndedAt.Sub(a.BeganAt).Seconds())
	}
	word, l := verdictWord(a.Result)
	if a.Waits {
		word, l = "INTERRUPTED, waits for you", warn
	}
	parts := []part{
		{span: txt(ident, " "+strings.TrimSpace(strings.ToUpper(string(a.Verb))+" "+a.Target)+" ")},
		{span: txt(l, word)},
		{span: txt(dim, a.ID), drop: 1},
		{span: txt(dim, "by "+a.By), drop: 3},
	}
	if !a.BeganAt.IsZero() {
		parts = append(parts, part{span: txt(dim, lasting(took)), drop: 2, right: true})
	}
	out := []line{}
	for _, s := range a.Steps {
		out = append(out, resultLines(s, sz.w, v.all)...)
	}
	if r := deref(a.Reason); r != "" {
		out = append(out, nil)
		for _, s := range wrap(r, sz.w-2) {
			out = append(out, rowOf(l, s))
		}
	}
	out = append(out, v.afterLines(b, sz.w)...)
	out = append(out, v.endLines(sz.w)...)
	return append([]line{bar(sz.w, parts), nil}, window(out, &v.top, sz.h-2)...)
}

// afterLines are the checks after a start: a live list, since zeros shortly
// after a start are loading and no failure.
func (v *actionView) afterLines(b board, w int) []line {
	if len(v.action.After) == 0 {
		return nil
	}
	out := []line{nil, rowOf(bold, "After the start")}
	for _, c := range v.action.After {
		word, l := verdictWord(c.Result)
		if c.Result == pipeline.Running {
			word = "waiting"
		}
		age := ""
		if !c.At.IsZero() {
			age = "  " + lasting(b.since(c.At)) + " ago"
		}
		for i, part := range wrap(c.Name+": "+c.Observed, max(10, w-21-width(age))) {
			if i > 0 {
				word, age = "", ""
			}
			out = append(out, line{txt(plain, "    "), txt(l, left(word, 15)), txt(plain, part), txt(dim, age)})
		}
	}
	return out
}

func (v *actionView) endLines(w int) []line {
	a := v.action
	ends := func(k look, text string) []line { return append([]line{nil}, hanging(k, text, "", w)...) }
	var out []line
	if v.err != "" {
		out = append(out, ends(warn, "cannot follow: "+v.err+"; the action may still go on")...)
	}
	switch {
	case a.Waits:
		out = append(out, ends(bold, ":action-resume "+a.ID+" goes on, :action-abandon "+a.ID+" ends it here.")...)
	case v.offers():
		out = append(out, ends(bold, fmt.Sprintf("Enter: the plan to %s %s, as it is now.", v.then.Verb, v.then.Target))...)
	case a.EndedAt != nil && movesFiles(a):
		out = append(out, ends(plain, ":undo "+a.ID+" brings back what it moved, as long as that is in the trash.")...)
	case a.EndedAt == nil:
		out = append(out, ends(dim, "Esc leaves this view; the action goes on in the agent, and `a` comes back to it.")...)
	}
	return out
}

// movesFiles says whether an action has put files into a trash that they can
// come back from.
func movesFiles(a pipeline.Action) bool {
	return a.Undo.Until != nil && slices.ContainsFunc(a.Steps, func(s pipeline.StepResult) bool {
		return s.BeganAt != nil && s.Kind == pipeline.StepTrash
	})
}

func toggleEvidence(m *model) []effect {
	v := m.ui.top().(*actionView)
	v.all, v.top = !v.all, 0
	return nil
}

// resultLines are a step and its evidence. That of a verified step is only
// counted, unless all is asked for: what is not verified must not drown in it.
func resultLines(s pipeline.StepResult, w int, all bool) []line {
	word, l := verdictWord(s.Result)
	if s.BeganAt == nil {
		word, l = "waiting", dim
	}
	text := fmt.Sprintf("%2d. %s", s.N, strings.ReplaceAll(string(s.Kind), "_", " "))
	out := make([]line, 0, 1+len(s.Checks))
	out = append(out, line{txt(plain, left(text, 24)), txt(l, " "+left(word, 15)), txt(plain, cut(clean(s.Text), max(0, w-40)))})
	if rest := clean(s.Text); width(rest) > w-40 {
		out[0][2] = span{}
		for _, part := range wrap(rest, w-6) {
			out = append(out, rowOf(plain, "      "+part))
		}
	}
	if good := allVerified(s.Checks); good > 1 && !all && s.Result == pipeline.Verified {
		return append(out, rowOf(dim, fmt.Sprintf("      %d checks verified (v shows them)", good)))
	}
	for _, c := range s.Checks {
		cw, cl := verdictWord(c.Result)
		for i, part := range wrap(c.Name+": "+c.Observed, max(10, w-21)) {
			if i > 0 {
				cw = ""
			}
			out = append(out, line{txt(plain, "      "), txt(cl, left(cw, 15)), txt(plain, part)})
		}
	}
	return out
}

// allVerified is how many checks there are if every one is verified or does
// not apply, else 0.
func allVerified(checks []pipeline.Check) int {
	for _, c := range checks {
		if c.Result != pipeline.Verified && c.Result != pipeline.NotApplicable {
			return 0
		}
	}
	return len(checks)
}

func verdictWord(v pipeline.Verdict) (string, look) {
	switch v {
	case pipeline.Running:
		return "running", accent
	case pipeline.Verified:
		return "verified", good
	case pipeline.ActionFailed:
		return "FAILED", bad
	case pipeline.NotApplicable:
		return "not applicable", dim
	case pipeline.Unverified:
	}
	return "UNKNOWN", warn
}

// resolveCommands are the ways out of an interrupted action. Each asks first.
func resolveCommands() []command {
	ids := func(b board) []string {
		if a := b.node.Action; a != nil {
			return []string{a.ID}
		}
		return nil
	}
	resolve := func(how pipeline.ResolveHow, question string) func(*model, string) []effect {
		return func(m *model, id string) []effect {
			if why := m.acting(); why != "" {
				m.ui.say(warn, why)
				return nil
			}
			m.askYes(question+" "+id+"?", func(m *model) []effect {
				return []effect{resolveEffect{pipeline.Resolve{Action: id, How: how, By: m.by}}}
			})
			return nil
		}
	}
	return []command{
		{"action", "follow the running action, or the last one", nil, func(m *model, _ string) []effect { return m.byTable("a") }},
		{"action-resume", "go on with an interrupted action", ids, resolve(pipeline.ResolveResume, "go on with")},
		{"action-abandon", "end an interrupted action here", ids, resolve(pipeline.ResolveAbandon, "end here")},
		{"action-takeover", "end a running action at its next safe point", ids, resolve(pipeline.ResolveTakeover, "end at its next safe point")},
	}
}
