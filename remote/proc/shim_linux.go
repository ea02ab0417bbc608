package proc

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"pipedeck/pipeline"
	"pipedeck/remote/logs"
)

// Descriptors that Host.Start hands to the shim.
const (
	fdLock  = 3 // RUNDIR/shim.lock, locked
	fdReady = 4 // closed once the start is recorded
	fdSlots = 5 // GPU slot locks, locked, in the order of the launch's GPUs
)

// housekeeping is how often a shim looks at log size and OOM counter.
const housekeeping = time.Second

// ShimMain runs one worker: it records who was started, waits, records how it
// ended, and reaps its descendants until none is left. It returns the exit
// code of the shim itself. Only Host.Start can start it: it needs its locks.
func ShimMain(runDir string) int {
	return shimMain(runDir, nil)
}

func shimMain(runDir string, point hook) int {
	s := &shim{dir: runDir, log: slog.New(slog.NewTextHandler(os.Stderr, nil)), point: point}
	if err := s.run(); err != nil {
		s.log.Error("shim ends", "err", err)
		return 1
	}
	return 0
}

type shim struct {
	dir    string
	log    *slog.Logger
	rec    runRecord
	leader int
	oom    *oomWatch
	saidAt int64 // where the worker's part of its log begins
	stop   chan struct{}
	point  hook
}

func (s *shim) run() error {
	catchSignals()
	if err := readRecord(filepath.Join(s.dir, runFile), &s.rec); err != nil {
		return fmt.Errorf("cannot read intent: %w", err)
	}
	s.point.at(shimIntent)
	slots, err := s.inherited()
	if err != nil {
		return err
	}
	// Orphans of the worker come to this process instead of to PID 1, which
	// in many containers never reaps.
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("cannot become subreaper: %w", err)
	}
	s.oom = newOOMWatch()
	s.saidAt = sizeOf(s.rec.Launch.Log)
	if err := s.start(slots); err != nil {
		rec := exitRecord{Exit: pipeline.Exit{At: now()}, NoExec: err.Error()}
		return errors.Join(s.write(exitFile, rec), s.write(reapedFile, now()))
	}
	unix.Close(fdReady)
	s.stop = make(chan struct{})
	go s.keepHouse()
	defer close(s.stop)
	return s.reap()
}

// catchSignals makes the shim deaf. Caught, not ignored: ignored signals would
// stay ignored in the worker.
func catchSignals() {
	c := make(chan os.Signal, 1)
	signal.Notify(c, unix.SIGHUP, unix.SIGINT, unix.SIGQUIT, unix.SIGTERM,
		unix.SIGPIPE, unix.SIGUSR1, unix.SIGUSR2)
	go func() {
		for range c {
		}
	}()
}

// inherited takes over the descriptors from Host.Start. Only the slot locks go
// on to the worker: the slot stays taken while anything that could hold GPU
// memory lives, also after a kill of the shim.
func (s *shim) inherited() ([]*os.File, error) {
	for _, fd := range []int{fdLock, fdReady} {
		if _, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0); err != nil {
			return nil, fmt.Errorf("descriptor %d is missing: the shim is started by the agent only", fd)
		}
		unix.CloseOnExec(fd)
	}
	if err := unix.Flock(fdLock, unix.LOCK_EX|unix.LOCK_NB); err != nil {
		return nil, fmt.Errorf("cannot lock run directory: %w", err)
	}
	slots := make([]*os.File, len(s.rec.Launch.GPUs))
	for i := range slots {
		fd := fdSlots + i
		unix.CloseOnExec(fd)
		slots[i] = os.NewFile(uintptr(fd), "slot")
	}
	return slots, nil
}

// start execs the worker in a session of its own and records it.
func (s *shim) start(slots []*os.File) error {
	l := s.rec.Launch
	env := mergeEnv(mergeEnv(os.Environ(), "PWD="+l.Dir), l.Env...)
	env = mergeEnv(env, marks(l, s.rec.DeckID)...)
	exe, err := lookPath(l.Argv[0], l.Dir, envValue(env, "PATH"))
	if err != nil {
		return err
	}
	null, err := os.Open(os.DevNull)
	if err != nil {
		return fmt.Errorf("cannot open %q: %w", os.DevNull, err)
	}
	defer null.Close()
	out, err := os.OpenFile(l.Log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o640)
	if err != nil {
		return fmt.Errorf("cannot open log: %w", err)
	}
	defer out.Close()
	p, err := os.StartProcess(exe, l.Argv, &os.ProcAttr{
		Dir: l.Dir, Env: env,
		Files: append([]*os.File{null, out, out}, slots...),
		Sys:   &syscall.SysProcAttr{Setsid: true},
	})
	if err != nil {
		return fmt.Errorf("cannot start %q: %w", l.Argv[0], errors.Unwrap(err))
	}
	s.leader = p.Pid
	s.point.at(shimForked)
	_ = p.Release() // reap waits for every child at once
	s.recordStart()
	return nil
}

