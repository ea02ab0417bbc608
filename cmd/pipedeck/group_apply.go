package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"pipedeck/pipeline"
)

// applyAll asks once and executes the plans of a group.
func (a *app) applyAll(ctx context.Context, group []member, o actOptions) error {
	if len(group) == 1 {
		return a.actPlanned(ctx, group[0].nodeDeck, group[0].plan, o)
	}
	for _, m := range group {
		if !m.plan.Executable {
			return m.s.atNode(notExecutable(m.plan))
		}
	}
	if err := a.confirmAll(group, o); err != nil {
		return err
	}
	if err := a.holdAll(ctx, group); err != nil {
		return err
	}
	forAll(group, func(m *member) { m.run(ctx, a, o.wait) })
	return a.reportAll(group)
}

// notExecutable says why a plan cannot be executed, as the agent would.
func notExecutable(p pipeline.Plan) error {
	kind, hint := pipeline.ProblemRefused, ""
	if p.Unreachable {
		kind, hint = pipeline.ProblemUnreachable, "`pipedeck check` says what is wrong with the store and what to do"
	}
	return &pipeline.Problem{Kind: kind, Plan: &p, Hint: hint, Text: fmt.Sprintf("cannot %s: %s", deed(p.Action, p.Target), strings.Join(p.Blocked, "; "))}
}

// confirmAll has the one text typed that stands for all plans.
func (a *app) confirmAll(group []member, o actOptions) error {
	plans, given := plansOf(group), o.confirm
	want := pipeline.JointConfirm(plans)
	if want == nil {
		return nil
	}
	what := deed(plans[0].Action, plans[0].Target)
	if given == "" && !o.shown {
		typed, err := a.ask(question{what: what, show: plansText(plans), ids: planIDs(plans), confirm: *want})
		if err != nil {
			return err
		}
		given = typed
	}
	if given != *want {
		return pipeline.Problemf(pipeline.ProblemRefused, applyHint(planIDs(plans), *want),
			"cannot %s: on %s it asks for the confirmation %q, given was %q", what, pipeline.Counted(len(plans), "node", "nodes"), *want, given)
	}
	return nil
}

func planIDs(plans []pipeline.Plan) []string {
	ids := make([]string, 0, len(plans))
	for _, p := range plans {
		ids = append(ids, p.ID)
	}
	return ids
}

func applyHint(ids []string, confirm string) string {
	return fmt.Sprintf("pipedeck apply %s --confirm %q", strings.Join(ids, " "), confirm)
}

// request applies one plan of a group: what was typed for all stands for what
// this plan asks for.
func (m member) request() pipeline.ApplyRequest {
	req := pipeline.ApplyRequest{Plan: m.plan.ID, By: operator(), From: originOf(m.reach)}
	if m.plan.Confirm != nil {
		req.Confirm = *m.plan.Confirm
	}
	return req
}

// holdAll takes every lease in the nodes' order, or none, then brings the code
// that is not there yet.
func (a *app) holdAll(ctx context.Context, group []member) error {
	var lack []member
	for i, m := range group {
		err := m.c.Hold(ctx, m.request())
		switch {
		case needsCode(err):
			m.err = err
			lack = append(lack, m)
		case err != nil:
			a.releaseAll(ctx, group[:i])
			return untouched(m.s.atNode(err))
		}
	}
	for _, m := range lack {
		err := m.err
		if f := a.farOf(m.c); f != nil {
			if err = f.push(ctx, m.plan, f.say); err == nil {
				err = m.c.Hold(ctx, m.request())
			}
		}
		if err != nil {
			a.releaseAll(ctx, group)
			return untouched(m.s.atNode(err))
		}
	}
	return nil
}

func needsCode(err error) bool {
	p, ok := errors.AsType[*pipeline.Problem](err)
	return ok && p.Needs == pipeline.NeedsCode
}

func (a *app) releaseAll(ctx context.Context, taken []member) {
	for _, m := range taken {
		if err := m.c.Release(context.WithoutCancel(ctx), m.plan.ID); err != nil {
			a.teller(m.s)("note: its lease could not be given back and ends by itself within a minute: %v", err)
		}
	}
}

