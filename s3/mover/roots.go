package mover

import (
	"os"
	"time"

	"pipedeck/s3/local"
)

// rootPoll is how often a root that does not exist yet is looked for: there is
// nothing to watch, and workers make their directory right after a start.
const rootPoll = 50 * time.Millisecond

// watchedRoots knows the root directories that exist, and watches them. It
// belongs to the scan loop of one output.
type watchedRoots struct {
	watcher *local.Watcher // nil: there are only scans
	seen    map[string]seenRoot
	next    time.Time // of the next look
	awaited bool      // at the last one
}

func newWatchedRoots(watcher *local.Watcher) *watchedRoots {
	return &watchedRoots{watcher: watcher, seen: map[string]seenRoot{}}
}

type seenRoot struct {
	info    os.FileInfo
	watched bool
}

// look says whether a root came, or was replaced, since the last look, and
// whether it is missing now. Such a root is watched.
func (w *watchedRoots) look(dir string) (came, missing bool) {
	info, err := os.Lstat(dir)
	if err != nil || !info.IsDir() {
		delete(w.seen, dir)
		return false, true
	}
	old, had := w.seen[dir]
	came = !had || !os.SameFile(old.info, info)
	if came {
		w.seen[dir] = seenRoot{info: info, watched: w.watch(dir)}
	}
	return came, false
}

// again tries to watch a root for which that failed before.
func (w *watchedRoots) again(dir string) {
	if r, ok := w.seen[dir]; ok && !r.watched {
		r.watched = w.watch(dir)
		w.seen[dir] = r
	}
}

func (w *watchedRoots) watch(dir string) bool {
	return w.watcher != nil && w.watcher.Add(dir) == nil
}

// lookForRoots looks at an output's roots unless that was done a moment ago. It
// says whether one came, and whether one is still awaited: of an output whose
// workers live.
func (m *Mover) lookForRoots(o *output, w *watchedRoots) (came, awaited bool) {
	now := m.opt.Clock()
	if o.isArtifacts() || now.Before(w.next) {
		return false, w.awaited
	}
	w.next = now.Add(rootPoll)
	m.mu.Lock()
	live := o.active && o.alive
	m.mu.Unlock()
	for r := range o.roots {
		c, missing := w.look(o.roots[r].dir)
		came, awaited = came || c, awaited || missing && live
	}
	w.awaited = awaited
	return came, awaited
}
