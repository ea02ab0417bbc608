package local

import (
	"encoding/binary"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"golang.org/x/sys/unix"
)

// watchMask: a close after writing and a rename are what finishes a file.
// fsnotify is not used because it does not ask for the former, and its writes
// would wake the agent for every buffer that a worker flushes.
const watchMask = unix.IN_CLOSE_WRITE | unix.IN_MOVED_TO | unix.IN_MOVED_FROM | unix.IN_DELETE |
	unix.IN_CREATE | unix.IN_ONLYDIR | unix.IN_DONT_FOLLOW | unix.IN_EXCL_UNLINK

// watchedDir is one directory under watch.
type watchedDir struct{ root, rel string }

// Watcher tells early what a rescan would find later. Its hints may be late,
// double or missing; after a HintOverflow anything may have happened.
type Watcher struct {
	inotify *os.File
	fd      int
	events  chan Hint
	wake    chan struct{} // holds one token while pending is not empty
	done    chan struct{}
	ended   sync.WaitGroup
	closing sync.Once

	mu      sync.Mutex
	closed  bool // fd is not to be used any more
	dirs    map[int]watchedDir
	wds     map[watchedDir]int
	pending hintQueue
}

// NewWatcher starts a watcher of roots; see Add. It fails only if the system
// gives no inotify instance; roots that cannot be watched come as a
// HintOverflow, and Add says why.
func NewWatcher(roots ...string) (*Watcher, error) {
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	if err != nil {
		return nil, pathError("watch", strings.Join(roots, " "), err)
	}
	w := &Watcher{
		inotify: os.NewFile(uintptr(fd), "inotify"), fd: fd,
		events: make(chan Hint), wake: make(chan struct{}, 1), done: make(chan struct{}),
		dirs: map[int]watchedDir{}, wds: map[watchedDir]int{},
	}
	w.ended.Go(w.read)
	w.ended.Go(w.deliver)
	for _, root := range roots {
		if err := w.Add(root); err != nil {
			w.push(Hint{Root: root, Kind: HintOverflow})
		}
	}
	return w, nil
}

// Events are the hints, coalesced while nobody receives. It is closed by Close.
func (w *Watcher) Events() <-chan Hint { return w.events }

// Add watches root and all directories below it, again if root was replaced
// meanwhile; to repeat it costs a walk over the directories. The error is that
// of root: ErrNoDir while it does not exist, ENOSPC when the user's watches
// are used up (fs.inotify.max_user_watches).
func (w *Watcher) Add(root string) error { return w.addTree(root, "") }

// Close ends the watcher and closes Events.
func (w *Watcher) Close() error {
	var err error
	w.closing.Do(func() {
		close(w.done)
		w.mu.Lock()
		w.closed = true
		err = w.inotify.Close()
		w.mu.Unlock()
		w.ended.Wait()
		close(w.events)
	})
	return err
}

// addTree watches a directory and those below it. The watch comes before the
// look for subdirectories, so that none made in between is missed.
func (w *Watcher) addTree(root, rel string) error {
	dir := filepath.Join(root, rel)
	if err := w.addDir(dir, watchedDir{root, rel}); err != nil {
		return watchError(dir, err)
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return watchError(dir, err)
	}
	for _, e := range entries {
		if !e.IsDir() || isOwnName(e.Name()) {
			continue
		}
		sub := joinRel(rel, e.Name())
		if err := w.addTree(root, sub); err != nil && !errors.Is(err, ErrNoDir) {
			w.push(Hint{Root: root, Rel: sub, Kind: HintOverflow})
		}
	}
	return nil
}

func (w *Watcher) addDir(dir string, at watchedDir) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		return os.ErrClosed
	}
	wd, err := unix.InotifyAddWatch(w.fd, dir, watchMask)
	if err != nil {
		return err
	}
	w.dirs[wd], w.wds[at] = at, wd
	return nil
}

func watchError(dir string, err error) error {
	if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ENOTDIR) {
		return pathError("watch", dir, ErrNoDir)
	}
	return pathError("watch", dir, err)
}

// read empties the kernel's queue as fast as it fills; what it finds waits in
// pending.
func (w *Watcher) read() {
	buf := make([]byte, 64<<10)
	for {
		n, err := w.inotify.Read(buf)
		if err != nil {
			return
		}
		for b := buf[:n]; len(b) >= unix.SizeofInotifyEvent; {
			wd := int(int32(binary.NativeEndian.Uint32(b)))
			mask := binary.NativeEndian.Uint32(b[4:])
			end := unix.SizeofInotifyEvent + int(binary.NativeEndian.Uint32(b[12:]))
			name := strings.TrimRight(string(b[unix.SizeofInotifyEvent:end]), "\x00")
			w.event(wd, mask, name)
			b = b[end:]
		}
	}
}

func (w *Watcher) event(wd int, mask uint32, name string) {
	if mask&unix.IN_Q_OVERFLOW != 0 {
		w.push(Hint{Kind: HintOverflow})
		return
	}
	w.mu.Lock()
	at, ok := w.dirs[wd]
	if mask&unix.IN_IGNORED != 0 {
		delete(w.dirs, wd)
		if w.wds[at] == wd {
			delete(w.wds, at)
		}
	}
	w.mu.Unlock()
	if !ok || name == "" || isOwnName(name) {
		return
	}
	hint := Hint{Root: at.root, Rel: joinRel(at.rel, name)}
	isDir := mask&unix.IN_ISDIR != 0
	switch {
	case isDir && mask&unix.IN_MOVED_FROM != 0:
		w.forget(at.root, hint.Rel)
		hint.Kind = HintRemoved
	case isDir && mask&unix.IN_DELETE != 0, mask&(unix.IN_MOVED_FROM|unix.IN_DELETE) != 0:
		hint.Kind = HintRemoved
	case isDir && mask&(unix.IN_CREATE|unix.IN_MOVED_TO) != 0:
		hint.Kind = HintDir
		if err := w.addTree(at.root, hint.Rel); err != nil && !errors.Is(err, ErrNoDir) {
			hint.Kind = HintOverflow
		}
	case mask&unix.IN_CLOSE_WRITE != 0:
		hint.Kind = HintWritten
	case mask&unix.IN_MOVED_TO != 0:
		hint.Kind = HintMovedIn
	case mask&unix.IN_CREATE != 0:
		hint.Kind = HintCreated
	default:
		return
	}
	w.push(hint)
}

// forget ends the watches of a directory that was renamed away, whose events
// would come under its old name.
func (w *Watcher) forget(root, rel string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for at, wd := range w.wds {
		if !w.closed && at.root == root && (at.rel == rel || strings.HasPrefix(at.rel, rel+"/")) {
			_, _ = unix.InotifyRmWatch(w.fd, uint32(wd))
			delete(w.wds, at)
			delete(w.dirs, wd)
		}
	}
}

func (w *Watcher) push(h Hint) {
	w.mu.Lock()
	w.pending.push(h)
	w.mu.Unlock()
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

// deliver hands pending hints to whoever receives.
func (w *Watcher) deliver() {
	for {
		select {
		case <-w.done:
			return
		case <-w.wake:
		}
		w.mu.Lock()
		batch := w.pending.take()
		w.mu.Unlock()
		for _, h := range batch {
			select {
			case <-w.done:
				return
			case w.events <- h:
			}
		}
	}
}
