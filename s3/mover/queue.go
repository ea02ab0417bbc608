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

// pop returns a file that is due, or nil.
func (q *queue) pop() *file {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.heap) == 0 || q.heap[0].due.After(q.now()) {
		return nil
	}
	return heap.Pop(&q.heap).(dueFile).file
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
