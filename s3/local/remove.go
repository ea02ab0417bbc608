package local

import (
	"errors"
	"fmt"
	"path/filepath"
	"strconv"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// Status is how a removal ended.
type Status string

// Values of Status. Only after StatusRemoved is the content gone.
const (
	StatusRemoved  Status = "removed"  // unlinked, with Placeholder: replaced by an empty file
	StatusChanged  Status = "changed"  // not the file that was hashed; at its place
	StatusOpen     Status = "open"     // someone has it open for writing, or that cannot be ruled out yet; at its place
	StatusVanished Status = "vanished" // it was not there
	StatusDenied   Status = "denied"   // may not or must not be removed (permission, hard links, no regular file); at its place
	StatusKept     Status = "kept"     // lies aside, its name is taken: see Aside
	StatusRestored Status = "restored" // of Restore: at its place again
	StatusMoved    Status = "moved"    // of Move: it lies aside, checked
)

// Outcome is the status of one removal and why.
type Outcome struct {
	Status Status
	Reason string // empty for a plain StatusRemoved or StatusRestored
	Aside  string // for StatusKept and StatusMoved: where it lies
	// After is what a file with other names is now, that was moved or removed
	// by one of them: ctime has changed, by this.
	After *Identity
}

// Points at which a Remover calls its Hook, in this order.
const (
	PointNamed   = "aside.named"   // its place aside is known, nothing was moved
	PointRenamed = "aside.renamed" // it lies aside, unchecked
	PointChecked = "aside.checked" // it lies aside, checked, about to be unlinked
	PointGone    = "unlinked"
)

// Points are all of them.
func Points() []string { return []string{PointNamed, PointRenamed, PointChecked, PointGone} }

// DefaultQuiet is how long a file must have been unchanged to be removed from
// a filesystem that does not tell who has it open for writing.
const DefaultQuiet = 10 * time.Second

// Remover removes files that were proven safe elsewhere. A file is moved
// aside first, so that no writer can find it any more, checked there, and
// only then unlinked; what fails the check is moved back. It is safe for
// concurrent use on different files; one aside folder has one Remover.
type Remover struct {
	Aside string             // from AsideDir
	Quiet time.Duration      // 0: DefaultQuiet
	Hook  func(point string) // for tests of crashes; may be nil
	Now   func() time.Time   // nil: time.Now
	// Links: a file with other names is taken too. What was proven must not
	// change under another name; what a plan gives up may.
	Links bool

	mu    sync.RWMutex // held for writing while empty folders are removed
	names sync.Mutex   // orders moves aside where no rename refuses to replace
	homes sync.Map     // root -> true once its root file is on disk
}

// NewRemover makes a Remover that moves files to aside.
func NewRemover(aside string) *Remover { return &Remover{Aside: aside} }

// Remove unlinks the file rel below root if it is still the one that want
// describes, has no other name and nobody has it open for writing. An error
// means that the attempt could not be made, and the file is at its place; it
// wraps the system's error (ENOSPC: the aside folder needs room).
func (r *Remover) Remove(root, rel string, want Identity) (Outcome, error) {
	return r.take(root, rel, want, asRemoval)
}

// Move is Remove that leaves the file aside: Restore brings it back. A file
// that an earlier Move left aside without the last check is checked now.
func (r *Remover) Move(root, rel string, want Identity) (Outcome, error) {
	return r.take(root, rel, want, asMove)
}

// Placeholder is Remove that leaves an empty file of the same name, mode,
// owner and mtime. The two are swapped in one step, so that a script which
// skips by existence never misses the name; only a filesystem that cannot
// swap (not ext4, xfs, btrfs, tmpfs) has a moment without it. An empty file is
// StatusDenied: it is a placeholder already.
func (r *Remover) Placeholder(root, rel string, want Identity) (Outcome, error) {
	if IsPlaceholder(want) {
		return Outcome{Status: StatusDenied, Reason: "it is empty already"}, nil
	}
	return r.take(root, rel, want, asSwap)
}

// manner is what becomes of a file that lies aside.
type manner int

const (
	asRemoval manner = iota
	asSwap           // removed, and a placeholder takes its place
	asMove           // it stays aside
)

// removal is one file on its way.
type removal struct {
	r                 *Remover
	rel, dirRel, base string
	want              Identity
	root              int   // descriptors, -1 if not open
	dir               int   // where the file belongs
	home              int   // the aside folder of its root
	shelf             int   // where it lies aside
	file              *File // as opened at its place
	place             string
	links             uint32    // names that it had at first
	stand             *Identity // of the placeholder that took its place
}

func (r *Remover) take(root, rel string, want Identity, how manner) (Outcome, error) {
	r.mu.RLock()
	defer r.mu.RUnlock()
	placeholder := how == asSwap
	m := &removal{r: r, rel: rel, want: want, root: -1, dir: -1, home: -1, shelf: -1}
	defer m.close()
	if out, err := m.open(root); err != nil || out.Status != "" {
		if err == nil && how == asMove && out.Status == StatusVanished {
			return m.moved(root, out)
		}
		return out, err
	}
	if out := m.check(m.want); out.Status != "" {
		if how == asMove && out.Status == StatusChanged {
			return m.moved(root, out) // its name was taken since
		}
		return out, nil
	}
	out, err := m.setAside(placeholder)
	if err != nil || out.Status != "" {
		return out, err
	}
	r.at(PointRenamed)
	if out := m.checkAside(); out.Status != "" {
		return m.back(out), nil
	}
	r.at(PointChecked)
	if how == asMove {
		return Outcome{Status: StatusMoved, Aside: m.place, After: m.after()}, nil
	}
	if placeholder && m.stand == nil {
		if err := m.standIn(m.dir); err != nil {
			return m.back(Outcome{Status: StatusDenied, Reason: err.Error()}), nil
		}
	}
	if err := unix.Unlinkat(m.shelf, m.base, 0); err != nil {
		return m.back(Outcome{Status: StatusDenied, Reason: err.Error()}), nil
	}
	r.at(PointGone)
	return Outcome{Status: StatusRemoved, After: m.after()}, nil
}

// after is for files with other names, which Links allows.
func (m *removal) after() *Identity {
	if !m.r.Links {
		return nil
	}
	e, err := m.file.Entry()
	if err != nil || e.Nlink < 1 || e.Nlink == 1 && m.links < 2 {
		return nil
	}
	return &e.ID
}

// open finds the file at its place and the aside folder of its root.
func (m *removal) open(root string) (Outcome, error) {
	var err error
	if m.dirRel, m.base, err = splitRel(m.rel); err != nil {
		return Outcome{}, err
	}
	if root, err = filepath.Abs(root); err != nil {
		return Outcome{}, pathError("locate", root, err)
	}
	if m.root, err = openRoot(root); err != nil {
		return outcomeOf(err)
	}
	if m.dir, err = openDirBelow(m.root, m.dirRel); err != nil {
		return outcomeOf(pathError("open", m.rel, err))
	}
	if m.file, err = openAt(m.dir, m.base, m.rel); err != nil {
		return outcomeOf(err)
	}
	m.home, err = m.r.openHome(root)
	m.place = filepath.Join(m.r.Aside, rootID(root))
	return Outcome{}, err
}

// outcomeOf turns what the file is into an outcome, and leaves other errors.
func outcomeOf(err error) (Outcome, error) {
	switch {
	case errors.Is(err, ErrVanished), errors.Is(err, ErrNoDir):
		return Outcome{Status: StatusVanished, Reason: err.Error()}, nil
	case errors.Is(err, ErrDenied), errors.Is(err, ErrSymlink), errors.Is(err, ErrNotRegular):
		return Outcome{Status: StatusDenied, Reason: err.Error()}, nil
	case errors.Is(err, unix.EXDEV):
		return Outcome{Status: StatusDenied, Reason: "it is on another filesystem than its aside folder"}, nil
	default:
		return Outcome{}, err
	}
}

// check compares the open file with what it must be and looks for writers. An
// empty status is a pass.
func (m *removal) check(must Identity) Outcome {
	e, err := m.file.Entry()
	m.links = max(m.links, e.Nlink)
	switch {
	case err != nil:
		return Outcome{Status: StatusDenied, Reason: err.Error()}
	case !e.ID.Same(must):
		return Outcome{Status: StatusChanged, Reason: difference(must, e.ID)}
	case e.Nlink > 1 && !m.r.Links:
		return Outcome{Status: StatusDenied, Reason: fmt.Sprintf("the file has %d names (hard links)", e.Nlink)}
	}
	switch state, reason := m.file.Writer(); state {
	case WriterNone:
		return Outcome{}
	case WriterOpen:
		return Outcome{Status: StatusOpen, Reason: "open for writing"}
	case WriterUnknown:
		// Aside, the ctime is that of the rename: only the first check tells.
		if m.shelf < 0 && !Settled(must, m.r.now(), m.r.quiet()) {
			return Outcome{Status: StatusOpen, Reason: reason}
		}
	}
	return Outcome{}
}

// checkAside is the last check, on the file as it lies aside. The first look
// at its new ctime makes that part of the identity again: a change of content
// after it shows even if the writer sets mtime back.
func (m *removal) checkAside() Outcome {
	st, err := statAt(m.shelf, m.base)
	if err != nil {
		return Outcome{Status: StatusDenied, Reason: err.Error()}
	}
	now := identityOf(&st)
	if !now.SameIgnoringCTime(m.want) {
		return Outcome{Status: StatusChanged, Reason: difference(m.want, now)}
	}
	if out := m.check(now); out.Status != "" {
		return out
	}
	again, err := m.file.Identity()
	if err != nil || !again.Same(now) {
		return Outcome{Status: StatusChanged, Reason: difference(now, again)}
	}
	return Outcome{}
}

func difference(want, got Identity) string {
	switch {
	case want.Dev != got.Dev || want.Ino != got.Ino:
		return "another file has its name"
	case want.Size != got.Size:
		return fmt.Sprintf("size was %d, is %d", want.Size, got.Size)
	case want.MTimeNS != got.MTimeNS:
		return "mtime changed"
	default:
		return "ctime changed"
	}
}

// setAside moves the file, or swaps it with a placeholder, into the first
// slot where its name is free.
func (m *removal) setAside(placeholder bool) (Outcome, error) {
	kind, move := slotRemoved, m.moveAside
	if placeholder {
		kind, move = slotSwapped, m.swapAside
	}
	for n := range maxSlots {
		slot := kind + strconv.Itoa(n)
		shelf, err := makeDirsBelow(m.home, joinRel(slot, m.dirRel), 0o700)
		if errors.Is(err, unix.ENOTDIR) || errors.Is(err, unix.ELOOP) {
			continue // a file lies there whose name is now a directory's
		}
		if err != nil {
			return Outcome{}, pathError("move aside", m.rel, err)
		}
		err = move(shelf)
		if err == nil {
			m.shelf = shelf
			m.place = filepath.Join(m.place, slot) + "/" + m.rel
			return Outcome{}, nil
		}
		_ = unix.Close(shelf)
		if placeholder && noRenameFlags(err) {
			return m.setAside(false)
		}
		if _, there := statAt(m.dir, m.base); there == nil && errors.Is(err, unix.ENOENT) {
			return Outcome{}, fmt.Errorf("cannot move aside %q: %q was removed", m.rel, m.r.Aside)
		}
		if !errors.Is(err, unix.EEXIST) {
			return outcomeOf(pathError("move aside", m.rel, err))
		}
	}
	return Outcome{}, pathError("move aside", m.rel, unix.EEXIST)
}

// moveAside renames the file to the shelf. Where no rename refuses to replace,
// only this Remover makes names there, so that a look before is enough.
func (m *removal) moveAside(shelf int) error {
	m.r.at(PointNamed)
	err := renameNoReplace(m.dir, m.base, shelf, m.base)
	if !noRenameFlags(err) {
		return err
	}
	m.r.names.Lock()
	defer m.r.names.Unlock()
	if _, err := statAt(shelf, m.base); !errors.Is(err, unix.ENOENT) {
		return unix.EEXIST
	}
	return unix.Renameat(m.dir, m.base, shelf, m.base)
}

// back undoes setAside after a failed check. out is the outcome if that works.
func (m *removal) back(out Outcome) Outcome {
	err := m.putBack()
	if errors.Is(err, unix.ENOENT) && m.stand == nil {
		// Its directory was removed when it looked empty.
		var dir int
		if dir, err = makeDirsBelow(m.root, m.dirRel, 0o755); err == nil {
			_ = unix.Close(m.dir)
			m.dir = dir
			err = m.putBack()
		}
	}
	if err == nil {
		return out
	}
	why := err.Error()
	if errors.Is(err, unix.EEXIST) {
		why = "its name is taken"
	}
	return Outcome{Status: StatusKept, Aside: m.place, Reason: out.Reason + "; " + why}
}

func (m *removal) putBack() error {
	if m.stand != nil {
		return swapBack(m.dir, m.shelf, m.base, *m.stand)
	}
	return moveBack(m.shelf, m.dir, m.base)
}

func (m *removal) close() {
	if m.file != nil {
		_ = m.file.Close()
	}
	for _, fd := range []int{m.root, m.dir, m.home, m.shelf} {
		if fd >= 0 {
			_ = unix.Close(fd)
		}
	}
}

func (r *Remover) at(point string) {
	if r.Hook != nil {
		r.Hook(point)
	}
}

func (r *Remover) now() time.Time {
	if r.Now != nil {
		return r.Now()
	}
	return time.Now()
}

func (r *Remover) quiet() time.Duration {
	if r.Quiet > 0 {
		return r.Quiet
	}
	return DefaultQuiet
}
