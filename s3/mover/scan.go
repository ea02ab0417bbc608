package mover

import (
	"context"
	"errors"
	"path"
	"strings"
	"time"

	"github.com/bmatcuk/doublestar/v4"

	"pipedeck/pipeline"
	"pipedeck/s3/local"
)

const (
	minScan = time.Second
	maxScan = 60 * time.Second
	// idleScan is how often outputs that the mover leaves alone are counted.
	idleScan = 30 * time.Second
	// scanShare keeps scanning below 1/scanShare of the time.
	scanShare = 50
)

// scanLoop keeps o.files true: whole scans are the truth, hints of the watcher
// make it early. Each output has a loop of its own: a directory with hundreds of
// thousands of new files keeps no other from being seen.
func (m *Mover) scanLoop(ctx context.Context, o *output) {
	watcher, err := local.NewWatcher()
	var hints <-chan local.Hint
	if err != nil {
		m.notify(pipeline.Warn, "files are found by scanning only: "+err.Error())
	} else {
		defer func() { _ = watcher.Close() }()
		hints = watcher.Events()
	}
	roots := newWatchedRoots(watcher)
	var due time.Time
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case h := <-hints:
			if m.hint(ctx, o, h) {
				due = time.Time{}
			}
		case <-o.wakeScan:
			due = time.Time{}
		case <-timer.C:
		}
		var wait time.Duration
		due, wait = m.scanDue(ctx, o, due, roots)
		timer.Reset(wait)
	}
}

// scanDue scans if that is due, and says when it is the next time, and when to
// look whether it is.
func (m *Mover) scanDue(ctx context.Context, o *output, due time.Time, roots *watchedRoots) (time.Time, time.Duration) {
	came, awaited := m.lookForRoots(o, roots)
	began := m.opt.Clock()
	if came || !began.Before(due) {
		for r := range o.roots {
			roots.again(o.roots[r].dir)
		}
		m.scan(ctx, o)
		took := m.opt.Clock().Sub(began)
		wait := min(max(m.pause(minScan), took*scanShare), maxScan)
		m.mu.Lock()
		if !o.active || o.isArtifacts() {
			wait = max(wait, m.pause(idleScan))
		}
		m.mu.Unlock()
		due = m.opt.Clock().Add(wait)
	}
	wait := min(due.Sub(m.opt.Clock()), maxScan)
	if awaited {
		wait = min(wait, rootPoll)
	}
	return due, max(wait, 10*time.Millisecond)
}

// hint looks at one path, or says that a scan is due.
func (m *Mover) hint(ctx context.Context, o *output, h local.Hint) (scan bool) {
	for r := range o.roots {
		root := &o.roots[r]
		if h.Root != "" && h.Root != root.dir || o.isArtifacts() {
			continue
		}
		if h.Kind == local.HintOverflow || h.Kind == local.HintDir {
			scan = true
			continue
		}
		m.look(ctx, o, root, h.Rel)
	}
	return scan
}

// look brings one path up to date.
func (m *Mover) look(ctx context.Context, o *output, r *root, rel string) {
	if !m.matches(o, rel) {
		return
	}
	f, err := local.Open(r.dir, rel)
	if err != nil {
		m.absent(o, r, rel, err)
		return
	}
	defer func() { _ = f.Close() }()
	e, err := f.Entry()
	if err != nil {
		return
	}
	e.Rel = rel
	m.observe(ctx, o, r, e)
}

// scan looks at all of an output.
func (m *Mover) scan(ctx context.Context, o *output) {
	m.mu.Lock()
	o.scan.round++
	round := o.scan.round
	m.mu.Unlock()
	problem, blind := "", false
	for i := range o.roots {
		r := &o.roots[i]
		m.prepareAside(o, r)
		problems, err := local.Scan(ctx, r.dir, m.wanted(o), func(e local.Entry) {
			if e.Kind != local.KindDir {
				m.observe(ctx, o, r, e)
			}
		})
		if ctx.Err() != nil {
			return
		}
		if err != nil && !errors.Is(err, local.ErrNoDir) {
			problem, blind = err.Error(), true
		}
		for _, p := range problems {
			problem = p.Err.Error()
		}
	}
	m.mu.Lock()
	var lost []*file
	for _, f := range o.files {
		if f.round != round {
			lost = append(lost, f)
		}
	}
	o.scan.problem, o.scan.blind, o.scan.at = problem, blind, m.opt.Clock()
	o.scan.rounds++
	m.mu.Unlock()
	for _, f := range lost {
		m.look(ctx, o, f.root, f.rel)
	}
	m.reserve.hold(m.opt.Clock())
	m.retire(o)
	m.firstScan(o)
	m.signal()
}

// wanted tells a scan where not to go: for artifacts, wherever no glob leads.
func (m *Mover) wanted(o *output) func(rel string, dir bool) bool {
	if !o.isArtifacts() {
		return func(rel string, dir bool) bool { return dir || m.matches(o, rel) }
	}
	bases := make([]string, 0, len(m.opt.Spec.Artifacts))
	for _, glob := range m.opt.Spec.Artifacts {
		base, _ := doublestar.SplitPattern(path.Clean(glob))
		if path.Clean(glob) == base || !strings.ContainsAny(glob, "*?[{") {
			base = path.Clean(glob)
		}
		bases = append(bases, base)
	}
	return func(rel string, dir bool) bool {
		if !dir {
			return m.matches(o, rel)
		}
		for _, b := range bases {
			if b == "." || b == rel || strings.HasPrefix(b, rel+"/") || strings.HasPrefix(rel, b+"/") {
				return true
			}
		}
		return false
	}
}

