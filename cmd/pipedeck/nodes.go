package main

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"pipedeck/pipeline"
	"pipedeck/remote/client"
)

// nodeDeck is one node of this invocation's spec with its agent, or why that
// cannot be had.
type nodeDeck struct {
	s     specFile // its node is this one
	reach reach    // nil where err says so
	c     *client.Client
	bare  *bareDeck // in the place of c where no agent runs and none may be installed
	err   error
}

func (n nodeDeck) name() string { return n.s.node.Name }

// chosen are the nodes that this invocation is about, in the spec's order: the
// one that --node names, else all.
func (a *app) chosen() ([]specFile, error) {
	s, err := a.loadSpec()
	if err != nil {
		return nil, err
	}
	if a.flag.node != "" || a.flag.here {
		return []specFile{s}, nil
	}
	return s.everyNode(), nil
}

// everyNode is the spec once for each of its nodes.
func (s specFile) everyNode() []specFile {
	out := make([]specFile, 0, len(s.Nodes))
	for _, n := range s.Nodes {
		out = append(out, specFile{Spec: s.Spec, node: n})
	}
	return out
}

// opening is how an agent is opened: reach.ensure, which starts one where none
// runs, or reach.dial, which does not.
type opening func(reach, context.Context) (*client.Client, error)

// eachNode opens the agents of several nodes at the same time: one that does
// not answer holds up no other and is an entry with its error. The caller
// closes them with closeAll.
func (a *app) eachNode(ctx context.Context, nodes []specFile, open opening) []nodeDeck {
	out := make([]nodeDeck, len(nodes))
	var all sync.WaitGroup
	for i, s := range nodes {
		n := &out[i]
		n.s = s
		all.Go(func() {
			if n.reach, n.err = a.reach(s); n.err != nil {
				return
			}
			n.c, n.err = open(n.reach, ctx)
		})
	}
	all.Wait()
	return out
}

// closeAll gives the connections back; the agents go on.
func closeAll(nodes []nodeDeck) {
	for _, n := range nodes {
		if n.c != nil {
			n.c.Close()
		}
	}
}

// atNode names the node in an error where the spec has several.
func (s specFile) atNode(err error) error {
	if err == nil || len(s.Nodes) < 2 {
		return err
	}
	if p, ok := errors.AsType[*pipeline.Problem](err); ok {
		named := *p
		named.Text = "node " + s.node.Name + ": " + p.Text
		named.Err = err
		return &named
	}
	return fmt.Errorf("node %s: %w", s.node.Name, err)
}

// every is what became of a question to each node, in order; a node that did not
// answer is one with its error.
func every[T any](ctx context.Context, open []nodeDeck, ask func(context.Context, nodeDeck) (T, error)) []answerOf[T] {
	out := make([]answerOf[T], len(open))
	var all sync.WaitGroup
	for i, n := range open {
		all.Go(func() {
			out[i].nodeDeck = n
			if n.err == nil {
				out[i].value, out[i].err = ask(ctx, n)
			}
		})
	}
	all.Wait()
	return out
}

type answerOf[T any] struct {
	nodeDeck
	value T
}

// reportLost says which nodes did not answer, and makes that the exit code where
// it is the worst; code is what the others ended with.
func reportLost[T any](a *app, answers []answerOf[T], code int) error {
	for _, n := range answers {
		if n.err != nil {
			code = max(code, a.report(n.s.atNode(n.err)))
		}
	}
	if code == exitOK {
		return nil
	}
	return exitError(code)
}

// unopened are nodes whose agents nobody opened yet.
func unopened(nodes []specFile) []nodeDeck {
	out := make([]nodeDeck, 0, len(nodes))
	for _, s := range nodes {
		out = append(out, nodeDeck{s: s})
	}
	return out
}

// onEach does something on each node of this invocation, one after the other. A
// node where it fails keeps it from no other.
func (a *app) onEach(ctx context.Context, do func(context.Context, specFile) error) error {
	nodes, err := a.chosen()
	if err != nil {
		return err
	}
	if len(nodes) == 1 {
		return do(ctx, nodes[0])
	}
	worst := exitOK
	for _, s := range nodes {
		if err := do(ctx, s); err != nil {
			worst = max(worst, a.report(s.atNode(err)))
		}
	}
	if worst == exitOK {
		return nil
	}
	return exitError(worst)
}

// withNodes runs one for the deck's only node, or many for the several that this
// invocation is about.
func (a *app) withNodes(ctx context.Context, one func(specFile, *client.Client) error, many func([]nodeDeck) error) error {
	nodes, err := a.chosen()
	if err != nil {
		return err
	}
	if len(nodes) == 1 {
		return a.withDeck(ctx, one)
	}
	open := a.eachNode(ctx, nodes, reach.ensure)
	defer closeAll(open)
	for _, n := range open {
		if n.err == nil {
			a.sayOtherSpec(ctx, n.s, n.c)
		}
	}
	return many(open)
}
