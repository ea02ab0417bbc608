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
