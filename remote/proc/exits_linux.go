package proc

import (
	"os"
	"path/filepath"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// recordWait is how long an end is kept back so that its exit record is there
// when the agent looks.
const recordWait = 500 * time.Millisecond

// watcher waits for the ends of workers on their pidfds.
type watcher struct {
	mu     sync.Mutex
	open   map[identity]*os.File
	closed bool
}

func newWatcher() *watcher { return &watcher{open: make(map[identity]*os.File)} }

// add watches one worker; a second call for it does nothing.
func (w *watcher) add(h *Host, dir string, id identity) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if _, ok := w.open[id]; ok || w.closed {
		return
	}
	fd, err := unix.PidfdOpen(id.PID, unix.PIDFD_NONBLOCK)
	if err != nil {
		return // old kernel, or gone already: Observe sees it
	}
	f := os.NewFile(uintptr(fd), "pidfd")
	if s, err := h.fs.stat(id.PID); err != nil || !s.is(id) {
		f.Close()
		return
	}
	w.open[id] = f
	go w.wait(h, dir, id, f)
}

func (w *watcher) wait(h *Host, dir string, id identity, f *os.File) {
	ended := awaitPidfd(f)
	w.mu.Lock()
	delete(w.open, id)
	w.mu.Unlock()
	f.Close()
	if !ended {
		return
	}
	deadline := time.Now().Add(recordWait)
	for time.Now().Before(deadline) && locked(dir) {
		if _, err := os.Stat(filepath.Join(dir, exitFile)); err == nil {
			break
		}
		time.Sleep(5 * time.Millisecond)
	}
	select {
	case h.exits <- struct{}{}:
	default:
	}
}

// awaitPidfd waits in the runtime's poller until the process has ended; false
// if the file was closed before.
func awaitPidfd(f *os.File) bool {
	rc, err := f.SyscallConn()
	if err != nil {
		return false
	}
	err = rc.Read(func(fd uintptr) bool {
		p := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
		n, err := unix.Poll(p, 0)
		return err == nil && n > 0
	})
	return err == nil
}

func (w *watcher) close() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.closed = true
	for _, f := range w.open {
		f.Close()
	}
}
