package tui

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"pipedeck/pipeline"
)

// menuItem is one action that can be asked for. Asking makes a plan and
// changes nothing, except for what loses and stops nothing.
type menuItem struct {
	key    string
	text   string
	intent pipeline.Intent
	note   string // how it will be confirmed
}

// missing says why an action cannot be asked for at all; "" if it can.
func (it menuItem) missing() string {
	if it.intent.Verb == "" || pipeline.CanPlan(it.intent.Verb) {
		return ""
	}
	return "not in this version"
}

// menuView is the actions menu: safe actions first, none preselected, and the
// letters act only inside it.
type menuView struct {
	stage int // index of the stage the actions are for
	items []menuItem
	why   string // why actions are not available
	used  time.Time
}

func openMenu(m *model) []effect {
	v := &menuView{stage: -1, why: m.acting(), used: m.ui.now}
	v.fill(m)
	m.ui.open(v)
	return nil
}

func (v *menuView) scope() scope { return inMenu }

// fill lists the actions for the stage of the chosen worker, or for the first
// active stage.
func (v *menuView) fill(m *model) {
	b := m.board()
	stages := b.node.Stages
	if len(stages) == 0 {
		v.items = nil
		return
	}
	worker := ""
	r, ok := m.chosen()
	if ok && r.worker != nil {
		worker = r.worker.ID
	}
	if v.stage < 0 {
		v.stage = pickStage(stages, worker)
	}
	s := stages[v.stage%len(stages)]
	if !strings.HasPrefix(worker, s.Name+"/") {
		worker = ""
	}
	v.items = menuItems(b, s, worker)
}

func pickStage(stages []pipeline.StageSnapshot, worker string) int {
	for i, s := range stages {
		if worker != "" && strings.HasPrefix(worker, s.Name+"/") {
			return i
		}
	}
	return max(0, slices.IndexFunc(stages, func(s pipeline.StageSnapshot) bool { return active(s.State) }))
}

func menuItems(b board, s pipeline.StageSnapshot, worker string) []menuItem {
	in := func(v pipeline.Verb, target string) pipeline.Intent { return pipeline.Intent{Verb: v, Target: target} }
	items := []menuItem{{"s", "start stage " + s.Name, in(pipeline.VerbStart, s.Name), "at once"}}
	if b.node.UploadsPaused {
		items = append(items, menuItem{"u", "resume uploads", in(pipeline.VerbResume, ""), "at once"})
	} else {
		items = append(items, menuItem{"u", "pause uploads", in(pipeline.VerbPause, ""), "at once"})
	}
	for i, o := range s.Outputs {
		if i < 4 {
			name := s.Name + "/" + o.Name
			items = append(items, menuItem{"efgh"[i : i+1], "settle " + name + " (upload and prove all)", in(pipeline.VerbSettle, name), "at once"})
		}
	}
	if b.node.Artifacts != nil {
		items = append(items, menuItem{"a", "push artifacts", in(pipeline.VerbPush, ""), "at once"})
	}
	items = append(items, menuItem{"o", "processes that are no workers: to adopt or to reap", pipeline.Intent{}, "a list"})
	if worker != "" {
		items = append(items,
			menuItem{"r", "restart worker " + worker, in(pipeline.VerbRestart, worker), "plan, y"},
			menuItem{"t", "stop worker " + worker, in(pipeline.VerbStop, worker), "plan"})
	}
	items = append(items,
		menuItem{"R", "restart stage " + s.Name, in(pipeline.VerbRestart, s.Name), "plan"},
		menuItem{"S", "stop stage " + s.Name, in(pipeline.VerbStop, s.Name), "plan"})
	if len(b.node.Stages) > 1 && !active(s.State) { // there must be another to come from
		items = append(items, menuItem{"P", "pivot to stage " + s.Name + ", settling what is left", in(pipeline.VerbPivot, s.Name), "plan"})
	}
	items = append(items, menuItem{"K", "kill stage " + s.Name, in(pipeline.VerbKill, s.Name), "plan"})
	for i, o := range s.Outputs {
		if i < 4 {
			name := s.Name + "/" + o.Name
			items = append(items, menuItem{"WXYZ"[i : i+1], "wipe local files of " + name, in(pipeline.VerbWipe, name), "plan"})
		}
	}
	return items
}

func (v *menuView) typeKey(m *model, name, _ string) []effect {
	v.used = m.ui.now
	switch name {
	case "esc", "q":
		m.ui.close()
		return nil
	case "tab":
		v.stage++
		v.fill(m)
		return nil
	case "L":
		if m.ui.lock.pinned {
			m.ui.say(warn, "locked by --read-only")
			return nil
		}
		toggleLock(m)
		v.why = m.acting()
		return nil
	}
	for _, it := range v.items {
		if it.key != name {
			continue
		}
		if why := m.acting(); why != "" {
			v.why = why
			m.ui.say(warn, why)
			return nil
		}
		if why := it.missing(); why != "" {
			m.ui.say(warn, it.text+": "+why)
			return nil
		}
		m.ui.close()
		if it.intent.Verb == "" {
			return openStrangers(m)
		}
		return m.askPlan(it.intent)
	}
	return nil
}

// askPlan asks the agent for a plan and says so.
func (m *model) askPlan(in pipeline.Intent) []effect {
	m.ui.say(plain, strings.TrimSpace(fmt.Sprintf("asking the agent for a plan: %s %s", in.Verb, in.Target)))
	return []effect{planEffect{intent: in, quiet: in.Verb == pipeline.VerbPause || in.Verb == pipeline.VerbResume}}
}

func (v *menuView) draw(b board, _ *ui, sz size) []line {
	out := []line{
		rowOf(ident, left(" Actions for "+clean(deckName(b)+" @ "+b.node.Name), sz.w)), nil,
	}
	l := plain
	if v.why != "" {
		l = dim
		out = append(out, rowOf(warn, "  not available: "+v.why), nil)
	}
	for _, it := range v.items {
		key, text, note := bold, l, it.note
		if why := it.missing(); why != "" {
			key, text, note = dim, dim, why
		}
		out = append(out, line{txt(key, "   "+it.key+"  "), txt(text, left(clean(it.text), min(52, max(20, sz.w-26)))), txt(dim, " "+note)})
	}
	if len(v.items) == 0 {
		out = append(out, rowOf(dim, "  no stage is known yet"))
	}
	return append(out, nil, rowOf(dim, "  A plan shows what will happen and what would be lost before anything does."),
		rowOf(dim, "  Tab: another stage   Esc: back"))
}
