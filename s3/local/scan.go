package local

import (
	"context"
	"errors"
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// scanBatch names are read at a time, so that memory does not grow with the
// directory.
const scanBatch = 2048

// Scan calls visit for everything below root, directories before what is in
// them, in no further order. want is asked first, with dir true only for
// directories: false skips the entry and all below it; nil wants everything.
// No link is followed, pipedeck's own folders are never entered, and files
// that vanish meanwhile are left out. What could not be read is in Problems.
// The error is ErrNoDir, ErrSymlink or ErrDenied for the root, or ctx's.
func Scan(ctx context.Context, root string, want func(rel string, dir bool) bool, visit func(Entry)) (Problems, error) {
	fd, err := openRoot(root)
	if err != nil {
		return nil, err
	}
	s := scanner{want: want, visit: visit}
	if s.want == nil {
		s.want = func(string, bool) bool { return true }
	}
	err = s.dir(ctx, fd, "")
	return s.problems, err
}

type scanner struct {
	want     func(string, bool) bool
	visit    func(Entry)
	problems Problems
}

// dir scans one directory and closes fd. Only the context ends it early.
func (s *scanner) dir(ctx context.Context, fd int, rel string) error {
	f := os.NewFile(uintptr(fd), rel)
	defer f.Close()
	var dirs []string
	for {
		if err := ctx.Err(); err != nil {
			return err
		}
		names, err := f.Readdirnames(scanBatch)
		for _, name := range names {
			if s.entry(fd, rel, name) {
				dirs = append(dirs, name)
			}
		}
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			s.fail(rel, err)
			break
		}
	}
	for _, name := range dirs {
		sub, err := ignoringEINTR(func() (int, error) { return unix.Openat(fd, name, dirFlags, 0) })
		if err != nil {
			s.fail(joinRel(rel, name), err)
			continue
		}
		if err := s.dir(ctx, sub, joinRel(rel, name)); err != nil {
			return err
		}
	}
	return nil
}

// entry visits one name and says whether it is a directory to descend into.
func (s *scanner) entry(dir int, rel, name string) bool {
	if isOwnName(name) {
		return false
	}
	rel = joinRel(rel, name)
	st, err := statAt(dir, name)
	if err != nil {
		s.fail(rel, err)
		return false
	}
	e := entryOf(rel, &st)
	if !s.want(rel, e.Kind == KindDir) {
		return false
	}
	s.visit(e)
	return e.Kind == KindDir
}

// fail records a problem; what vanished is none.
func (s *scanner) fail(rel string, err error) {
	if errors.Is(err, unix.ENOENT) {
		return
	}
	s.problems = append(s.problems, Problem{Path: rel, Err: pathError("read", rel, err)})
}

func entryOf(rel string, st *unix.Stat_t) Entry {
	return Entry{
		Rel: rel, ID: identityOf(st), Kind: kindOf(uint32(st.Mode)),
		Nlink: uint32(st.Nlink), Blocks: st.Blocks,
	}
}
