package agent_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"pipedeck/pipeline"
	"pipedeck/remote/agent"
	"pipedeck/remote/agent/wire"
)

func TestServeAnswersAPanicAndGoesOn(t *testing.T) {
	t.Parallel()
	deck := &fakeDeck{
		snapshot: func(context.Context) (pipeline.Snapshot, error) { panic("boom in a read") },
		apply: func(context.Context, pipeline.ApplyRequest) (pipeline.Action, error) {
			panic("boom in a mutation")
		},
	}
	r := serve(t, stateIn(t), deck)
	for _, c := range []struct{ method, path, key, body, text string }{
		{"GET", wire.PathSnapshot, "", "", "boom in a read"},
		{"POST", wire.PathApply, "k", "{}", "boom in a mutation"},
	} {
		status, body := r.do(t, c.method, c.path, c.key, c.body)
		var p pipeline.Problem
		if err := json.Unmarshal([]byte(body), &p); err != nil {
			t.Fatalf("%s answers %q: %v", c.path, body, err)
		}
		if status != http.StatusInternalServerError || !strings.Contains(p.Text, c.text) {
			t.Errorf("%s answers %d %q", c.path, status, p.Text)
		}
	}
	if log := r.log.String(); !strings.Contains(log, "boom in a read") || !strings.Contains(log, "goroutine") {
		t.Errorf("the log has no stack of the panic: %s", log)
	}
	if status, _ := r.do(t, "GET", wire.PathHello, "", ""); status != http.StatusOK {
		t.Errorf("hello answers %d after panics", status)
	}
}

func TestServeRefusesBadRequests(t *testing.T) {
	t.Parallel()
	r := serve(t, stateIn(t), &fakeDeck{})
	for _, c := range []struct {
		method, path, key, body string
		status                  int
	}{
		{"GET", "/v1/nothing", "", "", http.StatusNotFound},
		{"GET", "/v2/hello", "", "", http.StatusNotFound},
		{"POST", wire.PathApply, "", "{}", http.StatusBadRequest},
		{"POST", wire.PathApply, strings.Repeat("k", wire.MaxKey+1), "{}", http.StatusBadRequest},
		{"POST", wire.PathApply, "k", "{", http.StatusBadRequest},
		{"POST", wire.PathPlan, "", strings.Repeat("x", wire.MaxBody+1), http.StatusBadRequest},
		{"GET", wire.PathHistory + "?limit=-1", "", "", http.StatusBadRequest},
		{"GET", wire.PathEvents + "?wait=soon", "", "", http.StatusBadRequest},
		{"GET", wire.PathCoverage + "?ids=perhaps", "", "", http.StatusBadRequest},
	} {
		status, body := r.do(t, c.method, c.path, c.key, c.body)
		var p pipeline.Problem
		if err := json.Unmarshal([]byte(body), &p); err != nil || p.Text == "" || status != c.status {
			t.Errorf("%s %s answers %d %q (%v), want %d and a problem", c.method, c.path, status, body, err, c.status)
		}
	}
}

func TestServeAnswersARepeatedKeyOnce(t *testing.T) {
	t.Parallel()
	calls := make(chan pipeline.ApplyRequest, 10)
	deck := &fakeDeck{apply: func(_ context.Context, req pipeline.ApplyRequest) (pipeline.Action, error) {
		calls <- req
		return pipeline.Action{ID: fmt.Sprintf("a-%d", len(calls))}, nil
	}}
	r := serve(t, stateIn(t), deck)
	_, first := r.do(t, "POST", wire.PathApply, "k", `{"plan":"p"}`)
	status, again := r.do(t, "POST", wire.PathApply, "k", `{"plan":"p"}`)
	if status != http.StatusOK || again != first {
		t.Errorf("the repeat answers %d %s, want %s", status, again, first)
	}
	if status, body := r.do(t, "POST", wire.PathApply, "k", `{"plan":"q"}`); status != http.StatusConflict {
		t.Errorf("another body under the same key answers %d %s", status, body)
	}
	if len(calls) != 1 {
		t.Fatalf("the deck was called %d times, want 1", len(calls))
	}
	if req := <-calls; req.Key != "k" {
		t.Errorf("the deck saw key %q, want the header's", req.Key)
	}
}

func TestServeFinishesAnActionWhoseClientLeft(t *testing.T) {
	t.Parallel()
	began, goOn, ended := make(chan struct{}), make(chan struct{}), make(chan error, 1)
	deck := &fakeDeck{apply: func(ctx context.Context, _ pipeline.ApplyRequest) (pipeline.Action, error) {
		close(began)
		<-goOn
		ended <- ctx.Err()
		return pipeline.Action{ID: "a-1"}, nil
	}}
	r := serve(t, stateIn(t), deck)
	ctx, cancel := context.WithCancel(t.Context())
	left := make(chan error, 1)
	go func() {
		_, _, err := r.try(ctx, "POST", wire.PathApply, "k", "{}")
		left <- err
	}()
	<-began
	cancel()
	if err := <-left; !errors.Is(err, context.Canceled) {
		t.Fatalf("the client ended with %v", err)
	}
	close(goOn)
	if err := <-ended; err != nil {
		t.Errorf("the action's context ended: %v", err)
	}
	if _, body := r.do(t, "POST", wire.PathApply, "k", "{}"); !strings.Contains(body, `"a-1"`) {
		t.Errorf("the client that came back got %s", body)
	}
}

