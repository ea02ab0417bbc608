package tui

import (
	"context"
	"strings"
	"testing"
	"time"

	"pipedeck/pipeline"
)

// The fleet comes first; its nodes are tabs, each with its own past.
func TestNodesAreTabs(t *testing.T) {
	t.Parallel()
	s := fleet("")
	s.in.snap.Nodes[1].Events[0].Text = "only on train2"
	d := newDesk(t, s)
	d.shows("@ 4 nodes").shows("of 2/4").shows("X>train3").shows("train2 agent")
	d.press("n").shows("@ train1").press("n").shows("@ train2").shows("extract/2 STALL").press("3").shows("only on train2")
	d.press("1", "n").shows("@ train3").shows("LOST").shows("~RUN")
	d.press("N", "N", "N").shows("@ 4 nodes").press("G").shows(" >train1").press("k").shows(">train2")
	d.press("enter").shows("@ train2").press("esc").shows("@ 4 nodes").press("q")
	if _, ok := d.last().(quitEffect); !ok {
		t.Errorf("q on the fleet does %v", d.last())
	}
}

// A node that comes back or leaves changes nothing for the others, and a node
// that is not there any more shows the fleet.
func TestTabOfANodeThatLeaves(t *testing.T) {
	t.Parallel()
	d := newDesk(t, fleet("")).press("n", "n").shows("@ train2")
	in := copyInput(d.m.in)
	in.snap.Nodes = append(in.snap.Nodes[:1:1], in.snap.Nodes[2:]...)
	d.m.take(in)
	d.shows("@ 3 nodes")
	in = copyInput(in)
	in.snap.Nodes = in.snap.Nodes[:1]
	d.m.take(in)
	d.shows("@ train1").press("n").shows("the deck has one node")
}

func TestSumsOmitWhatIsNotHeardOf(t *testing.T) {
	t.Parallel()
	s := fleet("")
	for i := range s.in.snap.Nodes {
		s.in.snap.Nodes[i].Link = pipeline.Link{State: pipeline.LinkLost}
	}
	out := newDesk(t, s).screen()
	for l := range strings.SplitSeq(out, "\n") {
		if f := strings.Fields(l); len(f) > 0 && f[0] == "sum" && strings.Join(f, " ") != "sum of 0/4 0/0 - 0 - -" {
			t.Errorf("sums of nothing: %q", l)
		}
	}
}

// twoNodes is a desk with connections of its own to two nodes; the second one
// has not been heard of.
func twoNodes(t *testing.T) (*desk, [2]*fakeDeck, [2]*fakeSource) {
	t.Helper()
	one := healthy(4).in
	decks := [2]*fakeDeck{demoDeck(), demoDeck()}
	sources := [2]*fakeSource{newFakeSource(one), newFakeSource(input{
		link: pipeline.Link{State: pipeline.LinkLost, Reason: new("no route to host")}, retryIn: 4 * time.Second,
	})}
	var nodes []Node
	for i, name := range []string{"train1", "train2"} {
		nodes = append(nodes, Node{
			Name: name, Source: sources[i], Deck: func() pipeline.Deck { return decks[i] },
			Unseen: func(l pipeline.Link) pipeline.Snapshot {
				return pipeline.Unseen(one.snap.Deck, one.snap.Run, name, l, t0())
			},
		})
	}
	d := &desk{t: t, now: t0(), deck: decks[0], src: sources[0]}
	now := func() time.Time { return d.now }
	d.m = newModel(doer{ctx: context.Background(), nodes: nodes, now: now}, now, ui{theme: ThemeAuto})
	d.m.by, d.m.size = "alice@laptop", size{80, 24}
	d.m.take(lookAt(nodes, d.now))
	return d, decks, sources
}

// A node that was never heard of takes nothing from the others.
func TestNodesHaveTheirOwnLink(t *testing.T) {
	t.Parallel()
	d, _, sources := twoNodes(t)
	d.shows("1/2 LIVE").shows("X>train2       LOST").shows("train2 LOST, retry in 4s (r: now): no route to host").shows("train1       RUNNING         4/4")
	d.press("n").shows("@ train1").shows("LIVE").shows("RUNNING").press("p").shows("pause uploads?").press("esc")
	d.press("n").shows("@ train2").shows("the agent does not answer").shows("next try in 4s").press("p").shows("no live link")

	d.press("N", "N").shows("@ 2 nodes").press("g", "j").shows(" >train1")
	two := healthy(2).in
	two.snap.Nodes[0].Name = "train2"
	sources[1].set(two)
	d.m.take(lookAt(d.m.do.nodes, d.now))
	d.shows("2/2 LIVE").shows("6/6").shows(">train1")
}

// What is asked for on the tab of a node is asked of that node, and what it
// answers belongs to it.
func TestAnswersBelongToTheirNode(t *testing.T) {
	t.Parallel()
	d, decks, sources := twoNodes(t)
	two := healthy(4).in
	two.snap.Nodes[0].Name = "train2"
	sources[1].set(two)
	d.m.take(lookAt(d.m.do.nodes, d.now))
	d.press("!").shows("choose a node first").press("S").shows("choose a node first").press("esc").press("l").shows("Enter opens a node")
	d.press("n", "n").shows("@ train2").press("!", "S")
	msg := d.m.ask([]effect{d.last()})()
	if from, ok := msg.(fromMsg); !ok || from.node != "train2" || len(decks[0].intents) != 0 || len(decks[1].intents) != 1 {
		t.Fatalf("%+v; asked %v and %v", msg, decks[0].intents, decks[1].intents)
	}

	d.press("n").shows("@ 2 nodes")
	d.m.Update(msg)
	d.shows("STOP extract")
	d.press("esc").shows("@ train2").press("N").shows("@ train1").press("?")
	d.m.Update(msg)
	d.shows("nothing was done")
	if len(d.m.ui.views) != 1 || d.m.ui.tab != "train1" {
		t.Errorf("a plan of train2 came over %q", d.m.ui.tab)
	}
}

// The plain console names the node in each line.
func TestPlainNamesTheNodes(t *testing.T) {
	t.Parallel()
	d, _, _ := twoNodes(t)
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	var out strings.Builder
	if err := Plain(ctx, d.m.do.nodes, &out, t0); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"Z train1: link: live\n", "Z train1: extract/0: RUN\n", "Z train2: link: lost, no route to host\n"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("not said: %q in\n%s", want, out.String())
		}
	}
}
