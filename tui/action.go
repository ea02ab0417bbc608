package tui

import (
	"fmt"
	"strings"

	"pipedeck/pipeline"
)

// actionView follows an action step by step. Closing it stops nothing: the
// action belongs to the agent.
type actionView struct {
	action pipeline.Action
	err    string // why the last look failed; the action may still go on
	top    int
}

func (v *actionView) scope() scope { return inView }
func (v *actionView) scroll(_ *ui, m move, page int) []effect {
	v.top = m.offset(v.top, 1<<16, page)
	return nil
}

// applied takes the agent's answer to a confirmed plan.
func (m *model) applied(msg appliedMsg) []effect {
	if v, ok := m.ui.top().(*planView); ok && v.sent {
		m.ui.close()
	}
	if msg.err != nil {
		m.ui.open(&noticeView{title: "the agent did not confirm the start of this action; see the events for what it did", err: msg.err})
		return nil
	}
	a := msg.action
	if msg.effect.quiet {
		m.ui.say(plain, fmt.Sprintf("%s uploads: %s, action %s", a.Verb, a.Result, a.ID))
		return nil
	}
	m.ui.open(&actionView{action: a})
	return follow(a)
}

// follow waits for the end of an action that has not ended.
func follow(a pipeline.Action) []effect {
	if a.EndedAt != nil {
		return nil
	}
	return []effect{followEffect{action: a.ID}}
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
		return follow(msg.action)
	}
	return nil
}

func (v *actionView) draw(b board, _ *ui, sz size) []line {
	a := v.action
	took := b.since(a.BeganAt)
	if a.EndedAt != nil {
		took = max(0, a.EndedAt.Sub(a.BeganAt).Seconds())
	}
	word, l := verdictWord(a.Result)
	head := bar(sz.w, []part{
		{span: txt(ident, fmt.Sprintf(" %s %s ", strings.ToUpper(string(a.Verb)), a.Target))},
		{span: txt(l, word)},
		{span: txt(dim, a.ID), drop: 1},
		{span: txt(dim, lasting(took)), drop: 2, right: true},
	})
	out := []line{}
	for _, s := range a.Steps {
		out = append(out, resultLines(s, sz.w)...)
	}
	if r := deref(a.Reason); r != "" {
		out = append(out, nil)
		for _, s := range wrap(r, sz.w-2) {
			out = append(out, rowOf(l, s))
		}
	}
	if v.err != "" {
		out = append(out, nil, rowOf(warn, cut("cannot follow: "+clean(v.err)+"; the action may still go on", sz.w)))
	}
	if a.EndedAt == nil {
		out = append(out, nil, rowOf(dim, "Esc leaves this view; the action goes on in the agent."))
	}
	return append([]line{head, nil}, window(out, &v.top, sz.h-2)...)
}

func resultLines(s pipeline.StepResult, w int) []line {
	word, l := verdictWord(s.Result)
	if s.BeganAt == nil {
		word, l = "waiting", dim
	}
	text := fmt.Sprintf("%2d. %s", s.N, strings.ReplaceAll(string(s.Kind), "_", " "))
	out := make([]line, 0, 1+len(s.Checks))
	out = append(out, line{txt(plain, left(text, 26)), txt(l, " "+left(word, 14)), txt(plain, s.Text)})
	for _, c := range s.Checks {
		cw, cl := verdictWord(c.Result)
		out = append(out, line{txt(plain, "      "), txt(cl, left(cw, 14)), txt(plain, cut(clean(c.Name+": "+c.Observed), max(10, w-20)))})
	}
	return out
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
