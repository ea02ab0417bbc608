package tui

import (
	"context"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	tea "charm.land/bubbletea/v2"

	"pipedeck/pipeline"
)

// desk is a model with a hand on its clock and its keyboard.
type desk struct {
	t    *testing.T
	m    *model
	now  time.Time
	deck *fakeDeck
	src  *fakeSource
	fx   []effect
}

func newDesk(t *testing.T, scene scene) *desk {
	t.Helper()
	d := &desk{t: t, now: t0(), deck: demoDeck(), src: newFakeSource(scene.in)}
	d.m = newModel(doer{ctx: context.Background(), nodes: nodesOf(d.src, d.deck), changed: d.src.Changed, now: func() time.Time { return d.now }}, func() time.Time { return d.now }, ui{theme: ThemeAuto})
	d.m.by = "alice@laptop"
	d.m.size = size{80, 24}
	d.m.take(scene.in)
	return d
}

// press presses keys by their names in the table and keeps what they ask for.
func (d *desk) press(keys ...string) *desk {
	d.m.ui.now = d.now
	for _, k := range keys {
		text := ""
		if len([]rune(k)) == 1 {
			text = k
		}
		if k == "space" {
			text = " "
		}
		d.fx = append(d.fx, d.m.press(k, text)...)
	}
	return d
}

func (d *desk) text(s string) *desk {
	for _, r := range s {
		k := string(r)
		if r == ' ' {
			k = "space"
		}
		d.press(k)
	}
	return d
}

func (d *desk) wait(by time.Duration) *desk {
	d.now = d.now.Add(by)
	d.m.ui.now = d.now
	return d
}

// intend asks for a plan as menu and palette do.
func (d *desk) intend(v pipeline.Verb, target string) *desk {
	d.fx = append(d.fx, d.m.askPlan(pipeline.Intent{Verb: v, Target: target})...)
	return d
}

// planned hands the agent's plan for the last intent to the model.
func (d *desk) planned() *desk {
	e := d.last().(planEffect)
	d.fx = append(d.fx, d.m.planned("", planMsg{effect: e, plan: examplePlan(e.intent, d.now)})...)
	d.screen() // a plan counts from when it is seen
	return d
}

func (d *desk) last() effect {
	d.t.Helper()
	if len(d.fx) == 0 {
		d.t.Fatal("nothing was asked for")
	}
	return d.fx[len(d.fx)-1]
}

func (d *desk) screen() string {
	u := d.m.ui
	return plainText(render(d.m.in, &u, d.m.size))
}

func (d *desk) shows(want string) *desk {
	d.t.Helper()
	if !strings.Contains(d.screen(), want) {
		d.t.Errorf("the screen does not show %q:\n%s", want, d.screen())
	}
	return d
}

func (d *desk) applied() int {
	n := 0
	for _, e := range d.fx {
		if _, ok := e.(applyEffect); ok {
			n++
		}
	}
	return n
}

func TestKeysMakeIntents(t *testing.T) {
	t.Parallel()
	intent := func(v pipeline.Verb, target string) effect {
		return planEffect{intent: pipeline.Intent{Verb: v, Target: target}}
	}
	quiet := func(v pipeline.Verb) effect { return planEffect{intent: pipeline.Intent{Verb: v}, quiet: true} }
	tests := map[string]struct {
		keys []string
		want []effect
	}{
		"quit":                     {[]string{"q"}, []effect{quitEffect{}}},
		"ctrl-c":                   {[]string{"ctrl+c"}, []effect{quitEffect{}}},
		"ctrl-c in a view":         {[]string{"?", "ctrl+c"}, []effect{quitEffect{}}},
		"ctrl-c in the menu":       {[]string{"!", "ctrl+c"}, []effect{quitEffect{}}},
		"q in a view closes it":    {[]string{"?", "q"}, nil},
		"suspend":                  {[]string{"ctrl+z"}, []effect{suspendEffect{}}},
		"retry the link":           {[]string{"r"}, []effect{retryLinkEffect{}}},
		"log":                      {[]string{"j", "l"}, []effect{logEffect{req: pipeline.LogRequest{Worker: "extract/1", Before: pipeline.LogEnd, Limit: logPageSize}, gen: 1, part: partEnd}}},
		"pause needs y and Enter":  {[]string{"p", "y", "enter"}, []effect{quiet(pipeline.VerbPause)}},
		"pause, Enter alone is no": {[]string{"p", "enter"}, nil},
		"pause, n is no":           {[]string{"p", "n", "enter"}, nil},
		"pause, Esc is no":         {[]string{"p", "y", "esc", "enter"}, []effect{describeEffect{"extract/0"}}},
		"menu start":               {[]string{"!", "s"}, []effect{intent(pipeline.VerbStart, "extract")}},
		"menu stop":                {[]string{"!", "S"}, []effect{intent(pipeline.VerbStop, "extract")}},
		"menu restart worker":      {[]string{"j", "j", "!", "r"}, []effect{intent(pipeline.VerbRestart, "extract/2")}},
		"menu Enter does nothing":  {[]string{"!", "enter"}, nil},
		"menu other stage":         {[]string{"!", "tab", "s"}, []effect{intent(pipeline.VerbStart, "train")}},
		"failures try now":         {[]string{"e", "t"}, []effect{failuresEffect{}, retryFilesEffect{}}},
		"locked":                   {[]string{"L", "!", "S"}, nil},
		"locked pause":             {[]string{"L", "p", "enter"}, []effect{describeEffect{"extract/0"}}},
		"nothing on a direct key": {
			[]string{"d", "d", "x", "D", "K", "X", "delete", "backspace", "ctrl+k", "ctrl+x", "ctrl+d", "f1", "f9", "S", "R", "a", "w"}, nil,
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if d := newDesk(t, healthy(4)).press(tc.keys...); !reflect.DeepEqual(d.fx, tc.want) {
				t.Errorf("keys %v ask for %v, want %v", tc.keys, d.fx, tc.want)
			}
		})
	}
}

