package client

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"time"

	"pipedeck/pipeline"
)

// Link is the state of the connection with its age.
type Link = pipeline.Link

const (
	slowAfter  = 2 * time.Second
	staleAfter = 5 * time.Second
	lostAfter  = 15 * time.Second
	// stalePolls is how many polls may fail to come before data is stale.
	stalePolls = 3

	firstRetry = 250 * time.Millisecond
	maxRetry   = 5 * time.Second
	// dialLimit bounds one attempt to connect, a started agent included.
	dialLimit = 30 * time.Second
)

// Watcher keeps the newest Snapshot of a deck by polling, and says how fresh
// it is by the clock of this machine: the node's may be wrong.
type Watcher struct {
	dial     func(ctx context.Context) (pipeline.Deck, error)
	interval time.Duration
	clock    pipeline.Clock
	changed  chan struct{}
	retry    chan struct{}

	mu   sync.Mutex
	view view
}

// view is what a Watcher knows.
type view struct {
	snap    pipeline.Snapshot
	have    bool
	gotAt   time.Time     // when snap came
	took    time.Duration // how long its answer took
	askedAt time.Time     // of the request that is open; zero if none is
	err     error         // of the last attempt; nil if it went well
	retryAt time.Time     // of the next attempt after err
}

// NewWatcher makes a Watcher that polls every interval over decks that dial
// makes. Run does the work.
func NewWatcher(dial func(ctx context.Context) (pipeline.Deck, error), interval time.Duration, clock pipeline.Clock) *Watcher {
	return &Watcher{
		dial: dial, interval: interval, clock: clock,
		changed: make(chan struct{}, 1), retry: make(chan struct{}, 1),
	}
}

// Run polls until ctx ends. It never gives up.
func (w *Watcher) Run(ctx context.Context) {
	var polls sync.WaitGroup
	defer polls.Wait()
	polls.Go(func() { w.poll(ctx) })

	// The link ages without any event: look at it now and then.
	tick := time.NewTicker(min(max(2*w.interval, 100*time.Millisecond), time.Second))
	defer tick.Stop()
	var shown pipeline.LinkState
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		if _, link, _, _ := w.Current(); link.State != shown {
			shown = link.State
			w.notify()
		}
	}
}

// Current returns the newest snapshot with the link's state in it, the link,
// whether there is a snapshot at all, and the time to the next attempt (0: one
// is being made, or the link is well).
func (w *Watcher) Current() (pipeline.Snapshot, Link, bool, time.Duration) {
	now := w.clock.Now()
	w.mu.Lock()
	v := w.view
	w.mu.Unlock()
	link := v.link(now, w.interval)
	var retryIn time.Duration
	if v.err != nil && !v.retryAt.IsZero() {
		retryIn = max(0, v.retryAt.Sub(now))
	}
	if !v.have {
		return v.snap, link, false, retryIn
	}
	return withLink(v.snap, link), link, true, retryIn
}

// Retry makes the next attempt now.
func (w *Watcher) Retry() {
	select {
	case w.retry <- struct{}{}:
	default:
	}
}

// Changed receives after a new snapshot, a failure, or a new state of the
// link. Several changes may come as one; it is for one receiver.
func (w *Watcher) Changed() <-chan struct{} { return w.changed }

func (w *Watcher) notify() {
	select {
	case w.changed <- struct{}{}:
	default:
	}
}

func (w *Watcher) update(change func(v *view)) {
	w.mu.Lock()
	change(&w.view)
	w.mu.Unlock()
	w.notify()
}

// poll asks for snapshots, over a new connection after each failure of one.
func (w *Watcher) poll(ctx context.Context) {
	var deck pipeline.Deck
	failures := 0
	for ctx.Err() == nil {
		var err error
		if deck == nil {
			deck, err = w.connect(ctx)
		}
		if err == nil {
			err = w.ask(ctx, deck)
		}
		delay := w.interval
		if err != nil {
			if deck != nil && brokeLink(err) {
				closeDeck(deck)
				deck = nil
			}
			failures++
			delay = backoff(failures, rand.Float64())
			w.failed(err, delay)
		} else {
			failures = 0
		}
		w.pause(ctx, delay)
	}
	if deck != nil {
		closeDeck(deck)
	}
}

func (w *Watcher) connect(ctx context.Context) (pipeline.Deck, error) {
	ctx, cancel := context.WithTimeout(ctx, dialLimit)
	defer cancel()
	deck, err := w.dial(ctx)
	if err != nil {
		return nil, err // deck may be a typed nil
	}
	return deck, nil
}

// ask makes one request.
func (w *Watcher) ask(ctx context.Context, deck pipeline.Deck) error {
	ctx, cancel := context.WithTimeout(ctx, lostAfter)
	defer cancel()
	asked := w.clock.Now()
	w.mu.Lock()
	w.view.askedAt = asked
	w.mu.Unlock()
	snap, err := deck.Snapshot(ctx)
	got := w.clock.Now()
	if err != nil {
		return err
	}
	w.update(func(v *view) {
		*v = view{snap: snap, have: true, gotAt: got, took: got.Sub(asked)}
	})
	return nil
}

func (w *Watcher) failed(err error, delay time.Duration) {
	at := w.clock.Now().Add(delay)
	w.update(func(v *view) { v.err, v.retryAt, v.askedAt = err, at, time.Time{} })
}

func (w *Watcher) pause(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	case <-w.retry:
	}
	w.mu.Lock()
	w.view.retryAt = time.Time{}
	w.mu.Unlock()
}

// backoff doubles from firstRetry to maxRetry and takes up to a fifth off, so
// that several consoles do not come back in step. random is in [0,1).
func backoff(failures int, random float64) time.Duration {
	d := min(firstRetry<<min(failures-1, 10), maxRetry)
	return d - time.Duration(random*float64(d)/5)
}

// brokeLink tells an error of the connection from an answer that says no.
func brokeLink(err error) bool {
	p, ok := errors.AsType[*pipeline.Problem](err)
	return !ok || p.Kind == pipeline.ProblemUnreachable ||
		errors.Is(err, ErrVersion) || errors.Is(err, ErrDenied)
}

func closeDeck(deck pipeline.Deck) {
	if c, ok := deck.(interface{ Close() }); ok {
		c.Close()
	}
}
