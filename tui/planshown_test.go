package tui

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"pipedeck/pipeline"
)

// wipePlan is a plan of every kind of loss, with names as long as they get.
func worstPlan(now time.Time) pipeline.Plan {
	p := examplePlan(pipeline.Intent{Verb: pipeline.VerbWipe, Target: "extract/hidden_states"}, now)
	p.Deck, p.Node = "dflash-qwen36-27b-ablation-without-layer-norm", "train-node-eu-west-1-a"
	p.Confirm = new("914000 " + p.Deck)
	p.Loss = pipeline.Loss{
		Files: 1_000_000, Bytes: 1_200_000_000_000, Proven: 86_000, Unproven: 100_000, Mismatched: 14_000, Missing: 700_000, Unknown: 60_000, BeingWritten: 40_000,
		LostFiles: 914_000, LostBytes: 1_100_000_000_000, InFlight: 100, OtherFiles: 12_345, OtherBytes: 8_000_000_000, RecomputeReason: new("no rate is known"),
	}
	p.Store = pipeline.PlanStore{Bucket: "features", Prefix: "dflash/r1", StoredFiles: new(int64(86_000)), Total: new(int64(1_000_000)), CheckedAt: new(now.Add(-3 * time.Second))}
	p.Notes = []string{"stage \"train\" reads data/hidden_states", "the store was asked 3 s ago"}
	return p
}

func pivotPlan(now time.Time) pipeline.Plan {
	p := examplePlan(pipeline.Intent{Verb: pipeline.VerbPivot, Target: "train", Leave: pipeline.LeaveDiscard}, now)
	p.Intent = pipeline.Intent{Verb: pipeline.VerbPivot, Target: "train", Leave: pipeline.LeaveDiscard}
	p.Confirm = new("1204 train")
	p.Steps = nil
	for i, k := range []pipeline.StepKind{
		pipeline.StepStopWorkers, pipeline.StepSuspend, pipeline.StepRecount, pipeline.StepTrash, pipeline.StepRelease,
		pipeline.StepGPUsFree, pipeline.StepGates, pipeline.StepDoneSet, pipeline.StepStartWorkers,
	} {
		p.Steps = append(p.Steps, pipeline.Step{N: i + 1, Kind: k, On: []string{"extract"}, TimeoutSeconds: 60, Proof: "it is seen afresh"})
	}
	p.Loss = pipeline.Loss{Files: 1307, Bytes: 1_600_000_000, Proven: 103, Missing: 1204, LostFiles: 1204, LostBytes: 1_440_000_000, InFlight: 100, RecomputeSeconds: new(50.0), OtherFiles: 2, OtherBytes: 4096}
	p.Safer = &pipeline.Safer{Action: pipeline.VerbSettle, Then: pipeline.VerbPivot, Seconds: new(19.0)}
	return p
}

// ask opens the view of a plan, drawn once.
func (d *desk) show(p pipeline.Plan) *desk {
	d.m.planned("", planMsg{effect: planEffect{intent: pipeline.Intent{Verb: p.Action, Target: p.Target, Leave: p.Intent.Leave}}, plan: p})
	d.screen()
	return d
}

func checkingPlan(now time.Time) pipeline.Plan {
	p := worstPlan(now)
	p.Deck, p.Executable, p.Confirm, p.Loss, p.Notes = "demo", false, nil, pipeline.Loss{}, nil
	p.Checking = &pipeline.Checking{Done: 512, Total: 1307}
	return p
}

func afterStart(now time.Time) pipeline.Action {
	a := exampleAction("a-15", now)
	a.Steps[0].Checks = a.Steps[0].Checks[:1]
	a.Steps[0].Checks = append(a.Steps[0].Checks, pipeline.Check{Name: "exit recorded", Result: pipeline.Verified, Observed: "ended with code 143"})
	a.Verb, a.Result = pipeline.VerbRestart, pipeline.Verified
	a.Steps = a.Steps[:1]
	a.After = []pipeline.Check{
		{Name: "workers", Result: pipeline.Verified, Observed: "4 of 4 alive", At: now},
		{Name: "GPU memory", Result: pipeline.Running, Observed: "GPU 2 holds 12.0 of about 55.6 GB", At: now},
		{Name: "first output", Result: pipeline.Running, Observed: "none yet: loading"},
	}
	return a
}