func TestPaletteMakesIntents(t *testing.T) {
	t.Parallel()
	d := newDesk(t, healthy(4)).press(":").text("restart extract/3").press("enter")
	if want := (planEffect{intent: pipeline.Intent{Verb: pipeline.VerbRestart, Target: "extract/3"}}); !reflect.DeepEqual(d.last(), effect(want)) {
		t.Errorf("asked for %v", d.last())
	}
	d = newDesk(t, healthy(4)).press(":").text("settle hidden_states").press("enter")
	if want := (planEffect{intent: pipeline.Intent{Verb: pipeline.VerbSettle, Target: "extract/hidden_states"}}); !reflect.DeepEqual(d.last(), effect(want)) {
		t.Errorf("a bare name asked for %v", d.last())
	}
	d = newDesk(t, healthy(4)).press(":").text("kill nothing").press("enter").shows("no such name")
	if len(d.fx) != 0 {
		t.Errorf("an unknown target asked for %v", d.fx)
	}
	d = newDesk(t, healthy(4)).press(":").text("set").press("tab").text("ex").press("tab").shows(":settle extract/hidden_states_")
	d.press("esc").press(":").press("up")
	d.shows(":_")
}

// Drawing asks nothing of anyone.
func TestDrawingMakesNoCalls(t *testing.T) {
	t.Parallel()
	d := newDesk(t, mixed(8))
	for _, keys := range [][]string{{}, {"enter"}, {"esc", "l"}, {"esc", "e"}, {"esc", "?"}, {"esc", "!"}, {"esc", ":"}} {
		d.press(keys...)
		_ = d.m.View()
	}
	if n := d.deck.calls.Load() + d.src.calls.Load(); n != 0 {
		t.Errorf("drawing made %d calls", n)
	}
}

func TestSelectionSurvivesByIdentity(t *testing.T) {
	t.Parallel()
	d := newDesk(t, mixed(8)).press("j", "j", "j", "j")
	in := copyInput(d.m.in)
	slices.Reverse(in.snap.Nodes[0].GPUs)
	d.m.take(in)
	d.m.size = size{40, 10}
	d.shows(">4   extract/4")
	d.m.size = size{200, 60}
	d.shows("Detail of extract/4")
}

// A worker that comes to the chosen empty GPU is chosen then.
func TestSelectionFollowsTheGPU(t *testing.T) {
	t.Parallel()
	d := newDesk(t, idle()).press("j", "j").shows(">2   -")
	d.m.take(healthy(4).in)
	d.shows(">2   extract/2")
	d.m.take(idle().in)
	d.shows(">2   -")
}

func TestFailingRowsStay(t *testing.T) {
	t.Parallel()
	s := healthy(16)
	for i := 4; i < 14; i++ {
		stall(&s.workers()[i])
	}
	crash(&s.workers()[15])
	for _, sz := range []size{{80, 24}, {60, 20}, {120, 40}} {
		out := plainText(render(s.in, &s.ui, sz))
		if n := strings.Count(out, "STALL") + strings.Count(out, "EXIT 137"); n < 11 {
			t.Errorf("%v shows %d of 11 failing workers:\n%s", sz, n, out)
		}
	}
	out := plainText(render(s.in, &s.ui, size{40, 10}))
	if !strings.Contains(out, "STALL") || !strings.Contains(out, "more:") {
		t.Errorf("40x10 hides failing workers:\n%s", out)
	}
}