// marks are the variables that tie a process to its launch.
func marks(l pipeline.Launch, deckID string) []string {
	return []string{
		EnvRun + "=" + l.Deck + "/" + l.Run,
		EnvLaunch + "=" + l.ID,
		EnvDeckID + "=" + deckID,
	}
}

// recordStart writes who was started. The worker is not waited for yet, so its
// pid can not have been given to another process.
func (s *shim) recordStart() {
	proc := procFS{root: "/proc"}
	rec := startedRecord{BootID: s.rec.BootID, SID: s.leader, At: now()}
	worker, err := proc.stat(s.leader)
	if err == nil {
		rec.Worker = identity{PID: worker.PID, Ticks: worker.Ticks}
		rec.PIDNS, err = proc.pidNS()
	}
	if err == nil {
		var self procStat
		self, err = proc.stat(os.Getpid())
		rec.Shim = identity{PID: self.PID, Ticks: self.Ticks}
	}
	if err == nil {
		err = s.writeAt(startedFile, rec, shimStartedTmp)
	}
	s.point.at(shimStarted)
	if err != nil {
		// It runs all the same and is found by its environment.
		s.log.Error("cannot record start", "err", err)
	}
}

// reap waits for the leader and for everything it left behind.
func (s *shim) reap() error {
	for {
		var status unix.WaitStatus
		pid, err := unix.Wait4(-1, &status, 0, nil)
		switch {
		case errors.Is(err, unix.EINTR):
			continue
		case errors.Is(err, unix.ECHILD):
			err := s.writeAt(reapedFile, now(), shimReapedTmp)
			s.point.at(shimReaped)
			return err
		case err != nil:
			return fmt.Errorf("cannot wait for children: %w", err)
		}
		if pid != s.leader {
			continue
		}
		s.point.at(shimExited)
		if err := s.writeUntilDone(exitFile, exitRecord{Exit: s.exitOf(status)}); err != nil {
			return err
		}
		s.point.at(shimExitKept)
	}
}

func (s *shim) exitOf(status unix.WaitStatus) pipeline.Exit {
	code := status.ExitStatus()
	exit := pipeline.Exit{At: now()}
	if status.Signaled() {
		code = 128 + int(status.Signal())
		exit.Signal = unix.SignalName(status.Signal())
	}
	exit.Code = &code
	exit.OOM = code != 0 && s.oom.rose()
	if code != 0 && !exit.OOM {
		exit.Said = saidOutOfMemory(s.rec.Launch.Log, s.saidAt)
		exit.OOM = exit.Said != ""
	}
	return exit
}

// writeUntilDone keeps trying for a minute: a full disk drains itself, and the
// exit code exists nowhere else.
func (s *shim) writeUntilDone(name string, v any) error {
	deadline := time.Now().Add(time.Minute)
	for {
		err := s.writeAt(name, v, shimExitTmp)
		if err == nil || time.Now().After(deadline) {
			return err
		}
		if _, gone := os.Stat(s.dir); errors.Is(gone, fs.ErrNotExist) {
			return err // nobody can ask any more
		}
		time.Sleep(housekeeping)
	}
}

func (s *shim) write(name string, v any) error {
	return writeRecord(filepath.Join(s.dir, name), v)
}

// writeAt is write with a point before the record is put in place.
func (s *shim) writeAt(name string, v any, p point) error {
	return writeBound(filepath.Join(s.dir, name), func(origin) any { return v }, func() { s.point.at(p) })
}

// keepHouse rotates the log and follows the OOM counter.
func (s *shim) keepHouse() {
	tick := time.NewTicker(housekeeping)
	defer tick.Stop()
	for {
		select {
		case <-s.stop:
			return
		case <-tick.C:
		}
		s.oom.sample()
		l := s.rec.Launch
		if _, err := logs.Rotate(l.Log, l.LogMaxBytes, l.LogKeep); err != nil {
			s.log.Warn("log not rotated", "err", err)
		}
	}
}

// lookPath finds a command in the PATH of the worker, not of the shim.
func lookPath(file, dir, path string) (string, error) {
	if strings.Contains(file, "/") {
		if !filepath.IsAbs(file) {
			file = filepath.Join(dir, file)
		}
		return file, executable(file)
	}
	for _, d := range filepath.SplitList(path) {
		if !filepath.IsAbs(d) {
			d = filepath.Join(dir, d)
		}
		if full := filepath.Join(d, file); executable(full) == nil {
			return full, nil
		}
	}
	return "", fmt.Errorf("cannot find %q in PATH %q", file, path)
}

func executable(path string) error {
	info, err := os.Stat(path)
	if err != nil {
		return fmt.Errorf("cannot start %q: %w", path, errors.Unwrap(err))
	}
	if info.IsDir() || info.Mode().Perm()&0o111 == 0 {
		return fmt.Errorf("cannot start %q: not an executable file", path)
	}
	return nil
}
