package proc

import (
	"os"
	"path/filepath"
	"slices"
)

// keepLaunches is how many run directories of one worker stay.
const keepLaunches = 20

// prune removes old run directories of one worker whose processes are gone for
// sure. What can not be removed stays, and is tried again at the next start.
func (h *Host) prune(workerDir string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.reload() != nil {
		return
	}
	var all []*launch
	for dir, l := range h.cache.launches {
		if filepath.Dir(dir) == workerDir {
			all = append(all, l)
		}
	}
	if len(all) <= keepLaunches {
		return
	}
	slices.SortFunc(all, func(a, b *launch) int { return int(a.rec.Seq - b.rec.Seq) })
	scan := h.oneScan()
	for _, l := range all[:len(all)-keepLaunches] {
		h.look(l, scan)
		if l.final == nil {
			continue
		}
		_ = os.RemoveAll(l.dir)
		delete(h.cache.launches, l.dir)
	}
}
