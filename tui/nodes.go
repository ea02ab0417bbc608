package tui

import (
	"context"
	"time"

	"pipedeck/pipeline"
)

// Node is one node of the deck: its connection, which no other node's trouble
// touches, and who answers for it.
type Node struct {
	Name   string
	Source Source
	// Deck is who answers for the node now. It is never nil: before there is a
	// connection it says so.
	Deck func() pipeline.Deck
	// Unseen is what is shown of one of several nodes before its first snapshot.
	Unseen func(pipeline.Link) pipeline.Snapshot
	// From is how the node is reached, for its journal; may be nil.
	From func() string
}

// lookAt asks every node's connection what it has.
func lookAt(nodes []Node, now time.Time) input {
	if len(nodes) == 1 {
		snap, link, ok, retryIn := nodes[0].Source.Current()
		return input{snap: snap, link: link, ok: ok, retryIn: retryIn}
	}
	in := input{ok: len(nodes) > 0, each: make(map[string]contact, len(nodes))}
	snaps := make([]pipeline.Snapshot, 0, len(nodes))
	for _, n := range nodes {
		snap, link, ok, retryIn := n.Source.Current()
		if !ok {
			snap = n.Unseen(link)
		}
		in.each[n.Name] = contact{ok: ok, retryIn: retryIn, at: snap.At, health: snap.Health, reasons: snap.HealthReasons}
		snaps = append(snaps, snap)
	}
	if in.ok {
		in.snap = pipeline.Join(snaps[0].Deck, snaps[0].Run, now, snaps)
	}
	return in
}

// changes receives a value after something new came in from any node, until
// ctx ends.
func changes(ctx context.Context, nodes []Node, guard func(func())) func() <-chan struct{} {
	if len(nodes) == 1 {
		return nodes[0].Source.Changed
	}
	out := make(chan struct{}, 1)
	for _, n := range nodes {
		go guard(func() {
			for {
				select {
				case <-n.Source.Changed():
				case <-ctx.Done():
					return
				}
				select {
				case out <- struct{}{}:
				default:
				}
			}
		})
	}
	return func() <-chan struct{} { return out }
}

// only narrows what was heard of several nodes down to one of them.
func (in *input) only(name string) {
	c, ok := in.each[name]
	if !ok {
		return
	}
	in.ok, in.retryIn = c.ok, c.retryIn
	in.snap.At, in.snap.Health, in.snap.HealthReasons = c.at, c.health, c.reasons
}

// node is the node that what is on the screen is about: the one of the tab, or
// the one chosen in the fleet; "" where there is only one.
func (u *ui) node(snap pipeline.Snapshot) string {
	switch {
	case len(snap.Nodes) < 2:
		return ""
	case u.inFleet(snap):
		return u.fleetAt
	}
	return u.tab
}

func (m *model) node() string { return m.ui.node(m.in.snap) }

// recall takes up what is remembered of the node on the screen.
func (u *ui) recall(snap pipeline.Snapshot) {
	if p, ok := u.pasts[u.node(snap)]; ok {
		u.history, u.events = p.history, p.events
	}
}

// acting says why no action can be asked for now; "" if it can: each is one
// node's.
func (m *model) acting() string {
	if m.ui.inFleet(m.in.snap) {
		return "choose a node first: Enter opens it"
	}
	return m.unlocked()
}

// oneNode says why something that is about the workers of one node cannot be
// done; "" if it can.
func oneNode(m *model) string {
	if m.ui.inFleet(m.in.snap) {
		return "the fleet is shown: Enter opens a node"
	}
	return ""
}

// fromMsg is an answer of one of several nodes.
type fromMsg struct {
	node string
	msg  any
}

// visit brings the node of an answer onto the screen. It does not while
// something of another node is looked at.
func (m *model) visit(node string) bool {
	if node == m.node() && !m.ui.inFleet(m.in.snap) {
		return true
	}
	if len(m.ui.views) > 0 {
		return false
	}
	m.showTab(node)
	return true
}
