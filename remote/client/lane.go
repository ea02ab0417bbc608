package client

import (
	"context"
	"sync"
	"time"
)

// giveWayFor is how long one request for what is large waits for control.
const giveWayFor = 100 * time.Millisecond

// lane lets what is large give way to control: both share the link and the two
// machines' processors, and somebody waits for the one, not for the other.
type lane struct {
	mu   sync.Mutex
	n    int           // control requests that are open
	free chan struct{} // closed when none is; nil while none is
}

// enter counts a control request in; the result counts it out.
func (l *lane) enter() func() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.n == 0 {
		l.free = make(chan struct{})
	}
	l.n++
	return func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		if l.n--; l.n == 0 {
			close(l.free)
			l.free = nil
		}
	}
}

// giveWay waits until no control request is open, but not for long.
func (l *lane) giveWay(ctx context.Context) {
	l.mu.Lock()
	free := l.free
	l.mu.Unlock()
	if free == nil {
		return
	}
	timer := time.NewTimer(giveWayFor)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	case <-free:
	}
}
