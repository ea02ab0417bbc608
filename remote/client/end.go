package client

import (
	"context"
	"errors"
	"io/fs"
	"time"

	"pipedeck/pipeline"
	"pipedeck/remote/agent/wire"
)

// End ends the agent and the keeper of a deck on this machine and returns when
// both processes have given up their locks; workers live on. It says whether
// there was anything to end. An agent that is just starting is waited for, a
// keeper whose agents die at start ends too.
func End(ctx context.Context, state wire.State) (ran bool, err error) {
	told := "" // the instance that was told to stop
	for {
		alive, err := anyHeld(state)
		if err != nil {
			return ran, pipeline.Problemf(pipeline.ProblemUnreachable, "", "cannot see whether an agent runs: %w", err)
		}
		if !alive {
			return ran, nil
		}
		ran = true
		if told, err = tellStop(ctx, state, told); err != nil {
			return ran, err
		}
		if ctx.Err() != nil {
			return ran, pipeline.Problemf(pipeline.ProblemUnreachable, "`pipedeck agent status` shows whether it still answers",
				"cannot see the agent end: %w", ctx.Err())
		}
		pause(ctx, 20*time.Millisecond)
	}
}

func anyHeld(state wire.State) (bool, error) {
	_, agent, err1 := wire.Held(state.AgentLock())
	_, keeper, err2 := wire.Held(state.KeeperLock())
	return agent || keeper, errors.Join(err1, err2)
}

// tellStop tells whoever is there to end, an agent only once. A version that
// differs is no reason not to: stop is the same in all of them.
func tellStop(ctx context.Context, state wire.State, told string) (string, error) {
	c := newClient(state.Socket(), wire.Current(), unixDialer(state.Socket()))
	defer c.Close()
	hello, err := c.Hello(ctx)
	switch {
	case errors.Is(err, ErrNoAgent):
		if err := wire.AskEnd(state.KeeperLock()); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return told, pipeline.Problemf(pipeline.ProblemFailed, "", "cannot reach the keeper: %w", err)
		}
		return told, nil
	case errors.Is(err, ErrLink), err == nil && hello.Instance == told:
		return told, nil // it is ending
	case err != nil && !errors.Is(err, ErrVersion):
		return told, err
	}
	err = c.postStop(ctx, &hello)
	if errors.Is(err, ErrLink) || errors.Is(err, ErrNoAgent) {
		return told, nil // it ended meanwhile, or will be told again
	}
	return hello.Instance, err
}
