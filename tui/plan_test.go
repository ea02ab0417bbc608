package tui

import (
	"errors"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"pipedeck/pipeline"
)

// The confirmation: only the exact typed text and Enter act, and only when the
// screen shows all of it.
func TestConfirm(t *testing.T) {
	t.Parallel()
	const text = "dflash-qwen36-27b"
	open := func(t *testing.T) *desk {
		t.Helper()
		return newDesk(t, healthy(4)).press("!", "S").planned().wait(time.Second)
	}
	tests := map[string]struct {
		do      func(d *desk)
		applied int
		shows   string
	}{
		"the text and Enter":    {func(d *desk) { d.text(text).press("enter") }, 1, "sent to the agent"},
		"Enter alone":           {func(d *desk) { d.press("enter") }, 0, "that is not the text"},
		"y":                     {func(d *desk) { d.press("y", "enter") }, 0, "that is not the text"},
		"part of the text":      {func(d *desk) { d.text(text[:8]).press("enter") }, 0, "that is not the text"},
		"another case":          {func(d *desk) { d.text(strings.ToUpper(text)).press("enter") }, 0, "that is not the text"},
		"no Enter":              {func(d *desk) { d.text(text) }, 0, "> dflash-qwen36-27b_"},
		"Esc":                   {func(d *desk) { d.text(text).press("esc", "enter") }, 0, "nothing was done"},
		"corrected":             {func(d *desk) { d.text(text+"x").press("backspace", "enter") }, 1, ""},
		"pasted":                {func(d *desk) { d.m.paste(text); d.press("enter") }, 0, ""},
		"twice Enter":           {func(d *desk) { d.text(text).press("enter", "enter") }, 1, ""},
		"too small":             {func(d *desk) { d.text(text); d.m.size = size{59, 24}; d.press("enter") }, 0, "too small"},
		"too low":               {func(d *desk) { d.text(text); d.m.size = size{80, 19}; d.press("enter") }, 0, "too small"},
		"after the plan's life": {func(d *desk) { d.text(text).wait(61 * time.Second).press("enter") }, 0, "made again"},
		"stale link": {func(d *desk) {
			d.text(text)
			d.m.in.link.State = pipeline.LinkStale
			d.press("enter")
		}, 0, "no live link"},
		"lost link drops the plan": {func(d *desk) {
			in := d.m.in
			in.link.State = pipeline.LinkLost
			d.m.take(in)
			d.press("enter")
		}, 0, "nothing was done"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := open(t)
			tc.do(d)
			if d.applied() != tc.applied {
				t.Errorf("applied %d times, want %d", d.applied(), tc.applied)
			}
			d.shows(tc.shows)
		})
	}
}

func TestKeysInFlightDoNotConfirm(t *testing.T) {
	t.Parallel()
	d := newDesk(t, healthy(4)).press("!", "S").planned()
	d.text("dflash-qwen36-27b").press("enter").shows("first half second").shows("> _")
	if d.applied() != 0 {
		t.Fatal("keys of the first half second confirmed")
	}
	d.wait(499 * time.Millisecond).press("x").shows("> _").wait(time.Millisecond).press("x").shows("> x_")
}

func TestApplyCarriesWhoAndWhat(t *testing.T) {
	t.Parallel()
	d := newDesk(t, healthy(4)).press("!", "S").planned().wait(time.Second).text("dflash-qwen36-27b").press("enter")
	want := applyEffect{req: pipeline.ApplyRequest{Plan: "p-7f3a", Confirm: "dflash-qwen36-27b", By: "alice@laptop", Key: "console-p-7f3a"}}
	if !reflect.DeepEqual(d.last(), effect(want)) {
		t.Errorf("asked for %+v, want %+v", d.last(), want)
	}
}

// A plan that asks nothing is done at once; a blocked one never.
func TestPlansWithoutConfirmation(t *testing.T) {
	t.Parallel()
	if d := newDesk(t, healthy(4)).press("!", "s").planned(); d.applied() != 1 {
		t.Error("start was not applied at once")
	}
	d := newDesk(t, healthy(4)).intend(pipeline.VerbKill, "extract").planned().wait(time.Second).press("enter").text("dflash-qwen36-27b").press("enter")
	if d.applied() != 0 {
		t.Error("a blocked plan was applied")
	}
	d.shows("the lease is held by bob@laptop")
}

