package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"pipedeck/pipeline"
	"pipedeck/pipeline/spec"
	"pipedeck/remote/client"
)

const (
	// gpusPatience is how long a fresh agent may take for its first look at its
	// GPUs.
	gpusPatience = 15 * time.Second
	// othersPatience bounds the look at nodes that an action is not about.
	othersPatience = 5 * time.Second
)

// ranked says whether a verb gives ranks to nodes.
func ranked(v pipeline.Verb) bool {
	switch v {
	case pipeline.VerbStart, pipeline.VerbRestart, pipeline.VerbPivot, pipeline.VerbAdopt:
		return true
	case pipeline.VerbStop, pipeline.VerbKill, pipeline.VerbSettle, pipeline.VerbPause, pipeline.VerbResume,
		pipeline.VerbWipe, pipeline.VerbPush, pipeline.VerbUndo, pipeline.VerbReap:
	}
	return false
}

// placements divides the ranks of a stage over the nodes of the spec. An agent
// is asked only for what the spec does not tell.
func placements(ctx context.Context, st *spec.Stage, all []nodeDeck) ([]pipeline.Placement, error) {
	nodes := all[0].s.Nodes
	slots, why := make([]*int, len(nodes)), map[string]error{}
	for i, n := range all {
		if !pipeline.NeedsSlots(st, nodes[i]) {
			continue
		}
		if n.err != nil {
			why[n.name()] = n.err
			continue
		}
		slots[i], why[n.name()] = slotsOf(ctx, n)
	}
	placed, unknown := pipeline.Place(st, nodes, slots)
	if len(unknown) == 0 {
		return placed, nil
	}
	var said []string
	for _, name := range unknown {
		said = append(said, fmt.Sprintf("node %s: %v", name, why[name]))
	}
	return nil, pipeline.Problemf(pipeline.ProblemUnreachable,
		"bring it back, or list its GPUs in the spec's `nodes`: then it need not be asked",
		"cannot tell the ranks of %q, since not every node says how many GPUs it has: %s", st.Name, strings.Join(said, "; "))
}

// slotsOf asks a node for its GPUs, and waits for the first look at them.
func slotsOf(ctx context.Context, n nodeDeck) (*int, error) {
	ctx, cancel := context.WithTimeout(ctx, gpusPatience)
	defer cancel()
	tick := time.NewTicker(200 * time.Millisecond)
	defer tick.Stop()
	for {
		snap, err := n.c.Snapshot(ctx)
		if err != nil {
			return nil, err
		}
		if len(snap.Nodes) == 0 {
			return nil, errors.New("its agent tells of no node")
		}
		seen := snap.Nodes[0]
		if seen.GPUSource.AgeSeconds != nil {
			if slots := pipeline.GPUSlots(seen, n.s.node.GPUs); slots != nil {
				return slots, nil
			}
			reason := "no GPU is seen there"
			if seen.GPUSource.Reason != nil {
				reason += ": " + *seen.GPUSource.Reason
			}
			return nil, errors.New(reason)
		}
		select {
		case <-ctx.Done():
			return nil, errors.New("its agent has not looked at the GPUs yet")
		case <-tick.C:
		}
	}
}

// stageSeen is what a node's agent says of a stage.
func stageSeen(ctx context.Context, c *client.Client, name string) (st pipeline.StageSnapshot, err error) {
	snap, err := c.Snapshot(ctx)
	if err != nil {
		return st, err
	}
	for _, n := range snap.Nodes {
		for _, s := range n.Stages {
			if s.Name == name {
				return s, nil
			}
		}
	}
	return st, nil
}

func living(st pipeline.StageSnapshot) bool {
	return slices.ContainsFunc(st.Workers, func(w pipeline.WorkerSnapshot) bool { return w.PID != nil })
}

// placement is which ranks of a stage live on a node; nil is none, or unknown.
func (n nodeDeck) placement(ctx context.Context, stage string) *pipeline.Placement {
	if n.err != nil {
		return nil
	}
	if st, err := stageSeen(ctx, n.c, stage); err == nil && living(st) {
		return st.Placement
	}
	return nil
}

// placeOne adds to an intent for one node of several which ranks are that
// node's. Where the others cannot be asked, the ranks of its last start hold.
func (a *app) placeOne(ctx context.Context, s specFile, c *client.Client, in *pipeline.Intent, open opening) error {
	stage, _, _ := strings.Cut(in.Target, "/")
	st := s.Stage(stage)
	if len(s.Nodes) < 2 || !ranked(in.Verb) || st == nil {
		return nil
	}
	mine, err := stageSeen(ctx, c, stage)
	if err != nil {
		return err
	}
	if mine.Placement != nil && living(mine) && strings.Contains(in.Target, "/") {
		return nil // one of them comes back to where it was
	}
	others := a.others(ctx, s, c, st, open)
	defer func() {
		for _, n := range others {
			if n.c != nil && n.c != c {
				n.c.Close()
			}
		}
	}()
	placed, err := placements(ctx, st, others)
	if err != nil {
		if mine.Placement == nil {
			return err
		}
		a.say("note: %v; the ranks stay as they were: %s", err, *mine.Placement)
		return nil
	}
	for i, n := range others {
		if n.s.node.Name == s.node.Name {
			in.Place = &placed[i]
			continue
		}
		if runs := n.placement(ctx, stage); runs != nil && *runs != placed[i] {
			return pipeline.Problemf(pipeline.ProblemRefused, fmt.Sprintf("`pipedeck restart %s` without --node divides the ranks anew", stage),
				"cannot %s %q on node %q alone: node %q runs %s and would have %s", in.Verb, in.Target, s.node.Name, n.name(), *runs, placed[i])
		}
	}
	return nil
}

// others opens the nodes that an action is not about: with open where they must
// tell of their GPUs, and else, for what they run, only if that goes quickly.
func (a *app) others(ctx context.Context, s specFile, c *client.Client, st *spec.Stage, open opening) []nodeDeck {
	every := s.everyNode()
	out := make([]nodeDeck, len(every))
	var all sync.WaitGroup
	for i, o := range every {
		if o.node.Name == s.node.Name {
			out[i] = nodeDeck{s: o, c: c}
			continue
		}
		all.Go(func() {
			open := open
			if !pipeline.NeedsSlots(st, o.node) {
				open = dialSoon
			}
			out[i] = a.eachNode(ctx, []specFile{o}, open)[0]
		})
	}
	all.Wait()
	return out
}

// dialSoon is reach.dial with little patience.
func dialSoon(r reach, ctx context.Context) (*client.Client, error) { //nolint:revive // the order of a method expression
	ctx, cancel := context.WithTimeout(ctx, othersPatience)
	defer cancel()
	return r.dial(ctx)
}

// placingDeck is the console's deck of one node of several: what is started from
// there gets the ranks of that node. It starts no agent on another.
type placingDeck struct {
	pipeline.Deck
	a *app
	s specFile
	c *client.Client
}

// Plan implements pipeline.Deck.
func (d *placingDeck) Plan(ctx context.Context, in pipeline.Intent) (pipeline.Plan, error) {
	if err := d.a.placeOne(ctx, d.s, d.c, &in, dialSoon); err != nil {
		return pipeline.Plan{}, err
	}
	return d.Deck.Plan(ctx, in)
}

// rankOf is the rank in "stage/rank", -1 in a stage's name.
func rankOf(target string) int {
	_, rest, isWorker := strings.Cut(target, "/")
	if rank, err := strconv.Atoi(rest); isWorker && err == nil {
		return rank
	}
	return -1
}
