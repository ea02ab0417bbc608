package client

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"net"
	"net/http"
	"net/url"
	"os"
	"runtime"
	"syscall"

	"pipedeck/pipeline"
	"pipedeck/remote/agent/wire"
)

// What a Problem of a Client may wrap.
var (
	// ErrNoAgent means that nobody listens: no agent runs there.
	ErrNoAgent = errors.New("no agent answers")
	// ErrLink means that the connection broke or timed out; the agent may live.
	ErrLink = errors.New("connection lost")
	// ErrVersion means that agent and client have no protocol in common.
	ErrVersion = errors.New("protocol versions differ")
	// ErrDenied means that the agent or the system refuses this user.
	ErrDenied = errors.New("permission denied")
)

// Died says that an agent ended while it was asked: it had accepted the
// connection and then cut it. Its keeper starts another.
func Died(err error) bool {
	if !errors.Is(err, ErrLink) {
		return false
	}
	for _, cut := range []error{syscall.ECONNRESET, syscall.EPIPE, io.EOF, io.ErrUnexpectedEOF} {
		if errors.Is(err, cut) {
			return true
		}
	}
	return false
}

// transportProblem explains an error below HTTP.
func transportProblem(where string, err error) error {
	if already, ok := errors.AsType[*pipeline.Problem](err); ok {
		return already
	}
	// The URL in the error is made up and would only confuse.
	if ue, ok := errors.AsType[*url.Error](err); ok {
		err = ue.Err
	}
	switch {
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, syscall.ECONNREFUSED):
		return unreachable("`pipedeck start STAGE` or any other command that needs the agent starts it",
			ErrNoAgent, "cannot reach the agent at %q: no agent answers", where)
	case errors.Is(err, fs.ErrPermission):
		return unreachable("run the command as the user that started the agent",
			ErrDenied, "cannot reach the agent at %q: permission denied", where)
	case errors.Is(err, context.DeadlineExceeded):
		return unreachable("the agent may be busy; `pipedeck agent status` shows whether it lives",
			errors.Join(ErrLink, err), "cannot reach the agent at %q: no answer in time", where)
	}
	return unreachable("", errors.Join(ErrLink, err), "cannot reach the agent at %q: %v", where, err)
}

// answerProblem is the Problem that an answer carries.
func answerProblem(where string, status int, data []byte) error {
	var p pipeline.Problem
	if err := json.Unmarshal(data, &p); err != nil || p.Text == "" {
		return unreachable("something else may listen there", ErrVersion,
			"cannot understand the agent at %q: HTTP status %d", where, status)
	}
	switch status {
	case http.StatusNotFound:
		p.Err = ErrVersion
	case http.StatusForbidden:
		p.Err = ErrDenied
	}
	return &p
}

func versionProblem(where string, hello wire.Hello, mine wire.Proto) error {
	return unreachable(
		"use the same version on both sides; `pipedeck agent stop`, then any command, starts the agent anew (workers live on)",
		ErrVersion, "cannot use the agent at %q: it is version %q and speaks protocol %s, this client speaks %s",
		where, hello.Version, hello.Proto, mine)
}

// unreachable is a Problem that errors.Is finds cause in.
func unreachable(hint string, cause error, format string, args ...any) *pipeline.Problem {
	p := pipeline.Problemf(pipeline.ProblemUnreachable, hint, format, args...)
	p.Err = cause
	return p
}

// checkOwner refuses a socket of another user: whoever made it could pose as
// the agent. Root may use anybody's.
func checkOwner(conn net.Conn) error {
	if runtime.GOOS != "linux" || os.Geteuid() == 0 {
		return nil
	}
	uid, err := wire.PeerUID(conn)
	if err != nil {
		return err
	}
	if uid != os.Geteuid() && uid != 0 {
		return unreachable("run the command as the user that started the agent", ErrDenied,
			"cannot trust the agent at %q: it is run by user %d", conn.RemoteAddr(), uid)
	}
	return nil
}
