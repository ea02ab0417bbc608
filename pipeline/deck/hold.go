package deck

import (
	"context"
	"time"

	"pipedeck/pipeline"
)

// holdLife is how long a lease is held for an action on several nodes that was
// not started, which may have to bring code: whoever took it may have lost its
// links.
const holdLife = time.Minute

var _ pipeline.Holder = (*Deck)(nil)

// Planned returns a plan that was made and not applied yet.
func (d *Deck) Planned(_ context.Context, plan string) (pipeline.Plan, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	held := d.plans[plan]
	if held == nil {
		return pipeline.Plan{}, pipeline.Problemf(pipeline.ProblemRefused, "make a new one with `pipedeck plan`",
			"cannot find plan %q: there is no such plan, or it expired", plan)
	}
	return held.plan, held.used()
}

// holdOf is the holder of a lease whose action has not begun.
func holdOf(plan string) string { return "plan " + plan }

// Hold checks all that can refuse a plan and takes its lease, for Apply.
func (d *Deck) Hold(ctx context.Context, req pipeline.ApplyRequest) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-d.ready:
	}
	held, err := d.admitted(ctx, req)
	if err == nil {
		err = d.reserve(held, req.By)
	}
	if err == nil {
		err = d.lacksCode(held.plan) // it may be brought while the lease is held
	}
	if err != nil {
		d.recordRefusal(req, err)
	}
	return err
}

func (d *Deck) reserve(held *heldPlan, by string) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := held.used(); err != nil || !needsLease(held.plan) {
		return err
	}
	if err := d.free(held.plan); err != nil {
		return err
	}
	id := holdOf(held.plan.ID)
	d.hold(id, held.plan, by)
	if d.holdEnds != nil {
		d.holdEnds.Stop() // of an earlier hold, perhaps of this plan
	}
	d.holdEnds = time.AfterFunc(holdLife, func() { d.release(id) })
	return nil
}

// free refuses a plan while somebody else holds the lease. Deck.mu is held.
func (d *Deck) free(p pipeline.Plan) error {
	if d.holder == "" || d.holder == holdOf(p.ID) {
		return nil
	}
	return pipeline.Problemf(pipeline.ProblemRefused, "wait for it to end, then try again",
		"cannot %s %q: %s is running", p.Action, p.Target, d.holding)
}

// Release gives a lease back that Hold took and Apply did not use.
func (d *Deck) Release(_ context.Context, plan string) error {
	d.release(holdOf(plan))
	return nil
}
