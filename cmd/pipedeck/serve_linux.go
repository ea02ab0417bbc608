package main

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	mathrand "math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"golang.org/x/sys/unix"

	"pipedeck/gpu"
	"pipedeck/pipeline"
	"pipedeck/pipeline/deck"
	"pipedeck/remote/agent"
	"pipedeck/remote/agent/wire"
	"pipedeck/remote/journal"
	"pipedeck/remote/logs"
	"pipedeck/remote/proc"
	"pipedeck/s3/local"
	"pipedeck/s3/store"
)

func shimMain(dir string) int { return proc.ShimMain(dir) }

// killPatience bounds killRecorded: a busy machine takes seconds to bring up a
// shim that the agent had begun to start.
const killPatience = 10 * time.Second

// killRecorded ends every worker that a run directory records, with all its
// descendants, those too that are only just starting. Only the demo does that,
// to its own, when no agent can start another.
func killRecorded(ctx context.Context, runs string) {
	ctx, cancel := context.WithTimeout(ctx, killPatience)
	defer cancel()
	host := proc.New(proc.Options{RunsDir: runs})
	defer func() { _ = host.Close() }()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		seen, err := host.Observe(ctx)
		if err != nil {
			return // nothing was recorded
		}
		left := 0
		for _, l := range seen {
			if l.State == pipeline.ProcRunning || l.State == pipeline.ProcIntended || l.Stragglers > 0 {
				left++
				_, _ = host.Signal(ctx, l.ID, "SIGKILL", pipeline.ToSet) // gone already is as good
			}
		}
		if left == 0 {
			return
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// serve wires the agent of one deck and runs it until it is told to end.
func (a *app) serve(ctx context.Context, s specFile, f agentFlags) error {
	log := slog.New(slog.NewTextHandler(a.err, nil))
	keeper, vault := agent.TakeKeeper(), agent.TakeVault() // before anything takes the environment
	state := wire.State{Dir: s.StateDir}
	if err := agent.PrepareStateDir(s.StateDir); err != nil {
		return err
	}
	// The lock comes before everything that it protects.
	lock, err := agent.AcquireLock(state.AgentLock())
	if err != nil {
		return err
	}
	go agent.Guard(ctx, lock, a.lockLost)
	host := proc.New(proc.Options{RunsDir: filepath.Join(s.StateDir, "runs"), BaseEnv: os.Environ()})
	defer closing(log, "host", host.Close)
	if err := host.Ready(); err != nil {
		return errors.Join(err, lock.Release())
	}
	j, err := journal.Open(filepath.Join(s.StateDir, "journal.jsonl"))
	if err != nil {
		return errors.Join(err, lock.Release())
	}
	defer closing(log, "journal", j.Close)
	creds, taker := credentialsOf(s, vault)
	m, err := newMover(ctx, s, creds, log, func() { agent.Mine(lock, a.lockLost) })
	if err != nil {
		return errors.Join(err, lock.Release())
	}
	defer closing(log, "mover", m.close)

	info := pipeline.AgentInfo{Version: version, Instance: randomID(16), PID: os.Getpid(), StartedAt: time.Now().UTC(), SpecHash: s.Hash}
	d, err := deck.New(s.Spec, s.node, info, deck.Ports{
		Custody: m.mover, Adopter: host, Runner: host,
		Host: host, Mover: m.mover, Sensor: gpu.New(gpuSource(f), time.Now), Files: local.FS{Kept: filepath.Join(s.StateDir, deck.WantsName), Room: local.RoomIn(s.StateDir)},
		Journal: j, Logs: logs.New(filepath.Join(s.StateDir, "logs")), Now: time.Now, Jitter: mathrand.Float64,
		NewID: func() string { return randomID(4) }, Exits: host.Exits(), Log: log, Credentials: taker.reading(),
	})
	if err != nil {
		return errors.Join(err, lock.Release())
	}
	opts := agent.Options{
		SocketPath: state.Socket(), LockPath: state.AgentLock(), Lock: lock, Deck: d, Info: info,
		Keeper: keeper, DeckName: s.Deck, Run: s.Run, Node: s.node.Name, Log: log,
	}
	if taker != nil {
		taker.taken = func() { _ = d.Retry(ctx) } // what fails is tried again anyway
		opts.Credentials = taker
	}
	return runAgent(ctx, d, m, opts)
}

// credentialsOf is where the agent gets the store's credentials: on a node over
// SSH from who connects, if the spec says so, else from this machine's chain.
func credentialsOf(s specFile, vault *agent.Vault) (aws.CredentialsProvider, *taker) {
	if !s.far || !s.forwards() {
		return store.LoadCredentials(nil), nil
	}
	keys := store.NewForwarded(nil)
	return keys, newTaker(keys, vault)
}

// lockLost ends the agent as kill -9 would: every file that it has open may be
// of a directory that is gone, every path another agent's.
func (a *app) lockLost(p *pipeline.Problem) { os.Exit(a.report(p)) }

// livingWorkers names the workers of a deck whose processes live, from the
// records of their launches.
func livingWorkers(ctx context.Context, stateDir string) ([]string, error) {
	runs := filepath.Join(stateDir, "runs")
	if _, err := os.Stat(runs); errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	host := proc.New(proc.Options{RunsDir: runs})
	seen, err := host.Observe(ctx)
	if err != nil {
		return nil, errors.Join(err, host.Close())
	}
	var out []string
	for _, l := range seen {
		if l.State == pipeline.ProcRunning {
			out = append(out, workerName(l.Stage, l.Rank))
		}
	}
	slices.Sort(out)
	return out, host.Close()
}

// runAgent runs deck, mover and server together; the first that ends ends all.
func runAgent(ctx context.Context, d *deck.Deck, m *moverParts, o agent.Options) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	ends := make(chan error, 3)
	go func() { ends <- named("mover", m.mover.Run(ctx)) }()
	go func() { ends <- named("deck", d.Run(ctx)) }()
	go func() { ends <- agent.Serve(ctx, o) }()
	first := <-ends
	stop()
	for range 2 {
		if err := <-ends; err != nil && (first == nil || errors.Is(err, agent.ErrStopped)) {
			first = err
		}
	}
	return first
}

func named(what string, err error) error {
	if err == nil || errors.Is(err, context.Canceled) {
		return nil
	}
	return fmt.Errorf("the %s ended: %w", what, err)
}

func closing(log *slog.Logger, what string, closer func() error) {
	if err := closer(); err != nil {
		log.Error("cannot close", "what", what, "err", err)
	}
}

// simulatedGPUs is how many GPUs a simulated node has.
const simulatedGPUs = 4

func gpuSource(f agentFlags) gpu.Source {
	if f.simulate == "" {
		return gpu.NewChain(time.Now)
	}
	return &gpu.Simulated{
		Dir: f.simulate, Count: simulatedGPUs, Now: time.Now,
		Alive: func(pid int) bool { return unix.Kill(pid, 0) == nil },
	}
}

// randomID is n random bytes in hex.
func randomID(n int) string {
	b := make([]byte, n)
	_, _ = rand.Read(b) // never fails: crypto/rand ends the process instead
	return hex.EncodeToString(b)
}
