package local

import (
	"errors"

	"golang.org/x/sys/unix"
)

var errInUse = errors.New("its placeholder was replaced or written to")

// swapAside puts an empty file on the shelf and swaps it with the file.
func (m *removal) swapAside(shelf int) error {
	if err := m.standIn(shelf); err != nil {
		return err
	}
	m.r.at(PointNamed)
	err := exchange(m.dir, m.base, shelf, m.base)
	if err != nil {
		m.stand = nil
		_ = unix.Unlinkat(shelf, m.base, 0)
	}
	return err
}

// standIn makes the placeholder in dir; EEXIST if the name is taken. It gets
// the file's mtime, by which recovery knows it from a file that a worker has
// just created.
func (m *removal) standIn(dir int) error {
	st, err := m.file.stat()
	if err != nil {
		return err
	}
	const flags = unix.O_WRONLY | unix.O_CREAT | unix.O_EXCL | unix.O_NOFOLLOW | unix.O_CLOEXEC
	fd, err := unix.Openat(dir, m.base, flags, 0o600)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	// Owner and mode as far as the agent's user may set them: a foreign owner
	// is no reason to keep the file.
	_ = unix.Fchown(fd, int(st.Uid), int(st.Gid))
	_ = unix.Fchmod(fd, uint32(st.Mode)&0o7777)
	when := unix.NsecToTimespec(m.want.MTimeNS)
	err = unix.UtimesNanoAt(dir, m.base, []unix.Timespec{when, when}, unix.AT_SYMLINK_NOFOLLOW)
	if err != nil {
		_ = unix.Unlinkat(dir, m.base, 0)
		return err
	}
	var made unix.Stat_t
	if err := unix.Fstat(fd, &made); err != nil {
		_ = unix.Unlinkat(dir, m.base, 0)
		return err
	}
	id := identityOf(&made)
	m.stand = &id
	return nil
}

// standsFor says whether there is a placeholder that was made for file.
func standsFor(there, file *unix.Stat_t) bool {
	a, b := identityOf(there), identityOf(file)
	return kindOf(uint32(there.Mode)) == KindRegular && IsPlaceholder(a) && a.MTimeNS == b.MTimeNS
}

// swapBack puts the file on the shelf back in the place of its placeholder,
// and removes that. If the placeholder is not what it was, both stay.
func swapBack(dir, shelf int, base string, stand Identity) error {
	isStand := func(at int) bool {
		st, err := statAt(at, base)
		return err == nil && identityOf(&st).SameIgnoringCTime(stand)
	}
	if !isStand(dir) {
		return errInUse
	}
	if err := exchange(dir, base, shelf, base); err != nil {
		return err
	}
	if !isStand(shelf) {
		// Someone took the name between look and swap: theirs goes back.
		if err := exchange(dir, base, shelf, base); err != nil {
			return err
		}
		return errInUse
	}
	f, err := openAt(shelf, base, base)
	if err != nil {
		return err
	}
	defer f.Close()
	if state, _ := f.Writer(); state == WriterOpen {
		return nil // left on the shelf with whatever is written to it, for recovery
	}
	return unix.Unlinkat(shelf, base, 0)
}
