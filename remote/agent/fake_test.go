package agent_test

import (
	"context"
	"sync/atomic"
	"time"

	"pipedeck/pipeline"
)

// fakeDeck answers with what the test puts in. A nil function panics, as an
// unexpected call should.
type fakeDeck struct {
	pipeline.Deck
	snapshot func(ctx context.Context) (pipeline.Snapshot, error)
	apply    func(ctx context.Context, req pipeline.ApplyRequest) (pipeline.Action, error)
	events   func(ctx context.Context, after int64, wait time.Duration) ([]pipeline.Event, error)
	retries  atomic.Int64
}

func (f *fakeDeck) Snapshot(ctx context.Context) (pipeline.Snapshot, error) {
	if f.snapshot == nil {
		return pipeline.Snapshot{Schema: 1, Deck: "fake"}, nil
	}
	return f.snapshot(ctx)
}

func (f *fakeDeck) Apply(ctx context.Context, req pipeline.ApplyRequest) (pipeline.Action, error) {
	return f.apply(ctx, req)
}

func (f *fakeDeck) Events(ctx context.Context, after int64, wait time.Duration) ([]pipeline.Event, error) {
	return f.events(ctx, after, wait)
}

func (f *fakeDeck) Retry(context.Context) error {
	f.retries.Add(1)
	return nil
}