func TestEventsFilterAndFold(t *testing.T) {
	t.Parallel()
	d := newDesk(t, mixed(8)).press("3", "/").text("error").press("enter")
	d.shows("EVENTS   /error").shows("exit 137")
	if strings.Contains(d.screen(), "SlowDown") {
		t.Error("the filter lets a warning through")
	}
	d.press("esc").shows("SlowDown")
	if n := len(d.m.ui.events.list); n != 4 {
		t.Errorf("%d events", n)
	}
	d.m.take(d.m.in)
	if n := len(d.m.ui.events.list); n != 4 {
		t.Errorf("the same snapshot twice makes %d events", n)
	}
	in := copyInput(d.m.in)
	in.snap.Nodes[0].Agent = &pipeline.AgentInfo{Instance: "a2"}
	in.snap.Nodes[0].Events = []pipeline.Event{{Seq: 1, Text: "again", Source: "agent", Level: pipeline.Info}}
	d.m.take(in)
	if n := len(d.m.ui.events.list); n != 5 {
		t.Errorf("a new agent's first event makes %d events", n)
	}
}

// Nothing waits for an answer for ever, and no answer is a no.
func TestQuestionsAndNotesEnd(t *testing.T) {
	t.Parallel()
	d := newDesk(t, healthy(4)).press("p").shows("pause uploads?")
	d.wait(answerTime + time.Second).m.take(d.m.in)
	d.shows("no answer: nothing was done").press("y", "enter")
	d.wait(noteTime).m.take(d.m.in)
	d.press("esc").shows("? help").press("!").shows("Actions for")
	d.wait(answerTime - time.Second).press("tab").wait(answerTime - time.Second).m.take(d.m.in)
	d.shows("Actions for").wait(2 * time.Second).m.take(d.m.in)
	d.shows("the actions menu was closed").wait(noteTime).shows("? help")
	for _, e := range d.fx {
		if _, ok := e.(planEffect); ok {
			t.Errorf("no answer asked for %v", e)
		}
	}
}

// A repeat comes under a new number, with the count of all: it takes the place
// of the ones before.
func TestRepeatsReplaceWhatTheyRepeat(t *testing.T) {
	t.Parallel()
	r := &eventRing{}
	event := func(seq int64, count int, text string) pipeline.NodeSnapshot {
		return pipeline.NodeSnapshot{Events: []pipeline.Event{{Seq: seq, Count: count, Text: text, Source: "s3", Level: pipeline.Warn}}}
	}
	for _, n := range []pipeline.NodeSnapshot{event(1, 1, "a"), event(2, 1, "b"), event(3, 1, "a"), event(4, 2, "a"), event(6, 4, "a"), event(7, 2, "b")} {
		r.add(n)
	}
	var got []string
	for _, e := range r.list {
		got = append(got, eventText(e))
	}
	if want := []string{"a", "a  x4", "b  x2"}; !slices.Equal(got, want) {
		t.Errorf("events %q, want %q", got, want)
	}
}

func TestFreezeHoldsTheFigures(t *testing.T) {
	t.Parallel()
	d := newDesk(t, healthy(4)).press("space")
	in := copyInput(d.m.in)
	in.snap.Nodes[0].Stages[0].Outputs[0].VerifiedFiles = new(int64(500_000))
	d.m.take(in)
	d.wait(12 * time.Second).shows("FROZEN 12s").shows("411,602").press("space").shows("500,000")
}

func TestCrashEndsTheConsole(t *testing.T) {
	t.Parallel()
	d := newDesk(t, healthy(4))
	d.m.now = func() time.Time { panic("clock") }
	_, cmd := d.m.Update(tea.KeyPressMsg{Code: 'j'})
	if cmd == nil || d.m.crash == nil || !strings.Contains(d.m.crash.Error(), "clock") {
		t.Errorf("crash %v, cmd %v", d.m.crash, cmd)
	}
	msg := d.m.do.safe(func() tea.Msg { panic("cmd") })()
	if c, ok := msg.(crashMsg); !ok || c.crash.Value != "cmd" || c.crash.Stack == "" {
		t.Errorf("a panic in a command came back as %v", msg)
	}
}

// Every key of the table is unique in its place, and the table is the
// documentation.
func TestKeyTable(t *testing.T) {
	t.Parallel()
	seen := map[string]bool{}
	for _, b := range bindings() {
		for _, k := range b.keys {
			if id := string(b.scope) + " " + k; seen[id] {
				t.Errorf("%s is bound twice", id)
			} else {
				seen[id] = true
			}
			if slices.Contains([]string{"ctrl+k", "ctrl+x", "delete", "d", "dd", "backspace", "ctrl+j"}, k) {
				t.Errorf("%s must not be bound", k)
			}
		}
		if b.help == "" || b.act == nil {
			t.Errorf("%v has no help or does nothing", b.keys)
		}
	}
	golden(t, "keys", KeysMarkdown())
	if _, err := os.Stat(filepath.Join("..", "testdata", "golden", "tui", "keys.txt")); err != nil {
		t.Error(err)
	}
}
