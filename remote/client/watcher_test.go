package client_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"pipedeck/pipeline"
	"pipedeck/remote/client"
)

type systemClock struct{}

func (systemClock) Now() time.Time { return time.Now() }

// watch runs a Watcher of a deck in a synctest bubble, polling every second.
func watch(t *testing.T, dial func(ctx context.Context) (pipeline.Deck, error)) *client.Watcher {
	t.Helper()
	w := client.NewWatcher(dial, time.Second, systemClock{})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		w.Run(ctx)
	}()
	t.Cleanup(func() {
		cancel()
		<-done
	})
	return w
}

// hangingDeck answers a Snapshot after a delay, or with an error.
type hangingDeck struct {
	pipeline.Deck
	mu     sync.Mutex
	delay  time.Duration
	err    error
	asked  int
	closed int
}

// set makes later answers come after delay, with err.
func (h *hangingDeck) set(delay time.Duration, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.delay, h.err = delay, err
}

func (h *hangingDeck) counts() (asked, closed int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.asked, h.closed
}

func (h *hangingDeck) Snapshot(ctx context.Context) (pipeline.Snapshot, error) {
	h.mu.Lock()
	h.asked++
	delay, err := h.delay, h.err
	h.mu.Unlock()
	select {
	case <-time.After(delay):
	case <-ctx.Done():
		return pipeline.Snapshot{}, ctx.Err()
	}
	return bigSnapshot(1), err
}

func (h *hangingDeck) Close() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.closed++
}

func to(deck pipeline.Deck) func(context.Context) (pipeline.Deck, error) {
	return func(context.Context) (pipeline.Deck, error) { return deck, nil }
}

// after lets time pass and checks the link.
func after(t *testing.T, w *client.Watcher, d time.Duration, want pipeline.LinkState) {
	t.Helper()
	time.Sleep(d)
	synctest.Wait()
	snap, link, have, _ := w.Current()
	if link.State != want {
		reason := ""
		if link.Reason != nil {
			reason = *link.Reason
		}
		t.Fatalf("after %s the link is %s (%s), want %s", d, link.State, reason, want)
	}
	if link.State != pipeline.LinkLive && link.Reason == nil && link.State != pipeline.LinkConnecting {
		t.Errorf("link %s has no reason", link.State)
	}
	if !have {
		return
	}
	stale := want != pipeline.LinkLive && want != pipeline.LinkSlow
	if got := snap.Health == pipeline.Stale; got != stale {
		t.Errorf("health is %s on a link that is %s", snap.Health, link.State)
	}
	if got := snap.Nodes[0].Link.State; got != want {
		t.Errorf("the node's link is %s, want %s", got, want)
	}
}

func TestWatcherAgesAnAgentThatHangs(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		deck := &hangingDeck{}
		w := watch(t, to(deck))
		after(t, w, 100*time.Millisecond, pipeline.LinkLive)
		deck.set(time.Hour, nil)
		after(t, w, 3*time.Second, pipeline.LinkSlow)            // 3.1 s: asked at 1 s
		after(t, w, 2*time.Second, pipeline.LinkStale)           // 5.1 s
		after(t, w, 9*time.Second+800*time.Millisecond, "stale") // 14.9 s
		after(t, w, 200*time.Millisecond, pipeline.LinkLost)     // 15.1 s
		after(t, w, 2*time.Second, pipeline.LinkLost)            // the request timed out at 16 s
		if _, closed := deck.counts(); closed != 1 {
			t.Errorf("the hanging connection was closed %d times, want 1", closed)
		}
		deck.set(0, nil)
		w.Retry()
		after(t, w, 20*time.Second, pipeline.LinkLive)
	})
}

func TestWatcherKeepsDataWhileTheAgentIsAway(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		deck := &hangingDeck{}
		w := watch(t, to(deck))
		after(t, w, 100*time.Millisecond, pipeline.LinkLive)
		deck.set(0, &pipeline.Problem{Kind: pipeline.ProblemUnreachable, Text: "no agent", Err: client.ErrNoAgent})
		after(t, w, time.Second, pipeline.LinkLost)
		snap, link, have, retryIn := w.Current()
		if !have || snap.Deck != "deck" || link.AgeSeconds == nil || *link.AgeSeconds < 1 {
			t.Errorf("lost the last snapshot: have=%t deck=%q link=%+v", have, snap.Deck, link)
		}
		if retryIn <= 0 || retryIn > time.Second {
			t.Errorf("next attempt in %s, want soon", retryIn)
		}
		after(t, w, time.Hour, pipeline.LinkLost)
		before, _ := deck.counts()
		after(t, w, time.Minute, pipeline.LinkLost)
		asked, _ := deck.counts()
		if n := asked - before; n < 12 || n > 16 {
			t.Errorf("%d attempts in a minute, want one every 4 to 5 s for ever", n)
		}
		w.Retry()
		synctest.Wait()
		if now, _ := deck.counts(); now != asked+1 {
			t.Error("Retry did not make an attempt at once")
		}
		deck.set(0, nil)
		w.Retry()
		after(t, w, 0, pipeline.LinkLive)
	})
}

func TestWatcherStaysConnectedWhenTheAgentSaysNo(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		deck := &hangingDeck{}
		w := watch(t, to(deck))
		after(t, w, 100*time.Millisecond, pipeline.LinkLive)
		deck.set(0, pipeline.Problemf(pipeline.ProblemFailed, "", "cannot answer: internal error"))
		after(t, w, time.Second, pipeline.LinkSlow)
		after(t, w, 5*time.Second, pipeline.LinkStale)
		if _, closed := deck.counts(); closed != 0 {
			t.Error("an answer that says no closed the connection")
		}
	})
}

func TestWatcherTellsWhyItCannotConnect(t *testing.T) {
	t.Parallel()
	for want, cause := range map[pipeline.LinkState]error{
		pipeline.LinkVersion: client.ErrVersion, pipeline.LinkAuth: client.ErrDenied,
		pipeline.LinkLost: client.ErrNoAgent,
	} {
		t.Run(string(want), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				w := watch(t, func(context.Context) (pipeline.Deck, error) {
					return nil, &pipeline.Problem{Kind: pipeline.ProblemUnreachable, Text: "no", Err: cause}
				})
				after(t, w, time.Second, want)
			})
		})
	}
	t.Run("connecting", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			w := watch(t, func(ctx context.Context) (pipeline.Deck, error) {
				<-ctx.Done()
				return nil, errors.New("too late")
			})
			after(t, w, 10*time.Second, pipeline.LinkConnecting)
			after(t, w, 21*time.Second, pipeline.LinkLost)
		})
	})
}

func TestWatcherTellsThatTheLinkAged(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		deck := &hangingDeck{}
		w := watch(t, to(deck))
		<-w.Changed()
		deck.set(time.Hour, nil)
		seen := map[pipeline.LinkState]bool{}
		for !seen[pipeline.LinkLost] {
			<-w.Changed() // a deadlock here is reported by synctest
			_, link, _, _ := w.Current()
			seen[link.State] = true
		}
		if !seen[pipeline.LinkSlow] || !seen[pipeline.LinkStale] {
			t.Errorf("told of %v only", seen)
		}
	})
}

func TestWatcherGivesALongIntervalItsThreePolls(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := client.NewWatcher(to(&hangingDeck{}), time.Minute, systemClock{})
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() {
			defer close(done)
			w.Run(ctx)
		}()
		after(t, w, 59*time.Second, pipeline.LinkLive)
		cancel()
		<-done
		after(t, w, 2*time.Minute+2*time.Second, pipeline.LinkStale) // nobody polls any more
	})
}
