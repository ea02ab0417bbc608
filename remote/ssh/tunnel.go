package ssh

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"strings"
	"time"

	xssh "golang.org/x/crypto/ssh"

	"pipedeck/pipeline"
	"pipedeck/remote/client"
)

// The answers of `agent dial-stdio` before the bytes of the agent follow.
const (
	StdioOpen = "open" // connected
	StdioNone = "none" // no agent listens
)

// socket opens a stream to the agent's socket: by forwarding, or where that is
// refused through the program at the node. The server gives the same answer for
// a socket that is not there and for forwarding that it refuses, so only the
// program can tell. The program's path is asked for when it is needed.
func (l *link) socket(ctx context.Context, stateDir, socket string, program func(context.Context) (string, error)) (net.Conn, error) {
	var denied error
	if !l.throughStdio() && socket != "" {
		conn, err := l.forward(ctx, socket)
		if err == nil {
			return conn, nil
		}
		if !refused(err) {
			return nil, err
		}
		denied = err
	}
	exe, err := program(ctx)
	if err != nil {
		return nil, err
	}
	if exe == "" {
		return nil, noAgent(l.target)
	}
	conn, err := l.dialStdio(ctx, exe, stateDir)
	if err != nil {
		return nil, err
	}
	if denied == nil {
		return conn, nil
	}
	// An agent that came up between the two would be reached by forwarding now.
	if again, err := l.forward(ctx, socket); err == nil {
		_ = conn.Close()
		return again, nil
	}
	l.mu.Lock()
	l.stdio = true
	l.mu.Unlock()
	return conn, nil
}

func noAgent(t *Target) error {
	p := pipeline.Problemf(pipeline.ProblemUnreachable, "`pipedeck start STAGE` or any other command that needs the agent starts it",
		"cannot reach the agent on %q: no agent answers", t.label())
	p.Err = errors.Join(client.ErrNoAgent, fs.ErrNotExist)
	return p
}

func (l *link) throughStdio() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.stdio
}

// forward opens a channel to a unix socket on the node.
func (l *link) forward(ctx context.Context, socket string) (net.Conn, error) {
	if !l.alive() {
		return nil, l.err()
	}
	open, cancel := context.WithTimeout(ctx, openTimeout)
	defer cancel()
	conn, err := within(open, func() (net.Conn, error) { return l.client.Dial("unix", socket) })
	switch {
	case err == nil:
		return conn, nil
	case !l.alive():
		return nil, l.err()
	case open.Err() != nil && ctx.Err() == nil:
		l.close(fmt.Errorf("the node did not open a channel within %s", openTimeout))
		return nil, l.err()
	case ctx.Err() != nil:
		return nil, l.timeout(ctx)
	case !refused(err):
		l.close(fmt.Errorf("the connection ended: %w", err)) // before its end is noticed elsewhere
		return nil, l.err()
	}
	return nil, err
}

// dialStdio runs the program that copies between its standard streams and the
// agent's socket.
func (l *link) dialStdio(ctx context.Context, exe, stateDir string) (net.Conn, error) {
	word, ok := shellWord(exe)
	if !ok {
		return nil, fmt.Errorf("cannot run %q through a shell", exe)
	}
	session, err := l.session(ctx)
	if err != nil {
		return nil, err
	}
	in, err1 := session.StdinPipe()
	out, err2 := session.StdoutPipe()
	if err := errors.Join(err1, err2); err != nil {
		_ = session.Close()
		return nil, err
	}
	session.Stderr = io.Discard // unread it would fill the window
	mark := nonce()
	command := fmt.Sprintf("exec %s agent dial-stdio --state-hex %s --mark %s", word, hexArg(stateDir), mark)
	if err := session.Start(command); err != nil {
		_ = session.Close()
		return nil, lost("", "cannot run a command on %q: %w", l.target.label(), err)
	}
	conn := &stdioConn{session: session, in: in, out: bufio.NewReader(out), place: l.target.label()}
	answer, err := conn.greeting(ctx, mark)
	if err != nil {
		_ = conn.Close()
		return nil, lost("", "cannot reach the agent on %q through dial-stdio: %w", l.target.label(), err)
	}
	if answer != StdioOpen {
		_ = conn.Close()
		return nil, noAgent(l.target)
	}
	return conn, nil
}

// stdioConn is a net.Conn over a session's streams. It knows no deadlines: who
// needs one closes it.
type stdioConn struct {
	session *xssh.Session
	in      io.WriteCloser
	out     *bufio.Reader
	place   string
}

// greeting reads to the marked line, past whatever a shell prints.
func (c *stdioConn) greeting(ctx context.Context, mark string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, openTimeout)
	defer cancel()
	stop := context.AfterFunc(ctx, func() { _ = c.Close() })
	defer stop()
	for read := 0; read < maxOutput; {
		line, err := c.out.ReadString('\n')
		if err != nil {
			return "", err
		}
		read += len(line)
		if rest, ok := strings.CutPrefix(strings.TrimRight(line, "\r\n"), mark+" "); ok {
			return rest, nil
		}
	}
	return "", errors.New("the shell does not stop printing")
}

// Read implements net.Conn.
func (c *stdioConn) Read(p []byte) (int, error) { return c.out.Read(p) }

// Write implements net.Conn.
func (c *stdioConn) Write(p []byte) (int, error) { return c.in.Write(p) }

// Close implements net.Conn.
func (c *stdioConn) Close() error {
	_ = c.in.Close()
	return c.session.Close()
}

// LocalAddr implements net.Conn.
func (c *stdioConn) LocalAddr() net.Addr { return stdioAddr("here") }

// RemoteAddr implements net.Conn.
func (c *stdioConn) RemoteAddr() net.Addr { return stdioAddr(c.place) }

// SetDeadline implements net.Conn and does nothing.
func (c *stdioConn) SetDeadline(time.Time) error { return nil }

// SetReadDeadline implements net.Conn and does nothing.
func (c *stdioConn) SetReadDeadline(time.Time) error { return nil }

// SetWriteDeadline implements net.Conn and does nothing.
func (c *stdioConn) SetWriteDeadline(time.Time) error { return nil }

type stdioAddr string

// Network implements net.Addr.
func (stdioAddr) Network() string { return "ssh" }

// String implements net.Addr.
func (a stdioAddr) String() string { return string(a) }
