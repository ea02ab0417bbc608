package proc

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"

	"pipedeck/pipeline"
)

var _ pipeline.Host = (*Host)(nil)

// Host is the node's processes, seen through run directories and /proc. Its
// methods may be called concurrently.
type Host struct {
	opt   Options
	fs    procFS
	here  place
	err   error // why nothing can be started or found here
	exits chan struct{}

	startMu sync.Mutex // one start at a time

	mu    sync.Mutex // guards the cache below
	cache cache
	slots map[string][]*os.File // locks of adopted launches, by run directory
	watch *watcher
}

// place is where pids have a meaning.
type place struct {
	bootID string
	pidNS  uint64
	deckID string
}

// New returns the Host of one state directory. What it needs and can not get
// is told by the first method that is called.
func New(o Options) *Host {
	o = o.withDefaults()
	h := &Host{opt: o, fs: procFS{root: o.ProcRoot}, exits: make(chan struct{}, 1), slots: make(map[string][]*os.File)}
	h.cache = newCache()
	h.watch = newWatcher()
	h.here, h.err = h.findPlace()
	return h
}

func (h *Host) findPlace() (place, error) {
	if !filepath.IsAbs(h.opt.RunsDir) {
		return place{}, fmt.Errorf("cannot keep runs in %q: not an absolute path", h.opt.RunsDir)
	}
	p := place{bootID: h.opt.BootID}
	var err error
	if p.bootID == "" {
		if p.bootID, err = h.fs.bootID(); err != nil {
			return place{}, err
		}
	}
	if p.pidNS, err = h.fs.pidNS(); err != nil {
		return place{}, err
	}
	p.deckID, err = deckID(h.opt.RunsDir)
	return p, err
}

// deckID returns the random token of a state directory, made at first use. A
// hash of the path would be shared by containers that use the same paths.
func deckID(runsDir string) (string, error) {
	if err := os.MkdirAll(runsDir, 0o700); err != nil {
		return "", fmt.Errorf("cannot make runs folder: %w", err)
	}
	path := filepath.Join(runsDir, deckFile)
	var rec deckRecord
	err := readRecord(path, &rec)
	if err == nil && rec.ID != "" {
		return rec.ID, checkOrigin(path, rec.File)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return "", fmt.Errorf("cannot read deck id: %w", err)
	}
	var raw [8]byte
	_, _ = rand.Read(raw[:]) // never fails
	rec.ID = hex.EncodeToString(raw[:])
	return rec.ID, writeBound(path, func(o origin) any { rec.File = o; return rec }, func() {})
}

// Ready returns why nothing can be started or found here, nil if all is well;
// every method returns the same. It is a *pipeline.Problem where the runs
// directory is a copy.
func (h *Host) Ready() error { return h.err }

// Close stops watching and frees the GPU slots of adopted workers. Workers and
// shims go on.
func (h *Host) Close() error {
	h.watch.close()
	h.mu.Lock()
	defer h.mu.Unlock()
	for dir := range h.slots {
		h.dropSlots(dir)
	}
	return nil
}

// Start implements pipeline.Host. A launch whose predecessor still runs is
// refused too.
func (h *Host) Start(ctx context.Context, req pipeline.Launch) error {
	if h.err != nil {
		return h.err
	}
	if err := checkLaunch(req); err != nil {
		return err
	}
	h.startMu.Lock()
	defer h.startMu.Unlock()
	seq, err := h.mayStart(req)
	if err != nil {
		return err
	}
	slots, err := h.takeSlots(req)
	if err != nil {
		return err
	}
	defer closeAll(slots)
	h.at(startLocked)
	dir := h.runDir(req)
	rec := runRecord{
		Launch: req, Seq: seq, DeckID: h.here.deckID, BootID: h.here.bootID,
		PIDNS: h.here.pidNS, Ticks: bootTicks(), At: now(),
	}
	lock, err := h.makeRun(dir, rec)
	if err != nil {
		return err
	}
	defer lock.Close()
	h.at(startRecorded)
	if err := h.spawn(ctx, dir, lock, slots); err != nil {
		return err
	}
	h.at(startSeen)
	var started startedRecord
	if readRecord(filepath.Join(dir, startedFile), &started) == nil {
		h.watch.add(h, dir, started.Worker)
	}
	h.prune(h.workerDir(req))
	return nil
}