// A shown plan is made again before it ends; when its counts changed, the
// text must be typed again.
func TestPlanIsRenewed(t *testing.T) {
	t.Parallel()
	d := newDesk(t, healthy(4)).intend(pipeline.VerbWipe, "extract/hidden_states").planned().wait(time.Second)
	d.text("1204 dflash").wait(50 * time.Second)
	fx := d.m.take(d.m.in)
	if len(fx) != 1 {
		t.Fatalf("a plan near its end asks for %v", fx)
	}
	e := fx[0].(planEffect)
	p := examplePlan(e.intent, d.now)
	p.Confirm, p.Loss.LostFiles = new("1311 dflash-qwen36-27b"), 1311
	d.m.planned("", planMsg{effect: e, plan: p})
	d.shows("1,311").shows("> _").shows("the plan changed")
	d.text("1204 dflash-qwen36-27b").press("enter")
	if d.applied() != 0 {
		t.Error("the old count confirmed the new plan")
	}
}

func TestErrorsOfTheAgentAreShown(t *testing.T) {
	t.Parallel()
	d := newDesk(t, healthy(4)).press("!", "S")
	d.m.planned("", planMsg{effect: d.last().(planEffect), err: pipeline.Problemf(pipeline.ProblemRefused, "wait for a-13", "cannot plan stop: the lease is held by \"bob\"")})
	d.shows(`the lease is held by "bob"`).shows("hint: wait for a-13")
	d = newDesk(t, healthy(4))
	d.m.applied("", appliedMsg{err: errors.New("connection reset")})
	d.shows("not known whether it began").shows("connection reset")
	d = newDesk(t, healthy(4))
	d.m.applied("", appliedMsg{err: pipeline.Problemf(pipeline.ProblemRefused, "", "cannot stop")})
	d.shows("refused: nothing was done")
}

func TestActionIsFollowedToItsEnd(t *testing.T) {
	t.Parallel()
	d := newDesk(t, healthy(4))
	running := exampleAction("a-14", t0())
	running.EndedAt, running.Result = nil, pipeline.Running
	fx := d.m.applied("", appliedMsg{action: running})
	if !reflect.DeepEqual(fx, []effect{followEffect{action: "a-14"}}) {
		t.Fatalf("a started action asks for %v", fx)
	}
	fx = d.m.followed(actionMsg{id: "a-14", err: errors.New("timeout")})
	if len(fx) != 1 {
		t.Error("an error ends the following")
	}
	d.shows("the action may still go on")
	if fx := d.m.followed(actionMsg{id: "a-14", action: exampleAction("a-14", t0())}); len(fx) != 0 {
		t.Errorf("an ended action asks for %v", fx)
	}
	d.shows("verified").shows("UNKNOWN").shows("FAILED").press("esc").shows("Events")
}

// [settle first] becomes the plan; when it is done, what it was for is offered
// and asked for again.
func TestSaferBecomesThePlan(t *testing.T) {
	t.Parallel()
	wipe := pipeline.Intent{Verb: pipeline.VerbWipe, Target: "extract/hidden_states"}
	d := newDesk(t, healthy(4)).intend(wipe.Verb, wipe.Target).planned().wait(time.Second).press("tab").shows("[settle first]").press("enter")
	e, ok := d.last().(planEffect)
	if !ok || e.intent.Verb != pipeline.VerbSettle || e.intent.Target != wipe.Target || !e.then.Same(wipe) {
		t.Fatalf("asked for %+v", d.last())
	}
	d.planned()
	a := d.last().(applyEffect)
	done := exampleAction("a-20", d.now)
	done.Verb = pipeline.VerbSettle
	d.m.applied("", appliedMsg{effect: a, action: done})
	d.shows("Enter: the plan to wipe extract/hidden_states").press("enter")
	if e, ok := d.last().(planEffect); !ok || !e.intent.Same(wipe) {
		t.Errorf("then asked for %+v", d.last())
	}
	d = newDesk(t, healthy(4)).show(pivotPlan(t0())).wait(time.Second).press("tab", "enter")
	if e, ok := d.last().(planEffect); !ok || e.intent.Verb != pipeline.VerbPivot || e.intent.Leave != pipeline.LeaveSettle {
		t.Errorf("a safer pivot asks for %+v", d.last())
	}
}

