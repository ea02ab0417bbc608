package mover

import (
	"context"
	"errors"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"pipedeck/pipeline"
	"pipedeck/s3/coverage"
	"pipedeck/s3/local"
)

// progressEvery is after how many files a long look tells how far it is.
const progressEvery = 500

// Holdings lists local files with what the store proves of each.
func (m *Mover) Holdings(ctx context.Context, req pipeline.HoldingsRequest, progress pipeline.Progress) ([]pipeline.Holding, error) {
	chosen, err := m.chooseExactly(req.Outputs)
	if err != nil {
		return nil, err
	}
	l := &look{m: m, fresh: req.Fresh, writers: &local.Writers{}}
	for _, o := range chosen {
		l.ofOutput(ctx, o)
	}
	for _, dir := range req.Scratch {
		l.ofScratch(ctx, filepath.Clean(dir))
	}
	count := newCounter(progress, 2*l.files()) // each is compared, then looked at for writers
	list := make([]pipeline.Holding, 0, len(l.parts))
	for _, p := range l.parts {
		list = append(list, l.holding(ctx, p, count))
		if err := ctx.Err(); err != nil {
			return nil, err
		}
	}
	count.end()
	return list, nil
}

// chooseExactly is choose without "none is all".
func (m *Mover) chooseExactly(names []string) ([]*output, error) {
	if len(names) == 0 {
		return nil, nil
	}
	return m.choose(names)
}

// look is one look at all that an action touches.
type look struct {
	m       *Mover
	fresh   bool
	writers *local.Writers
	parts   []*part
}

// part is one output or scratch directory: of a scratch directory, what looks
// like the files of several outputs, and the rest.
type part struct {
	holding pipeline.Holding
	audits  []*audit
	other   []pipeline.ListedFile
}

func (l *look) files() (n int64) {
	for _, p := range l.parts {
		for _, a := range p.audits {
			n += int64(len(a.files))
		}
	}
	return n
}

func (l *look) audit(o *output) *audit {
	a := &audit{m: l.m, o: o, watch: l.writers}
	a.begin()
	return a
}

// ofOutput finds the files of an output, what lies aside first: a file that
// comes back meanwhile is then seen twice, and none is missed.
func (l *look) ofOutput(ctx context.Context, o *output) {
	a := l.audit(o)
	p := &part{holding: pipeline.Holding{Name: o.name, At: a.cov.At, Undoable: true, StoredFiles: -1}, audits: []*audit{a}}
	l.parts = append(l.parts, p)
	aside := l.aside(ctx, a, p)
	a.scan(ctx)
	a.files = slices.DeleteFunc(a.files, func(f audited) bool {
		return !f.at.aside && aside[[2]uint64{f.id.Dev, f.id.Ino}]
	})
	a.sort(true)
	l.m.mu.Lock()
	if l.m.known {
		p.holding.StoredFiles = o.stored.Files
	}
	l.m.mu.Unlock()
}

// aside adds the files of an output that were moved aside, and says which they
// are.
func (l *look) aside(ctx context.Context, a *audit, p *part) map[[2]uint64]bool {
	found := map[[2]uint64]bool{}
	spots := map[string]*spot{}
	for _, dir := range l.asideDirs(a, p) {
		files, problems, err := local.RecoverAside(ctx, dir)
		if err != nil {
			a.doubt(err)
		}
		for _, problem := range problems {
			a.doubt(problem.Err)
		}
		for _, f := range files {
			if !a.o.isRoot(f.Root) || f.Entry.Kind != local.KindRegular || !a.m.matches(a.o, f.Rel) {
				continue
			}
			shelf := strings.TrimSuffix(f.Path, "/"+f.Rel)
			if spots[shelf] == nil {
				spots[shelf] = &spot{root: &root{dir: shelf, rank: -1}, base: f.Root, aside: true}
			}
			found[[2]uint64{f.Entry.ID.Dev, f.Entry.ID.Ino}] = true
			a.add(spots[shelf], f.Rel, f.Entry.ID)
		}
	}
	return found
}

// asideDirs are the directories, each once, that the files of an output's roots
// are moved aside to.
func (l *look) asideDirs(a *audit, p *part) (dirs []string) {
	for i := range a.o.roots {
		r := &a.o.roots[i]
		dir, err := local.AsideDir(l.m.opt.StateDir, r.dir)
		if errors.Is(err, local.ErrNoDir) {
			dir = filepath.Join(l.m.opt.StateDir, "aside")
		} else {
			p.holding.Dirs = append(p.holding.Dirs, r.dir)
		}
		if err != nil && !errors.Is(err, local.ErrNoDir) {
			p.holding.Undoable = false
			continue
		}
		if !slices.Contains(dirs, dir) {
			dirs = append(dirs, dir)
		}
	}
	if len(p.holding.Dirs) == 0 {
		p.holding.Dirs = []string{a.o.roots[0].dir}
	}
	return dirs
}

// isRoot reads only what never changes: the rest of a root is Mover.mu's.
func (o *output) isRoot(dir string) bool {
	for i := range o.roots {
		if o.roots[i].dir == dir {
			return true
		}
	}
	return false
}

func (p *part) doubt(err error) {
	p.holding.Complete = false
	if p.holding.Reason == "" {
		p.holding.Reason = pipeline.Clean(err.Error())
	}
}

