package tui

import (
	"strings"
	"testing"

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
	for _, l := range strings.Split(out, "\n") {
		if f := strings.Fields(l); len(f) > 0 && f[0] == "sum" && strings.Join(f, " ") != "sum of 0/4 0/0 - 0 - -" {
			t.Errorf("sums of nothing: %q", l)
		}
	}
}
