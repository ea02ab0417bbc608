package mover

import (
	"context"
	"fmt"
	"math/bits"
	"sync"

	"golang.org/x/sys/unix"
)

// minBuffer keeps small files from making many classes.
const minBuffer = 64 << 10

// buffers lends upload buffers whose capacities sum to at most budget. They
// are mapped outside the Go heap, so that the collector neither doubles them
// nor keeps them resident after they were given up.
//
// A mapping is never undone, only its pages are given back: a transport that
// still reads a body after its request failed then reads zeros, and the
// request's MD5 refuses them, instead of crashing the agent.
type buffers struct {
	mu      sync.Mutex
	budget  int64
	used    int64 // capacity of lent buffers and of idle warm ones
	warm    map[int64][][]byte
	cold    map[int64][][]byte // pages given back
	waiters []*bufferWaiter    // first come, first served: a large one must not starve
}

type bufferWaiter struct {
	size  int64
	ready chan []byte
}

func newBuffers(budget int64) *buffers {
	return &buffers{budget: budget, warm: map[int64][][]byte{}, cold: map[int64][][]byte{}}
}

// class rounds n up to one of four steps per power of two, at most 25 % more.
func class(n int64) int64 {
	if n <= minBuffer {
		return minBuffer
	}
	step := int64(1) << (bits.Len64(uint64(n-1)) - 3)
	return (n + step - 1) / step * step
}

// get waits for a buffer of n bytes. More than the whole budget is an error.
func (b *buffers) get(ctx context.Context, n int64) ([]byte, error) {
	size := class(n)
	if size > b.budget {
		size = (n + 4095) &^ 4095
	}
	if size > b.budget {
		return nil, fmt.Errorf("cannot hold %d bytes in memory: max_memory is %d", n, b.budget)
	}
	w := &bufferWaiter{size: size, ready: make(chan []byte, 1)}
	b.mu.Lock()
	b.waiters = append(b.waiters, w)
	err := b.serve()
	b.mu.Unlock()
	if err != nil {
		return nil, err
	}
	select {
	case buf := <-w.ready:
		return buf[:n], nil
	case <-ctx.Done():
		b.abandon(w)
		return nil, ctx.Err()
	}
}

func (b *buffers) abandon(w *bufferWaiter) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for i, other := range b.waiters {
		if other == w {
			b.waiters = append(b.waiters[:i], b.waiters[i+1:]...)
			_ = b.serve()
			return
		}
	}
	b.giveBack(<-w.ready)
}

// put gives a buffer back. The caller must not touch it any more.
func (b *buffers) put(buf []byte) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.giveBack(buf[:cap(buf)])
}

func (b *buffers) giveBack(buf []byte) {
	size := int64(cap(buf))
	b.warm[size] = append(b.warm[size], buf)
	_ = b.serve()
}

// serve lends to the waiters in their order as far as the budget goes.
func (b *buffers) serve() error {
	for len(b.waiters) > 0 {
		w := b.waiters[0]
		buf, err := b.take(w.size)
		if err != nil {
			b.waiters = b.waiters[1:]
			return err
		}
		if buf == nil {
			return nil
		}
		b.waiters = b.waiters[1:]
		w.ready <- buf
	}
	return nil
}

// take returns nil when the budget is used up by lent buffers.
func (b *buffers) take(size int64) ([]byte, error) {
	if buf := pop(b.warm, size); buf != nil {
		return buf, nil
	}
	for b.used+size > b.budget {
		if !b.cool() {
			return nil, nil
		}
	}
	buf := pop(b.cold, size)
	if buf == nil {
		var err error
		buf, err = unix.Mmap(-1, 0, int(size), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE)
		if err != nil {
			return nil, fmt.Errorf("cannot map %d bytes: %w", size, err)
		}
	}
	b.used += size
	return buf, nil
}

// cool gives the pages of one idle buffer back to the system.
func (b *buffers) cool() bool {
	for size := range b.warm {
		buf := pop(b.warm, size)
		if buf == nil {
			continue
		}
		_ = unix.Madvise(buf, unix.MADV_DONTNEED)
		b.cold[size] = append(b.cold[size], buf)
		b.used -= size
		return true
	}
	return false
}

// coolAll gives all idle memory back, when there is nothing to upload.
func (b *buffers) coolAll() {
	b.mu.Lock()
	defer b.mu.Unlock()
	for b.cool() {
	}
}

func pop(from map[int64][][]byte, size int64) []byte {
	list := from[size]
	if len(list) == 0 {
		return nil
	}
	buf := list[len(list)-1]
	from[size] = list[:len(list)-1]
	return buf
}