func TestListOfFilesIsPaged(t *testing.T) {
	t.Parallel()
	d := newDesk(t, healthy(4)).show(pivotPlan(t0())).wait(time.Second).press("shift+tab", "enter")
	if !reflect.DeepEqual(d.last(), effect(planFilesEffect{"p-7f3a", 0, filePage})) {
		t.Fatalf("asked for %v", d.last())
	}
	d.m.filesListed(filesPage("p-7f3a", 0, filePage))
	d.shows("1 to 19 of 1,307").shows("X not in S3").shows("hs_000412806").press("pgdown").shows("19 to 37")
	d.press("G")
	e := d.last().(planFilesEffect)
	d.m.filesListed(filesPage(e.plan, e.offset, e.limit))
	d.shows("1,289 to 1,307 of 1,307").shows("proven").text("1204 train").press("enter", "esc").shows("> _")
	d.text("1204 train").press("enter").shows("first half second")
	if d.applied() != 0 {
		t.Error("keys in the list confirmed")
	}
}

// What the operator typed for something else confirms nothing: the accident
// reports of dd, ctrl-k, ctrl-d, Enter as a default, type-ahead, keys in the
// wrong window. Any keys but the very text, in any order, at any speed.
func TestNoAccidentConfirms(t *testing.T) {
	t.Parallel()
	keys := []string{
		"!", ":", "enter", "esc", "tab", "shift+tab", "up", "down", "pgdown", "backspace", "y", "Y", "d", "D", "W", "K", "R", "S", "P", "r", "t", "j", "k", "q", "a", "L",
		"space", "1", "2", "0", "4", "ctrl+k", "ctrl+d", "ctrl+u", "ctrl+w", "delete", "l", "w", "x", "f", "s", "e", "u", "+",
	}
	rapid.Check(t, func(rt *rapid.T) {
		d := newDesk(t, healthy(4))
		answered := 0
		for range rapid.IntRange(1, 80).Draw(rt, "presses") {
			d.press(rapid.SampledFrom(keys).Draw(rt, "key"))
			switch what := rapid.IntRange(0, 9).Draw(rt, "what"); {
			case what == 0:
				d.m.paste("1204 dflash-qwen36-27b\n")
			case what == 1 && d.m.ui.top() == nil:
				d.intend(rapid.SampledFrom([]pipeline.Verb{pipeline.VerbWipe, pipeline.VerbStop, pipeline.VerbKill}).Draw(rt, "verb"), "extract/hidden_states")
			}
			for ; answered < len(d.fx); answered++ {
				switch e := d.fx[answered].(type) {
				case planEffect:
					d.fx = append(d.fx, d.m.planned("", planMsg{effect: e, plan: examplePlan(e.intent, d.now)})...)
				case applyEffect:
					if e.req.Confirm != "" {
						rt.Fatalf("confirmed with %q", e.req.Confirm)
					}
				}
			}
			d.screen()
			d.wait(time.Duration(rapid.IntRange(0, 900).Draw(rt, "ms")) * time.Millisecond)
		}
	})
}

// The key that opens never confirms, however often it is pressed, and the
// menu chooses nothing by itself.
func TestOpeningKeysDoNotConfirm(t *testing.T) {
	t.Parallel()
	for _, v := range []pipeline.Verb{pipeline.VerbWipe, pipeline.VerbKill, pipeline.VerbPivot, pipeline.VerbStop, pipeline.VerbRestart} {
		d := newDesk(t, healthy(4)).intend(v, "extract").planned().wait(time.Second)
		for _, k := range []string{"W", "K", "P", "S", "R", "!", "enter", "enter", "y", "enter", "space", "enter"} {
			d.press(k).wait(200 * time.Millisecond)
		}
		if d.applied() != 0 {
			t.Errorf("%s was confirmed by its opening keys", v)
		}
	}
	items := menuItems(newDesk(t, healthy(4)).m.board(), healthy(4).in.snap.Nodes[0].Stages[0], "extract/0")
	harm := []pipeline.Verb{pipeline.VerbKill, pipeline.VerbWipe, pipeline.VerbPivot, pipeline.VerbStop, pipeline.VerbRestart}
	seen := false
	for _, it := range items {
		h := slices.Contains(harm, it.intent.Verb)
		if seen && !h {
			t.Errorf("%q comes after what does harm", it.text)
		}
		seen = seen || h
	}
}

// Leaving while a plan is shown leaves, and does nothing else.
func TestLeavingIsNo(t *testing.T) {
	t.Parallel()
	d := newDesk(t, healthy(4)).show(pivotPlan(t0())).wait(time.Second).text("1204 train").press("ctrl+c")
	if _, ok := d.last().(quitEffect); !ok || d.applied() != 0 {
		t.Errorf("ctrl-c does %v", d.fx)
	}
}

