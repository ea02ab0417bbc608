package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"

	"pipedeck/pipeline"
)

// member is one node's part in an action on several.
type member struct {
	nodeDeck
	in   pipeline.Intent
	plan pipeline.Plan
	act  pipeline.Action
}

// actAll plans an intent on every node that it touches, gets one confirmation,
// takes all leases or none, and follows all.
func (a *app) actAll(ctx context.Context, nodes []specFile, in pipeline.Intent, o actOptions) error {
	if in.Verb == pipeline.VerbAdopt || in.Verb == pipeline.VerbReap {
		return pipeline.Problemf(pipeline.ProblemUsage, "say which with --node: "+nodeNames(nodes[0]),
			"cannot %s on all nodes: processes are of one node", in.Verb)
	}
	open, idle, err := a.idle(a.eachNode(ctx, nodes, a.openFor(in, o)), in)
	if err != nil {
		return err
	}
	if len(open) == 0 {
		return a.endIdle(idle, in)
	}
	defer func() { closeAll(open) }()
	if rank := rankOf(in.Target); rank >= 0 && len(idle) > 0 && reached(open, in) == nil {
		stage, _, _ := strings.Cut(in.Target, "/")
		if holderOf(ctx, open, stage, rank) < 0 {
			return a.endIdle(idle, in) // said: it was one of theirs, if anybody's
		}
	}
	group, err := a.touched(ctx, open, in)
	if err != nil {
		return err
	}
	for i := range group {
		m := &group[i]
		if m.c, err = a.rightSpec(ctx, m.nodeDeck, in.Verb); err != nil {
			return m.s.atNode(err)
		}
		defer m.c.Close()
	}
	if err := a.planAll(ctx, group); err != nil {
		return err
	}
	if in.Verb == pipeline.VerbUndo {
		if group, err = whoCan(group); err != nil {
			return err
		}
	}
	if o.dry {
		return a.showPlans(group)
	}
	return a.applyAll(ctx, group, o)
}

func nodeNames(s specFile) string {
	var names []string
	for _, n := range s.Nodes {
		names = append(names, n.Name)
	}
	return strings.Join(names, ", ")
}

// reached refuses an action on all nodes while one of them is not there.
func reached(open []nodeDeck, in pipeline.Intent) error {
	var lost []string
	well := ""
	for _, n := range open {
		if n.err != nil {
			lost = append(lost, fmt.Sprintf("node %s: %v", n.name(), n.err))
		} else if well == "" {
			well = n.name()
		}
	}
	if len(lost) == 0 {
		return nil
	}
	hint := "bring it back"
	if well != "" {
		hint = fmt.Sprintf("`--node %s` acts on that one alone", well)
	}
	return pipeline.Problemf(pipeline.ProblemUnreachable, hint,
		"cannot %s on all nodes, and nothing was done on any: %s", deed(in.Verb, in.Target), strings.Join(lost, "; "))
}

// touched are the nodes that an intent is about, each with its part of it: a
// worker is on one of them, anything else on all.
func (a *app) touched(ctx context.Context, open []nodeDeck, in pipeline.Intent) ([]member, error) {
	stage, _, _ := strings.Cut(in.Target, "/")
	st := open[0].s.Stage(stage)
	onWorker := rankOf(in.Target) >= 0 && st != nil
	if onWorker {
		if i := holderOf(ctx, open, stage, rankOf(in.Target)); i >= 0 {
			return []member{{nodeDeck: open[i], in: in}}, nil
		}
	}
	if err := reached(open, in); err != nil {
		return nil, err
	}
	group := make([]member, len(open))
	for i, n := range open {
		group[i] = member{nodeDeck: n, in: in}
	}
	if !ranked(in.Verb) || st == nil {
		if onWorker {
			return nil, noSuchWorker(in.Target)
		}
		return group, nil
	}
	placed, err := placements(ctx, st, open)
	if err != nil {
		return group, keptAll(ctx, a, group, stage, err)
	}
	if !onWorker {
		for i := range group {
			group[i].in.Place = &placed[i]
		}
		return group, nil
	}
	i := slices.IndexFunc(placed, func(p pipeline.Placement) bool { return p.Has(rankOf(in.Target)) })
	if i < 0 {
		return nil, noSuchWorker(in.Target)
	}
	group[i].in.Place = &placed[i]
	return group[i : i+1], nil
}

func noSuchWorker(id string) error {
	return pipeline.Problemf(pipeline.ProblemUsage, "`pipedeck --json` lists the workers", "cannot find worker %q: no node has it", id)
}

// keptAll is nil where every node knows its ranks from the last start.
func keptAll(ctx context.Context, a *app, group []member, stage string, cause error) error {
	for _, m := range group {
		st, err := stageSeen(ctx, m.c, stage)
		if err != nil || st.Placement == nil {
			return cause
		}
	}
	a.say("note: %v; the ranks stay as they were", cause)
	return nil
}

// holderOf finds the node whose rank it is: by its part of the ranks, else by
// the worker that it shows. -1: none that was reached.
func holderOf(ctx context.Context, open []nodeDeck, stage string, rank int) int {
	shows := -1
	for i, n := range open {
		if n.err != nil {
			continue
		}
		st, err := stageSeen(ctx, n.c, stage)
		if err != nil {
			continue
		}
		if st.Placement != nil && st.Placement.Has(rank) {
			return i
		}
		if slices.ContainsFunc(st.Workers, func(w pipeline.WorkerSnapshot) bool { return w.Rank == rank }) {
			shows = i
		}
	}
	return shows
}

// planAll makes the plans at the same time. Only an undo may fail on some: the
// others do not know the action.
func (a *app) planAll(ctx context.Context, group []member) error {
	forAll(group, func(m *member) { m.plan, m.err = a.plan(ctx, m.c, m.in, a.teller(m.s)) })
	for _, m := range group {
		if m.err != nil && m.in.Verb != pipeline.VerbUndo {
			return m.s.atNode(m.err)
		}
	}
	return nil
}

// whoCan leaves those whose plan could be made.
func whoCan(group []member) ([]member, error) {
	var able []member
	for _, m := range group {
		if m.err == nil {
			able = append(able, m)
		}
	}
	if len(able) == 0 {
		return nil, group[0].s.atNode(group[0].err)
	}
	return able, nil
}

// forAll does something for each member at the same time.
func forAll(group []member, f func(*member)) {
	var all sync.WaitGroup
	for i := range group {
		all.Go(func() { f(&group[i]) })
	}
	all.Wait()
}

func plansOf(group []member) []pipeline.Plan {
	out := make([]pipeline.Plan, 0, len(group))
	for _, m := range group {
		out = append(out, m.plan)
	}
	return out
}

// teller says what happens on one node, with its name.
func (a *app) teller(s specFile) func(string, ...any) {
	if len(s.Nodes) < 2 {
		return a.say
	}
	return func(format string, args ...any) {
		a.say("%s: %s", s.node.Name, fmt.Sprintf(format, args...))
	}
}
