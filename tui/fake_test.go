package tui

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"pipedeck/pipeline"
)

// fakeDeck answers from fields and records what was asked. Methods that no
// test expects stay nil in the embedded interface and panic.
type fakeDeck struct {
	pipeline.Deck
	calls   atomic.Int64
	mu      sync.Mutex
	intents []pipeline.Intent
	applied []pipeline.ApplyRequest
	plan    func(pipeline.Intent) (pipeline.Plan, error)
	action  func(id string) pipeline.Action
	log     func(pipeline.LogRequest) (pipeline.LogChunk, error)
}

func (d *fakeDeck) Plan(_ context.Context, in pipeline.Intent) (pipeline.Plan, error) {
	d.calls.Add(1)
	d.mu.Lock()
	d.intents = append(d.intents, in)
	d.mu.Unlock()
	return d.plan(in)
}

func (d *fakeDeck) Apply(_ context.Context, req pipeline.ApplyRequest) (pipeline.Action, error) {
	d.calls.Add(1)
	d.mu.Lock()
	d.applied = append(d.applied, req)
	d.mu.Unlock()
	return d.action("a-14"), nil
}

func (d *fakeDeck) Action(_ context.Context, id string, _ time.Duration) (pipeline.Action, error) {
	d.calls.Add(1)
	return d.action(id), nil
}

func (d *fakeDeck) Log(_ context.Context, req pipeline.LogRequest) (pipeline.LogChunk, error) {
	d.calls.Add(1)
	return d.log(req)
}

func (d *fakeDeck) Failures(context.Context) ([]pipeline.Failure, error) {
	d.calls.Add(1)
	return exampleFailures(), nil
}

func (d *fakeDeck) Describe(_ context.Context, worker string) (pipeline.WorkerDetail, error) {
	d.calls.Add(1)
	return exampleDetail(worker), nil
}

func exampleFailures() []pipeline.Failure {
	return []pipeline.Failure{
		{
			Output: "extract/hidden_states", Path: "rank0/hs_000412807.safetensors", Kind: pipeline.FailureUpload,
			Reason: "PUT answered 503 SlowDown 6 times", Since: t0().Add(-90 * time.Second), NextTry: new(t0().Add(41 * time.Second)),
		},
		{
			Output: "extract/hidden_states", Path: "rank3/hs_000000012.safetensors", Kind: pipeline.FailureMismatched,
			Reason: "another object has its key: 16,384 bytes there, 16,512 here; compare both and remove the wrong one", Since: t0().Add(-2 * time.Hour),
		},
		{
			Output: "extract/hidden_states", Path: "rank1/hs_000077.safetensors", Kind: pipeline.FailureQuarantined,
			Reason: "not a safetensors file: the header ends in the middle", Since: t0().Add(-3 * time.Minute),
		},
	}
}

func exampleDetail(worker string) pipeline.WorkerDetail {
	return pipeline.WorkerDetail{
		ID: worker, Rank: 2, World: 4, Launch: "extract-2-3", Launches: 3,
		Command: []string{"python3", "extract.py", "--rank", "2", "--prompt", "two words", "--api-key", "******"},
		Env:     []pipeline.EnvValue{{Name: "CUDA_VISIBLE_DEVICES", Value: "2"}, {Name: "HF_TOKEN", Value: "******", Masked: true}},
		Dir:     "/workspace", GPUs: []pipeline.GPURef{{Index: 2, UUID: "GPU-00000002"}}, PID: new(4713), StartedAt: new(t0().Add(-time.Hour)),
		Restarts: 1, LastExit: &pipeline.Exit{Code: new(137), Signal: "SIGKILL", OOM: true, At: t0().Add(-time.Hour)}, Log: "/workspace/.pipedeck/logs/extract-2.log",
	}
}

func (d *fakeDeck) Retry(context.Context) error {
	d.calls.Add(1)
	return nil
}

// fakeSource answers with what set was given last.
type fakeSource struct {
	calls   atomic.Int64
	retries atomic.Int64
	changed chan struct{}
	mu      sync.Mutex
	in      input
}

func newFakeSource(in input) *fakeSource {
	return &fakeSource{changed: make(chan struct{}, 1), in: in}
}

func (s *fakeSource) set(in input) {
	s.mu.Lock()
	s.in = in
	s.mu.Unlock()
	select {
	case s.changed <- struct{}{}:
	default:
	}
}

func (s *fakeSource) Current() (pipeline.Snapshot, pipeline.Link, bool, time.Duration) {
	s.calls.Add(1)
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.in.snap, s.in.link, s.in.ok, s.in.retryIn
}

func (s *fakeSource) Changed() <-chan struct{} { return s.changed }
func (s *fakeSource) Retry()                   { s.retries.Add(1) }

// nodesOf is a deck of one node.
func nodesOf(src Source, deck pipeline.Deck) []Node {
	return []Node{{Name: "train1", Source: src, Deck: func() pipeline.Deck { return deck }}}
}
