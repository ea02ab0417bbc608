package proc

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"pipedeck/pipeline"
)

var _ pipeline.Runner = (*Host)(nil)

const (
	tailBytes = 4 << 10
	runWait   = 5 * time.Second // for output pipes that a descendant keeps open
)

// Run implements pipeline.Runner. The command runs in a process group of its
// own, in the environment that workers get, and reads nothing. When ctx ends
// the group is killed.
func (h *Host) Run(ctx context.Context, dir string, argv []string) (pipeline.Ran, error) {
	if len(argv) == 0 || argv[0] == "" {
		return pipeline.Ran{}, errors.New("cannot run: empty command")
	}
	env := mergeEnv(CleanEnv(h.opt.BaseEnv), "PWD="+dir)
	exe, err := lookPath(argv[0], dir, envValue(env, "PATH"))
	if err != nil {
		return pipeline.Ran{}, err
	}
	var out tail
	cmd := exec.CommandContext(ctx, exe, argv[1:]...)
	cmd.Args[0] = argv[0]
	cmd.Dir, cmd.Env = dir, env
	cmd.Stdout, cmd.Stderr = &out, &out
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.WaitDelay = runWait
	var leader identity
	known := make(chan struct{})
	cmd.Cancel = func() error {
		<-known
		h.killGroup(leader)
		return nil
	}
	if err := cmd.Start(); err != nil {
		return pipeline.Ran{}, fmt.Errorf("cannot run %q: %w", argv[0], err)
	}
	if s, err := h.fs.stat(cmd.Process.Pid); err == nil { // not waited for yet: it is this one
		leader = identity{PID: s.PID, Ticks: s.Ticks}
	}
	close(known)
	err = cmd.Wait()
	if ctx.Err() != nil {
		h.killGroup(leader)
		return pipeline.Ran{Code: -1, Tail: out.String()}, fmt.Errorf("cannot wait for %q: %w", argv[0], context.Cause(ctx))
	}
	ran := pipeline.Ran{Code: cmd.ProcessState.ExitCode(), Tail: out.String()}
	if ws, ok := cmd.ProcessState.Sys().(syscall.WaitStatus); ok && ws.Signaled() {
		ran.Code = 128 + int(ws.Signal())
	}
	if _, ended := errors.AsType[*exec.ExitError](err); err != nil && !ended && !errors.Is(err, exec.ErrWaitDelay) {
		return ran, fmt.Errorf("cannot run %q: %w", argv[0], err)
	}
	return ran, nil
}

// killGroup ends a process group, each process by its identity. A process that
// has the leader's number and is not the leader shows that the group is gone.
func (h *Host) killGroup(leader identity) {
	if leader.PID <= 1 {
		return
	}
	for range signalRounds {
		procs, err := h.fs.all()
		if err != nil {
			return
		}
		if s, ok := procs[leader.PID]; ok && !s.is(leader) {
			return
		}
		left := false
		for _, s := range procs {
			if s.PGID == leader.PID && s.Ticks >= leader.Ticks && !s.dead() {
				_, sent := h.send(identity{PID: s.PID, Ticks: s.Ticks}, unix.SIGKILL)
				left = left || sent
			}
		}
		if !left {
			return
		}
		time.Sleep(signalPause)
	}
}

// tail keeps the end of what is written to it.
type tail struct {
	mu   sync.Mutex
	data []byte
}

func (t *tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.data = append(t.data, p[max(0, len(p)-tailBytes):]...)
	if extra := len(t.data) - tailBytes; extra > 0 {
		t.data = append(t.data[:0], t.data[extra:]...)
	}
	return len(p), nil
}

func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return string(t.data)
}