// Deck and node are on the screen that asks, in reverse video, and the time
// that a plan can be undone.
func TestPlanNamesWhatItActsOn(t *testing.T) {
	t.Parallel()
	d := newDesk(t, healthy(4)).intend(pipeline.VerbWipe, "extract/hidden_states").planned()
	u := d.m.ui
	first, _, _ := strings.Cut(render(d.m.in, &u, size{80, 24}), "\n")
	if !strings.Contains(first, "\x1b[1;7m WIPE extract/hidden_states: dflash-qwen36-27b @ train1 ") {
		t.Errorf("first line %q", first)
	}
	d.shows("Can be undone until 14:12:31Z")
}

// A console that is opened while an action runs shows it, and comes back to it
// by a key; the checks after a start are followed after its end.
func TestActionOfAnotherConsole(t *testing.T) {
	t.Parallel()
	s := healthy(4)
	a := exampleAction("a-14", t0())
	a.EndedAt, a.Result = nil, pipeline.Running
	s.in.snap.Nodes[0].Action = &a
	d := newDesk(t, s).shows("ACTION stop extract by you@here").press("a").shows("4 of 4 gone")
	if !reflect.DeepEqual(d.last(), effect(followEffect{action: "a-14"})) {
		t.Errorf("asked for %v", d.last())
	}
	d.press("esc")
	in := copyInput(d.m.in)
	in.snap.Nodes[0].Action = nil
	d.m.take(in)
	d.press("a")
	b := afterStart(t0())
	b.ID = "a-14"
	if fx := d.m.followed(actionMsg{id: "a-14", action: b}); !reflect.DeepEqual(fx, []effect{followEffect{action: "a-14", ended: true}}) {
		t.Errorf("open checks ask for %v", fx)
	}
	d.shows("After the start").shows("waiting").shows("none yet: loading")
}

func TestWipedFilesCanBeBroughtBack(t *testing.T) {
	t.Parallel()
	a := exampleAction("a-16", t0())
	a.Steps[1].Kind = pipeline.StepTrash
	a.Undo.Until = new(t0().Add(pipeline.TrashLife))
	d := newDesk(t, healthy(4))
	d.m.showAction(a, pipeline.Intent{})
	d.shows(":undo a-16 brings back what it moved")
	a.Undo = pipeline.Undo{Reason: new("the files are on a tmpfs")}
	d.m.showAction(a, pipeline.Intent{})
	if screen := d.screen(); strings.Contains(screen, ":undo") {
		t.Errorf("an undo is offered that there is not:\n%s", screen)
	}
}

func TestInterruptedActionIsResolvedExplicitly(t *testing.T) {
	t.Parallel()
	s := healthy(4)
	a := exampleAction("a-14", t0())
	a.EndedAt, a.Result, a.Waits = nil, pipeline.Running, true
	s.in.snap.Nodes[0].Action = &a
	d := newDesk(t, s).shows("interrupted, waits for you").press(":").text("action-abandon a-14").press("enter").shows("end here a-14?").press("enter")
	if len(d.fx) != 0 {
		t.Fatalf("Enter alone asks for %v", d.fx)
	}
	d.press(":").text("action-resume a-14").press("enter", "y", "enter")
	want := resolveEffect{pipeline.Resolve{Action: "a-14", How: pipeline.ResolveResume, By: "alice@laptop"}}
	if !reflect.DeepEqual(d.last(), effect(want)) {
		t.Errorf("asked for %v", d.last())
	}
}

func exampleStrangers() []pipeline.Stranger {
	return []pipeline.Stranger{
		{PID: 4711, User: "root", StartedAt: t0().Add(-5 * time.Hour), Argv: []string{"python3", "extract.py", "--rank", "0"}, Dir: "/workspace", GPUMem: 55_600_000_000, GPUs: []string{"GPU-00000000"}, Children: 3},
		{PID: 99123, User: "bob", StartedAt: t0().Add(-time.Minute), Argv: []string{"jupyter", "\x1b[2Jlab"}, Dir: "/home/bob", Run: "demo/r1", GPUMem: -1},
	}
}

