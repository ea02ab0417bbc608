package tui

import (
	"strings"
	"testing"
	"time"

	"pipedeck/pipeline"
)

// Workers that ended since their stage was stopped are no alarm, and do not work.
func TestStoppedWorkersAreNoAlarm(t *testing.T) {
	t.Parallel()
	s := healthy(4)
	end := func(stage pipeline.StageState) string {
		s.in.snap.Nodes[0].Stages[0].State = stage
		for i := range s.workers() {
			w := &s.workers()[i]
			w.State, w.StateReason = pipeline.WorkerExited, new("ended with code 143 after it was asked to stop")
			w.PID, w.SamplesPerSecond, w.ExitCode = nil, nil, new(143)
		}
		return plainText(render(s.in, &s.ui, size{120, 40}))
	}
	got := end(pipeline.StageStopped)
	for _, want := range []string{"0/4 workers", "EXIT 143", "after it was asked to stop"} {
		if !strings.Contains(got, want) {
			t.Errorf("no %q in\n%s", want, got)
		}
	}
	if strings.Contains(got, "X>0") || strings.Contains(got, "X 1") {
		t.Errorf("they are marked as failed:\n%s", got)
	}
	if got := end(pipeline.StageRunning); !strings.Contains(got, "X>0") {
		t.Errorf("in a stage that shall run they are not marked:\n%s", got)
	}
}

// What the operator looks at among the events stays while newer ones come.
func TestPausedEventsStay(t *testing.T) {
	t.Parallel()
	s := mixed(8)
	d := newDesk(t, s).press("3", "j", "j")
	looked := *d.m.ui.chosenEvent()
	n := &d.m.in.snap.Nodes[0]
	more := func(text string, count int) {
		seq := n.Events[len(n.Events)-1].Seq + 1
		n.Events = append(n.Events, pipeline.Event{Seq: seq, At: t0().Add(time.Duration(seq) * time.Second), Level: pipeline.Warn, Source: "deck", Text: text, Count: count})
		d.m.take(d.m.in)
	}
	more("degraded", 1)
	more("healthy", 1)
	if e := d.m.ui.chosenEvent(); e.Seq != looked.Seq {
		t.Errorf("chosen is %q, was %q", e.Text, looked.Text)
	}
	d.shows("paused, 4 newer")
	more("degraded", 2) // takes the first one's place
	d.shows("paused, 4 newer")
	d.press("g")
	more("failed", 1)
	if e := d.m.ui.chosenEvent(); e.Text != "failed" {
		t.Errorf("at the newest, chosen is %q", e.Text)
	}
}

// Why a login is refused can be read, also on a small screen.
func TestRefusedLoginIsNotCut(t *testing.T) {
	t.Parallel()
	s := healthy(4)
	s.in.link.State, s.in.link.AgeSeconds = pipeline.LinkAuth, new(5.2)
	s.in.link.Reason = new(`cannot connect to "root@203.0.113.7:40022": its host key changed: it shows ssh-ed25519 SHA256:dgaC`)
	s.in.retryIn = 2 * time.Second
	for _, sz := range []size{{80, 24}, {120, 40}} {
		got := plainText(render(s.in, &s.ui, sz))
		for _, want := range []string{"Retry in 2s (r: now).", `root@203.0.113.7:40022`} {
			if !strings.Contains(got, want) {
				t.Errorf("no %q at %v in\n%s", want, sz, got)
			}
		}
		if !strings.Contains(strings.ReplaceAll(got, "\n", " "), "its host key changed") {
			t.Errorf("why is cut at %v:\n%s", sz, got)
		}
	}
}
