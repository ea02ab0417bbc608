package mover

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"pipedeck/pipeline"
)

const (
	// outageAfter transient failures in a row, with no success between, are an
	// outage and no longer weather.
	outageAfter = 8
	maxRecheck  = 15 * time.Second
	minRecheck  = 5 * time.Second
	// throttledFor is how long a slowdown stays the output's state.
	throttledFor = 10 * time.Second
)

// gate admits requests to the store: at most max at once, fewer while the
// endpoint asks for it, and in trouble only one at a time, as a canary, until
// one succeeds.
type gate struct {
	mu       sync.Mutex
	change   chan struct{} // closed and replaced at every change
	now      func() time.Time
	rand     func() float64
	hurry    time.Duration
	max      int
	limit    float64
	inflight int
	paused   bool
	trouble  *trouble
	failures int // transient, in a row
	slowedAt time.Time
}

// trouble is why nothing but a canary is sent.
type trouble struct {
	class  pipeline.StoreClass
	text   string
	hint   string
	since  time.Time
	next   time.Time
	tries  int
	canary bool
}

func newGate(maxInFlight int, opt Options) *gate {
	return &gate{
		change: make(chan struct{}), now: opt.Clock, rand: opt.Rand, hurry: time.Duration(max(1, opt.Hurry)),
		max: maxInFlight, limit: float64(maxInFlight),
	}
}

func (g *gate) changed() {
	close(g.change)
	g.change = make(chan struct{})
}

// errHeld ends an upload whose output was taken from the mover.
var errHeld = fmt.Errorf("an action holds the output: %w", context.Canceled)

// acquire waits for a slot; give it back with release.
func (g *gate) acquire(ctx context.Context) error {
	return g.acquireWhile(ctx, func() bool { return true })
}

// acquireRecord is acquire for what ends the journey of files that were sent: a
// pause holds files back, and leaves none half way.
func (g *gate) acquireRecord(ctx context.Context) error {
	return g.acquireAs(ctx, true, func() bool { return true })
}

// acquireWhile is acquire that ends with errHeld once wanted says no; poke
// makes it ask.
func (g *gate) acquireWhile(ctx context.Context, wanted func() bool) error {
	return g.acquireAs(ctx, false, wanted)
}

func (g *gate) acquireAs(ctx context.Context, record bool, wanted func() bool) error {
	for {
		g.mu.Lock()
		wait, ok := g.admit(record)
		change := g.change
		g.mu.Unlock()
		if ok {
			return ctx.Err()
		}
		if !wanted() {
			return errHeld
		}
		if err := sleepUntil(ctx, change, wait); err != nil {
			return err
		}
	}
}

// admit takes a slot, or says for how long not to ask again unless something
// changes (0: until then).
func (g *gate) admit(record bool) (time.Duration, bool) {
	if g.paused && !record || g.inflight >= max(1, int(g.limit)) {
		return 0, false
	}
	if t := g.trouble; t != nil {
		if t.canary {
			return 0, false
		}
		if wait := t.next.Sub(g.now()); wait > 0 {
			return wait, false
		}
		t.canary = true
	}
	g.inflight++
	return 0, true
}

func sleepUntil(ctx context.Context, change <-chan struct{}, wait time.Duration) error {
	var timer <-chan time.Time
	if wait > 0 {
		t := time.NewTimer(wait)
		defer t.Stop()
		timer = t.C
	}
	select {
	case <-change:
	case <-timer:
	case <-ctx.Done():
		return ctx.Err()
	}
	return nil
}

func (g *gate) release() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.inflight--
	if g.trouble != nil {
		// Whoever held a slot may have been the canary; if it reported nothing
		// (its file changed, say), the next one takes over.
		g.trouble.canary = false
	}
	g.changed()
}

// report tells the gate how a request ended. Answers about one key (missing,
// exists) show that the endpoint works; errors that are not the store's show
// nothing.
func (g *gate) report(err error) {
	class := classOf(err)
	if err != nil && class == "" {
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	switch class {
	case pipeline.StoreCredentials, pipeline.StoreConfig:
		g.block(class, err)
	case pipeline.StoreTransient:
		g.failures++
		if g.failures >= outageAfter || g.trouble != nil {
			g.block(class, err)
		}
	case pipeline.StoreThrottled:
		g.slow(err)
	case pipeline.StoreFile, pipeline.StoreIntegrity:
	case "", pipeline.StoreMissing, pipeline.StoreExists:
		g.healthy()
	}
	g.changed()
}

func (g *gate) healthy() {
	g.failures, g.trouble = 0, nil
	g.limit = min(float64(g.max), g.limit+1/g.limit)
}

// slow halves the limit, at most once a second: one burst of refusals is one
// message.
func (g *gate) slow(err error) {
	now := g.now()
	if now.Sub(g.slowedAt) < time.Second/g.hurry {
		return
	}
	g.slowedAt = now
	g.limit = max(1, g.limit/2)
	if se, ok := errors.AsType[*pipeline.StoreError](err); ok && se.RetryAfter > 0 && g.trouble == nil {
		g.trouble = &trouble{class: se.Class, text: err.Error(), since: now, next: now.Add(min(se.RetryAfter, maxRecheck) / g.hurry)}
	}
}

func (g *gate) block(class pipeline.StoreClass, err error) {
	now := g.now()
	t := g.trouble
	if t == nil || t.class != class {
		t = &trouble{class: class, since: now}
		g.trouble = t
	}
	t.text, t.hint = err.Error(), hintOf(err)
	if now.Before(t.next) {
		return
	}
	t.tries++
	t.canary = false
	first := minRecheck
	if class == pipeline.StoreTransient {
		first = time.Second
	}
	wait := min(first<<min(t.tries-1, 4), maxRecheck) / g.hurry
	t.next = now.Add(wait/2 + time.Duration(g.rand()*float64(wait/2)))
}

func (g *gate) setPaused(on bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.paused = on
	g.changed()
}

// poke makes all who wait look again.
func (g *gate) poke() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.changed()
}

// retry lets the next request through now.
func (g *gate) retry() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.trouble != nil {
		g.trouble.next = time.Time{}
		g.changed()
	}
}

// gateState is what the readings say of the gate.
type gateState struct {
	paused    bool
	throttled bool
	blocked   string // "" if not
	inflight  int
}

func (g *gate) state() gateState {
	g.mu.Lock()
	defer g.mu.Unlock()
	s := gateState{paused: g.paused, inflight: g.inflight}
	s.throttled = g.limit < float64(g.max) && g.now().Sub(g.slowedAt) < throttledFor
	if t := g.trouble; t != nil && t.class != pipeline.StoreThrottled {
		s.blocked = t.text
		if t.hint != "" {
			s.blocked += "; " + t.hint
		}
	}
	return s
}
