package agent

import (
	"context"
	"os"
	"strconv"
	"time"

	"pipedeck/pipeline"
	"pipedeck/remote/agent/wire"
)

type endpoint struct {
	method, path string
	mutates      bool // needs an idempotency key and outlives its client
	call         call
	after        func() // once a mutating call was answered well
}

func (s *server) endpoints() []endpoint {
	return []endpoint{
		{method: "GET", path: wire.PathHello, call: s.getHello},
		{method: "GET", path: wire.PathSnapshot, call: s.getSnapshot},
		{method: "POST", path: wire.PathPlan, call: s.postPlan},
		{method: "POST", path: wire.PathApply, mutates: true, call: s.postApply},
		{method: "GET", path: wire.PathActions + "{id}", call: s.getAction},
		{method: "GET", path: wire.PathCoverage, call: s.getCoverage},
		{method: "GET", path: wire.PathHistory, call: s.getHistory},
		{method: "GET", path: wire.PathEvents, call: s.getEvents},
		{method: "GET", path: wire.PathLog, call: s.getLog},
		{method: "GET", path: wire.PathFailures, call: s.getFailures},
		{method: "GET", path: wire.PathWorker, call: s.getWorker},
		{method: "GET", path: wire.PathPlanned + "{id}/files", call: s.getPlanFiles},
		{method: "GET", path: wire.PathPlanned + "{id}", call: s.getPlanned},
		{method: "POST", path: wire.PathHold, mutates: true, call: s.postHold},
		{method: "POST", path: wire.PathRelease, mutates: true, call: s.postRelease},
		{method: "GET", path: wire.PathStrange, call: s.getStrangers},
		{method: "POST", path: wire.PathResolve, mutates: true, call: s.postResolve},
		{method: "POST", path: wire.PathRetry, mutates: true, call: s.postRetry},
		{method: "POST", path: wire.PathCredentials, mutates: true, call: s.postCredentials},
		{method: "POST", path: wire.PathStop, mutates: true, call: s.postStop, after: s.beginStop},
	}
}

func (s *server) getHello(context.Context, *request) (any, error) {
	hello := s.hello
	if s.keeper != 0 {
		// A dead keeper shows as another parent; its pid may be reused.
		if os.Getppid() == s.keeper {
			hello.KeeperPID = s.keeper
		} else {
			hello.KeeperLost = true
		}
	}
	hello.Now = time.Now().UTC()
	hello.SHA256 = ownHash()
	if s.creds != nil {
		state := s.creds.State()
		hello.Credentials = &state
	}
	return hello, nil
}

func (s *server) getSnapshot(ctx context.Context, _ *request) (any, error) {
	return s.deck.Snapshot(ctx)
}

func (s *server) postPlan(ctx context.Context, r *request) (any, error) {
	var in pipeline.Intent
	if err := r.decode(&in); err != nil {
		return nil, err
	}
	return s.deck.Plan(ctx, in)
}

func (s *server) postApply(ctx context.Context, r *request) (any, error) {
	var req pipeline.ApplyRequest
	if err := r.decode(&req); err != nil {
		return nil, err
	}
	if req.Key == "" {
		req.Key = r.Header.Get(wire.HeaderKey)
	}
	return s.deck.Apply(ctx, req)
}

func (s *server) getAction(ctx context.Context, r *request) (any, error) {
	wait, err := r.duration("wait")
	if err != nil {
		return nil, err
	}
	return s.deck.Action(ctx, r.PathValue("id"), wait)
}

func (s *server) getCoverage(ctx context.Context, r *request) (any, error) {
	ids, err := r.boolean("ids")
	if err != nil {
		return nil, err
	}
	return s.deck.Coverage(ctx, r.URL.Query()["output"], ids)
}

func (s *server) getHistory(ctx context.Context, r *request) (any, error) {
	limit, err := r.number("limit")
	if err != nil {
		return nil, err
	}
	return s.deck.History(ctx, int(limit))
}

func (s *server) getEvents(ctx context.Context, r *request) (any, error) {
	after, err := r.number("after")
	if err != nil {
		return nil, err
	}
	wait, err := r.duration("wait")
	if err != nil {
		return nil, err
	}
	return s.deck.Events(ctx, after, wait)
}

func (s *server) getLog(ctx context.Context, r *request) (any, error) {
	query := r.URL.Query()
	req := pipeline.LogRequest{Worker: query.Get("worker"), Cursor: query.Get("cursor"), Before: query.Get("before")}
	tail, err := r.number("tail")
	if err != nil {
		return nil, err
	}
	limit, err := r.number("limit")
	if err != nil {
		return nil, err
	}
	if req.Wait, err = r.duration("wait"); err != nil {
		return nil, err
	}
	if req.Lines, err = r.boolean("lines"); err != nil {
		return nil, err
	}
	req.Tail, req.Limit = int(tail), int(limit)
	return s.deck.Log(ctx, req)
}

