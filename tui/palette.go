package tui

import (
	"slices"
	"strings"

	"pipedeck/pipeline"
)

// command is one word of the palette.
type command struct {
	name    string
	help    string
	targets func(b board) []string // what can follow; nil: nothing
	run     func(m *model, target string) []effect
}

// commands lists the palette. Verbs of actions make plans, as in the menu.
func commands() []command {
	out := []command{
		{"logs", "log of a worker", workerNames, func(m *model, t string) []effect { return m.showLog(t) }},
		{"worker", "choose a worker", workerNames, chooseRow},
		{"lock", "lock or unlock", nil, func(m *model, _ string) []effect { return m.byTable("L") }},
		{"theme", "the next theme", nil, func(m *model, _ string) []effect { return nextTheme(m) }},
		{"sort", "sort the workers", sortNames, sortWorkers},
		{"filter", "filter the pane", nil, func(m *model, _ string) []effect { return askFilter(m) }},
		{"mouse", "mouse on or off", nil, func(m *model, _ string) []effect { return toggleMouse(m) }},
		{"failures", "failed files", nil, func(m *model, _ string) []effect { return openFailures(m) }},
		{"help", "the keys", nil, func(m *model, _ string) []effect { return openHelp(m) }},
		{"quit", "leave the console", nil, func(m *model, _ string) []effect { return leave(m) }},
	}
	for _, v := range []pipeline.Verb{pipeline.VerbPause, pipeline.VerbResume, pipeline.VerbPush} {
		out = append(out, verbCommand(v, nil))
	}
	for _, v := range []pipeline.Verb{pipeline.VerbStart, pipeline.VerbPivot} {
		out = append(out, verbCommand(v, stageNames))
	}
	for _, v := range []pipeline.Verb{pipeline.VerbStop, pipeline.VerbRestart, pipeline.VerbKill} {
		out = append(out, verbCommand(v, func(b board) []string { return append(stageNames(b), workerNames(b)...) }))
	}
	for _, v := range []pipeline.Verb{pipeline.VerbSettle, pipeline.VerbWipe} {
		out = append(out, verbCommand(v, outputNames))
	}
	return out
}

func verbCommand(v pipeline.Verb, targets func(board) []string) command {
	return command{string(v), "plan: " + string(v), targets, func(m *model, t string) []effect {
		if !pipeline.CanPlan(v) {
			m.ui.say(warn, string(v)+": not in this version")
			return nil
		}
		if why := m.unlocked(); why != "" {
			m.ui.say(warn, why)
			return nil
		}
		return m.askPlan(pipeline.Intent{Verb: v, Target: t})
	}}
}

// byTable does what a key does, with its reason when it is not available.
func (m *model) byTable(key string) []effect {
	b, ok := lookup(bindings(), onBoard, key)
	if !ok {
		return nil
	}
	if why := b.reason(m); why != "" {
		m.ui.say(warn, why)
		return nil
	}
	return b.act(m)
}

func workerNames(b board) []string {
	var out []string
	for _, s := range b.node.Stages {
		for _, w := range s.Workers {
			out = append(out, w.ID)
		}
	}
	return out
}

func stageNames(b board) []string {
	out := make([]string, 0, len(b.node.Stages))
	for _, s := range b.node.Stages {
		out = append(out, s.Name)
	}
	return out
}

func outputNames(b board) []string {
	var out []string
	for _, o := range b.outputs {
		if o.stage != "" {
			out = append(out, o.name)
		}
	}
	return out
}

func chooseRow(m *model, target string) []effect {
	m.ui.selected, m.ui.focus = target, paneWorkers
	return nil
}

func openPalette(m *model) []effect {
	m.ui.prompt = &prompt{label: ":", past: m.past, tab: complete, done: (*model).runCommand}
	return nil
}

// runCommand does what a line of the palette says.
func (m *model) runCommand(text string) []effect {
	words := strings.Fields(text)
	if len(words) == 0 {
		return nil
	}
	m.past = append(m.past[max(0, len(m.past)-49):], strings.Join(words, " "))
	for _, c := range commands() {
		if c.name != words[0] {
			continue
		}
		target := strings.Join(words[1:], " ")
		switch {
		case c.targets == nil && target != "":
			m.ui.say(warn, c.name+" takes no argument")
		case c.targets != nil && !slices.Contains(c.targets(m.board()), target):
			m.ui.say(warn, "cannot "+c.name+" \""+clean(target)+"\": no such name (Tab completes)")
		default:
			return c.run(m, target)
		}
		return nil
	}
	m.ui.say(warn, "no command \""+clean(words[0])+"\" (Tab completes)")
	return nil
}

// startingWith returns the names that start with s, each after begin.
func startingWith(names []string, begin, s string) []string {
	var out []string
	for _, n := range names {
		if strings.HasPrefix(n, s) {
			out = append(out, begin+n)
		}
	}
	return out
}

// complete extends text to the longest common beginning of what fits.
func complete(m *model, text string) string {
	name, target, second := strings.Cut(text, " ")
	all := []string{}
	for _, c := range commands() {
		if second && c.name == name && c.targets != nil {
			all = c.targets(m.board())
		}
		if !second {
			all = append(all, c.name+" ")
		}
	}
	begin := ""
	if second {
		begin = name + " "
	} else {
		target = name
	}
	fits := startingWith(all, begin, target)
	if len(fits) == 0 {
		return text
	}
	if len(fits) > 1 {
		m.ui.prompt.bad = strings.Join(fits, " ")
	}
	common := fits[0]
	for _, f := range fits[1:] {
		for !strings.HasPrefix(f, common) {
			common = common[:len(common)-1]
		}
	}
	return common
}
