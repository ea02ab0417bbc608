package proc

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"pipedeck/pipeline"
)

// launch is what is known of one run directory. Records never change once
// written, so each is read once.
type launch struct {
	dir     string
	rec     runRecord
	started *startedRecord
	exit    *exitRecord
	reaped  bool                 // the shim saw the last descendant end
	copied  bool                 // of another directory's launch: its processes are not this deck's
	final   *pipeline.LaunchSeen // nothing can change any more

	endedAt time.Time // when the leader was first seen gone without an exit record
	cpu     uint64    // ticks
	read    int64     // bytes, -1 unknown
	logged  int64     // bytes
	lost    int       // stragglers at the last scan
	leader  identity  // found by environment where no start was recorded

	// Of an adopted process, who belonged to it at the last look, and what of
	// that is on disk. Replaced, never changed.
	kin, kept map[identity]bool
}

// newLaunch returns what the intent of a run directory tells.
func newLaunch(dir string, rec runRecord) *launch {
	l := &launch{dir: dir, rec: rec, read: -1}
	if rec.Adopted != nil {
		l.started = &rec.Adopted.startedRecord
	}
	return l
}

// mark is what the environment of the launch's processes says.
func (l *launch) mark() mark {
	if a := l.rec.Adopted; a != nil {
		return mark{a.Tag, l.rec.DeckID}
	}
	return mark{l.rec.Launch.ID, l.rec.DeckID}
}

// marked says whether the environment ties processes to the launch at all.
func (l *launch) marked() bool { return l.rec.Adopted == nil || l.rec.Adopted.Tag != "" }

// cache holds the launches by run directory and what was seen of processes.
type cache struct {
	launches map[string]*launch
	nextScan time.Time // of all processes, for the counters
	envs     map[identity]mark
}

// mark is the launch that a process's environment names.
type mark struct{ launch, deck string }

func newCache() cache {
	return cache{launches: make(map[string]*launch), envs: make(map[identity]mark)}
}

// reload finds new run directories and forgets removed ones. A directory
// without an intent is one whose start was cut short: nothing was started. A
// folder that can not be listed is an error: a worker that is only not seen
// would be started twice.
func (h *Host) reload() error {
	dirs, err := runDirs(h.opt.RunsDir)
	if err != nil {
		return fmt.Errorf("cannot list launches: %w", err)
	}
	found := make(map[string]bool, len(dirs))
	for _, dir := range dirs {
		found[dir] = true
		if _, ok := h.cache.launches[dir]; ok {
			continue
		}
		var rec runRecord
		err := readRecord(filepath.Join(dir, runFile), &rec)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return fmt.Errorf("cannot read launch %q: %w", dir, err)
		}
		l := newLaunch(dir, rec)
		l.recallKin()
		if l.copied, err = isCopy(filepath.Join(dir, lockFile), l.rec.Lock); err != nil {
			return fmt.Errorf("cannot read launch %q: %w", dir, err)
		}
		h.cache.launches[dir] = l
	}
	for dir := range h.cache.launches {
		if !found[dir] {
			delete(h.cache.launches, dir)
		}
	}
	return nil
}

// runDirs lists RUNS/STAGE/RANK/LAUNCH.
func runDirs(root string) ([]string, error) {
	dirs, err := subDirs(root)
	if err != nil {
		return nil, err
	}
	for range 2 {
		var next []string
		for _, dir := range dirs {
			below, err := subDirs(dir)
			if err != nil && !errors.Is(err, fs.ErrNotExist) { // removed meanwhile
				return nil, err
			}
			next = append(next, below...)
		}
		dirs = next
	}
	return dirs, nil
}

func subDirs(dir string) ([]string, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	out := make([]string, 0, len(entries))
	for _, e := range entries {
		if e.IsDir() {
			out = append(out, filepath.Join(dir, e.Name()))
		}
	}
	return out, nil
}

// update reads the records that were not there before.
func (l *launch) update() {
	if l.started == nil {
		var rec startedRecord
		if readRecord(filepath.Join(l.dir, startedFile), &rec) == nil {
			l.started = &rec
		}
	}
	if l.exit == nil {
		var rec exitRecord
		if readRecord(filepath.Join(l.dir, exitFile), &rec) == nil {
			l.exit = &rec
		}
	}
	if !l.reaped {
		_, err := os.Stat(filepath.Join(l.dir, reapedFile))
		l.reaped = err == nil
	}
}

// newest returns the last launch of one worker, nil if there is none.
func (h *Host) newest(stage string, rank int) *launch {
	var best *launch
	for _, l := range h.cache.launches {
		if l.rec.Launch.Stage == stage && l.rec.Launch.Rank == rank && (best == nil || l.rec.Seq > best.rec.Seq) {
			best = l
		}
	}
	return best
}

// allNewest returns the last launch of every worker, by stage and rank.
func (h *Host) allNewest() []*launch {
	best := make(map[string]*launch)
	for _, l := range h.cache.launches {
		key := l.rec.Launch.Stage + "/" + strconv.Itoa(l.rec.Launch.Rank)
		if b := best[key]; b == nil || l.rec.Seq > b.rec.Seq {
			best[key] = l
		}
	}
	out := make([]*launch, 0, len(best))
	for _, l := range best {
		out = append(out, l)
	}
	slices.SortFunc(out, func(a, b *launch) int {
		x, y := a.rec.Launch, b.rec.Launch
		return cmp.Or(cmp.Compare(x.Stage, y.Stage), cmp.Compare(x.Rank, y.Rank))
	})
	return out
}

// byID returns a launch by its id, nil if there is none.
func (h *Host) byID(id string) *launch {
	for _, l := range h.cache.launches {
		if l.rec.Launch.ID == id {
			return l
		}
	}
	return nil
}
