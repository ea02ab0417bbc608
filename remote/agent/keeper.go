package agent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"os/signal"
	"slices"
	"strconv"
	"syscall"
	"time"

	"pipedeck/pipeline"
	"pipedeck/remote/agent/wire"
)

// keeperEnv tells an agent its keeper's pid.
const keeperEnv = "PIPEDECK_KEEPER"

// TakeKeeper returns the pid of the keeper that started this process, 0 if none
// did, and takes it out of the environment, so that nothing that this process
// starts has it.
func TakeKeeper() int {
	pid, err := strconv.Atoi(os.Getenv(keeperEnv))
	_ = os.Unsetenv(keeperEnv) // fails for bad names only
	if err != nil {
		return 0
	}
	return pid
}

// KeeperOptions configure Keeper. AgentArgv and State are required.
type KeeperOptions struct {
	State wire.State
	// Exe is the program to start, /proc/self/exe if empty: the agent comes
	// back as the version that it was, also after an upgrade of the file.
	Exe       string
	AgentArgv []string // arguments after the program, such as "agent", "serve", …
	Env       []string // nil: this process's; kept in memory only
	Log       *slog.Logger
}

const (
	firstBackoff = 200 * time.Millisecond
	maxBackoff   = 30 * time.Second
	// endGrace is how long an agent may take to end when the keeper is told to.
	endGrace = 20 * time.Second
	// logMax is the size of agent.log that is rotated away at a start.
	logMax = 8 << 20
)

// Keeper starts an agent and starts it again whenever it ends, until the agent
// ends with ExitStopped, ctx ends, or SIGTERM or SIGINT comes; then it ends
// the agent first. An agent that refuses to start, by its exit code, would do
// so again: the keeper returns its Problem. One whose lock file is gone returns
// too; its agent looks after itself. SIGHUP is ignored. A second keeper of a
// deck returns nil at once and makes the first one stop waiting. Errors are
// *pipeline.Problem.
func Keeper(ctx context.Context, opts KeeperOptions) error {
	if opts.Log == nil {
		opts.Log = slog.New(slog.DiscardHandler)
	}
	if opts.Exe == "" {
		opts.Exe = "/proc/self/exe"
	}
	if err := PrepareStateDir(opts.State.Dir); err != nil {
		return err
	}
	lock, err := wire.TryLock(opts.State.KeeperLock())
	if errors.Is(err, wire.ErrHeld) {
		if err := wire.AskRetry(opts.State.KeeperLock()); err != nil {
			return pipeline.Problemf(pipeline.ProblemFailed, "", "cannot reach the keeper: %w", err)
		}
		return nil
	}
	if err != nil {
		return pipeline.Problemf(pipeline.ProblemFailed, "", "cannot keep the agent: %w", err)
	}
	defer func() { _ = lock.Release() }()

	// Caught, not ignored: an ignored signal would stay ignored in the agent.
	hup := make(chan os.Signal, 1)
	signal.Notify(hup, syscall.SIGHUP)
	defer signal.Stop(hup)
	ctx, cancel := signal.NotifyContext(ctx, syscall.SIGTERM, syscall.SIGINT)
	defer cancel()
	ctx, lose := context.WithCancelCause(ctx)
	defer lose(nil)
	go Guard(ctx, lock, func(p *pipeline.Problem) { lose(p) })
	k := &keeper{opts: opts, lock: lock, memory: &memory{}}
	k.mark(wire.LockStarting, 0)
	err = k.run(ctx)
	if p := lostLock(ctx); p != nil {
		return p
	}
	return err
}

// lostLock is the Problem of a keeper that ctx ended because its lock is gone.
func lostLock(ctx context.Context) *pipeline.Problem {
	p, _ := errors.AsType[*pipeline.Problem](context.Cause(ctx))
	return p
}

type keeper struct {
	opts   KeeperOptions
	lock   *wire.Lock
	memory *memory
}

// run is the keeper's loop: one agent after the other.
func (k *keeper) run(ctx context.Context) error {
	failures := 0
	for ctx.Err() == nil {
		stopped, err := k.waitForeign(ctx)
		if stopped || err != nil || over(ctx) {
			return err
		}
		k.mark(wire.LockKeeping, failures)
		end := k.runAgent(ctx)
		switch {
		case end.stopped:
			k.opts.Log.Info("agent stopped by request, keeper ends")
			return nil
		case end.refused != nil:
			k.opts.Log.Error("agent refuses, keeper ends", "how", end.how)
			k.mark(wire.LockRefused, end.code)
			return end.refused
		case end.reached:
			failures = 0
			k.opts.Log.Warn("agent ended, starting it again", "how", end.how)
			continue
		}
		failures++
		delay := min(firstBackoff<<min(failures-1, 10), maxBackoff)
		k.opts.Log.Error("agent ended before it answered", "how", end.how, "failures", failures, "next_in", delay)
		k.mark(wire.LockBackoff, failures)
		if k.waitBackoff(ctx, delay) {
			k.opts.Log.Info("keeper ends by request")
			return nil
		}
	}
	return nil
}

func over(ctx context.Context) bool { return ctx.Err() != nil }

func (k *keeper) mark(state wire.LockState, failures int) {
	if err := k.lock.Write(state, failures); err != nil {
		k.opts.Log.Warn("cannot write the keeper's lock", "error", err)
	}
}

