package tui

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"pipedeck/pipeline"
)

// past is what the console remembers of one node.
type past struct {
	history *history
	events  *eventRing
}

// pastOf returns what is remembered of a node. The first one takes over what
// was there before any was known.
func (u *ui) pastOf(node string) past {
	p, ok := u.pasts[node]
	if !ok {
		if u.pasts == nil {
			u.pasts, p = map[string]past{}, past{u.history, u.events}
		} else {
			p = past{newHistory(), &eventRing{}}
		}
		u.pasts[node] = p
	}
	return p
}

// inFleet says whether all nodes are shown together.
func (u *ui) inFleet(snap pipeline.Snapshot) bool {
	return len(snap.Nodes) > 1 && !slices.ContainsFunc(snap.Nodes, func(n pipeline.NodeSnapshot) bool { return n.Name == u.tab })
}

// showTab shows one node, or all of them for "".
func (m *model) showTab(name string) {
	m.ui.tab = name
	m.ui.selected, m.ui.back, m.ui.zoom = "", 0, false
	m.ui.recall(m.in.snap)
	m.ui.reselect(m.board().rows)
}

// reselectNode keeps a node of the fleet chosen.
func (u *ui) reselectNode(in input) {
	has := func(n pipeline.NodeSnapshot) bool { return n.Name == u.fleetAt }
	if len(in.snap.Nodes) > 1 && !slices.ContainsFunc(in.snap.Nodes, has) {
		u.fleetAt = worstFirst(boards(in, u.now))[0].node.Name
	}
}

// nextTab goes through the fleet and its nodes.
func nextTab(d int) func(*model) []effect {
	return func(m *model) []effect {
		names := []string{""}
		for _, n := range m.in.snap.Nodes {
			names = append(names, n.Name)
		}
		at := max(0, slices.Index(names, m.ui.tab))
		m.showTab(names[(at+d+len(names))%len(names)])
		return nil
	}
}

func manyNodes(m *model) string {
	if len(m.in.snap.Nodes) < 2 {
		return "the deck has one node"
	}
	return ""
}

// tabs is the line that names the nodes, each with its mark.
func tabs(bs []board, u *ui, w int) line {
	tab := func(name, mark, shown string) part {
		if u.tab == name || name == "" && u.inFleet(bs[0].snap) {
			return part{span: txt(chosen, "["+mark+shown+"]")}
		}
		return part{span: txt(dim, " "+mark+shown+" "), drop: 1}
	}
	parts := []part{tab("", "", "fleet")}
	for _, b := range bs {
		mark := strings.TrimSpace(b.weight().mark())
		parts = append(parts, tab(b.node.Name, mark, clean(b.node.Name)))
	}
	return bar(w, parts)
}

// boards are those of all nodes, in the spec's order.
func boards(in input, now time.Time) []board {
	out := make([]board, 0, len(in.snap.Nodes))
	for _, n := range in.snap.Nodes {
		out = append(out, newBoard(in, now, n.Name))
	}
	return out
}

// weight is how much attention a node needs.
func (b board) weight() weight {
	w := calm
	for _, r := range b.all {
		w = max(w, r.weight)
	}
	for _, o := range b.usedOutputs() {
		w = max(w, outputWeight(o.State))
	}
	if b.stale {
		w = max(w, broken)
	}
	return w
}

// state is a node in a word or two.
func (b board) state() string {
	switch w := b.weight(); {
	case b.stale:
		text := linkSpan(b, false).text
		if b.link.AgeSeconds != nil {
			text += " " + lasting(*b.link.AgeSeconds)
		}
		return text
	case w >= doubtful:
		for _, r := range b.all {
			if r.weight == w {
				return r.word
			}
		}
		for _, o := range b.usedOutputs() {
			if outputWeight(o.State) == w {
				return strings.ToUpper(string(o.State))
			}
		}
	}
	return calmWord(b)
}

// why is the reason of the state, if there is one.
func (b board) why() string {
	w := b.weight()
	if b.stale {
		return deref(b.link.Reason)
	}
	for _, r := range b.all {
		if r.weight == w && w > calm {
			return strings.TrimPrefix(r.key+": "+r.reason, ": ")
		}
	}
	for _, o := range b.usedOutputs() {
		if outputWeight(o.State) == w && w > calm {
			return o.name + ": " + deref(o.StateReason)
		}
	}
	return ""
}

// alive counts the workers that are as they should be.
func (b board) alive() string {
	alive, all := 0, 0
	for _, r := range b.all {
		if r.worker != nil {
			all++
			alive += btoi(r.works())
		}
	}
	if b.unheard() {
		return none
	}
	return old(b.stale, fmt.Sprintf("%d/%d", alive, all))
}

// unheard says that nothing was ever told of a node.
func (b board) unheard() bool { return !b.have || b.stale && b.link.AgeSeconds == nil }

func (b board) rate() (rate *float64) {
	for _, s := range b.node.Stages {
		if active(s.State) && s.SamplesPerSecond != nil {
			total := deref(rate) + *s.SamplesPerSecond
			rate = &total
		}
	}
	return rate
}

// worstFirst is the order of the nodes in the fleet.
func worstFirst(bs []board) []board {
	out := slices.Clone(bs)
	slices.SortStableFunc(out, func(a, b board) int { return cmp.Compare(b.weight(), a.weight()) })
	return out
}

// scrollFleet moves through the nodes.
func (m *model) scrollFleet(mv move, page int) {
	rows := worstFirst(boards(m.in, m.ui.now))
	at := max(0, slices.IndexFunc(rows, func(b board) bool { return b.node.Name == m.ui.fleetAt }))
	m.ui.fleetAt = rows[mv.offset(at, len(rows)-1, page)].node.Name
	m.ui.recall(m.in.snap)
}