func (s *server) getFailures(ctx context.Context, _ *request) (any, error) {
	return s.deck.Failures(ctx)
}

func (s *server) getWorker(ctx context.Context, r *request) (any, error) {
	return s.deck.Describe(ctx, r.URL.Query().Get("worker"))
}

func (s *server) getPlanFiles(ctx context.Context, r *request) (any, error) {
	offset, err := r.number("offset")
	if err != nil {
		return nil, err
	}
	limit, err := r.number("limit")
	if err != nil {
		return nil, err
	}
	return s.deck.PlanFiles(ctx, r.PathValue("id"), int(offset), int(limit))
}

// holder is the deck, if it takes part in actions on several nodes.
func (s *server) holder() (pipeline.Holder, error) {
	if h, ok := s.deck.(pipeline.Holder); ok {
		return h, nil
	}
	return nil, pipeline.Problemf(pipeline.ProblemRefused, "", "cannot hold a lease: this deck acts alone")
}

func (s *server) getPlanned(ctx context.Context, r *request) (any, error) {
	h, err := s.holder()
	if err != nil {
		return nil, err
	}
	return h.Planned(ctx, r.PathValue("id"))
}

func (s *server) postHold(ctx context.Context, r *request) (any, error) {
	h, err := s.holder()
	if err != nil {
		return nil, err
	}
	var req pipeline.ApplyRequest
	if err := r.decode(&req); err != nil {
		return nil, err
	}
	return struct{}{}, h.Hold(ctx, req)
}

func (s *server) postRelease(ctx context.Context, r *request) (any, error) {
	h, err := s.holder()
	if err != nil {
		return nil, err
	}
	var req pipeline.ApplyRequest
	if err := r.decode(&req); err != nil {
		return nil, err
	}
	return struct{}{}, h.Release(ctx, req.Plan)
}

func (s *server) getStrangers(ctx context.Context, r *request) (any, error) {
	var pids []int
	for _, text := range r.URL.Query()["pid"] {
		pid, err := strconv.Atoi(text)
		if err != nil || pid <= 1 {
			return nil, badParameter("pid", text)
		}
		pids = append(pids, pid)
	}
	return s.deck.Strangers(ctx, pids)
}

func (s *server) postResolve(ctx context.Context, r *request) (any, error) {
	var req pipeline.Resolve
	if err := r.decode(&req); err != nil {
		return nil, err
	}
	return s.deck.Resolve(ctx, req)
}

func (s *server) postCredentials(_ context.Context, r *request) (any, error) {
	if s.creds == nil {
		return nil, pipeline.Problemf(pipeline.ProblemRefused, "set `credentials: forward` in the spec's store",
			"cannot take credentials: this deck uses those of its node")
	}
	var c wire.Credentials
	if err := r.decode(&c); err != nil {
		return nil, err
	}
	if c.AccessKeyID == "" || c.SecretAccessKey == "" {
		return nil, pipeline.Problemf(pipeline.ProblemUsage, "", "cannot take credentials: they have no keys")
	}
	s.creds.Take(c)
	return s.creds.State(), nil
}

func (s *server) postRetry(ctx context.Context, _ *request) (any, error) {
	return struct{}{}, s.deck.Retry(ctx)
}

func (s *server) postStop(context.Context, *request) (any, error) {
	return s.hello, nil
}

// beginStop is run after the answer is out, so that the client learns of it.
func (s *server) beginStop() { s.stopOnce.Do(func() { close(s.stop) }) }

// number reads an optional query parameter, at least 0.
func (r *request) number(name string) (int64, error) {
	text := r.URL.Query().Get(name)
	if text == "" {
		return 0, nil
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n < 0 {
		return 0, badParameter(name, text)
	}
	return n, nil
}

func (r *request) boolean(name string) (bool, error) {
	text := r.URL.Query().Get(name)
	if text == "" {
		return false, nil
	}
	b, err := strconv.ParseBool(text)
	if err != nil {
		return false, badParameter(name, text)
	}
	return b, nil
}

// duration reads an optional wait such as "5s", cut to wire.MaxWait.
func (r *request) duration(name string) (time.Duration, error) {
	text := r.URL.Query().Get(name)
	if text == "" {
		return 0, nil
	}
	d, err := time.ParseDuration(text)
	if err != nil || d < 0 {
		return 0, badParameter(name, text)
	}
	return min(d, wire.MaxWait), nil
}

func badParameter(name, text string) error {
	return pipeline.Problemf(pipeline.ProblemUsage, "", "cannot read parameter %q: bad value %q", name, text)
}
