package mover

import (
	"context"
	"errors"
	"time"

	"pipedeck/pipeline"
	"pipedeck/s3/local"
)

const (
	baseBackoff = 500 * time.Millisecond
	maxBackoff  = 60 * time.Second
)

// backoff is the full-jitter wait before attempt n+1; n counts from 1.
func backoff(n int, rand float64) time.Duration {
	ceiling := min(baseBackoff<<min(n-1, 10), maxBackoff)
	return time.Duration(rand * float64(ceiling))
}

// backoff is the wait before attempt n+1.
func (m *Mover) backoff(n int) time.Duration { return m.pause(backoff(n, m.opt.Rand())) }

// pause is how long to wait where nothing tells when to go on.
func (m *Mover) pause(d time.Duration) time.Duration { return d / time.Duration(m.opt.Hurry) }

// classOf is the class of a store error, "" for nil and for other errors.
func classOf(err error) pipeline.StoreClass {
	if se, ok := errors.AsType[*pipeline.StoreError](err); ok {
		return se.Class
	}
	if errors.Is(err, context.DeadlineExceeded) {
		return pipeline.StoreTransient
	}
	return ""
}

// statusOf is the HTTP status of a store error, 0 without one.
func statusOf(err error) int {
	if se, ok := errors.AsType[*pipeline.StoreError](err); ok {
		return se.Status
	}
	return 0
}

func hintOf(err error) string {
	if se, ok := errors.AsType[*pipeline.StoreError](err); ok {
		return se.Hint
	}
	return ""
}

// isGone says that there is no such local file any more.
func isGone(err error) bool {
	return errors.Is(err, local.ErrVanished) || errors.Is(err, local.ErrNoDir)
}

func isMissing(err error) bool { return classOf(err) == pipeline.StoreMissing }

// sleep waits for d or until ctx ends.
func sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