// at tells a test that a point was reached.
func (h *Host) at(p point) { h.opt.point.at(p) }

func (h *Host) runDir(l pipeline.Launch) string {
	return filepath.Join(h.opt.RunsDir, l.Stage, strconv.Itoa(l.Rank), l.ID)
}

func (h *Host) workerDir(l pipeline.Launch) string { return filepath.Dir(h.runDir(l)) }

func checkLaunch(l pipeline.Launch) error {
	if err := checkNames(l); err != nil {
		return err
	}
	if len(l.Argv) == 0 || l.Argv[0] == "" {
		return fmt.Errorf("cannot start %q: empty command", l.ID)
	}
	if !filepath.IsAbs(l.Dir) {
		return fmt.Errorf("cannot start %q: folder %q must be absolute", l.ID, l.Dir)
	}
	return nil
}

func checkNames(l pipeline.Launch) error {
	for _, name := range []string{l.ID, l.Stage} {
		if name == "" || strings.HasPrefix(name, ".") || strings.ContainsAny(name, "/\x00\n") {
			return fmt.Errorf("cannot start launch: %q is no usable name", name)
		}
	}
	if !filepath.IsAbs(l.Log) {
		return fmt.Errorf("cannot start %q: log %q must be absolute", l.ID, l.Log)
	}
	return nil
}

// mayStart refuses a launch id that was used and a worker that still runs, and
// returns the sequence number of the new launch.
func (h *Host) mayStart(req pipeline.Launch) (int64, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if err := h.reload(); err != nil {
		return 0, err
	}
	var seq int64
	for _, l := range h.cache.launches {
		if l.rec.Launch.ID == req.ID {
			return 0, pipeline.Problemf(pipeline.ProblemRefused, "", "cannot start %q: this launch was started before", req.ID)
		}
		if l.rec.Launch.Stage != req.Stage || l.rec.Launch.Rank != req.Rank {
			continue
		}
		seq = max(seq, l.rec.Seq)
	}
	scan := h.oneScan()
	for dir := range h.slots { // of those that have ended since the last look
		if l := h.cache.launches[dir]; l != nil {
			h.look(l, scan)
		}
	}
	if l := h.newest(req.Stage, req.Rank); l != nil {
		seen := h.look(l, scan)
		if seen.State == pipeline.ProcRunning || seen.State == pipeline.ProcIntended {
			return 0, pipeline.Problemf(pipeline.ProblemRefused, "stop it first",
				"cannot start %q: %q still runs as process %d", req.ID, seen.ID, seen.PID)
		}
	}
	// A folder without an intent is of a start that was cut short before it
	// started anything: it is used again.
	if _, err := os.Lstat(filepath.Join(h.runDir(req), runFile)); err == nil {
		return 0, pipeline.Problemf(pipeline.ProblemRefused, "", "cannot start %q: its run directory exists", req.ID)
	}
	return seq + 1, nil
}

// makeRun makes the run directory with its lock, taken, and the intent. All of
// it is on disk when it returns.
func (h *Host) makeRun(dir string, rec runRecord) (*os.File, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("cannot make run directory: %w", err)
	}
	lock, err := os.OpenFile(filepath.Join(dir, lockFile), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("cannot make run lock: %w", err)
	}
	err = flock(lock)
	h.at(startFolder)
	if err == nil {
		rec.Lock, err = originOf(lock)
	}
	if err == nil {
		err = os.MkdirAll(filepath.Dir(rec.Launch.Log), 0o750)
	}
	for _, name := range []string{startedFile, exitFile, reapedFile} {
		if err == nil && rec.Adopted == nil {
			err = reserveRecord(filepath.Join(dir, name))
		}
	}
	if err == nil {
		err = writeRecord(filepath.Join(dir, runFile), rec)
	}
	for d := dir; err == nil && d != h.opt.RunsDir; {
		d = filepath.Dir(d)
		err = syncDir(d)
	}
	if err != nil {
		lock.Close()
		return nil, fmt.Errorf("cannot record intent: %w", err)
	}
	return lock, nil
}

// Exits tells that a worker has probably ended: look with Observe. It is a
// hint; a worker found without a living identity is not watched.
func (h *Host) Exits() <-chan struct{} { return h.exits }
