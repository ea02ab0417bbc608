package agent

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"syscall"
	"time"

	"pipedeck/pipeline"
	"pipedeck/remote/agent/wire"
)

// SpawnOptions say how to start a keeper. State and Argv are required.
type SpawnOptions struct {
	State wire.State
	Exe   string   // the program; /proc/self/exe if empty
	Argv  []string // arguments after the program, such as "agent", "keep", …
	Dir   string   // working directory, the deck's workdir
	Env   []string // nil: this process's
}

// Spawn starts a keeper in a session of its own, with nothing open that the
// caller has open, and returns once that holds the deck or found that another
// keeper does: two at once are harmless, and none comes up late, after a stop.
// Errors are *pipeline.Problem.
func Spawn(ctx context.Context, opts SpawnOptions) error {
	if err := ctx.Err(); err != nil {
		return pipeline.Problemf(pipeline.ProblemUnreachable, "", "cannot start the agent: %w", err)
	}
	if err := PrepareStateDir(opts.State.Dir); err != nil {
		return err
	}
	out, err := openLog(opts.State.Log())
	if err != nil {
		return pipeline.Problemf(pipeline.ProblemFailed, stateHint, "cannot start the agent: %w", err)
	}
	defer func() { _ = out.Close() }()
	exe := opts.Exe
	if exe == "" {
		exe = "/proc/self/exe"
	}
	closeOnExec()
	cmd := exec.CommandContext(context.WithoutCancel(ctx), exe, opts.Argv...)
	cmd.Args[0] = os.Args[0]
	cmd.Dir, cmd.Env = opts.Dir, opts.Env
	cmd.Stdout, cmd.Stderr = out, out
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		return pipeline.Problemf(pipeline.ProblemFailed, "", "cannot start the agent: %w", err)
	}
	// A console that stays must not keep the zombie of a keeper that ended.
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	return awaitKeeper(ctx, opts.State, cmd.Process.Pid, ended)
}

// keeperEnded is what a keeper that ended before it held the deck said.
func keeperEnded(state wire.State, pid int, err error) error {
	if r := wire.ReadRefusal(state.Refusal(), pid); r != nil {
		return &r.Problem
	}
	kind := pipeline.ProblemFailed
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		if refused, ok := refusalKind(exit.ExitCode()); ok {
			kind = refused
		}
	}
	return pipeline.Problemf(kind, wire.LogHint(state.Log(), 1), "cannot start the agent: its keeper ended: %w", err)
}

// awaitKeeper returns when the keeper has written itself into its lock, or
// has ended.
func awaitKeeper(ctx context.Context, state wire.State, pid int, ended <-chan error) error {
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for wire.ReadRecord(state.KeeperLock()).PID != pid {
		select {
		case err := <-ended:
			if err == nil {
				return nil
			}
			return keeperEnded(state, pid, err)
		case <-ctx.Done():
			return pipeline.Problemf(pipeline.ProblemUnreachable, "", "cannot start the agent: its keeper is not up yet: %w", ctx.Err())
		case <-tick.C:
		}
	}
	return nil
}
