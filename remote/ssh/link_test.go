package ssh_test

import (
	"context"
	"errors"
	"net"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"pipedeck/pipeline"
	"pipedeck/remote/client"
	"pipedeck/remote/ssh"
	"pipedeck/remote/ssh/sshtest"
)

// patience is how long a condition may take on a busy machine.
const patience = 60 * time.Second

// socketNode is a node with something that listens where its agent would.
func socketNode(t *testing.T, s *sshtest.Server, keepalive ssh.Keepalive) *ssh.Node {
	t.Helper()
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "unix", filepath.Join(s.Dir, "agent.sock"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() }) // ends the loop
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go func() { _, _ = conn.Write([]byte("hello\n")) }()
		}
	}()
	o := &operator{Laptop: sshtest.NewLaptop(t, s)}
	target, err := ssh.Resolve(s.Dest(), o.place())
	if err != nil {
		t.Fatal(err)
	}
	n := ssh.NewNode(ssh.Options{Target: target, Keepalive: keepalive}, s.Dir)
	t.Cleanup(n.Close)
	return n
}

// greeted dials the socket and reads what it says.
func greeted(ctx context.Context, n *ssh.Node) (net.Conn, error) {
	conn, err := n.Dial(ctx)
	if err != nil {
		return nil, err
	}
	buf := make([]byte, 6)
	_, err = conn.Read(buf)
	return conn, err
}

func TestAFrozenPeerIsNoticed(t *testing.T) {
	t.Parallel()
	s := sshtest.Start(t, sshtest.Options{})
	n := socketNode(t, s, ssh.Keepalive{Every: 100 * time.Millisecond, Wait: time.Second})
	conn, err := greeted(t.Context(), n)
	if err != nil {
		t.Fatal(err)
	}
	s.Signal(syscall.SIGSTOP)
	defer s.Signal(syscall.SIGCONT)
	ended := make(chan error, 1)
	go func() {
		_, err := conn.Read(make([]byte, 1))
		ended <- err
	}()
	select {
	case err := <-ended:
		if err == nil {
			t.Error("bytes came from a frozen peer")
		}
	case <-time.After(patience):
		t.Fatal("a read hangs for ever")
	}
	// It accepts TCP but says nothing: an attempt ends with its context.
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	if _, err := n.Dial(ctx); !errors.Is(err, client.ErrLink) || errors.Is(err, client.ErrDenied) {
		t.Errorf("%v", err)
	}
	s.Signal(syscall.SIGCONT)
	comesBack(t, n)
}

// comesBack dials until the link is there again.
func comesBack(t *testing.T, n *ssh.Node) {
	t.Helper()
	for begin := time.Now(); ; time.Sleep(50 * time.Millisecond) {
		conn, err := greeted(t.Context(), n)
		if err == nil {
			_ = conn.Close()
			return
		}
		if time.Since(begin) > patience {
			t.Fatal(err)
		}
	}
}

func TestReconnectsLeakNothing(t *testing.T) {
	s := sshtest.Start(t, sshtest.Options{})
	n := socketNode(t, s, ssh.Keepalive{Every: 50 * time.Millisecond})
	comesBack(t, n)
	before := runtime.NumGoroutine()
	for range 5 {
		s.KillSessions()
		comesBack(t, n)
	}
	for begin := time.Now(); runtime.NumGoroutine() > before+3; time.Sleep(20 * time.Millisecond) {
		if time.Since(begin) > patience {
			buf := make([]byte, 1<<16)
			t.Fatalf("%d goroutines, before %d\n%s", runtime.NumGoroutine(), before, buf[:runtime.Stack(buf, true)])
		}
	}
}

func TestAServerThatSaysNothing(t *testing.T) {
	t.Parallel()
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	o := &operator{Laptop: sshtest.NewLaptop(t)}
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	if _, err := o.node(t, "root@"+l.Addr().String()).Probe(ctx); !errors.Is(err, client.ErrLink) {
		t.Errorf("%v", err)
	}
}

func TestNobodyListens(t *testing.T) {
	t.Parallel()
	o := &operator{Laptop: sshtest.NewLaptop(t)}
	_, err := o.node(t, "root@127.0.0.1:1").Probe(t.Context())
	if !errors.Is(err, client.ErrLink) || !strings.Contains(err.Error(), "connection refused") {
		t.Errorf("%v", err)
	}
	if p, ok := errors.AsType[*pipeline.Problem](err); !ok || !strings.Contains(p.Hint, "nothing listens there") {
		t.Errorf("the hint: %+v", p)
	}
}

func TestAServerThatHangsUp(t *testing.T) {
	t.Parallel()
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			_ = conn.Close()
		}
	}()
	o := &operator{Laptop: sshtest.NewLaptop(t)}
	_, err = o.node(t, "root@"+l.Addr().String()).Probe(t.Context())
	if p, ok := errors.AsType[*pipeline.Problem](err); !ok || !strings.Contains(p.Hint, "the server cut the connection") {
		t.Errorf("%v: %+v", err, p)
	}
}

func TestNoAgentIsToldFromAnyOtherFailure(t *testing.T) {
	t.Parallel()
	s := sshtest.Start(t, sshtest.Options{})
	o := &operator{Laptop: sshtest.NewLaptop(t, s)}
	if _, err := o.node(t, s.Dest()).Dial(t.Context()); !errors.Is(err, client.ErrNoAgent) {
		t.Errorf("%v", err)
	}
}