func TestStrangersAreListedAndNothingActs(t *testing.T) {
	t.Parallel()
	d := newDesk(t, healthy(4)).press(":").text("strangers").press("enter").shows("asking the agent")
	d.m.strangersListed(strangersMsg{list: exampleStrangers()})
	d.shows("python3 extract.py --rank 0").shows("55.6 GB").shows("in /workspace, 3 children").press("j").shows("carries the run demo/r1").press("enter", "d", "x")
	for _, e := range d.fx {
		if _, ok := e.(strangersEffect); !ok {
			t.Errorf("asked for %v", e)
		}
	}
	d.press(":").text("adopt extract 4711").press("enter")
	if e, ok := d.last().(planEffect); !ok || e.intent.Verb != pipeline.VerbAdopt {
		t.Errorf("asked for %v", d.last())
	}
}

func TestPaletteSaysHow(t *testing.T) {
	t.Parallel()
	for line, want := range map[string]pipeline.Intent{
		"wipe extract/hidden_states":             {Verb: pipeline.VerbWipe, Target: "extract/hidden_states"},
		"wipe extract/hidden_states proven-only": {Verb: pipeline.VerbWipe, Target: "extract/hidden_states", ProvenOnly: true},
		"wipe scratch extract":                   {Verb: pipeline.VerbWipe, Target: "extract", Scratch: true},
		"pivot train":                            {Verb: pipeline.VerbPivot, Target: "train"},
		"pivot train keep":                       {Verb: pipeline.VerbPivot, Target: "train", Leave: pipeline.LeaveKeep},
		"pivot train discard":                    {Verb: pipeline.VerbPivot, Target: "train", Leave: pipeline.LeaveDiscard},
		"undo a-99":                              {Verb: pipeline.VerbUndo, Target: "a-99"},
		"reap 4711 4712":                         {Verb: pipeline.VerbReap, PIDs: []int{4711, 4712}},
		"adopt extract 4711,4712":                {Verb: pipeline.VerbAdopt, Target: "extract", PIDs: []int{4711, 4712}},
	} {
		verb, target, _ := strings.Cut(line, " ")
		got, bad := intentOf(pipeline.Verb(verb), target)
		if bad != "" || !got.Same(want) {
			t.Errorf("%q is %+v, %q", line, got, bad)
		}
		all := map[pipeline.Verb]func(board) []string{pipeline.VerbWipe: wipeTargets, pipeline.VerbPivot: pivotTargets, pipeline.VerbAdopt: adoptTargets}
		if f := all[pipeline.Verb(verb)]; f != nil && !isTarget(f(newDesk(t, healthy(4)).m.board()), target) {
			t.Errorf("the palette does not take %q", line)
		}
	}
	for _, target := range []string{"extract", "extract x", "extract 1", "extract -5"} {
		if _, bad := intentOf(pipeline.VerbAdopt, target); bad == "" {
			t.Errorf("adopt %s is taken", target)
		}
	}
}

// A command that is mistyped by little is named.
func TestMistypedCommandIsNamed(t *testing.T) {
	t.Parallel()
	for typed, want := range map[string]string{
		"statr": "did you mean start?", "stpp": "did you mean stop?", "wipee": "did you mean wipe?", "xyz": "Tab completes",
	} {
		newDesk(t, healthy(4)).press(":").text(typed).press("enter").shows(want)
	}
}

// What was typed wrongly does not stay in the way of the right text.
func TestWrongConfirmationIsCleared(t *testing.T) {
	t.Parallel()
	d := newDesk(t, healthy(4)).press("!", "S").planned().wait(time.Second).text("dflash").press("enter").shows("that is not the text")
	if d.applied() != 0 {
		t.Error("a wrong text was taken")
	}
	d.text("dflash-qwen36-27b").press("enter")
	if d.applied() != 1 {
		t.Error("the right text after a wrong one was not taken")
	}
}

// A pivot goes to a stage that does not run, from another one.
func TestMenuOffersAPivotOnlyWhereThereIsOne(t *testing.T) {
	t.Parallel()
	offers := func(s scene) bool {
		return strings.Contains(newDesk(t, s).press("!").screen(), "pivot to stage")
	}
	one := healthy(4)
	if offers(one) {
		t.Error("a pivot to the stage that runs")
	}
	one.in.snap.Nodes[0].Stages = one.in.snap.Nodes[0].Stages[:1]
	one.in.snap.Nodes[0].Stages[0].State = pipeline.StageStopped
	if offers(one) {
		t.Error("a pivot to the only stage")
	}
	other := one.in.snap.Nodes[0].Stages[0]
	other.Name, other.Workers = "train", nil
	one.in.snap.Nodes[0].Stages = append(one.in.snap.Nodes[0].Stages, other)
	if !offers(one) {
		t.Error("no pivot to a stage that does not run, with another one there")
	}
}