func TestServeCancelsAReadWhoseClientLeft(t *testing.T) {
	t.Parallel()
	began, ended := make(chan struct{}), make(chan error, 1)
	deck := &fakeDeck{events: func(ctx context.Context, _ int64, _ time.Duration) ([]pipeline.Event, error) {
		close(began)
		<-ctx.Done()
		ended <- ctx.Err()
		return nil, ctx.Err()
	}}
	r := serve(t, stateIn(t), deck)
	ctx, cancel := context.WithCancel(t.Context())
	go func() { _, _, _ = r.try(ctx, "GET", wire.PathEvents+"?wait=50s", "", "") }()
	<-began
	cancel()
	select {
	case <-ended:
	case <-time.After(10 * time.Second):
		t.Fatal("the deck still waits for a client that left")
	}
}

func TestServeOutlivesHalfReadAndHalfSentRequests(t *testing.T) {
	t.Parallel()
	big := pipeline.Snapshot{Deck: strings.Repeat("x", 8<<20)}
	deck := &fakeDeck{snapshot: func(context.Context) (pipeline.Snapshot, error) { return big, nil }}
	r := serve(t, stateIn(t), deck)
	for _, text := range []string{
		"GET /v1/snapshot HTTP/1.1\r\nHost: agent\r\n\r\n", // never reads the answer
		"POST /v1/plan HTTP/1.1\r\nHost: agent\r\nContent-Length: 10\r\n\r\n{",
		"GET /v1/sn",
		"\x00\xff\r\n\r\n",
	} {
		conn, err := new(net.Dialer).DialContext(t.Context(), "unix", r.state.Socket())
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(conn, text); err != nil {
			t.Fatal(err)
		}
		if status, _ := r.do(t, "GET", wire.PathHello, "", ""); status != http.StatusOK {
			t.Errorf("hello answers %d beside %q", status, text)
		}
		_ = conn.Close()
	}
	r.stop()
	if err := <-r.done; err != nil {
		t.Errorf("serve ended with %v", err)
	}
}

func TestServeStopsOnRequest(t *testing.T) {
	t.Parallel()
	state := stateIn(t)
	opts := options(state, &fakeDeck{})
	told := make(chan struct{})
	opts.OnStop = func() { close(told) }
	r := &running{state: state, done: make(chan error, 1)}
	go func() { r.done <- agent.Serve(context.WithoutCancel(t.Context()), opts) }()
	eventually(t, "the agent answers", func() bool {
		_, _, err := r.try(t.Context(), "GET", wire.PathHello, "", "")
		return err == nil
	})
	if status, body := r.do(t, "POST", wire.PathStop, "s", ""); status != http.StatusOK {
		t.Fatalf("stop answers %d %s", status, body)
	}
	if err := <-r.done; !errors.Is(err, agent.ErrStopped) {
		t.Errorf("serve ended with %v, want ErrStopped", err)
	}
	<-told
	if rec, held, err := wire.Held(state.AgentLock()); held || err != nil || rec.State != wire.LockStopped {
		t.Errorf("lock is %+v held=%t (%v), want free and stopped", rec, held, err)
	}
	if _, err := os.Stat(state.Socket()); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the socket is left: %v", err)
	}
}

func TestServeRefusesAnotherUser(t *testing.T) {
	t.Parallel()
	if os.Getuid() != 0 {
		t.Skip("needs root to become another user")
	}
	state := stateIn(t)
	r := serve(t, state, &fakeDeck{})
	// Open every door that the modes close: the peer check has to hold alone.
	for dir := state.Dir; dir != "/tmp" && dir != "/"; dir = filepath.Dir(dir) {
		if err := os.Chmod(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Chmod(state.Socket(), 0o666); err != nil {
		t.Fatal(err)
	}
	out, err := reexec(t, roleDialAsOther, state, func(attr *syscall.SysProcAttr) {
		attr.Credential = &syscall.Credential{Uid: 65534, Gid: 65534, NoSetGroups: true}
	}).CombinedOutput()
	if err != nil || !strings.Contains(string(out), "403") || !strings.Contains(string(out), "user 65534") {
		t.Errorf("another user got %q (%v), want 403", out, err)
	}
	if !strings.Contains(r.log.String(), "client refused") {
		t.Error("the refusal is not in the log")
	}
}