func filesPage(plan string, offset, n int) planFilesMsg {
	f := pipeline.PlanFiles{Plan: plan, Total: 1307, Offset: int64(offset)}
	for i := offset; i < min(1307, offset+n); i++ {
		class := pipeline.ClassMissing
		if i >= 1204 {
			class = pipeline.ClassProven
		}
		f.Files = append(f.Files, pipeline.ListedFile{
			Root: "/workspace/data/hidden_states", Path: fmt.Sprintf("rank%d/hs_%09d.safetensors", i%4, 412_806+i), ID: pipeline.FileID{Size: 1_200_000}, Class: class,
		})
	}
	return planFilesMsg{plan: plan, offset: offset, files: f}
}

// Every plan, at every size: on a small one it refuses.
func TestGoldenPlans(t *testing.T) {
	t.Parallel()
	now := t0()
	list := newDesk(t, healthy(4)).show(pivotPlan(now)).wait(time.Second).press("shift+tab", "enter")
	list.m.filesListed(filesPage("p-7f3a", 0, filePage))
	strangers := newDesk(t, healthy(4)).press(":").text("strangers").press("enter")
	strangers.m.strangersListed(strangersMsg{list: exampleStrangers()})
	safer := newDesk(t, healthy(4)).show(pivotPlan(now)).wait(time.Second).press("tab")
	waits := afterStart(now)
	waits.EndedAt, waits.After, waits.Waits, waits.Result = nil, nil, true, pipeline.Running
	after, interrupted := newDesk(t, healthy(4)), newDesk(t, healthy(4))
	after.m.showAction(afterStart(now), pipeline.Intent{})
	interrupted.m.showAction(waits, pipeline.Intent{})
	for name, d := range map[string]*desk{
		"plan_worst": newDesk(t, healthy(4)).show(worstPlan(now)), "plan_pivot": newDesk(t, healthy(4)).show(pivotPlan(now)),
		"plan_checking": newDesk(t, healthy(4)).show(checkingPlan(now)), "plan_files": list, "plan_safer": safer,
		"plan_blocked": newDesk(t, healthy(4)).intend(pipeline.VerbKill, "extract").planned(),
		"plan_restart": newDesk(t, healthy(4)).intend(pipeline.VerbRestart, "extract").planned(),
		"action_after": after, "action_waits": interrupted, "strangers": strangers,
	} {
		for _, sz := range sizes()[1:] {
			d.m.size = sz
			golden(t, fmt.Sprintf("%s-%dx%d", name, sz.w, sz.h), d.screen())
			u := d.m.ui
			checkFits(t, name, render(d.m.in, &u, sz), sz)
		}
	}
}

// Whatever the size and the plan: a screen that takes a confirmation shows
// every count of what would be lost; any other one takes none.
func TestPlanShowsItsCountsOrRefuses(t *testing.T) {
	t.Parallel()
	for _, p := range []pipeline.Plan{worstPlan(t0()), pivotPlan(t0())} {
		for w := 40; w <= 130; w += 5 {
			for h := 10; h <= 45; h++ {
				d := newDesk(t, healthy(4))
				d.m.size = size{w, h}
				d.show(p).wait(time.Second)
				screen := d.screen()
				asks := strings.Contains(screen, "To do it")
				l := p.Loss
				for _, n := range []int64{l.Files, l.Proven, l.Unproven, l.Mismatched, l.Missing, l.Unknown, l.BeingWritten, l.LostFiles, l.OtherFiles} {
					if asks && n > 0 && !strings.Contains(screen, count(n)) {
						t.Fatalf("%dx%d hides %s:\n%s", w, h, count(n), screen)
					}
				}
				d.text(*p.Confirm).press("enter")
				if got := d.applied() == 1; got != asks {
					t.Fatalf("%dx%d: asks %v, acts %v:\n%s", w, h, asks, got, screen)
				}
			}
		}
	}
	d := newDesk(t, healthy(4))
	d.m.size = size{80, 24}
	if !strings.Contains(d.show(worstPlan(t0())).screen(), "To do it") {
		t.Error("80x24 cannot confirm the worst plan")
	}
}