// observe takes in what was seen of one file.
func (m *Mover) observe(ctx context.Context, o *output, r *root, e local.Entry) {
	key := m.keyOf(o, e.Rel)
	m.mu.Lock()
	f, known := o.files[key]
	switch {
	case known && (f.root != r || f.rel != e.Rel):
		m.note(pipeline.Error, "two files have the object key "+key+": only the first is moved")
	case known:
		f.round = o.scan.round
		m.refresh(f, e)
	case o.holders[key] != 0 && o.holders[key] == e.ID.CTimeNS && local.IsPlaceholder(e.ID):
		known = true
	}
	m.mu.Unlock()
	if !known {
		m.discover(ctx, o, r, e.Rel, key)
	}
}

// refresh compares a known file with what was seen now. Mover.mu is held.
func (m *Mover) refresh(f *file, e local.Entry) {
	if e.ID.Same(f.id) || f.state == stateRemoving {
		return
	}
	f.setIdentity(e.ID)
	f.changed = m.opt.Clock()
	f.out.newest = later(f.out.newest, e.ID)
	f.complete = false
	f.recount()
	if f.state == stateInFlight || f.state == stateSent {
		return // looked at again when that has ended
	}
	f.attempts, f.next = 0, time.Time{}
	m.judgeAgain(f)
}

// discover begins to count a file. Names that leave during the look at the disk
// are noted, so that a file which this mover removed meanwhile does not come
// back as a ghost. Only the scan loop of an output discovers.
func (m *Mover) discover(ctx context.Context, o *output, r *root, rel, key string) {
	for again := true; again; {
		m.mu.Lock()
		o.left = map[string]bool{}
		m.mu.Unlock()
		f, err := m.newFile(ctx, o, r, rel, key)
		if err != nil {
			m.absent(o, r, rel, err)
		}
		m.mu.Lock()
		again = err == nil && (o.left[key] || f.sample != "" && o.left[f.sample])
		o.left = nil
		if _, known := o.files[key]; err == nil && !again && !known {
			m.admit(f)
		}
		m.mu.Unlock()
	}
}

// newFile looks at a file and at what the ledger knows of its key.
func (m *Mover) newFile(ctx context.Context, o *output, r *root, rel, key string) (*file, error) {
	src, err := local.Open(r.dir, rel)
	if err != nil {
		return nil, err
	}
	e, err := src.Entry()
	_ = src.Close()
	if err != nil {
		return nil, err
	}
	f := &file{out: o, root: r, rel: rel, key: key, id: e.ID, since: m.opt.Clock(), changed: m.opt.Clock(), unit: o.unitOf(rel)}
	return f, m.lookup(ctx, f)
}

// lookup reads the ledger's row of a file. Two may do so at once for a file that
// was found odd at first; either's row is as good.
func (m *Mover) lookup(ctx context.Context, f *file) error {
	row, ok, err := m.opt.Ledger.Row(ctx, f.out.name, f.key)
	if err != nil {
		return err
	}
	sample, elsewhere := "", ""
	if !f.out.isArtifacts() {
		sample, _ = f.out.spec.SampleID(f.rel)
	}
	if sample != "" {
		if elsewhere, err = m.opt.Ledger.Elsewhere(ctx, f.out.name, sample, f.key); err != nil {
			return err
		}
	}
	if !ok {
		row.Output, row.Key, row.Sample = f.out.name, f.key, sample
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if f.row == nil {
		f.row, f.sample, f.elsewhere = &row, sample, elsewhere
	}
	return nil
}

// admit counts a new file and sends it on its way. Mover.mu is held.
func (m *Mover) admit(f *file) {
	o := f.out
	if local.IsPlaceholder(f.id) && f.row.Stored != nil && f.row.Stored.Size > 0 {
		o.holders[f.key] = f.id.CTimeNS
		return
	}
	f.round = o.scan.round
	o.add(f)
	f.setStored(f.row.Stored != nil)
	m.identify(f)
	o.newest = later(o.newest, f.id)
	m.judgeAgain(f)
}

func later(t time.Time, id local.Identity) time.Time {
	if mtime := time.Unix(0, id.MTimeNS); mtime.After(t) {
		return mtime
	}
	return t
}

// absent drops a file that is not there any more, and says why one cannot be
// read.
func (m *Mover) absent(o *output, r *root, rel string, err error) {
	key := m.keyOf(o, rel)
	m.mu.Lock()
	defer m.mu.Unlock()
	f := o.files[key]
	if isGone(err) {
		if f != nil && f.root == r && f.state != stateRemoving {
			m.vanish(f)
		}
		return
	}
	if f == nil {
		f = &file{out: o, root: r, rel: rel, key: key, unit: o.unitOf(rel), since: m.opt.Clock(), odd: true}
		o.add(f)
	}
	m.fail(f, err.Error(), 0)
}

// vanish ends counting a file that somebody else removed. Mover.mu is held.
func (m *Mover) vanish(f *file) {
	if f.dropped {
		return
	}
	if !f.stored && !f.odd && f.out.mine() {
		m.note(pipeline.Warn, "a file of "+f.out.name+" vanished before it was stored: "+f.rel)
	}
	m.leave(f)
}

// firstScan marks an output as known once every file of its first scan has
// been judged.
func (m *Mover) firstScan(o *output) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if o.scan.rounds > 0 && o.tally.files[stateSeen] == 0 {
		o.scan.done = true
	}
}