// untouched says of a refusal that it came before anything was begun.
func untouched(err error) error {
	if p, ok := errors.AsType[*pipeline.Problem](err); ok {
		p.Text += "; nothing was begun on any node"
	}
	return err
}

// run executes and follows one member's plan.
func (m *member) run(ctx context.Context, a *app, wait bool) {
	if m.act, m.err = a.applyPlan(ctx, m.c, m.request()); m.err != nil {
		return
	}
	m.act, m.err = a.follow(ctx, m.c, m.act, a.teller(m.s))
	if m.err == nil && wait && m.act.Result == pipeline.Verified {
		m.act, m.err = a.followAfter(ctx, m.c, m.act, a.teller(m.s))
	}
	if m.err == nil {
		m.err = a.withLog(ctx, m.c, a.outcome(m.act, a.teller(m.s)), m.act)
	}
	if m.err == nil && wait {
		m.err = afterOutcome(m.act)
	}
}

// reportAll says what became of each node; the exit code is the worst of them.
func (a *app) reportAll(group []member) error {
	if a.flag.json {
		if err := a.printActions(group); err != nil {
			return err
		}
	}
	worst := exitOK
	for _, m := range group {
		if m.err == nil {
			a.teller(m.s)("%s: %s", deed(m.plan.Action, m.plan.Target), m.act.Result)
			continue
		}
		code := a.report(m.s.atNode(m.err))
		if code > exitUnknown {
			code = exitFailed // refused here, done elsewhere: that is no refusal
		}
		worst = max(worst, code)
	}
	if worst == exitOK {
		return nil
	}
	return exitError(worst)
}

// applyPlans executes plans that were made before on several nodes, together.
func (a *app) applyPlans(ctx context.Context, nodes []specFile, ids []string, o actOptions) error {
	open := a.eachNode(ctx, nodes, reach.ensure)
	defer closeAll(open)
	var group []member
	for i, id := range ids {
		if slices.Contains(ids[:i], id) {
			return pipeline.Problemf(pipeline.ProblemUsage, "", "cannot apply plan %q: it is named twice", id)
		}
		m, err := whoPlanned(ctx, open, id)
		if err != nil {
			return err
		}
		group = append(group, m)
	}
	if len(group) == 1 {
		return a.apply(ctx, group[0].nodeDeck, ids[0], o.confirm, o.wait)
	}
	for _, m := range group[1:] {
		if p, q := m.plan, group[0].plan; p.Action != q.Action || p.Target != q.Target {
			return pipeline.Problemf(pipeline.ProblemUsage, "apply them one by one",
				"cannot apply %q with %q: one is to %s, the other to %s", p.ID, q.ID, deed(p.Action, p.Target), deed(q.Action, q.Target))
		}
	}
	slices.SortStableFunc(group, func(x, y member) int { return place(open, x) - place(open, y) })
	return a.applyAll(ctx, group, o)
}

func place(open []nodeDeck, m member) int {
	return slices.IndexFunc(open, func(n nodeDeck) bool { return n.name() == m.name() })
}

// whoPlanned finds the node that made a plan.
func whoPlanned(ctx context.Context, open []nodeDeck, id string) (member, error) {
	var failed error
	var lost []string
	for _, n := range open {
		err := n.err
		if err == nil {
			var p pipeline.Plan
			if p, err = n.c.Planned(ctx, id); err == nil {
				return member{nodeDeck: n, plan: p, in: p.Intent}, nil
			}
		}
		if p, ok := errors.AsType[*pipeline.Problem](err); ok && p.Kind == pipeline.ProblemRefused {
			failed = n.s.atNode(err)
			if strings.Contains(p.Text, "applied it before") {
				return member{}, failed
			}
			continue
		}
		lost = append(lost, fmt.Sprintf("node %s: %v", n.name(), err))
	}
	if len(lost) > 0 {
		return member{}, pipeline.Problemf(pipeline.ProblemUnreachable, "bring it back, or name the node of the plan with --node",
			"cannot find plan %q: %s", id, strings.Join(lost, "; "))
	}
	return member{}, failed
}
