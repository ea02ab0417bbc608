package main

import (
	"context"
	"sync"
	"time"

	"pipedeck/pipeline"
	"pipedeck/remote/client"
	"pipedeck/tui"
)

// openingQuiet is how long nodes may neither say nor ask anything before the
// console opens without them: they come when they come.
const openingQuiet = 3 * time.Second

// nodeView is one node of the console: a connection of its own, with its own
// tries, and whoever answers for the node.
type nodeView struct {
	*client.Watcher
	a     *app
	s     specFile
	ready chan struct{} // closed once the node was tried to be opened

	mu    sync.Mutex
	reach reach
	deck  pipeline.Deck // who answers; nil before the first connection
	first error         // of the first try
	told  bool          // whether the watcher has told of it
}

// newNodeView begins to open a node, and then watches it until ctx ends.
func (a *app) newNodeView(ctx context.Context, s specFile) *nodeView {
	n := &nodeView{a: a, s: s, ready: make(chan struct{})}
	n.Watcher = client.NewWatcher(func(one context.Context) (pipeline.Deck, error) { return n.dial(ctx, one) }, consoleEvery, wallClock{})
	go func() {
		n.open(ctx)
		close(n.ready)
		n.Run(ctx)
	}()
	return n
}

// open connects to the node for the first time. Only then is an agent installed
// or started: one that was stopped on purpose must not come back by itself, with
// the spec and the credentials of this console.
func (n *nodeView) open(ctx context.Context) {
	r, err := n.a.reach(n.s)
	n.mu.Lock()
	n.reach = r
	n.mu.Unlock()
	var deck pipeline.Deck
	if err == nil {
		deck, err = n.a.firstDeck(ctx, n.s, r)
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.deck, n.first = deck, err
}

func (a *app) firstDeck(ctx context.Context, s specFile, r reach) (pipeline.Deck, error) {
	f, overSSH := r.(*far)
	if overSSH && a.flag.noDeploy {
		d, err := f.bare(ctx)
		if err != nil {
			return nil, err
		}
		if d != nil {
			return d, nil
		}
	}
	c, err := r.ensure(ctx)
	if err != nil {
		return nil, err
	}
	a.sayOtherSpec(ctx, s, c)
	return a.deckOf(ctx, s, r, c), nil
}

// deckOf is who answers for a node whose agent c reaches, until ctx ends.
func (a *app) deckOf(ctx context.Context, s specFile, r reach, c *client.Client) pipeline.Deck {
	var deck pipeline.Deck = c
	if f, overSSH := r.(*far); overSSH {
		go f.fwd.keep(ctx, c)
		deck = &syncingDeck{Client: c, f: f}
	}
	if len(s.Nodes) < 2 {
		return deck
	}
	return &placingDeck{Deck: deck, a: a, s: s, c: c}
}

// dial makes a connection for the watcher within ctx; console is the context of
// all the node's work.
func (n *nodeView) dial(console, ctx context.Context) (pipeline.Deck, error) {
	n.mu.Lock()
	r, deck, err := n.reach, n.deck, n.first
	if r != nil && n.told {
		err = nil
	}
	n.told = true
	n.mu.Unlock()
	if bare, ok := deck.(*bareDeck); ok {
		return bare, nil
	}
	if err != nil {
		return nil, err
	}
	c, err := r.dial(ctx)
	if err != nil {
		return nil, err
	}
	if deck == nil {
		n.mu.Lock()
		n.deck = n.a.deckOf(console, n.s, r, c)
		n.mu.Unlock()
	}
	return c, nil
}

// Current implements tui.Source. While a node is opened the link says at what
// that is.
func (n *nodeView) Current() (pipeline.Snapshot, pipeline.Link, bool, time.Duration) {
	select {
	case <-n.ready:
		return n.Watcher.Current()
	default:
	}
	link := pipeline.Link{State: pipeline.LinkConnecting}
	n.mu.Lock()
	defer n.mu.Unlock()
	if f, ok := n.reach.(*far); ok {
		if last := f.last.Load(); last != nil {
			link.Reason = last
		}
	}
	return pipeline.Snapshot{}, link, false, 0
}

// answers is who answers for the node now.
func (n *nodeView) answers() pipeline.Deck {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.deck == nil {
		return noAgent{node: n.s.node.Name, why: "it was not reached yet", hint: "the console goes on trying"}
	}
	return n.deck
}

// view is the node for the console.
func (n *nodeView) view() tui.Node {
	return tui.Node{
		Name: n.s.node.Name, Source: n, Deck: n.answers,
		Unseen: func(l pipeline.Link) pipeline.Snapshot {
			return pipeline.UnseenOf(n.s.Spec, n.s.node.Name, l, time.Now())
		},
		From: func() string {
			n.mu.Lock()
			defer n.mu.Unlock()
			if f, ok := n.reach.(*far); ok {
				return f.node.Origin()
			}
			return ""
		},
	}
}

// openNodes begins to open the nodes of a console, all at the same time, and
// waits until the console can take the terminal. A single node is waited for.
// Of several, those that neither say nor ask anything do not keep the others
// from the screen; what they would ask later is not asked. It fails if no node
// can be used.
func (a *app) openNodes(ctx context.Context, specs []specFile) ([]*nodeView, error) {
	views := make([]*nodeView, len(specs))
	for i, s := range specs {
		views[i] = a.newNodeView(ctx, s)
	}
	if err := a.awaitNodes(ctx, views); err != nil {
		return nil, err
	}
	a.shut.Store(true)
	var errs []error
	for _, n := range views {
		n.mu.Lock()
		r, err := n.reach, n.first
		n.mu.Unlock()
		if r != nil {
			go r.alone()
		}
		if err != nil {
			errs = append(errs, n.s.atNode(err))
		}
	}
	if len(errs) == len(views) {
		for _, err := range errs[1:] {
			_ = a.report(err) // the first one decides
		}
		return nil, errs[0]
	}
	for _, err := range errs {
		_ = a.report(err) // on the screen too, as the node's state
	}
	return views, nil
}

// awaitNodes waits until all nodes were tried, or until the rest is quiet.
func (a *app) awaitNodes(ctx context.Context, views []*nodeView) error {
	all := make(chan struct{})
	go func() {
		defer close(all)
		for _, n := range views {
			select {
			case <-n.ready:
			case <-ctx.Done():
			}
		}
	}()
	tick := time.NewTicker(openingQuiet / 30)
	defer tick.Stop()
	last, said := time.Now(), a.words.Load()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-all:
			return ctx.Err()
		case now := <-tick.C:
			asked := !a.asking.TryLock()
			if !asked {
				a.asking.Unlock()
			}
			if n := a.words.Load(); asked || n != said {
				last, said = now, n
			}
			if len(views) > 1 && now.Sub(last) >= openingQuiet {
				return nil
			}
		}
	}
}
