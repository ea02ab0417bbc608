package proc

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"pipedeck/pipeline"
)

// spawn starts the shim in a session of its own, hands it the locks and waits
// until it has recorded the start of the worker or its failure.
func (h *Host) spawn(ctx context.Context, dir string, lock *os.File, slots []*os.File) error {
	ready, readyW, err := os.Pipe()
	if err != nil {
		return fmt.Errorf("cannot make pipe: %w", err)
	}
	defer ready.Close()
	defer readyW.Close()
	logFile, err := os.OpenFile(filepath.Join(dir, "shim.log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("cannot open shim log: %w", err)
	}
	defer logFile.Close()

	argv := append(append([]string{}, h.opt.ShimArgv...), "--dir", dir)
	// The shim outlives the request and the agent.
	cmd := exec.CommandContext(context.WithoutCancel(ctx), argv[0], argv[1:]...)
	cmd.Dir = "/"
	cmd.Env = CleanEnv(h.opt.BaseEnv)
	cmd.Stdout, cmd.Stderr = logFile, logFile
	cmd.ExtraFiles = append([]*os.File{lock, readyW}, slots...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		rec := exitRecord{Exit: pipeline.Exit{At: now()}, NoExec: "cannot start shim: " + err.Error()}
		return errors.Join(fmt.Errorf("cannot start shim: %w", err), writeRecord(filepath.Join(dir, exitFile), rec))
	}
	h.at(startSpawned)
	// The shim is a child of the agent until the agent ends.
	go func() { _ = cmd.Wait() }()
	readyW.Close()
	if err := awaitEOF(ctx, ready); err != nil {
		return fmt.Errorf("cannot see launch start: %w", err)
	}
	return checkStarted(dir)
}

func awaitEOF(ctx context.Context, r *os.File) error {
	stop := context.AfterFunc(ctx, func() { r.Close() })
	defer stop()
	_, err := io.Copy(io.Discard, r)
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return err
}

func checkStarted(dir string) error {
	for _, name := range []string{startedFile, exitFile} {
		_, err := os.Stat(filepath.Join(dir, name))
		if err == nil {
			return nil
		}
		if !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("cannot read launch: %w", err)
		}
	}
	said, _ := os.ReadFile(filepath.Join(dir, "shim.log"))
	return fmt.Errorf("cannot start worker: the shim recorded nothing; it said: %q", strings.TrimSpace(string(said)))
}

func flock(f *os.File) error {
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		return fmt.Errorf("cannot lock %q: %w", f.Name(), err)
	}
	return nil
}

// locked says whether the shim of a run directory lives: only it holds the
// lock, and the kernel releases it with its last thread.
func locked(dir string) bool {
	f, err := os.Open(filepath.Join(dir, lockFile))
	if err != nil {
		return false
	}
	defer f.Close()
	return errors.Is(unix.Flock(int(f.Fd()), unix.LOCK_SH|unix.LOCK_NB), unix.EWOULDBLOCK)
}