// holding classes the files of a part.
func (l *look) holding(ctx context.Context, p *part, count *counter) pipeline.Holding {
	h := &p.holding
	h.Complete = h.Reason == ""
	h.Files = p.other
	for _, a := range p.audits {
		a.tick = count.tick
		a.recall(ctx)
		if l.fresh {
			a.ask(ctx)
		} else {
			a.remember()
		}
		a.compareAll(ctx)
		a.lookForWriters(ctx)
		h.Files = slices.Grow(h.Files, len(a.files))
		for i := range a.files {
			if f := &a.files[i]; f.class != coverage.Skipped {
				h.Files = append(h.Files, a.listed(f))
			}
		}
		if !a.cov.Complete && h.Complete {
			h.Complete, h.Reason = false, "what the store holds is not known"
			if a.cov.Reason != nil {
				h.Reason = *a.cov.Reason
			}
		}
		a.files = nil
	}
	return *h
}

func (a *audit) listed(f *audited) pipeline.ListedFile {
	rel := f.rel
	if f.at.under != "" {
		rel = f.at.under + "/" + rel
	}
	return pipeline.ListedFile{Root: f.at.base, Path: rel, ID: fileID(f.id), Class: a.fileClass(f)}
}

func (a *audit) fileClass(f *audited) pipeline.FileClass {
	if f.foreign {
		return pipeline.ClassUnknown // of another run: this one's store says nothing of it
	}
	switch f.class {
	case coverage.Proven:
		return pipeline.ClassProven
	case coverage.Unproven:
		return pipeline.ClassUnproven
	case coverage.Mismatched:
		return pipeline.ClassMismatched
	case coverage.Missing:
		return pipeline.ClassMissing
	case coverage.BeingWritten:
		return pipeline.ClassBeingWritten
	case coverage.Unknown, coverage.Skipped:
	}
	return pipeline.ClassUnknown
}

// remember classes files by what the mover proved, without asking the store.
// What it does not know is judged: a.objs is empty, so that a complete file is
// missing.
func (a *audit) remember() {
	for i := range a.files {
		f := &a.files[i]
		class, known := a.remembered(f)
		if known {
			a.settle(f, class)
			continue
		}
		a.open = append(a.open, i)
	}
}

func (a *audit) remembered(f *audited) (coverage.Class, bool) {
	switch {
	case local.IsPlaceholder(f.id) && f.held:
		return coverage.Skipped, true
	case f.known != nil && f.proven:
		return coverage.Proven, true
	case f.at.aside:
		return coverage.Missing, true
	}
	a.m.mu.Lock()
	defer a.m.mu.Unlock()
	mine := a.mine(f)
	if mine == nil || !mine.id.Same(f.id) {
		return coverage.Unknown, false
	}
	f.foreign = mine.owner != ""
	switch mine.state {
	case stateSeen:
		return coverage.Unknown, false
	case stateWriting:
		return coverage.BeingWritten, true
	case stateSent:
		return coverage.Unproven, true
	case stateMismatch:
		return coverage.Mismatched, true
	case stateFailed:
		if mine.odd {
			return coverage.Unknown, false
		}
	case stateWaiting, stateInFlight, stateRemoving, stateHeld, stateKept, states:
	}
	return coverage.Missing, true
}

// mine is the mover's own record of a file. Mover.mu is held.
func (a *audit) mine(f *audited) *file {
	mine := a.o.files[strings.TrimPrefix(f.key, a.m.prefix)]
	if mine == nil || mine.root.dir != f.at.root.dir || mine.rel != f.rel {
		return nil
	}
	return mine
}

// lookForWriters makes files that somebody has open being written, and such as
// are on their way missing.
func (a *audit) lookForWriters(ctx context.Context) {
	all := make([]int, len(a.files))
	for i := range all {
		all[i] = i
	}
	a.each(ctx, all, func(i int) {
		defer a.tick()
		f := &a.files[i]
		if f.class == coverage.Skipped || f.class == coverage.BeingWritten {
			return
		}
		if !f.looked {
			a.lookForWriter(f)
		}
		a.m.mu.Lock()
		defer a.m.mu.Unlock()
		if mine := a.mine(f); mine != nil && mine.state == stateInFlight && f.class != coverage.Unknown && f.class != coverage.BeingWritten {
			f.class = coverage.Missing
		}
	})
}

func (a *audit) lookForWriter(f *audited) {
	src, err := local.Open(f.at.root.dir, f.rel)
	if isGone(err) {
		f.class = coverage.Skipped
		return
	}
	if err != nil {
		a.doubt(err)
		f.class = coverage.Unknown
		return
	}
	defer func() { _ = src.Close() }()
	id, err := src.Identity()
	switch {
	case err != nil:
		a.doubt(err)
		f.class = coverage.Unknown
	case !id.Same(f.id) || a.watch.Has(src):
		f.id, f.class = id, coverage.BeingWritten
	}
}

func fileID(id local.Identity) pipeline.FileID {
	return pipeline.FileID{Dev: id.Dev, Ino: id.Ino, Size: id.Size, MTimeNS: id.MTimeNS, CTimeNS: id.CTimeNS}
}

// counter turns single steps into now and then a word of progress, one at a
// time.
type counter struct {
	mu    sync.Mutex
	tell  pipeline.Progress
	total int64
	done  int64
}

func newCounter(tell pipeline.Progress, total int64) *counter {
	if tell == nil {
		tell = func(int64, int64) {}
	}
	tell(0, total)
	return &counter{tell: tell, total: total}
}

func (c *counter) tick() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.done++; c.done%progressEvery == 0 && c.done < c.total {
		c.tell(c.done, c.total)
	}
}

func (c *counter) end() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.tell(c.total, c.total)
}
