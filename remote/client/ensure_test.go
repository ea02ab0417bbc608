package client_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

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
			SocketPath: state.Socket(), LockPath: state.AgentLock(), Deck: &fakeDeck{}, Keeper: agent.TakeKeeper(),
			Info: pipeline.AgentInfo{PID: os.Getpid(), Instance: strconv.Itoa(os.Getpid())},
		})
		if errors.Is(err, agent.ErrStopped) {
			os.Exit(agent.ExitStopped)
		}
		fmt.Println(err)
		os.Exit(1)
	case role == "refusing":
		_ = wire.WriteRefusal(state.Refusal(), pipeline.Problemf(pipeline.ProblemRefused, "the hint", "cannot open the ledger: it is of another bucket"))
		os.Exit(75)
	case role == "usage":
		fmt.Println("spec.yaml:3:1: unknown key")
		os.Exit(64)
	default:
		fmt.Println("cannot open the ledger: \x1b[31mit is broken")
		os.Exit(2)
	}
}

func ensureOptions(t *testing.T, role string) client.EnsureOptions {
	t.Helper()
	state := wire.State{Dir: filepath.Join(t.TempDir(), ".pipedeck")}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		if _, err := client.End(ctx, state); err != nil {
			t.Error(err)
		}
	})
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
	if len(pids) != 1 {
		t.Errorf("agents %v answered, want one", pids)
	}
}

func TestEnsureSaysWhyAnAgentDiesAtStart(t *testing.T) {
	t.Parallel()
	opts := ensureOptions(t, "broken")
	_, err := client.Ensure(t.Context(), opts)
	p := wantProblem(t, err, pipeline.ProblemUnreachable, client.ErrNoAgent)
	if !strings.Contains(p.Hint, "cannot open the ledger") || strings.Contains(p.Hint, "\x1b") {
		t.Errorf("the hint %q lacks the reason or carries control characters", p.Hint)
	}
	if _, held, err := wire.Held(opts.State.KeeperLock()); !held || err != nil {
		t.Errorf("the keeper gave up: held=%t (%v)", held, err)
	}
}

// What an agent refuses for good is told as it said it, and nobody tries again.
func TestEnsureTellsARefusal(t *testing.T) {
	t.Parallel()
	for role, want := range map[string]pipeline.Problem{
		"refusing": {Kind: pipeline.ProblemRefused, Text: "cannot open the ledger: it is of another bucket", Hint: "the hint"},
		"usage":    {Kind: pipeline.ProblemUsage, Text: "cannot start the agent: it ended with exit code 64"},
	} {
		opts := ensureOptions(t, role)
		for range 2 { // a refusal of before is not taken for the new one's
			_, err := client.Ensure(t.Context(), opts)
			p, ok := errors.AsType[*pipeline.Problem](err)
			if !ok || p.Kind != want.Kind || p.Text != want.Text || want.Hint != "" && p.Hint != want.Hint {
				t.Errorf("%s: got %+v, want %+v", role, err, want)
			}
			eventually(t, "the keeper to end", func() bool {
				_, held, err := wire.Held(opts.State.KeeperLock())
				return err == nil && !held
			})
		}
		if role == "usage" {
			continue
		}
		if err := os.Remove(opts.State.Refusal()); err != nil {
			t.Error(err)
		}
	}
}

func TestEnsureRightAfterAStopStartsANewAgent(t *testing.T) {
	t.Parallel()
	opts := ensureOptions(t, "agent")
	before := ""
	for range 5 {
		c, err := client.Ensure(t.Context(), opts)
		if err != nil {
			t.Fatal(err)
		}
		hello, err := c.Hello(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if hello.Instance == before {
			t.Errorf("the stopped agent %s answers", before)
		}
		before = hello.Instance
		// Stop returns while the keeper may still be there.
		if err := c.Stop(t.Context()); err != nil {
			t.Fatal(err)
		}
		c.Close()
	}
}

func TestEnsureBringsAKeeperBack(t *testing.T) {
	t.Parallel()
	opts := ensureOptions(t, "agent")
	c, err := client.Ensure(t.Context(), opts)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	first, err := c.Hello(t.Context())
	if err != nil || first.KeeperPID <= 1 {
		t.Fatalf("no keeper in %+v (%v)", first, err)
	}
	if err := syscall.Kill(first.KeeperPID, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the agent to notice", func() bool {
		hello, err := c.Hello(t.Context())
		return err == nil && hello.KeeperLost
	})
	again, err := client.Ensure(t.Context(), opts)
	if err != nil {
		t.Fatal(err)
	}
	defer again.Close()
	if hello, err := again.Hello(t.Context()); err != nil || hello.PID != first.PID {
		t.Errorf("another agent %d answers (%v), want %d", hello.PID, err, first.PID)
	}
	if rec, held, err := wire.Held(opts.State.KeeperLock()); !held || err != nil || rec.PID == first.KeeperPID {
		t.Errorf("keeper is %+v held=%t (%v), want a new one", rec, held, err)
	}
}

func TestEndOfNothing(t *testing.T) {
	t.Parallel()
	ran, err := client.End(t.Context(), ensureOptions(t, "agent").State)
	if ran || err != nil {
		t.Errorf("ended something: %t (%v)", ran, err)
	}
}

func TestEndTakesAnAgentOfAnotherVersion(t *testing.T) {
	t.Parallel()
	state, _ := serving(t, &fakeDeck{}, func(o *agent.Options) { o.Proto = wire.Proto{Min: 7, Max: 9} })
	ran, err := client.End(t.Context(), state)
	if !ran || err != nil {
		t.Errorf("ended %t (%v), want the other version to end", ran, err)
	}
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

// An agent that dies while it is asked is like none: the next one is awaited.
func TestEnsureOutlivesADyingAgent(t *testing.T) {
	t.Parallel()
	opts := ensureOptions(t, "agent")
	if err := agent.PrepareStateDir(opts.State.Dir); err != nil {
		t.Fatal(err)
	}
	dying, err := net.Listen("unix", opts.State.Socket())
	if err != nil {
		t.Fatal(err)
	}
	go func() {
		conn, err := dying.Accept()
		if err == nil {
			_, _ = conn.Read(make([]byte, 1)) // unread bytes make the close a reset
			_ = conn.Close()
		}
		_ = dying.Close()
	}()
	c, err := client.Ensure(t.Context(), opts)
	if err != nil {
		t.Fatal(err)
	}
	c.Close()
}

func TestEnsureReportsAnAgentThatNeverComes(t *testing.T) {
	t.Parallel()
	opts := ensureOptions(t, "agent")
	opts.Spawn = func(context.Context) error { return nil }
	opts.Wait = 1
	_, err := client.Ensure(t.Context(), opts)
	_ = wantProblem(t, err, pipeline.ProblemUnreachable, client.ErrNoAgent)
}
