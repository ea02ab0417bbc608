package client

import (
	"context"
	"errors"
	"time"

	"pipedeck/pipeline"
	"pipedeck/remote/agent/wire"
)

// EnsureOptions configure Ensure. State and Spawn are required.
type EnsureOptions struct {
	State wire.State // of the deck, on this machine
	// Spawn starts a keeper that starts the agent. It may be called when one
	// is already there, and then changes nothing.
	Spawn func(ctx context.Context) error
	Wait  time.Duration // for an agent that is coming; 0: 5 s
}

// Ensure connects to the deck's agent, and starts one if none answers. When
// none comes up in time, the Problem carries the last lines of agent.log.
func Ensure(ctx context.Context, opts EnsureOptions) (*Client, error) {
	if opts.Wait == 0 {
		opts.Wait = 5 * time.Second
	}
	c, err := Dial(ctx, opts.State.Socket())
	if err == nil && c.first.KeeperLost {
		// The agent works, but nobody would start it again.
		if err := opts.Spawn(ctx); err != nil {
			c.Close()
			return nil, err
		}
	}
	if err == nil || !errors.Is(err, ErrNoAgent) && !Died(err) {
		return c, err
	}
	wait, cancel := context.WithTimeout(ctx, opts.Wait)
	defer cancel()
	if err := opts.Spawn(wait); err != nil && wait.Err() == nil {
		return nil, err
	}
	return await(ctx, wait, opts)
}

// await polls the socket until it answers, the keeper reports that its agents
// die at start, or wait ends.
func await(ctx, wait context.Context, opts EnsureOptions) (*Client, error) {
	for {
		c, err := Dial(wait, opts.State.Socket())
		if err == nil || errors.Is(err, ErrVersion) || errors.Is(err, ErrDenied) {
			return c, err
		}
		if ctx.Err() != nil {
			return nil, transportProblem(opts.State.Socket(), ctx.Err())
		}
		if wait.Err() != nil {
			return nil, startProblem(opts, "cannot start the agent: it does not answer after %s", opts.Wait)
		}
		rec, held, err := wire.Held(opts.State.KeeperLock())
		switch {
		case err != nil:
		case !held && rec.State == wire.LockRefused:
			return nil, refusal(opts.State, rec)
		case !held:
			// The keeper that Spawn found was ending with its agent.
			if err := opts.Spawn(wait); err != nil && wait.Err() == nil {
				return nil, err
			}
		case rec.State == wire.LockBackoff && rec.Count > 1:
			// Once may be chance, such as a lock that was just being given up.
			return nil, startProblem(opts, "cannot start the agent: it ends before it answers (%s)", pipeline.Counted(rec.Count, "time", "times"))
		}
		pause(wait, 10*time.Millisecond)
	}
}

// refusal is what the agent said that no keeper will start again.
func refusal(state wire.State, rec wire.Record) *pipeline.Problem {
	if r := wire.ReadRefusal(state.Refusal(), 0); r != nil {
		return &r.Problem
	}
	kind := pipeline.ProblemRefused
	if rec.Count == 64 {
		kind = pipeline.ProblemUsage
	}
	return pipeline.Problemf(kind, wire.LogHint(state.Log(), 5), "cannot start the agent: it ended with exit code %d", rec.Count)
}

func startProblem(opts EnsureOptions, format string, args ...any) error {
	return unreachable(wire.LogHint(opts.State.Log(), 5), ErrNoAgent, format, args...)
}