// waitForeign waits while an agent that this keeper did not start holds the
// deck: one that lost its keeper. It says whether that agent was then stopped
// by request.
func (k *keeper) waitForeign(ctx context.Context) (stopped bool, err error) {
	path := k.opts.State.AgentLock()
	waited := false
	for {
		rec, held, err := wire.Held(path)
		if err != nil {
			return false, pipeline.Problemf(pipeline.ProblemFailed, "", "cannot look at %q: %w", path, err)
		}
		if !held {
			return waited && rec.State == wire.LockStopped, nil
		}
		if !waited {
			k.opts.Log.Info("keeping an agent that runs already", "pid", rec.PID)
			k.mark(wire.LockKeeping, 0)
		}
		waited = true
		if !sleep(ctx, 200*time.Millisecond) {
			return false, nil
		}
	}
}

// waitBackoff waits for the delay, ctx, or a sign from a command, which may be
// to end.
func (k *keeper) waitBackoff(ctx context.Context, delay time.Duration) (end bool) {
	path := k.opts.State.KeeperLock()
	before := modTime(path)
	for until := time.Now().Add(delay); time.Now().Before(until); {
		if now := modTime(path); !now.Equal(before) {
			return wire.EndAsked(now)
		}
		if !sleep(ctx, min(100*time.Millisecond, delay)) {
			return false
		}
	}
	return false
}

func modTime(path string) time.Time {
	info, err := os.Stat(path)
	if err != nil {
		return time.Time{}
	}
	return info.ModTime()
}

// sleep waits for d; it is false if ctx ended first.
func sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}

// ending is how an agent ended.
type ending struct {
	stopped bool              // by request: the keeper ends too
	reached bool              // it answered on its socket before
	refused *pipeline.Problem // it would end like that again
	code    int
	how     string
}

// runAgent starts one agent and waits for its end.
func (k *keeper) runAgent(ctx context.Context) ending {
	out, err := openLog(k.opts.State.Log())
	if err != nil {
		return ending{how: err.Error()}
	}
	defer func() { _ = out.Close() }()
	_ = os.Remove(k.opts.State.Refusal()) // an earlier agent's
	// endAgent ends it when ctx does, and not with a kill.
	cmd := exec.CommandContext(context.WithoutCancel(ctx), k.opts.Exe, k.opts.AgentArgv...)
	cmd.Args[0] = os.Args[0]
	env := k.opts.Env
	if env == nil {
		env = os.Environ()
	}
	// Told, not looked for: a keeper that is killed right now is lost, too.
	cmd.Env = append(slices.Clip(env), keeperEnv+"="+strconv.Itoa(os.Getpid()))
	cmd.Stdout, cmd.Stderr = out, out
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	vault, err := k.memory.connect()
	if err != nil {
		return ending{how: err.Error()}
	}
	cmd.ExtraFiles = []*os.File{vault} // its descriptor is the first after stderr
	cmd.Env = append(cmd.Env, vaultEnv+"=3")
	err = cmd.Start()
	_ = vault.Close() // the agent's end is the agent's alone
	if err != nil {
		return ending{how: err.Error()}
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	select {
	case err = <-ended:
	case <-ctx.Done():
		if lostLock(ctx) != nil {
			// It may be that only the keeper's file was removed.
			return ending{how: "left alone"}
		}
		err = endAgent(cmd.Process, ended)
	}
	code := cmd.ProcessState.ExitCode()
	rec := wire.ReadRecord(k.opts.State.AgentLock())
	mine := rec.PID == cmd.Process.Pid
	return ending{
		stopped: code == ExitStopped,
		refused: k.refusal(cmd.Process.Pid, code),
		code:    code,
		reached: mine && (rec.State == wire.LockReady || rec.State == wire.LockStopped),
		how:     describe(err),
	}
}

// refusal is what an agent that ended with a code of refusal said, nil for any
// other code and while another agent has the deck.
func (k *keeper) refusal(pid, code int) *pipeline.Problem {
	kind, ok := refusalKind(code)
	if !ok {
		return nil
	}
	path := k.opts.State.Refusal()
	if r := wire.ReadRefusal(path, pid); r != nil {
		if r.Held {
			return nil
		}
		return &r.Problem
	}
	p := pipeline.Problemf(kind, wire.LogHint(k.opts.State.Log(), 3), "cannot start the agent: it ended with exit code %d", code)
	_ = wire.WriteRefusal(path, p) // the code in the lock file tells the rest
	return p
}

// refusalKind is the kind of Problem that an exit code of DESIGN section 6
// stands for, where trying again cannot help.
func refusalKind(code int) (pipeline.ProblemKind, bool) {
	switch code {
	case 64:
		return pipeline.ProblemUsage, true
	case 75:
		return pipeline.ProblemRefused, true
	}
	return "", false
}

// endAgent forwards the keeper's own end. The workers are not its children's
// concern: they live on.
func endAgent(process *os.Process, ended <-chan error) error {
	_ = process.Signal(syscall.SIGTERM)
	timer := time.NewTimer(endGrace)
	defer timer.Stop()
	select {
	case err := <-ended:
		return err
	case <-timer.C:
		_ = process.Kill()
		return <-ended
	}
}

func describe(err error) string {
	if err == nil {
		return "exit status 0"
	}
	return err.Error()
}

// openLog opens agent.log for appending, after moving a large one to
// agent.log.1.
func openLog(path string) (*os.File, error) {
	if info, err := os.Stat(path); err == nil && info.Size() > logMax {
		if err := os.Rename(path, path+".1"); err != nil {
			return nil, fmt.Errorf("cannot rotate %q: %w", path, err)
		}
	}
	return os.OpenFile(path, os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o600)
}
