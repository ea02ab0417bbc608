package deck

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"pipedeck/pipeline"
)

// planLife is how long a plan can be applied; keptActions how many ended
// actions are remembered for a console that asks late.
const (
	planLife    = 15 * time.Minute
	keptActions = 50
)

// Apply checks a confirmation and starts the plan; the action goes on whatever
// becomes of the caller. It waits until the deck has taken over what an earlier
// agent left: an action that began before would be taken for an interrupted one.
func (d *Deck) Apply(ctx context.Context, req pipeline.ApplyRequest) (pipeline.Action, error) {
	select {
	case <-ctx.Done():
		return pipeline.Action{}, ctx.Err()
	case <-d.ready:
	}
	held, err := d.admit(ctx, req)
	if err != nil {
		d.recordRefusal(req, err)
		return pipeline.Action{}, err
	}
	id := "a-" + d.p.NewID()
	if err := d.take(held, id, req.By); err != nil {
		d.recordRefusal(req, err)
		return pipeline.Action{}, err
	}
	a, err := d.enter(held, id, req)
	if err != nil {
		d.recordRefusal(req, err)
		return pipeline.Action{}, err
	}
	a.After = d.awaitsChecks(held.plan)
	d.observeAction(a)
	d.begin(held.plan, a, 0)
	return a, nil
}

// enter makes the durable records without which nothing may be done. Where
// they fail the plan was not used.
func (d *Deck) enter(held *heldPlan, id string, req pipeline.ApplyRequest) (pipeline.Action, error) {
	var err error
	if needsList(held.plan) {
		err = d.writeList(id, held.list)
	}
	var a pipeline.Action
	if err == nil {
		a, err = d.engine.Begin(id, held.plan, req)
	}
	if err != nil {
		d.mu.Lock()
		held.action = ""
		d.mu.Unlock()
		d.release(id)
	}
	return a, err
}

// begin runs an action beside whoever asked for it, until it ends, the agent
// ends, or another operator takes it over.
func (d *Deck) begin(p pipeline.Plan, a pipeline.Action, first int) {
	a.After = d.awaitsChecks(p)
	ctx, cancel := context.WithCancelCause(d.life)
	d.mu.Lock()
	d.cancels[a.ID] = cancel
	d.mu.Unlock()
	d.work.Go(func() {
		defer cancel(nil)
		d.runAction(ctx, p, a, first)
	})
}

func needsList(p pipeline.Plan) bool {
	return slices.ContainsFunc(p.Steps, func(s pipeline.Step) bool { return s.Kind == pipeline.StepTrash })
}

func (d *Deck) recordRefusal(req pipeline.ApplyRequest, cause error) {
	if p, ok := errors.AsType[*pipeline.Problem](cause); ok && p.Needs != "" {
		return // the console brings it and asks again
	}
	rec := pipeline.JournalRecord{
		At: d.p.Now(), Kind: refusalKind(cause), Plan: req.Plan, By: req.By, From: req.From,
		Text: fmt.Sprintf("%v (typed %q)", cause, req.Confirm),
	}
	if err := d.p.Journal.Append(rec); err != nil {
		d.notice(pipeline.Error, "agent", "cannot write the journal: %v", err)
	}
}

// errExpired is in the chain of a refusal whose plan was too old.
var errExpired = errors.New("expired")

func refusalKind(cause error) string {
	if errors.Is(cause, errExpired) {
		return "expired"
	}
	return "refused"
}

// admit finds the plan and checks everything that can refuse it, its code last:
// where anything else does, nobody need bring it.
func (d *Deck) admit(ctx context.Context, req pipeline.ApplyRequest) (*heldPlan, error) {
	held, err := d.admitted(ctx, req)
	if err == nil {
		err = d.lacksCode(held.plan)
	}
	return held, err
}