// While the loss is unknown there is no field, and nothing can be confirmed;
// the agent is asked until it is known.
func TestNoFieldUntilTheLossIsKnown(t *testing.T) {
	t.Parallel()
	d := newDesk(t, healthy(4)).show(checkingPlan(t0())).wait(time.Second)
	d.shows("512 of 1,307").shows("not known yet").text("914000 demo").press("enter")
	if strings.Contains(d.screen(), "> ") || d.applied() != 0 {
		t.Fatalf("a field:\n%s", d.screen())
	}
	fx := d.m.take(d.m.in)
	if len(fx) != 1 {
		t.Fatalf("an unfinished check asks for %v", fx)
	}
	d.m.planned("", planMsg{effect: fx[0].(planEffect), plan: worstPlan(d.now)})
	d.screen()
	d.text("9").shows("> _").shows("first half second").wait(graceTime).text("9").shows("> 9_")
}

// A plan that asks nothing is done as soon as its check is over, one that
// turns out to ask is asked.
func TestCheckedPlanThatAsksNothing(t *testing.T) {
	t.Parallel()
	p := checkingPlan(t0())
	p.Action = pipeline.VerbStart
	d := newDesk(t, healthy(4)).show(p).wait(time.Second)
	e := d.m.take(d.m.in)[0].(planEffect)
	fx := d.m.planned("", planMsg{effect: e, plan: examplePlan(e.intent, d.now)})
	if len(fx) != 1 || d.m.ui.top() != nil {
		t.Errorf("a checked start asks for %v", fx)
	}
}

// While nothing is typed the counts are kept fresh; what is being typed is
// left alone for as long as the plan is good, and kept when the harm is the
// same.
func TestPlanIsRenewedWhileItIsRead(t *testing.T) {
	t.Parallel()
	d := newDesk(t, healthy(4)).show(pivotPlan(t0())).wait(renewEvery)
	fx := d.m.take(d.m.in)
	if len(fx) != 1 {
		t.Fatalf("after %v asks for %v", renewEvery, fx)
	}
	e := fx[0].(planEffect)
	p := pivotPlan(d.now)
	p.ID, p.Loss.Proven = "p-2", 104
	d.m.planned("", planMsg{effect: e, plan: p})
	d.text("1204 tr").wait(renewEvery)
	if fx := d.m.take(d.m.in); len(fx) != 0 {
		t.Fatalf("typing is disturbed by %v", fx)
	}
	d.wait(planLife - renewEvery - renewBefore + time.Second)
	if fx := d.m.take(d.m.in); len(fx) != 1 {
		t.Fatalf("before its end the plan asks for %v", fx)
	}
	p.ID = "p-3"
	d.m.planned("", planMsg{effect: e, plan: p})
	d.shows("> 1204 tr_").text("ain").press("enter")
	if a, ok := d.last().(applyEffect); !ok || a.req.Plan != "p-3" {
		t.Errorf("applied %v", d.last())
	}
}

// On the smallest screens that a plan is confirmed on, no reason is cut and no
// number: what does not fit goes on below.
func TestPlanIsNotCut(t *testing.T) {
	t.Parallel()
	for _, sz := range []size{{80, 24}, {60, 30}} {
		d := newDesk(t, healthy(4))
		d.m.size = sz
		p := worstPlan(d.now)
		p.Loss.RecomputeReason = new("no worker of extract has reported a rate since the start of the agent")
		p.Store.Prefix = strings.Repeat("a-long-prefix/", 4)
		p.Store.Reason = new("as the last listing says")
		p.Undo = pipeline.Undo{Reason: new("the trash would be on another disk than the files, and is not used there")}
		p.Notes = nil
		words := strings.Join(strings.Fields(d.show(p).screen()), " ")
		for _, want := range []string{
			"1.1 TB recompute: " + *p.Loss.RecomputeReason, "stored 86,000 of 1,000,000 (as the last listing says)",
			"No undo: " + *p.Undo.Reason, "@ train-node-eu", "(up to 2m00s)", "700,000", "12,345 8.0 GB",
		} {
			if !strings.Contains(words, want) {
				t.Errorf("%dx%d: no %q in:\n%s", sz.w, sz.h, want, d.screen())
			}
		}
		v := d.m.ui.top().(*planView)
		v.files = &fileList{plan: p.ID}
		if !strings.Contains(d.screen(), "914,000 would be lost") {
			t.Errorf("%dx%d: no count in:\n%s", sz.w, sz.h, d.screen())
		}
	}
}
