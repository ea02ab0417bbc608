package main

import (
	"context"
	"time"

	"pipedeck/remote/agent/wire"
	"pipedeck/remote/client"
)

// reach is how this invocation gets at the agent of a node: on this machine, or
// over SSH.
type reach interface {
	// dial connects to an agent that runs.
	dial(ctx context.Context) (*client.Client, error)
	// ensure connects, and installs and starts what is not there.
	ensure(ctx context.Context) (*client.Client, error)
	// back says that an agent that does not answer is on its way back.
	back(ctx context.Context) bool
	// end ends agent and keeper; workers live on.
	end(ctx context.Context) (ended, error)
	// alone is called before something else takes the terminal: nobody can be
	// asked any more.
	alone()
}

// ended is what the end of an agent left.
type ended struct {
	Ran    bool     `json:"ran"` // there was something to end
	Living []string `json:"living"`
	// Unseen is why it is not known which workers live.
	Unseen string `json:"unseen,omitempty"`
}

// reach returns the way to the node of a spec, the same each time.
func (a *app) reach(s specFile) (reach, error) {
	if s.node.SSH == "" {
		return here{a: a, s: s}, nil
	}
	return a.overSSH(s)
}

// here is the machine that this process runs on.
type here struct {
	a *app
	s specFile
}

func (h here) state() wire.State { return wire.State{Dir: h.s.StateDir} }

func (h here) dial(ctx context.Context) (*client.Client, error) {
	return client.Dial(ctx, h.state().Socket())
}

func (h here) ensure(ctx context.Context) (*client.Client, error) {
	return client.Ensure(ctx, client.EnsureOptions{
		State: h.state(), Wait: startWait,
		Spawn: func(ctx context.Context) error { return h.a.spawn(ctx, h.s, nil) },
	})
}

func (h here) back(context.Context) bool {
	_, kept, err := wire.Held(h.state().KeeperLock())
	return err == nil && kept
}

func (h here) end(ctx context.Context) (ended, error) {
	ran, err := client.End(ctx, h.state())
	if err != nil {
		return ended{}, err
	}
	e := ended{Ran: ran}
	// The processes themselves are asked: the agent may not have answered.
	if e.Living, err = livingWorkers(ctx, h.s.StateDir); err != nil {
		e.Unseen = err.Error()
	}
	return e, nil
}

func (here) alone() {}

// comingBack is how long a command waits for an agent that its keeper is
// starting again.
const comingBack = 5 * time.Second

// running connects to the agent without starting one. If a keeper lives, its
// agent is on its way back.
func (a *app) running(ctx context.Context, s specFile) (*client.Client, error) {
	r, err := a.reach(s)
	if err != nil {
		return nil, err
	}
	c, err := r.dial(ctx)
	if err == nil {
		return c, nil
	}
	ctx, cancel := context.WithTimeout(ctx, comingBack)
	defer cancel()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for r.back(ctx) {
		select {
		case <-ctx.Done():
			return nil, err
		case <-tick.C:
		}
		if c, err = r.dial(ctx); err == nil {
			return c, nil
		}
	}
	return nil, err
}
