package agent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	"pipedeck/pipeline"
	"pipedeck/remote/agent/wire"
)

// Options configure Serve. SocketPath, LockPath and Deck are required.
type Options struct {
	SocketPath string // see SocketPath
	LockPath   string // agent.lock in the state directory
	// Lock is the agent lock if the caller took it already with AcquireLock,
	// which it should before it opens the ledger. The caller then releases it
	// after all else is closed, or leaves that to the end of the process.
	Lock   *wire.Lock
	Deck   pipeline.Deck
	Info   pipeline.AgentInfo
	Keeper int // what TakeKeeper returned
	// DeckName, Run and Node are for hello.
	DeckName, Run, Node string
	Proto               wire.Proto // zero: the range of this build
	Features            []string
	// Credentials take what a client hands over; nil where nothing may be.
	Credentials CredentialTaker
	// OnStop is called once, when a client told the agent to end, before
	// Serve returns ErrStopped.
	OnStop func()
	Log    *slog.Logger // nil: discarded
}

// ExitStopped is the exit code of an agent that ended because it was told to:
// its keeper ends too. Any other end makes the keeper start an agent again.
const ExitStopped = 83

// ErrStopped is what Serve returns after a client's stop. The process must end
// with ExitStopped.
var ErrStopped = errors.New("stopped by request")

// shutdownGrace bounds how long open requests may hold up the end.
const shutdownGrace = 2 * time.Second

// SocketPath is wire.SocketPath: where the agent of a state directory listens.
func SocketPath(stateDir string) string { return wire.SocketPath(stateDir) }

// AcquireLock takes the lock that only one agent of a deck can hold. The
// error is a *pipeline.Problem; refused names the process that has it.
func AcquireLock(path string) (*wire.Lock, error) {
	lock, err := wire.TryLock(path)
	if errors.Is(err, wire.ErrHeld) {
		return nil, pipeline.Problemf(pipeline.ProblemRefused,
			"another agent of this deck runs; `pipedeck agent status` shows it, `pipedeck agent stop` ends it",
			"cannot start the agent: %q is held by process %d: %w", path, wire.ReadRecord(path).PID, err)
	}
	if err != nil {
		return nil, pipeline.Problemf(pipeline.ProblemFailed, "", "cannot start the agent: %w", err)
	}
	if err := lock.Write(wire.LockStarting, 0); err != nil {
		_ = lock.Release()
		return nil, pipeline.Problemf(pipeline.ProblemFailed, "is the disk of the state directory full?",
			"cannot write %q: %w", path, err)
	}
	return lock, nil
}

// Serve answers for the deck until ctx ends (nil), a client says stop
// (ErrStopped) or the socket fails. Open requests are cut off at the end;
// what the deck does goes on as the deck decides. Start-up errors are
// *pipeline.Problem.
func Serve(ctx context.Context, opts Options) error {
	s, err := newServer(opts)
	if err != nil {
		return err
	}
	if opts.Lock == nil {
		defer func() { _ = s.lock.Release() }()
	}
	listener, err := listen(opts.SocketPath)
	if err != nil {
		return err
	}
	if err := s.lock.Write(wire.LockReady, 0); err != nil {
		s.log.Warn("cannot mark the lock", "error", err)
	}
	life, cancel := context.WithCancel(ctx)
	defer cancel()
	h := &http.Server{
		Handler:           s.handler(),
		ReadHeaderTimeout: 5 * time.Second,
		IdleTimeout:       2 * time.Minute,
		MaxHeaderBytes:    64 << 10,
		BaseContext:       func(net.Listener) context.Context { return life },
		ConnContext:       s.connContext,
		ErrorLog:          slog.NewLogLogger(s.log.Handler(), slog.LevelWarn),
	}
	// Over SSH all requests share one channel, which HTTP/1 would take for one at a time.
	h.Protocols = new(http.Protocols)
	h.Protocols.SetHTTP1(true)
	h.Protocols.SetUnencryptedHTTP2(true)
	ended := make(chan error, 1)
	go func() { ended <- h.Serve(listener) }()
	s.log.Info("agent serves", "socket", opts.SocketPath, "pid", os.Getpid())

	var result error
	select {
	case <-ctx.Done():
	case <-s.stop:
		result = ErrStopped
	case err := <-ended:
		return fmt.Errorf("cannot serve %q: %w", opts.SocketPath, err)
	}
	cancel()
	s.finish(context.WithoutCancel(ctx), h, opts, result)
	return result
}

// finish ends the server while the lock is still held.
func (s *server) finish(ctx context.Context, h *http.Server, opts Options, result error) {
	if errors.Is(result, ErrStopped) {
		if opts.OnStop != nil {
			opts.OnStop()
		}
		if err := s.lock.Write(wire.LockStopped, 0); err != nil {
			s.log.Warn("cannot mark the lock", "error", err)
		}
	}
	grace, done := context.WithTimeout(ctx, shutdownGrace)
	defer done()
	if err := h.Shutdown(grace); err != nil {
		_ = h.Close()
	}
	removeShortDir(opts.SocketPath)
}

// removeShortDir removes the folder that exists only for a short socket path.
func removeShortDir(socket string) {
	if dir := filepath.Dir(socket); strings.HasPrefix(filepath.Base(dir), "pipedeck-") {
		_ = os.Remove(dir)
	}
}

func newServer(opts Options) (*server, error) {
	if opts.Log == nil {
		opts.Log = slog.New(slog.DiscardHandler)
	}
	if opts.Proto == (wire.Proto{}) {
		opts.Proto = wire.Current()
	}
	lock := opts.Lock
	if lock == nil {
		if err := PrepareStateDir(filepath.Dir(opts.LockPath)); err != nil {
			return nil, err
		}
		var err error
		if lock, err = AcquireLock(opts.LockPath); err != nil {
			return nil, err
		}
	}
	return &server{
		deck: opts.Deck, log: opts.Log, lock: lock,
		hello:  helloOf(opts),
		creds:  opts.Credentials,
		keeper: opts.Keeper,
		keys:   newKeyCache(256),
		stop:   make(chan struct{}),
		peer:   wire.PeerUID,
	}, nil
}

func helloOf(opts Options) wire.Hello {
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		boot = nil
	}
	return wire.Hello{
		Version: opts.Info.Version, Instance: opts.Info.Instance, PID: opts.Info.PID,
		StartedAt: opts.Info.StartedAt, SpecHash: opts.Info.SpecHash,
		BootID: strings.TrimSpace(string(boot)),
		Proto:  opts.Proto, Features: append([]string{}, opts.Features...),
		Deck: opts.DeckName, Run: opts.Run, Node: opts.Node,
	}
}
