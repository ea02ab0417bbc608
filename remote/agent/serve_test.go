package agent_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"pipedeck/pipeline"
	"pipedeck/remote/agent"
	"pipedeck/remote/agent/wire"
)

// running is an agent that serves in this process.
type running struct {
	state wire.State
	done  chan error
	stop  context.CancelFunc
	log   *lockedBuffer
}

type lockedBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}

func stateIn(t *testing.T) wire.State {
	t.Helper()
	return wire.State{Dir: filepath.Join(t.TempDir(), ".pipedeck")}
}

func options(state wire.State, deck pipeline.Deck) agent.Options {
	return agent.Options{
		SocketPath: state.Socket(), LockPath: state.AgentLock(), Deck: deck,
		Info:     pipeline.AgentInfo{Version: "test", Instance: "i1", PID: os.Getpid()},
		DeckName: "fake", Run: "r1", Node: "local",
	}
}

// serve runs an agent until the test ends.
func serve(t *testing.T, state wire.State, deck pipeline.Deck) *running {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	r := &running{state: state, done: make(chan error, 1), stop: cancel, log: &lockedBuffer{}}
	opts := options(state, deck)
	opts.Log = slog.New(slog.NewTextHandler(r.log, nil))
	go func() {
		r.done <- agent.Serve(ctx, opts)
		close(r.done)
	}()
	t.Cleanup(func() {
		cancel()
		<-r.done
	})
	eventually(t, "the agent answers", func() bool {
		conn, err := new(net.Dialer).DialContext(t.Context(), "unix", state.Socket())
		if err != nil {
			return false
		}
		_ = conn.Close()
		return true
	})
	return r
}

// eventually polls until ok, and fails the test after 10 s.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for until := time.Now().Add(time.Minute); !ok(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(until) {
			t.Fatalf("not within 10 s: %s", what)
		}
	}
}

// do makes one request and returns the status and the body.
func (r *running) do(t *testing.T, method, path, key, body string) (int, string) {
	t.Helper()
	status, text, err := r.try(context.Background(), method, path, key, body)
	if err != nil {
		t.Fatal(err)
	}
	return status, text
}

func (r *running) try(ctx context.Context, method, path, key, body string) (int, string, error) {
	transport := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", r.state.Socket())
	}}
	defer transport.CloseIdleConnections()
	req, err := http.NewRequestWithContext(ctx, method, "http://agent"+path, strings.NewReader(body))
	if err != nil {
		return 0, "", err
	}
	if key != "" {
		req.Header.Set(wire.HeaderKey, key)
	}
	resp, err := (&http.Client{Transport: transport}).Do(req)
	if err != nil {
		return 0, "", err
	}
	defer func() { _ = resp.Body.Close() }()
	data, err := io.ReadAll(resp.Body)
	return resp.StatusCode, string(data), err
}

func wantProblem(t *testing.T, err error, kind pipeline.ProblemKind, text string) {
	t.Helper()
	var p *pipeline.Problem
	if !errors.As(err, &p) {
		t.Fatalf("got error %v, want a Problem", err)
	}
	if p.Kind != kind || !strings.Contains(p.Text, text) {
		t.Fatalf("got %s %q, want %s with %q", p.Kind, p.Text, kind, text)
	}
	if p.Hint == "" {
		t.Errorf("no hint in %q", p.Text)
	}
}

func TestServeProtectsItsSocket(t *testing.T) {
	t.Parallel()
	r := serve(t, stateIn(t), &fakeDeck{})
	for path, want := range map[string]os.FileMode{r.state.Socket(): 0o600, r.state.Dir: 0o700, r.state.AgentLock(): 0o600} {
		info, err := os.Stat(path)
		if err != nil {
			t.Fatal(err)
		}
		if got := info.Mode().Perm(); got != want {
			t.Errorf("mode of %s is %04o, want %04o", path, got, want)
		}
	}
	rec := wire.ReadRecord(r.state.AgentLock())
	if rec.PID != os.Getpid() || rec.State != wire.LockReady {
		t.Errorf("lock record is %+v, want this process, ready", rec)
	}
}

func TestServeRefusesASecondAgent(t *testing.T) {
	t.Parallel()
	r := serve(t, stateIn(t), &fakeDeck{})
	err := agent.Serve(t.Context(), options(r.state, &fakeDeck{}))
	wantProblem(t, err, pipeline.ProblemRefused, fmt.Sprintf("process %d", os.Getpid()))
	if status, _ := r.do(t, "GET", wire.PathHello, "", ""); status != http.StatusOK {
		t.Errorf("the first agent answers %d after the second was refused", status)
	}
}

func TestServeReplacesAStaleSocket(t *testing.T) {
	t.Parallel()
	state := stateIn(t)
	if err := os.Mkdir(state.Dir, 0o700); err != nil {
		t.Fatal(err)
	}
	old, err := net.ListenUnix("unix", &net.UnixAddr{Name: state.Socket(), Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	old.SetUnlinkOnClose(false)
	_ = old.Close()
	r := serve(t, state, &fakeDeck{})
	if status, _ := r.do(t, "GET", wire.PathHello, "", ""); status != http.StatusOK {
		t.Errorf("hello answers %d", status)
	}
}

func TestServeRefusesUnsafePlaces(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		prepare func(t *testing.T, state wire.State)
		text    string
	}{
		"open directory": {func(t *testing.T, state wire.State) {
			t.Helper()
			if err := errors.Join(os.Mkdir(state.Dir, 0o755), os.Chmod(state.Dir, 0o755)); err != nil {
				t.Fatal(err)
			}
		}, "lets other users in"},
		"symlink": {func(t *testing.T, state wire.State) {
			t.Helper()
			if err := os.Symlink(t.TempDir(), state.Dir); err != nil {
				t.Fatal(err)
			}
		}, "not a directory"},
		"foreign owner": {func(t *testing.T, state wire.State) {
			t.Helper()
			if os.Getuid() != 0 {
				t.Skip("needs root to give a directory away")
			}
			if err := errors.Join(os.Mkdir(state.Dir, 0o700), os.Chown(state.Dir, 1234, 1234)); err != nil {
				t.Fatal(err)
			}
		}, "belongs to user 1234"},
		"file in place of the socket": {func(t *testing.T, state wire.State) {
			t.Helper()
			if err := errors.Join(os.Mkdir(state.Dir, 0o700), os.WriteFile(state.Socket(), nil, 0o600)); err != nil {
				t.Fatal(err)
			}
		}, "not a socket"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			state := stateIn(t)
			tc.prepare(t, state)
			wantProblem(t, agent.Serve(t.Context(), options(state, &fakeDeck{})), pipeline.ProblemRefused, tc.text)
		})
	}
}

func TestServeOnAShortPathForALongStateDirectory(t *testing.T) {
	t.Parallel()
	state := wire.State{Dir: filepath.Join(t.TempDir(), strings.Repeat("long", 25), ".pipedeck")}
	if socket := state.Socket(); len(socket) > 100 || socket != agent.SocketPath(state.Dir+"/") {
		t.Fatalf("socket path %q is long or depends on how the directory is written", socket)
	}
	r := serve(t, state, &fakeDeck{})
	if status, _ := r.do(t, "GET", wire.PathHello, "", ""); status != http.StatusOK {
		t.Errorf("hello answers %d", status)
	}
	r.stop()
	<-r.done
	if _, err := os.Stat(filepath.Dir(state.Socket())); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the folder of the short path is left: %v", err)
	}
}
