package client_test

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"reflect"
	"strings"
	"testing"
	"time"

	"pipedeck/pipeline"
	"pipedeck/remote/agent"
	"pipedeck/remote/agent/wire"
	"pipedeck/remote/client"
)

// deckCalls are the calls of a Deck with arguments that need care on the wire.
var deckCalls = map[string]func(ctx context.Context, d pipeline.Deck) (any, error){
	"snapshot": func(ctx context.Context, d pipeline.Deck) (any, error) { return d.Snapshot(ctx) },
	"plan": func(ctx context.Context, d pipeline.Deck) (any, error) {
		return d.Plan(ctx, pipeline.Intent{Verb: pipeline.VerbStop, Target: "extract/0"})
	},
	"apply": func(ctx context.Context, d pipeline.Deck) (any, error) {
		return d.Apply(ctx, pipeline.ApplyRequest{Plan: "p-1", Confirm: "1204 deck", By: "ann@laptop", Key: "k1"})
	},
	"action": func(ctx context.Context, d pipeline.Deck) (any, error) {
		return d.Action(ctx, "a/1 ?&%", 1500*time.Millisecond)
	},
	"action without wait": func(ctx context.Context, d pipeline.Deck) (any, error) { return d.Action(ctx, "a-1", 0) },
	"coverage of all":     func(ctx context.Context, d pipeline.Deck) (any, error) { return d.Coverage(ctx, nil, false) },
	"coverage": func(ctx context.Context, d pipeline.Deck) (any, error) {
		return d.Coverage(ctx, []string{"extract/hidden_states", "b&c=d"}, true)
	},
	"history": func(ctx context.Context, d pipeline.Deck) (any, error) { return d.History(ctx, 7) },
	"events":  func(ctx context.Context, d pipeline.Deck) (any, error) { return d.Events(ctx, 41, 2*time.Second) },
	"log": func(ctx context.Context, d pipeline.Deck) (any, error) {
		return d.Log(ctx, pipeline.LogRequest{Worker: "extract/0", Cursor: "1:2+3", Tail: 5, Wait: time.Second, Limit: 100})
	},
	"log before": func(ctx context.Context, d pipeline.Deck) (any, error) {
		return d.Log(ctx, pipeline.LogRequest{Worker: "extract/0", Before: pipeline.LogEnd, Lines: true})
	},
	"failures":   func(ctx context.Context, d pipeline.Deck) (any, error) { return d.Failures(ctx) },
	"describe":   func(ctx context.Context, d pipeline.Deck) (any, error) { return d.Describe(ctx, "extract/0 ü") },
	"plan files": func(ctx context.Context, d pipeline.Deck) (any, error) { return d.PlanFiles(ctx, "p-1 ü", 3, 20) },
	"strangers":  func(ctx context.Context, d pipeline.Deck) (any, error) { return d.Strangers(ctx, []int{7, 8}) },
	"resolve": func(ctx context.Context, d pipeline.Deck) (any, error) {
		return d.Resolve(ctx, pipeline.Resolve{Action: "a-1", How: pipeline.ResolveAbandon, By: "ann"})
	},
	"retry": func(ctx context.Context, d pipeline.Deck) (any, error) { return nil, d.Retry(ctx) },
}

func TestClientAnswersAsTheDeckDoes(t *testing.T) {
	t.Parallel()
	direct := &fakeDeck{}
	remote := &fakeDeck{}
	c := dialled(t, remote)
	for name, call := range deckCalls {
		t.Run(name, func(t *testing.T) {
			want, err := call(t.Context(), direct)
			if err != nil {
				t.Fatal(err)
			}
			got, err := call(t.Context(), c)
			if err != nil {
				t.Fatal(err)
			}
			if !reflect.DeepEqual(got, want) {
				t.Errorf("over the socket:\n%s\nin process:\n%s", asJSON(t, got), asJSON(t, want))
			}
		})
	}
	if direct.retries != 1 || remote.retries != 1 {
		t.Errorf("retried %d and %d times, want 1 and 1", direct.retries, remote.retries)
	}
}

