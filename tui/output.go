package tui

import (
	"os"
	"sync"
	"time"
)

// output is the terminal as the renderer writes to it. Its Write never
// blocks: a terminal that has stopped reading (a suspended laptop, a pane in
// copy mode, a dead link) must not stop the event loop. It keeps the few
// writes the terminal has not taken yet; beyond that, whole writes are dropped
// and the screen is painted anew when the terminal reads again.
type output struct {
	f       *os.File
	queue   chan []byte
	done    chan struct{} // closed when the writing goroutine has ended
	drained func(lost bool)

	mu      sync.Mutex
	waiting int // writes queued or being written
	lost    bool
	closed  bool
	idle    *sync.Cond
}

// outputQueue is how many writes wait for a slow terminal.
const outputQueue = 16

// newOutput starts the goroutine that writes to f. drained is called after
// the last queued write, with whether any was dropped.
func newOutput(f *os.File, guard func(func()), drained func(lost bool)) *output {
	o := &output{f: f, queue: make(chan []byte, outputQueue), done: make(chan struct{}), drained: drained}
	o.idle = sync.NewCond(&o.mu)
	go guard(o.run)
	return o
}

func (o *output) run() {
	defer close(o.done)
	for b := range o.queue {
		_, err := o.f.Write(b)
		o.mu.Lock()
		o.waiting--
		empty, lost := o.waiting == 0, o.lost
		if empty {
			o.lost = false
		}
		o.idle.Broadcast()
		closed := o.closed
		o.mu.Unlock()
		if empty && !closed && err == nil {
			o.drained(lost)
		}
	}
}

// Write queues a copy of b, or drops it whole. It always succeeds.
func (o *output) Write(b []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.closed {
		return len(b), nil
	}
	select {
	case o.queue <- append([]byte(nil), b...):
		o.waiting++
	default:
		o.lost = true
	}
	return len(b), nil
}

// behind says whether the terminal has not taken everything yet.
func (o *output) behind() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.waiting > 1
}

// flush waits until everything is written, at most limit.
func (o *output) flush(limit time.Duration) {
	late := false
	t := time.AfterFunc(limit, func() {
		o.mu.Lock()
		late = true
		o.idle.Broadcast()
		o.mu.Unlock()
	})
	defer t.Stop()
	o.mu.Lock()
	defer o.mu.Unlock()
	for o.waiting > 0 && !late {
		o.idle.Wait()
	}
}

// finish writes what is left, at most limit, and takes nothing more.
func (o *output) finish(limit time.Duration) {
	o.flush(limit)
	o.mu.Lock()
	defer o.mu.Unlock()
	if !o.closed {
		o.closed = true
		close(o.queue)
	}
}

// Read, Close and Fd make output pass as the terminal it writes to, so that
// raw mode and the size work. Close leaves the file open: it is not ours.
func (o *output) Read(b []byte) (int, error) { return o.f.Read(b) }

// Close does nothing.
func (o *output) Close() error { return nil }

// Fd returns the descriptor of the terminal.
func (o *output) Fd() uintptr { return o.f.Fd() }
