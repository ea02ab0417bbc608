package deck

import (
	"context"
	"fmt"
	"time"

	"pipedeck/pipeline"
	"pipedeck/pipeline/engine"
)

// resumePatience is how old the last record of an interrupted action that
// takes files away may be for it to go on by itself: what was confirmed then
// may not be what is wanted now.
const resumePatience = 15 * time.Minute

// resume goes on with the actions that an earlier agent left open. Each step
// probes first, so what was done is verified and not repeated. One that takes
// files away and was interrupted long ago waits for the operator.
func (d *Deck) resume(_ context.Context) error {
	recs, err := d.p.Journal.Read(0)
	if err != nil {
		return fmt.Errorf("cannot read the journal: %w", err)
	}
	open, ended, err := engine.Unfinished(recs)
	if err != nil {
		d.notice(pipeline.Error, "ops", "cannot resume: %v", err)
		return nil
	}
	d.forgetLists(open)
	if ended != nil {
		if age := d.p.Now().Sub(*ended.EndedAt); age >= 0 && age <= resumePatience {
			d.observeAction(*ended)
		}
	}
	for _, o := range open {
		if needsLease(o.Plan) {
			d.mu.Lock()
			d.hold(o.Action.ID, o.Plan, o.Action.By)
			d.mu.Unlock()
		}
		o.First = backToRecount(o)
		if why := d.mustAsk(o); why != "" {
			d.park(o, why)
			continue
		}
		d.goOn(o, "the agent was interrupted")
	}
	return nil
}

func (d *Deck) goOn(o engine.Open, why string) {
	d.notice(pipeline.Warn, "ops", "going on with %s %s of %s: %s", o.Plan.Action, o.Plan.Target, o.Action.By, why)
	d.record("agent", "resuming action %s at step %d: %s", o.Action.ID, o.First+1, why)
	o.Action.Waits, o.Action.Reason = false, nil
	d.observeAction(o.Action)
	d.begin(o.Plan, o.Action, o.First)
}

// backToRecount makes files and store be looked at again before more is taken.
func backToRecount(o engine.Open) int {
	if o.First < len(o.Plan.Steps) && o.Plan.Steps[o.First].Kind == pipeline.StepTrash && o.First > 0 &&
		o.Plan.Steps[o.First-1].Kind == pipeline.StepRecount {
		return o.First - 1
	}
	return o.First
}

// mustAsk says why an interrupted action does not go on by itself, or "".
func (d *Deck) mustAsk(o engine.Open) string {
	for _, s := range o.Plan.Steps[min(o.First, len(o.Plan.Steps)):] {
		if s.Kind != pipeline.StepTrash && s.Kind != pipeline.StepKillWorkers && s.Kind != pipeline.StepReap {
			continue
		}
		if age := d.p.Now().Sub(o.Last); age > resumePatience || age < 0 {
			return fmt.Sprintf("it was interrupted %s ago and would still %s", age.Round(time.Second), s.Kind)
		}
		if s.Kind == pipeline.StepTrash {
			if _, err := d.readList(o.Action.ID); err != nil {
				return err.Error()
			}
		}
	}
	return ""
}

// park shows an interrupted action as waiting. It keeps the lease.
func (d *Deck) park(o engine.Open, why string) {
	text := fmt.Sprintf("%s; `pipedeck action resume %s` goes on, `pipedeck action abandon %s` ends it here", why, o.Action.ID, o.Action.ID)
	o.Action.Waits, o.Action.Reason = true, &text
	d.notice(pipeline.Error, "ops", "%s %s of %s waits: %s", o.Plan.Action, o.Plan.Target, o.Action.By, text)
	d.record("agent", "action %s waits: %s", o.Action.ID, why)
	d.mu.Lock()
	d.parked[o.Action.ID] = o
	d.mu.Unlock()
	d.observeAction(o.Action)
}

// Resolve resumes, abandons or takes over an action.
func (d *Deck) Resolve(ctx context.Context, req pipeline.Resolve) (pipeline.Action, error) {
	select {
	case <-ctx.Done():
		return pipeline.Action{}, ctx.Err()
	case <-d.ready:
	}
	d.mu.Lock()
	a, known := d.actions[req.Action]
	o, parked := d.parked[req.Action]
	cancel := d.cancels[req.Action]
	d.mu.Unlock()
	cannot := func(hint, why string) error {
		return pipeline.Problemf(pipeline.ProblemRefused, hint, "cannot %s action %q: %s", req.How, req.Action, why)
	}
	switch {
	case !known:
		return a, pipeline.Problemf(pipeline.ProblemUsage, "`pipedeck history` lists the actions",
			"cannot %s action %q: the agent does not know it", req.How, req.Action)
	case a.EndedAt != nil:
		return a, cannot("", "it has ended: "+string(a.Result))
	}
	d.record("agent", "%s of action %s asked by %s", req.How, req.Action, req.By)
	switch req.How {
	case pipeline.ResolveResume:
		if !parked {
			return a, cannot("", "it is running and waits for nobody")
		}
		d.unpark(req.Action)
		d.goOn(o, "resumed by "+req.By)
	case pipeline.ResolveAbandon, pipeline.ResolveTakeover:
		if parked {
			d.unpark(req.Action)
			d.abandon(o, req)
			break
		}
		if req.How == pipeline.ResolveAbandon {
			return a, cannot(fmt.Sprintf("`pipedeck action takeover %s` ends it at its next safe point", req.Action), "it is running")
		}
		if cancel == nil {
			return a, cannot("", "it cannot be interrupted")
		}
		cancel(engine.TakenOver{By: req.By})
		return d.endOf(ctx, req.Action)
	default:
		return a, pipeline.Problemf(pipeline.ProblemUsage, "resume, abandon or takeover", "cannot %s action %q: no such way", req.How, req.Action)
	}
	return d.Action(ctx, req.Action, 0)
}

// endOf waits a while for an action to end.
func (d *Deck) endOf(ctx context.Context, id string) (pipeline.Action, error) {
	until := d.p.Now().Add(10 * time.Second)
	for {
		a, err := d.Action(ctx, id, time.Second)
		if err != nil || a.EndedAt != nil || d.p.Now().After(until) {
			return a, err
		}
	}
}

func (d *Deck) unpark(id string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.parked, id)
}

// abandon ends an interrupted action with the account of what was done.
func (d *Deck) abandon(o engine.Open, req pipeline.Resolve) {
	text := fmt.Sprintf("%s by %s after %d of %s", pastOf(req.How), req.By, o.First, pipeline.Counted(len(o.Plan.Steps), "step", "steps"))
	a := d.engine.End(o.Action, pipeline.Unverified, text)
	d.finish(o.Plan, a)
	d.release(a.ID)
}

func pastOf(how pipeline.ResolveHow) string {
	if how == pipeline.ResolveTakeover {
		return "taken over"
	}
	return "abandoned"
}
