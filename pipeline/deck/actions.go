package deck

import (
	"context"
	"fmt"
	"slices"
	"time"

	"pipedeck/pipeline"
	"pipedeck/pipeline/engine"
)

// planLife is how long a plan can be applied; keptActions how many ended
// actions are remembered for a console that asks late.
const (
	planLife    = 15 * time.Minute
	keptActions = 50
)

// heldPlan is a plan that was shown and not applied yet.
type heldPlan struct {
	plan   pipeline.Plan
	intent pipeline.Intent
	action string // id of the action once applied: a plan runs once
}

// Plan decides what an intent would do.
func (d *Deck) Plan(ctx context.Context, in pipeline.Intent) (pipeline.Plan, error) {
	snap, err := d.Snapshot(ctx)
	if err != nil {
		return pipeline.Plan{}, err
	}
	p, err := pipeline.Decide(d.sp, snap, in, d.p.Now(), "p-"+d.p.NewID())
	if err != nil {
		return pipeline.Plan{}, err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	for id, h := range d.plans {
		if d.p.Now().Sub(h.plan.ExpiresAt) > planLife {
			delete(d.plans, id)
		}
	}
	d.plans[p.ID] = &heldPlan{plan: p, intent: in}
	return p, nil
}

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
	a, err := d.engine.Begin(id, held.plan, req)
	if err != nil {
		d.release(id)
		return pipeline.Action{}, err
	}
	d.observeAction(a)
	d.work.Go(func() { d.runAction(held.plan, a, 0) })
	return a, nil
}

func (d *Deck) recordRefusal(req pipeline.ApplyRequest, cause error) {
	rec := pipeline.JournalRecord{
		At: d.p.Now(), Kind: "refused", Plan: req.Plan, By: req.By,
		Text: fmt.Sprintf("%v (typed %q)", cause, req.Confirm),
	}
	if err := d.p.Journal.Append(rec); err != nil {
		d.notice(pipeline.Error, "agent", "cannot write the journal: %v", err)
	}
}

// admit finds the plan and checks everything that can refuse it.
func (d *Deck) admit(ctx context.Context, req pipeline.ApplyRequest) (*heldPlan, error) {
	d.mu.Lock()
	held := d.plans[req.Plan]
	d.mu.Unlock()
	if held == nil {
		return nil, pipeline.Problemf(pipeline.ProblemRefused, "make a new one with `pipedeck plan`",
			"cannot apply plan %q: there is no such plan, or it expired", req.Plan)
	}
	p := held.plan
	if d.p.Now().After(p.ExpiresAt) {
		return nil, pipeline.Problemf(pipeline.ProblemRefused, "make a new one with `pipedeck plan`",
			"cannot apply plan %q: it expired at %s", p.ID, p.ExpiresAt.Format(time.TimeOnly))
	}
	if !p.Executable {
		return nil, &pipeline.Problem{
			Kind: pipeline.ProblemRefused, Plan: &p,
			Text: fmt.Sprintf("cannot apply plan %q: %s", p.ID, joinReasons(p.Blocked)),
		}
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

func joinReasons(rs []string) string {
	if len(rs) == 0 {
		return "it cannot be executed"
	}
	return rs[0]
}

// recheck decides again: if the steps would now act on something else than
// was shown, the plan is stale.
func (d *Deck) recheck(ctx context.Context, held *heldPlan) error {
	snap, err := d.Snapshot(ctx)
	if err != nil {
		return err
	}
	again, err := pipeline.Decide(d.sp, snap, held.intent, d.p.Now(), held.plan.ID)
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

// take marks the plan as used and takes the deck's lease for an action that
// changes processes. Settling, pausing and pushing lose nothing and need none.
func (d *Deck) take(held *heldPlan, id, by string) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if held.action != "" {
		return pipeline.Problemf(pipeline.ProblemRefused, "a plan is executed once; make a new one",
			"cannot apply plan %q: action %q applied it before", held.plan.ID, held.action)
	}
	if needsLease(held.plan) {
		if d.holder != "" {
			return pipeline.Problemf(pipeline.ProblemRefused, "wait for it to end, then try again",
				"cannot %s %q: %s is running", held.plan.Action, held.plan.Target, d.holding)
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

func needsLease(p pipeline.Plan) bool {
	for _, s := range p.Steps {
		if s.Kind == pipeline.StepStopWorkers || s.Kind == pipeline.StepStartWorkers {
			return true
		}
	}
	return false
}

func (d *Deck) release(id string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.holder == id {
		d.holder = ""
	}
}

func (d *Deck) runAction(p pipeline.Plan, a pipeline.Action, first int) {
	defer d.release(a.ID)
	a = d.engine.Run(d.life, p, a, first)
	level := pipeline.Info
	if a.Result != pipeline.Verified {
		level = pipeline.Error
	}
	text := fmt.Sprintf("%s %s by %s: %s", a.Verb, a.Target, a.By, a.Result)
	if a.Reason != nil {
		text += ", " + *a.Reason
	}
	d.fold(pipeline.NoticeReading{Event: pipeline.Event{At: d.p.Now(), Level: level, Source: "ops", Text: text, Action: a.ID}})
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
	if err != nil || first.EndedAt != nil || wait <= 0 {
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
		if err != nil || a.EndedAt != nil || progressed(first, a) {
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

func progressed(a, b pipeline.Action) bool {
	return !slices.EqualFunc(a.Steps, b.Steps, func(x, y pipeline.StepResult) bool {
		return x.Result == y.Result && x.Text == y.Text
	})
}

// resume goes on with the actions that an earlier agent left open. Each step
// probes first, so what was done is verified and not repeated.
func (d *Deck) resume(_ context.Context) error {
	recs, err := d.p.Journal.Read(0)
	if err != nil {
		return fmt.Errorf("cannot read the journal: %w", err)
	}
	open, err := engine.Unfinished(recs)
	if err != nil {
		d.notice(pipeline.Error, "ops", "cannot resume: %v", err)
		return nil
	}
	for _, o := range open {
		d.notice(pipeline.Warn, "ops", "going on with %s %s of %s: the agent was interrupted", o.Plan.Action, o.Plan.Target, o.Action.By)
		d.record("agent", "resuming action %s at step %d", o.Action.ID, o.First+1)
		if needsLease(o.Plan) {
			d.mu.Lock()
			d.hold(o.Action.ID, o.Plan, o.Action.By)
			d.mu.Unlock()
		}
		d.observeAction(o.Action)
		d.work.Go(func() { d.runAction(o.Plan, o.Action, o.First) })
	}
	return nil
}
