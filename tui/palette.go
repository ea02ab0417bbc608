package tui

import (
	"slices"
	"strconv"
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
		{"strangers", "processes that are no workers: to adopt or to reap", nil, func(m *model, _ string) []effect { return openStrangers(m) }},
		{"failures", "failed files", nil, func(m *model, _ string) []effect { return openFailures(m) }},
		{"help", "the keys", nil, func(m *model, _ string) []effect { return openHelp(m) }},
		{"quit", "leave the console", nil, func(m *model, _ string) []effect { return leave(m) }},
	}
	out = append(out, resolveCommands()...)
	for _, v := range []pipeline.Verb{pipeline.VerbPause, pipeline.VerbResume, pipeline.VerbPush} {
		out = append(out, verbCommand(v, nil))
	}
	out = append(out, verbCommand(pipeline.VerbStart, stageNames), verbCommand(pipeline.VerbPivot, pivotTargets))
	for _, v := range []pipeline.Verb{pipeline.VerbStop, pipeline.VerbRestart, pipeline.VerbKill} {
		out = append(out, verbCommand(v, func(b board) []string { return append(stageNames(b), workerNames(b)...) }))
	}
	return append(out, verbCommand(pipeline.VerbSettle, outputNames), verbCommand(pipeline.VerbWipe, wipeTargets),
		verbCommand(pipeline.VerbUndo, func(b board) []string { return append(actionIDs(b), anyTarget) }),
		verbCommand(pipeline.VerbAdopt, adoptTargets), verbCommand(pipeline.VerbReap, func(board) []string { return []string{anyTarget} }))
}

// anyTarget among the targets of a command says that others are good too:
// they cannot all be known here.
const anyTarget = "*"

// The words after a target that say how.
const (
	wordKeep, wordDiscard   = " keep", " discard"
	wordProven, wordScratch = " proven-only", "scratch "
)

func pivotTargets(b board) []string {
	var out []string
	for _, s := range stageNames(b) {
		out = append(out, s, s+wordKeep, s+wordDiscard)
	}
	return out
}

func wipeTargets(b board) []string {
	var out []string
	for _, o := range outputNames(b) {
		out = append(out, o, o+wordProven)
	}
	for _, s := range stageNames(b) {
		out = append(out, wordScratch+s)
	}
	return out
}

// adoptTargets begin with a stage; the pids follow.
func adoptTargets(b board) []string {
	out := []string{anyTarget}
	for _, s := range stageNames(b) {
		out = append(out, s+" ")
	}
	return out
}

func actionIDs(b board) []string {
	var out []string
	for _, e := range b.node.Events {
		if e.Action != "" && !slices.Contains(out, e.Action) {
			out = append(out, e.Action)
		}
	}
	return out
}

// intentOf reads a verb with what follows it in the palette.
func intentOf(v pipeline.Verb, target string) (pipeline.Intent, string) {
	in := pipeline.Intent{Verb: v, Target: target}
	switch v {
	case pipeline.VerbPivot:
		for word, how := range map[string]pipeline.LeaveHow{wordKeep: pipeline.LeaveKeep, wordDiscard: pipeline.LeaveDiscard} {
			if name, ok := strings.CutSuffix(target, word); ok {
				in.Target, in.Leave = name, how
			}
		}
	case pipeline.VerbWipe:
		if name, ok := strings.CutSuffix(target, wordProven); ok {
			in.Target, in.ProvenOnly = name, true
		}
		if name, ok := strings.CutPrefix(target, wordScratch); ok {
			in.Target, in.Scratch = name, true
		}
	case pipeline.VerbAdopt, pipeline.VerbReap:
		pids := target
		if in.Target = ""; v == pipeline.VerbAdopt {
			in.Target, pids, _ = strings.Cut(target, " ")
		}
		var bad string
		in.PIDs, bad = pidsOf(pids)
		return in, bad
	default:
	}
	return in, ""
}

func pidsOf(text string) (pids []int, bad string) {
	for _, s := range strings.FieldsFunc(text, func(r rune) bool { return r == ',' || r == ' ' }) {
		pid, err := strconv.Atoi(s)
		if err != nil || pid < 2 {
			return pids, "no pid: " + s
		}
		pids = append(pids, pid)
	}
	if len(pids) == 0 {
		return nil, "which processes? :strangers lists them; then :adopt STAGE PID,PID or :reap PID,PID"
	}
	return pids, ""
}

func verbCommand(v pipeline.Verb, targets func(board) []string) command {
	return command{string(v), "plan: " + string(v), targets, func(m *model, t string) []effect {
		if !pipeline.CanPlan(v) {
			m.ui.say(warn, string(v)+": not in this version")
			return nil
		}
		if why := m.acting(); why != "" {
			m.ui.say(warn, why)
			return nil
		}
		in, bad := intentOf(v, t)
		if bad != "" {
			m.ui.say(warn, bad)
			return nil
		}
		return m.askPlan(in)
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
		if c.targets != nil {
			target = inFull(c.targets(m.board()), target)
		}
		switch {
		case c.targets == nil && target != "":
			m.ui.say(warn, c.name+" takes no argument")
		case c.targets != nil && !isTarget(c.targets(m.board()), target):
			m.ui.say(warn, "cannot "+c.name+" \""+clean(target)+"\": no such name (Tab completes)")
		default:
			return c.run(m, target)
		}
		return nil
	}
	hint := " (Tab completes)"
	if name := nearest(words[0]); name != "" {
		hint = ": did you mean " + name + "?"
	}
	m.ui.say(warn, "no command \""+clean(words[0])+"\""+hint)
	return nil
}

// nearest is the command that a mistyped one is at most two letters from.
func nearest(typed string) string {
	best, name := 3, ""
	for _, c := range commands() {
		if d := distance(typed, c.name); d < best && d < len(c.name)-1 {
			best, name = d, c.name
		}
	}
	return name
}

// distance is how many letters are to be put in, left out or changed to make b of
// a; two that changed places count as one.
func distance(a, b string) int {
	rows := make([][]int, len(a)+1)
	for i := range rows {
		rows[i] = make([]int, len(b)+1)
		rows[i][0] = i
	}
	for j := range rows[0] {
		rows[0][j] = j
	}
	for i := range len(a) {
		for j := range len(b) {
			d := min(rows[i][j+1]+1, rows[i+1][j]+1, rows[i][j]+btoi(a[i] != b[j]))
			if i > 0 && j > 0 && a[i] == b[j-1] && a[i-1] == b[j] {
				d = min(d, rows[i-1][j-1]+1)
			}
			rows[i+1][j+1] = d
		}
	}
	return rows[len(a)][len(b)]
}

// inFull completes an output's bare name where only one has it.
func inFull(all []string, target string) string {
	if target == "" || strings.Trim(target, "0123456789") == "" || slices.Contains(all, target) {
		return target
	}
	full := target
	for _, name := range all {
		if strings.HasSuffix(name, "/"+target) {
			if full != target {
				return target
			}
			full = name
		}
	}
	return full
}

func isTarget(all []string, target string) bool {
	return slices.Contains(all, target) || slices.Contains(all, anyTarget) && target != "" && target != anyTarget
}

// startingWith returns the names that start with s, each after begin.
func startingWith(names []string, begin, s string) []string {
	var out []string
	for _, n := range names {
		if strings.HasPrefix(n, s) && n != anyTarget {
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
