package client_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"pipedeck/pipeline"
	"pipedeck/remote/agent"
	"pipedeck/remote/agent/wire"
	"pipedeck/remote/client"
)

const (
	roleVar  = "PIPEDECK_TEST_ROLE"
	stateVar = "PIPEDECK_TEST_STATE"
)

// TestMain makes the test binary keeper and agent too.
func TestMain(m *testing.M) {
	state := wire.State{Dir: os.Getenv(stateVar)}
	role := os.Getenv(roleVar)
	kept, keeps := strings.CutPrefix(role, "keep ")
	switch {
	case role == "":
		os.Exit(m.Run())
	case keeps:
		env := append(os.Environ(), roleVar+"="+kept)
		if err := agent.Keeper(context.Background(), agent.KeeperOptions{State: state, Env: env}); err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
	case role == "agent":
		err := agent.Serve(context.Background(), agent.Options{
			SocketPath: state.Socket(), LockPath: state.AgentLock(), Deck: &fakeDeck{},
			Info: pipeline.AgentInfo{PID: os.Getpid(), Instance: fmt.Sprint(os.Getpid())},
		})
		if errors.Is(err, agent.ErrStopped) {
			os.Exit(agent.ExitStopped)
		}
		fmt.Println(err)
		os.Exit(1)
	default:
		fmt.Println("cannot open the ledger: \x1b[31mit is broken")
		os.Exit(2)
	}
}

func ensureOptions(t *testing.T, role string) client.EnsureOptions {
	t.Helper()
	state := wire.State{Dir: filepath.Join(t.TempDir(), ".pipedeck")}
	return client.EnsureOptions{State: state, Spawn: func(ctx context.Context) error {
		env := append(os.Environ(), roleVar+"=keep "+role, stateVar+"="+state.Dir)
		return agent.Spawn(ctx, agent.SpawnOptions{State: state, Env: env})
	}}
}

func TestEnsureStartsOneAgentForAll(t *testing.T) {
	t.Parallel()
	opts := ensureOptions(t, "agent")
	type result struct {
		hello wire.Hello
		err   error
	}
	results := make(chan result, 4)
	for range cap(results) {
		go func() {
			c, err := client.Ensure(context.WithoutCancel(t.Context()), opts)
			if err != nil {
				results <- result{err: err}
				return
			}
			defer c.Close()
			hello, err := c.Hello(context.WithoutCancel(t.Context()))
			results <- result{hello, err}
		}()
	}
	pids := map[int]bool{}
	for range cap(results) {
		r := <-results
		if r.err != nil {
			t.Error(r.err)
			continue
		}
		pids[r.hello.PID] = true
	}
	c, err := client.Ensure(t.Context(), opts)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if err := c.Stop(t.Context()); err != nil {
		t.Error(err)
	}
	if len(pids) != 1 {
		t.Errorf("agents %v answered, want one", pids)
	}
	eventually(t, "the keeper to end", func() bool {
		_, held, err := wire.Held(opts.State.KeeperLock())
		return err == nil && !held
	})
}

func TestEnsureSaysWhyAnAgentDiesAtStart(t *testing.T) {
	t.Parallel()
	opts := ensureOptions(t, "broken")
	_, err := client.Ensure(t.Context(), opts)
	p := wantProblem(t, err, pipeline.ProblemUnreachable, client.ErrNoAgent)
	if !strings.Contains(p.Hint, "cannot open the ledger") || strings.Contains(p.Hint, "\x1b") {
		t.Errorf("the hint %q lacks the reason or carries control characters", p.Hint)
	}
	rec := wire.ReadRecord(opts.State.KeeperLock())
	keeper, err := os.FindProcess(rec.PID)
	if err != nil {
		t.Fatal(err)
	}
	if err := keeper.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the keeper to end", func() bool {
		_, held, err := wire.Held(opts.State.KeeperLock())
		return err == nil && !held
	})
}

func TestEnsurePassesOnThatSpawnFailed(t *testing.T) {
	t.Parallel()
	opts := ensureOptions(t, "agent")
	want := pipeline.Problemf(pipeline.ProblemRefused, "hint", "cannot start here")
	opts.Spawn = func(context.Context) error { return want }
	if _, err := client.Ensure(t.Context(), opts); !errors.Is(err, want) {
		t.Errorf("got %v, want %v", err, want)
	}
}

func TestEnsureReportsAnAgentThatNeverComes(t *testing.T) {
	t.Parallel()
	opts := ensureOptions(t, "agent")
	opts.Spawn = func(context.Context) error { return nil }
	opts.Wait = 1
	_, err := client.Ensure(t.Context(), opts)
	wantProblem(t, err, pipeline.ProblemUnreachable, client.ErrNoAgent)
}
