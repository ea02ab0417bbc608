package mover

import (
	"context"
	"errors"
	"path"
	"path/filepath"
	"slices"
	"sort"
	"strings"
	"sync"

	"pipedeck/pipeline"
	"pipedeck/s3/local"
)

// movers is how many files are moved at the same time.
const moversAtOnce = 4

// Trash moves files to the trash of an action.
func (m *Mover) Trash(ctx context.Context, action string, files []pipeline.ListedFile, progress pipeline.Progress) (pipeline.MoveReport, error) {
	if err := goodAction(action); err != nil {
		return pipeline.MoveReport{}, err
	}
	m.care.moving.Lock()
	defer m.care.moving.Unlock()
	t := m.newTransfer(ctx, action, local.BinTrash, progress, len(files))
	for i := range files {
		f := &files[i]
		t.add(f.Root, local.BinEntry{
			Root: f.Root, Path: f.Path, Class: string(f.Class),
			ID: local.Identity{Dev: f.ID.Dev, Ino: f.ID.Ino, Size: f.ID.Size, MTimeNS: f.ID.MTimeNS, CTimeNS: f.ID.CTimeNS},
		})
	}
	return t.run()
}

// transfer moves files of some roots away for one action.
type transfer struct {
	m      *Mover
	ctx    context.Context //nolint:containedctx // it lives as long as one call
	action string
	kind   local.BinKind
	count  *counter
	roots  map[string]*lot
	order  []*lot

	mu     sync.Mutex
	report pipeline.MoveReport
	// linked is what files with several names became by this transfer; again
	// are names of files that had changed, perhaps so.
	linked map[[2]uint64]local.Identity
	again  []name
	last   bool
}

type name struct {
	lot   *lot
	entry *local.BinEntry
}

// lot is the files of one root and where they go.
type lot struct {
	root    string
	files   []local.BinEntry
	out     *output // nil: scratch
	place   *root
	bin     local.Bin
	remover *local.Remover
	remove  bool // for good: the trash would be on another filesystem
	err     error
	dirs    map[string]bool // of files that left
}

func (m *Mover) newTransfer(ctx context.Context, action string, kind local.BinKind, progress pipeline.Progress, files int) *transfer {
	return &transfer{m: m, ctx: ctx, action: action, kind: kind, count: newCounter(progress, int64(files)), roots: map[string]*lot{}, linked: map[[2]uint64]local.Identity{}}
}

func (t *transfer) add(root string, e local.BinEntry) {
	l := t.roots[root]
	if l == nil {
		l = &lot{root: root, dirs: map[string]bool{}}
		t.roots[root] = l
		t.order = append(t.order, l)
	}
	l.files = append(l.files, e)
}

func (t *transfer) run() (pipeline.MoveReport, error) {
	for _, l := range t.order {
		t.m.placeLot(t, l)
	}
	if err := t.list(); err != nil {
		return t.report, err
	}
	t.m.hook(HookListed)
	for _, l := range t.order {
		t.move(l)
	}
	t.moveLinked()
	t.tidy()
	if err := t.ctx.Err(); err != nil {
		return t.report, err
	}
	t.m.hook(HookTried)
	if err := t.close(true); err != nil {
		return t.report, err
	}
	t.count.end()
	return t.report, nil
}

// placeLot finds where the files of a root go.
func (m *Mover) placeLot(t *transfer, l *lot) {
	for _, o := range m.outputs {
		for i := range o.roots {
			if o.roots[i].dir == l.root && !o.isArtifacts() {
				l.out, l.place = o, &o.roots[i]
			}
		}
	}
	if l.out == nil {
		same, err := local.SameFilesystem(m.opt.StateDir, l.root)
		if l.remove, l.err = err == nil && !same, err; l.remove {
			l.remover, l.err = m.scratchRemover(t.ctx, l.root)
			return
		}
	}
	base := m.opt.StateDir
	if l.out != nil {
		base, l.err = local.BinBase(m.opt.StateDir, l.root)
	}
	if isGone(l.err) { // what an earlier try moved may still be there
		base, l.err = m.opt.StateDir, nil
	}
	l.bin = local.Bin{Base: base, Kind: t.kind, Action: t.action}
	l.remover = l.bin.Remover()
	l.remover.Now, l.remover.Hook = m.opt.Clock, m.opt.Hook
}

// scratchRemover removes files where no trash is. What a killed agent had moved
// aside is put back first, to be looked at again.
func (m *Mover) scratchRemover(ctx context.Context, root string) (*local.Remover, error) {
	aside, err := local.AsideDir(m.opt.StateDir, root)
	if err != nil {
		return nil, err
	}
	if err := m.restoreFrom(ctx, aside); err != nil {
		return nil, err
	}
	return &local.Remover{Aside: aside, Links: true, Now: m.opt.Clock, Hook: m.opt.Hook}, nil
}

// list puts on disk what is about to be moved: whatever happens then, every
// file is either at its place or in the bin that names it.
func (t *transfer) list() error {
	for i, l := range t.order {
		if l.err != nil || l.remove || slices.ContainsFunc(t.order[:i], func(o *lot) bool { return o.bin == l.bin }) {
			continue
		}
		err := t.listBin(l.bin)
		if local.IsFull(err) {
			t.m.purgeOldest(t.ctx, t.action)
			t.m.makeRoom(err)
			err = t.m.reserve.room.Spend(func() error { return t.listBin(l.bin) })
		}
		if err != nil {
			return pipeline.Problemf(pipeline.ProblemFailed, "nothing was moved", "cannot list what is to be moved: %w", err)
		}
	}
	return nil
}

