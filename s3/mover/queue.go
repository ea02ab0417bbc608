package mover

import (
	"container/heap"
	"context"
	"sync"
	"time"
)

// queue hands out files when they are due, in the order of their due times.
// An entry is only a reminder: who takes a file checks its state.
type queue struct {
	mu   sync.Mutex
	now  func() time.Time
	heap dueHeap
	seq  uint64
	wake chan struct{}
}

// reminder is the one entry of a file in a queue that counts: an earlier due
// time overrules a later one, whose entry is then void. Guarded by Mover.mu.
type reminder struct {
	set bool
	due time.Time
}

// at queues f for due, unless it is queued for then or earlier.
func (r *reminder) at(q *queue, f *file, due time.Time) {
	if r.set && !due.Before(r.due) {
		return
	}
	r.set, r.due = true, due
	q.push(f, due)
}

// taken says whether an entry that was popped is the one that counts.
func (r *reminder) taken(due time.Time) bool {
	if !r.set || !r.due.Equal(due) {
		return false
	}
	r.set = false
	return true
}

type dueFile struct {
	due  time.Time
	seq  uint64
	file *file
}

func newQueue(now func() time.Time) *queue { return &queue{now: now, wake: make(chan struct{}, 1)} }

func (q *queue) push(f *file, due time.Time) {
	q.mu.Lock()
	q.seq++
	heap.Push(&q.heap, dueFile{due: due, seq: q.seq, file: f})
	q.mu.Unlock()
	nudge(q.wake)
}

// pop returns a file that is due and when it was, or nil.
func (q *queue) pop() (*file, time.Time) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.heap) == 0 || q.heap[0].due.After(q.now()) {
		return nil, time.Time{}
	}
	d := heap.Pop(&q.heap).(dueFile)
	return d.file, d.due
}

// wait returns when a file is due, or with the context's error.
func (q *queue) wait(ctx context.Context) error {
	for {
		q.mu.Lock()
		var wait time.Duration
		n := len(q.heap)
		if n > 0 {
			wait = q.heap[0].due.Sub(q.now())
		}
		q.mu.Unlock()
		if n > 0 && wait <= 0 {
			// There may be more than one waiter.
			nudge(q.wake)
			return ctx.Err()
		}
		if err := sleepUntil(ctx, q.wake, wait); err != nil {
			return err
		}
	}
}

type dueHeap []dueFile

func (h dueHeap) Len() int { return len(h) }
func (h dueHeap) Less(i, j int) bool {
	if !h[i].due.Equal(h[j].due) {
		return h[i].due.Before(h[j].due)
	}
	return h[i].seq < h[j].seq
}
func (h dueHeap) Swap(i, j int) { h[i], h[j] = h[j], h[i] }
func (h *dueHeap) Push(x any)   { *h = append(*h, x.(dueFile)) }
func (h *dueHeap) Pop() any {
	old := *h
	last := old[len(old)-1]
	old[len(old)-1] = dueFile{}
	*h = old[:len(old)-1]
	return last
}

// idle says whether nothing is due.
func (q *queue) idle() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return len(q.heap) == 0 || q.heap[0].due.After(q.now())
}