// admitted is admit whatever code is here.
func (d *Deck) admitted(ctx context.Context, req pipeline.ApplyRequest) (*heldPlan, error) {
	d.mu.Lock()
	held := d.plans[req.Plan]
	var used error
	if held != nil {
		used = held.used()
	}
	d.mu.Unlock()
	if used != nil {
		return nil, used // rather than what else its own effect would make of it
	}
	if held == nil {
		return nil, pipeline.Problemf(pipeline.ProblemRefused, "make a new one with `pipedeck plan`",
			"cannot apply plan %q: there is no such plan, or it expired", req.Plan)
	}
	p := held.plan
	if d.p.Now().After(p.ExpiresAt) {
		return nil, pipeline.Problemf(pipeline.ProblemRefused, "make a new one with `pipedeck plan`",
			"cannot apply plan %q: it %w at %s", p.ID, errExpired, p.ExpiresAt.Format(time.TimeOnly))
	}
	if !p.Executable {
		kind, hint := pipeline.ProblemRefused, ""
		if p.Unreachable {
			kind, hint = pipeline.ProblemUnreachable, "`pipedeck check` says what is wrong with the store and what to do"
		}
		return nil, &pipeline.Problem{Kind: kind, Plan: &p, Hint: hint, Text: fmt.Sprintf("cannot %s: %s", strings.TrimSpace(string(p.Action)+" "+p.Target), joinReasons(p))}
	}
	if p.Confirm != nil && req.Confirm != *p.Confirm {
		return nil, &pipeline.Problem{
			Kind: pipeline.ProblemRefused, Plan: &p,
			Hint: fmt.Sprintf("pipedeck apply %s --confirm %q", p.ID, *p.Confirm),
			Text: fmt.Sprintf("cannot %s %q: it asks for the confirmation %q, given was %q", p.Action, p.Target, *p.Confirm, req.Confirm),
		}
	}
	if p.Confirm == nil {
		return held, nil // nobody was shown anything: each step looks for itself
	}
	return held, d.recheck(ctx, held)
}

func joinReasons(p pipeline.Plan) string {
	if p.Checking != nil {
		return "what it would lose is still being found out"
	}
	if len(p.Blocked) == 0 {
		return "it cannot be executed"
	}
	return strings.Join(p.Blocked, "; ")
}

// recheck decides again: if the steps would now act on something else than
// was shown, the plan is stale.
func (d *Deck) recheck(ctx context.Context, held *heldPlan) error {
	snap, err := d.Snapshot(ctx)
	if err != nil {
		return err
	}
	again, err := pipeline.Decide(d.sp, snap, held.facts, held.plan.Intent, d.p.Now(), held.plan.ID)
	if err != nil {
		return err
	}
	same := slices.EqualFunc(again.Steps, held.plan.Steps, func(a, b pipeline.Step) bool {
		return a.Kind == b.Kind && slices.Equal(a.On, b.On)
	})
	if same {
		return nil
	}
	return pipeline.Problemf(pipeline.ProblemRefused, "make a new plan and look at the difference",
		"cannot apply plan %q: the world moved since it was made", held.plan.ID)
}

// used refuses a plan that was applied before. Deck.mu is held.
func (h *heldPlan) used() error {
	if h.action == "" {
		return nil
	}
	return pipeline.Problemf(pipeline.ProblemRefused, "a plan is executed once; make a new one",
		"cannot apply plan %q: action %q applied it before", h.plan.ID, h.action)
}

// take marks the plan as used and takes the deck's lease for an action that
// changes processes. Settling, pausing and pushing lose nothing and need none.
func (d *Deck) take(held *heldPlan, id, by string) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := held.used(); err != nil {
		return err
	}
	if needsLease(held.plan) {
		if err := d.free(held.plan); err != nil {
			return err
		}
		d.hold(id, held.plan, by)
	}
	held.action = id
	return nil
}

// hold takes the lease. Deck.mu is held.
func (d *Deck) hold(id string, p pipeline.Plan, by string) {
	d.holder = id
	d.holding = fmt.Sprintf("%s of %q by %s (action %q)", p.Action, p.Target, by, id)
}

// needsLease holds for all but what only lets the mover go on or pause.
func needsLease(p pipeline.Plan) bool {
	return slices.ContainsFunc(p.Steps, func(s pipeline.Step) bool {
		return s.Kind != pipeline.StepSettle && s.Kind != pipeline.StepPause && s.Kind != pipeline.StepResume
	})
}

