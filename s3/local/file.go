package local

import (
	"errors"
	"fmt"
	"io"

	"golang.org/x/sys/unix"
)

// File is a regular output file, opened for reading. It is not safe for
// concurrent use, except ReadAt.
type File struct {
	fd   int
	name string // for messages
}

var _ io.ReaderAt = (*File)(nil)

// Open opens the regular file rel below root. No part of rel may be a link.
// The error wraps ErrNoDir (of root), ErrVanished, ErrSymlink, ErrNotRegular,
// ErrDenied or ErrBadName, or only the system's error.
func Open(root, rel string) (*File, error) {
	dirRel, base, err := splitRel(rel)
	if err != nil {
		return nil, err
	}
	rootFD, err := openRoot(root)
	if err != nil {
		return nil, err
	}
	defer unix.Close(rootFD)
	dir, err := openDirBelow(rootFD, dirRel)
	if err != nil {
		return nil, pathError("open", rel, err)
	}
	defer unix.Close(dir)
	return openAt(dir, base, rel)
}

// OpenPath opens the regular file at a path of the operator's: links are
// followed.
func OpenPath(path string) (*File, error) {
	const flags = unix.O_RDONLY | unix.O_CLOEXEC | unix.O_NONBLOCK | unix.O_NOCTTY
	fd, err := ignoringEINTR(func() (int, error) { return unix.Open(path, flags, 0) })
	if err != nil {
		return nil, pathError("open", path, err)
	}
	f := &File{fd: fd, name: path}
	st, err := f.stat()
	if err == nil {
		err = mustBeRegular(&st)
	}
	if err != nil {
		_ = f.Close()
		return nil, pathError("open", path, err)
	}
	return f, nil
}

// openAt opens the regular file base in dir. It looks before it opens, since
// opening a device can have effects, and O_NONBLOCK keeps a fifo that slipped
// in between from blocking.
func openAt(dir int, base, rel string) (*File, error) {
	st, err := statAt(dir, base)
	if err != nil {
		return nil, pathError("open", rel, err)
	}
	if err := mustBeRegular(&st); err != nil {
		return nil, pathError("open", rel, err)
	}
	const flags = unix.O_RDONLY | unix.O_NOFOLLOW | unix.O_CLOEXEC | unix.O_NONBLOCK | unix.O_NOCTTY
	fd, err := ignoringEINTR(func() (int, error) { return unix.Openat(dir, base, flags, 0) })
	if err != nil {
		return nil, pathError("open", rel, err)
	}
	f := &File{fd: fd, name: rel}
	if st, err = f.stat(); err == nil {
		err = mustBeRegular(&st)
	}
	if err != nil {
		_ = f.Close()
		return nil, pathError("open", rel, err)
	}
	return f, nil
}

func mustBeRegular(st *unix.Stat_t) error {
	switch kindOf(uint32(st.Mode)) {
	case KindRegular:
		return nil
	case KindSymlink:
		return ErrSymlink
	case KindDir, KindOther:
		return ErrNotRegular
	}
	return ErrNotRegular
}

func (f *File) stat() (unix.Stat_t, error) {
	var st unix.Stat_t
	for {
		err := unix.Fstat(f.fd, &st)
		if !errors.Is(err, unix.EINTR) {
			return st, err
		}
	}
}

// Identity looks at the file as it is now.
func (f *File) Identity() (Identity, error) {
	e, err := f.Entry()
	return e.ID, err
}

// Entry is Identity with what a scan would say beside it.
func (f *File) Entry() (Entry, error) {
	st, err := f.stat()
	if err != nil {
		return Entry{}, pathError("look at", f.name, err)
	}
	return entryOf(f.name, &st), nil
}

// Born is when the file's inode was made, in nanoseconds since 1970; 0 where the
// filesystem does not tell. A filesystem gives the number of a removed file to
// the next one at once: device and inode alone do not name a file.
func (f *File) Born() int64 { return bornOf(f.fd) }

// ReadAt reads len(p) bytes from off; io.EOF if the file ends before.
func (f *File) ReadAt(p []byte, off int64) (int, error) {
	n := 0
	for n < len(p) {
		m, err := ignoringEINTR(func() (int, error) { return unix.Pread(f.fd, p[n:], off+int64(n)) })
		if err != nil {
			return n, pathError("read", f.name, err)
		}
		if m == 0 {
			return n, io.EOF
		}
		n += m
	}
	return n, nil
}

// ReadAll fills buf, made as long as the file's identity says, from the start
// of the file. A file that became shorter is io.ErrUnexpectedEOF. Compare the
// identity before and after: only if it is the same was that its content.
func (f *File) ReadAll(buf []byte) error {
	_, err := f.ReadAt(buf, 0)
	return cutShort(f.name, err)
}

// cutShort names the end of a file that became shorter than it was.
func cutShort(name string, err error) error {
	if errors.Is(err, io.EOF) {
		return fmt.Errorf("cannot read %q: %w", name, io.ErrUnexpectedEOF)
	}
	return err
}

// Close gives the descriptor back.
func (f *File) Close() error { return unix.Close(f.fd) }

// WriterState says whether someone has a file open for writing.
type WriterState string

// Values of WriterState.
const (
	WriterNone    WriterState = "none"
	WriterOpen    WriterState = "open"
	WriterUnknown WriterState = "unknown" // only quiet time can tell; see the reason
)

// Writer says whether any process has the file open, or mapped, for writing.
// It asks the kernel with a lease; where that is refused (another user's file,
// a network filesystem), a writer seen in /proc counts, and none seen is
// unknown with a reason, since /proc does not show every process.
func (f *File) Writer() (state WriterState, reason string) {
	state, err := probeWriter(f.fd)
	if state != WriterUnknown {
		return state, ""
	}
	if st, serr := f.stat(); serr == nil && writerInProc(identityOf(&st)) {
		return WriterOpen, ""
	}
	return WriterUnknown, fmt.Sprintf("the filesystem does not tell who writes: %v", err)
}