func (t *transfer) listBin(bin local.Bin) error {
	if err := bin.SetAbout(t.m.aboutNow(t.action, false)); err != nil {
		return err
	}
	return bin.AddList(func(yield func(local.BinEntry) bool) {
		for _, l := range t.order {
			if l.bin != bin || l.remove || l.err != nil {
				continue
			}
			for _, e := range l.files {
				if !yield(e) {
					return
				}
			}
		}
	})
}

// close says of the bins that all was tried.
func (t *transfer) close(done bool) (err error) {
	seen := map[local.Bin]bool{}
	for _, l := range t.order {
		if l.err != nil || l.remove || seen[l.bin] {
			continue
		}
		seen[l.bin] = true
		err = errors.Join(err, l.bin.SetAbout(t.m.aboutNow(t.action, done)), l.bin.Tidy())
		t.m.forgetBin(l.bin)
	}
	return err
}

func (m *Mover) aboutNow(action string, done bool) local.BinAbout {
	boot, up := m.care.boot()
	return local.BinAbout{Action: action, At: m.opt.Clock().UTC(), Boot: boot, Up: up, Done: done}
}

// move takes the files of one root, some at a time.
func (t *transfer) move(l *lot) {
	var wg sync.WaitGroup
	work := make(chan int, moversAtOnce)
	for range moversAtOnce {
		wg.Go(func() {
			for i := range work {
				t.take(l, &l.files[i])
				t.count.tick()
			}
		})
	}
	for i := range l.files {
		if t.ctx.Err() != nil {
			break
		}
		work <- i
	}
	close(work)
	wg.Wait()
	if l.remove && l.remover != nil {
		_ = l.remover.Tidy()
	}
}

func (t *transfer) take(l *lot, e *local.BinEntry) {
	var out local.Outcome
	err := l.err
	if err == nil {
		if out, err = t.attempt(l, e); local.IsFull(err) && t.m.makeRoom(err) {
			out, err = t.attempt(l, e)
		}
	}
	full := filepath.Join(l.root, e.Path)
	t.mu.Lock()
	defer t.mu.Unlock()
	inode := [2]uint64{e.ID.Dev, e.ID.Ino}
	if out.After != nil {
		t.linked[inode] = *out.After
	}
	if err == nil && out.Status == local.StatusChanged && !t.last {
		t.again = append(t.again, name{l, e})
		return
	}
	switch {
	case isGone(err) || err == nil && out.Status == local.StatusVanished:
		t.report.Gone++
		return
	case err != nil:
		t.report.Stay(full, err.Error())
		return
	case out.Status == local.StatusMoved:
		t.report.Moved++
		t.report.MovedBytes += e.ID.Size
	case out.Status == local.StatusRemoved:
		t.report.Removed++
	default:
		reason := out.Reason
		if out.Aside != "" {
			reason += "; it lies at " + out.Aside
		}
		t.report.Stay(full, reason)
		return
	}
	if dir := path.Dir(e.Path); dir != "." {
		l.dirs[dir] = true
	}
	t.m.gone(l, e)
}

// moveLinked moves further names of files of which one was moved already: that
// changed their ctime, to a value that is known.
func (t *transfer) moveLinked() {
	t.last = true
	for _, a := range t.again {
		e := *a.entry
		want := t.linked[[2]uint64{e.ID.Dev, e.ID.Ino}]
		if want.SameIgnoringCTime(e.ID) {
			e.ID = want
		}
		t.take(a.lot, &e)
	}
}

func (t *transfer) attempt(l *lot, e *local.BinEntry) (local.Outcome, error) {
	if l.remove {
		return l.remover.Remove(l.root, e.Path, e.ID)
	}
	out, err := l.remover.Move(l.root, e.Path, e.ID)
	if err == nil && out.Status == local.StatusMoved {
		t.m.hook(HookMoved)
	}
	return out, err
}

// gone ends counting a file that was moved away. A file of its name that comes
// later is a new one.
func (m *Mover) gone(l *lot, e *local.BinEntry) {
	if l.out == nil {
		return
	}
	m.mu.Lock()
	f := l.out.files[m.keyOf(l.out, e.Path)]
	mine := f != nil && f.root == l.place && f.rel == e.Path && f.id.Dev == e.ID.Dev && f.id.Ino == e.ID.Ino
	if mine {
		m.leave(f)
	}
	m.mu.Unlock()
	if mine && f.unit != "" {
		m.goneFromUnit(f)
	}
}

// leave ends counting a file that is gone. Mover.mu is held.
func (m *Mover) leave(f *file) {
	// A key that comes back before its first upload is verified has two files
	// that would each count it.
	f.out.renewed = f.out.renewed || f.state == stateSent || f.state == stateInFlight
	f.dropped = true
	f.out.drop(f)
}

// tidy removes the directories that the files left empty, never a root itself.
func (t *transfer) tidy() {
	for _, l := range t.order {
		all := map[string]bool{}
		for dir := range l.dirs {
			for ; dir != "." && !all[dir]; dir = path.Dir(dir) {
				all[dir] = true
			}
		}
		dirs := make([]string, 0, len(all))
		for dir := range all {
			dirs = append(dirs, dir)
		}
		sort.Slice(dirs, func(i, j int) bool { return strings.Count(dirs[i], "/") > strings.Count(dirs[j], "/") })
		for _, dir := range dirs {
			_, _ = local.RemoveEmptyDir(l.root, dir)
		}
	}
}