func (d *Deck) release(id string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.holder == id {
		d.holder = ""
	}
}

func (d *Deck) runAction(ctx context.Context, p pipeline.Plan, a pipeline.Action, first int) {
	defer d.release(a.ID)
	a = d.engine.Run(ctx, p, a, first)
	if a.EndedAt == nil {
		return // the agent ends; the next one goes on
	}
	d.finish(p, a)
}

// finish tidies up after an ended action and tells of it.
func (d *Deck) finish(p pipeline.Plan, a pipeline.Action) {
	d.mu.Lock()
	delete(d.cleared, a.ID)
	delete(d.cancels, a.ID)
	d.mu.Unlock()
	if slices.ContainsFunc(p.Steps, func(s pipeline.Step) bool { return s.Kind == pipeline.StepSuspend }) {
		// Also where it ended early: uploads must not stay held.
		if err := d.p.Custody.Release(context.WithoutCancel(d.life), a.ID); err != nil {
			d.notice(pipeline.Error, "s3", "cannot let the mover go on: %v", err)
		}
	}
	if needsList(p) {
		d.forgetList(a.ID)
	}
	level := pipeline.Info
	if a.Result != pipeline.Verified {
		level = pipeline.Error
	}
	text := fmt.Sprintf("%s %s by %s: %s", a.Verb, a.Target, a.By, a.Result)
	if a.Reason != nil {
		text += ", " + *a.Reason
	}
	d.fold(pipeline.NoticeReading{Event: pipeline.Event{At: d.p.Now(), Level: level, Source: "ops", Text: text, Action: a.ID}})
	if a.Result == pipeline.Verified {
		d.watchStart(p, a)
	}
}

// observeAction is how the engine tells of an action's progress.
func (d *Deck) observeAction(a pipeline.Action) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if _, known := d.actions[a.ID]; !known {
		d.order = append(d.order, a.ID)
		if len(d.order) > keptActions {
			delete(d.actions, d.order[0])
			d.order = d.order[1:]
		}
	}
	d.actions[a.ID] = a
	if a.EndedAt != nil {
		if d.holder == a.ID {
			d.holder = "" // whoever sees the end may act at once
		}
		clear(d.looks) // and plans by what is there after it
	}
	d.world.Fold(pipeline.ActionReading{At: d.p.Now(), Action: &a})
	d.wakeLocked()
}

// Action returns an action, waiting up to wait for it to change.
func (d *Deck) Action(ctx context.Context, id string, wait time.Duration) (pipeline.Action, error) {
	select {
	case <-ctx.Done():
		return pipeline.Action{}, ctx.Err()
	case <-d.ready: // before, an action that an earlier agent began is not known
	}
	timer := time.NewTimer(wait)
	defer timer.Stop()
	first, changed, err := d.actionNow(id)
	if err != nil || settled(first) || wait <= 0 {
		return first, err
	}
	for {
		select {
		case <-ctx.Done():
			return first, ctx.Err()
		case <-timer.C:
			return first, nil
		case <-changed:
		}
		var a pipeline.Action
		a, changed, err = d.actionNow(id)
		if err != nil || settled(a) || progressed(first, a) {
			return a, err
		}
	}
}

func (d *Deck) actionNow(id string) (pipeline.Action, <-chan struct{}, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	a, ok := d.actions[id]
	if !ok {
		return a, nil, pipeline.Problemf(pipeline.ProblemUsage, "`pipedeck history` lists the actions",
			"cannot follow action %q: the agent does not know it", id)
	}
	return a, d.changed, nil
}

// settled says whether nothing of an action can change any more.
func settled(a pipeline.Action) bool {
	return a.EndedAt != nil && (a.Result != pipeline.Verified || !pipeline.Pending(a.After))
}

func progressed(a, b pipeline.Action) bool {
	if (a.EndedAt == nil) != (b.EndedAt == nil) || a.Waits != b.Waits || !slices.Equal(a.After, b.After) {
		return true
	}
	return !slices.EqualFunc(a.Steps, b.Steps, func(x, y pipeline.StepResult) bool {
		return x.Result == y.Result && x.Text == y.Text
	})
}