func TestClientBringsProblemsAsTheDeckMadeThem(t *testing.T) {
	t.Parallel()
	deck := &fakeDeck{}
	c := dialled(t, deck)
	plan := &pipeline.Plan{ID: "p-9", Confirm: new("deck")}
	for _, want := range []*pipeline.Problem{
		{Kind: pipeline.ProblemRefused, Text: `cannot stop "extract": the lease is held`, Hint: "wait", Plan: plan},
		{Kind: pipeline.ProblemUsage, Text: `cannot find stage "x"`},
		{Kind: pipeline.ProblemUnreachable, Text: "cannot audit: the store does not answer", Hint: "later"},
		{Kind: pipeline.ProblemFailed, Text: "cannot write the journal: disk full"},
	} {
		deck.failWith(want)
		for name, call := range deckCalls {
			if name == "apply" {
				continue // its key answers with the first result, on purpose
			}
			_, err := call(t.Context(), c)
			got := wantProblem(t, err, want.Kind, nil)
			if asJSON(t, got) != asJSON(t, want) {
				t.Errorf("%s brings %s, want %s", name, asJSON(t, got), asJSON(t, want))
			}
		}
	}
	deck.failWith(errors.New("cannot do it"))
	_, err := c.Snapshot(t.Context())
	if p := wantProblem(t, err, pipeline.ProblemFailed, nil); p.Text != "cannot do it" {
		t.Errorf("a plain error came as %q", p.Text)
	}
}

func asJSON(t *testing.T, v any) string {
	t.Helper()
	data, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

func TestDialSaysWhatIsWrong(t *testing.T) {
	t.Parallel()
	t.Run("nothing there", func(t *testing.T) {
		t.Parallel()
		_, err := client.Dial(t.Context(), t.TempDir()+"/agent.sock")
		_ = wantProblem(t, err, pipeline.ProblemUnreachable, client.ErrNoAgent)
	})
	t.Run("version", func(t *testing.T) {
		t.Parallel()
		state, _ := serving(t, &fakeDeck{}, func(o *agent.Options) { o.Proto = wire.Proto{Min: 7, Max: 9} })
		_, err := client.Dial(t.Context(), state.Socket())
		p := wantProblem(t, err, pipeline.ProblemUnreachable, client.ErrVersion)
		if !strings.Contains(p.Text, "7-9") || !strings.Contains(p.Text, "0.0.1") {
			t.Errorf("%q names neither the agent's version nor its protocol", p.Text)
		}
	})
	t.Run("deadline", func(t *testing.T) {
		t.Parallel()
		state, _ := serving(t, &fakeDeck{}, nil)
		ctx, cancel := context.WithTimeout(t.Context(), -1)
		defer cancel()
		_, err := client.Dial(ctx, state.Socket())
		_ = wantProblem(t, err, pipeline.ProblemUnreachable, client.ErrLink)
	})
}

func TestClientFindsTheNextAgentAtTheSameSocket(t *testing.T) {
	t.Parallel()
	deck := &fakeDeck{}
	state, end := serving(t, deck, nil)
	c, err := client.Dial(t.Context(), state.Socket())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	end()
	_, err = c.Snapshot(t.Context())
	_ = wantProblem(t, err, pipeline.ProblemUnreachable, client.ErrNoAgent)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() {
		done <- agent.Serve(ctx, agent.Options{SocketPath: state.Socket(), LockPath: state.AgentLock(), Deck: deck})
	}()
	defer func() {
		cancel()
		<-done
	}()
	eventually(t, "the next agent to answer the same client", func() bool {
		_, err := c.Snapshot(t.Context())
		return err == nil
	})
}

func TestStopReturnsWhenTheAgentIsGone(t *testing.T) {
	t.Parallel()
	state, _ := serving(t, &fakeDeck{}, nil)
	c, err := client.Dial(t.Context(), state.Socket())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if err := c.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(state.Socket()); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the socket is there after Stop: %v", err)
	}
}

// BenchmarkDialAndSnapshot is what `pipedeck --json` does between its start and
// its output.
func BenchmarkDialAndSnapshot(b *testing.B) {
	state, _ := serving(b, &fakeDeck{}, nil)
	for b.Loop() {
		c, err := client.Dial(b.Context(), state.Socket())
		if err != nil {
			b.Fatal(err)
		}
		if _, err := c.Snapshot(b.Context()); err != nil {
			b.Fatal(err)
		}
		c.Close()
	}
}
