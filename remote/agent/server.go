package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"runtime/debug"
	"strconv"
	"sync"
	"time"

	"pipedeck/pipeline"
	"pipedeck/remote/agent/wire"
)

const (
	bodyTimeout  = 10 * time.Second // to receive a request's body
	writeTimeout = 30 * time.Second // to hand over an answer; a slow tunnel needs some
)

// server answers requests for one deck.
type server struct {
	deck   pipeline.Deck
	log    *slog.Logger
	lock   *wire.Lock
	hello  wire.Hello
	keeper int // pid of the keeper that started this process; 0: none did
	keys   *keyCache
	creds  CredentialTaker // nil: none are taken

	stopOnce sync.Once
	stop     chan struct{}

	peer func(net.Conn) (int, error)
}

type peerKey struct{}

// connContext notes who is at the other end, once per connection.
func (s *server) connContext(ctx context.Context, conn net.Conn) context.Context {
	uid, err := s.peer(conn)
	if err == nil && uid != 0 && uid != os.Geteuid() {
		err = fmt.Errorf("user %d is not the agent's user %d", uid, os.Geteuid())
	}
	return context.WithValue(ctx, peerKey{}, err)
}

// reply is a finished answer.
type reply struct {
	status int
	body   []byte
}

func replyOf(v any, err error) reply {
	if err != nil {
		p := wire.AsProblem(err)
		return encoded(wire.Status(p.Kind), p)
	}
	return encoded(http.StatusOK, v)
}

func encoded(status int, v any) reply {
	body, err := json.Marshal(v)
	if err != nil {
		// Only a value that JSON has no word for, such as NaN, ends here.
		body, _ = json.Marshal(pipeline.Problemf(pipeline.ProblemFailed, "", "cannot encode the answer: %w", err))
		status = http.StatusInternalServerError
	}
	return reply{status: status, body: body}
}

// call is one endpoint: it reads the request and asks the deck.
type call func(ctx context.Context, r *request) (any, error)

// request is what a call may look at.
type request struct {
	*http.Request
	body []byte
}

// decode reads the body as JSON; unknown fields of a newer client are ignored.
func (r *request) decode(v any) error {
	if err := json.Unmarshal(r.body, v); err != nil {
		return pipeline.Problemf(pipeline.ProblemUsage, "", "cannot read the request: %w", err)
	}
	return nil
}

// handler routes requests. Nothing that a request does ends the process.
func (s *server) handler() http.Handler {
	mux := http.NewServeMux()
	for _, e := range s.endpoints() {
		mux.HandleFunc(e.method+" "+e.path, s.endpoint(e))
	}
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		write(w, encoded(http.StatusNotFound, pipeline.Problemf(pipeline.ProblemUsage,
			"agent and client may be of different versions; see `pipedeck agent status`",
			"cannot answer %q: this agent has no such call", r.Method+" "+r.URL.Path)))
	})
	return s.guard(mux)
}

// guard refuses foreign users and turns a panic into an answer.
func (s *server) guard(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer func() {
			if v := recover(); v != nil {
				write(w, s.panicked(r.URL.Path, v))
			}
		}()
		if err, ok := r.Context().Value(peerKey{}).(error); ok && err != nil {
			s.log.Warn("client refused", "error", err)
			write(w, encoded(http.StatusForbidden, pipeline.Problemf(pipeline.ProblemRefused,
				"run the command as the user that started the agent", "cannot use the agent: %w", err)))
			return
		}
		next.ServeHTTP(w, r)
	})
}

// panicked logs a panic with its stack and makes the answer for it.
func (s *server) panicked(path string, v any) reply {
	s.log.Error("panic in a request", "path", path, "panic", fmt.Sprint(v), "stack", string(debug.Stack()))
	return encoded(http.StatusInternalServerError, pipeline.Problemf(pipeline.ProblemFailed,
		"agent.log has the details; please report it", "cannot answer %q: internal error: %v", path, v))
}

func (s *server) endpoint(e endpoint) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		body, err := readBody(w, r)
		if err != nil {
			write(w, replyOf(nil, err))
			return
		}
		req := &request{Request: r, body: body}
		if !e.mutates {
			write(w, replyOf(e.call(r.Context(), req)))
			return
		}
		answer, err := s.once(r.Context(), req, e)
		if err != nil {
			answer = replyOf(nil, err)
		}
		write(w, answer)
		if e.after != nil && answer.status == http.StatusOK {
			_ = http.NewResponseController(w).Flush()
			e.after()
		}
	}
}

func readBody(w http.ResponseWriter, r *http.Request) ([]byte, error) {
	rc := http.NewResponseController(w)
	_ = rc.SetReadDeadline(time.Now().Add(bodyTimeout))
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, wire.MaxBody))
	_ = rc.SetReadDeadline(time.Time{})
	if err == nil {
		return body, nil
	}
	if _, ok := errors.AsType[*http.MaxBytesError](err); ok {
		return nil, pipeline.Problemf(pipeline.ProblemUsage, "", "cannot read the request: more than %d bytes", wire.MaxBody)
	}
	return nil, pipeline.Problemf(pipeline.ProblemUsage, "", "cannot read the request: %w", err)
}

func write(w http.ResponseWriter, a reply) {
	// A client that stops reading must not hold its goroutine for ever.
	_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(writeTimeout))
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Content-Length", strconv.Itoa(len(a.body)))
	w.WriteHeader(a.status)
	_, _ = w.Write(a.body)
}
