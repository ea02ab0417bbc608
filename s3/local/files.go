package local

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"pipedeck/pipeline"
)

// FS is the node's own filesystem, for the deck's small files.
type FS struct {
	// Kept is a file, absolute, that can be written on a full disk too: room for
	// its next content is kept beside it.
	Kept string
	// Room is given up for a file that a full disk does not take.
	Room Room
}

var _ pipeline.Files = FS{}

// ReadFile returns at most limit bytes of a regular file and its mtime.
func (FS) ReadFile(path string, limit int64) ([]byte, time.Time, error) {
	f, st, err := openSmall(path)
	if err != nil {
		return nil, time.Time{}, err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, limit))
	if err != nil {
		return nil, time.Time{}, pathError("read", path, err)
	}
	return data, st.ModTime(), nil
}

// ReadFrom returns up to limit bytes from offset, and the file's size and
// inode as they were before the read.
func (FS) ReadFrom(path string, offset, limit int64) (data []byte, size int64, inode uint64, err error) {
	f, st, err := openSmall(path)
	if err != nil {
		return nil, 0, 0, err
	}
	defer f.Close()
	var sys unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &sys); err != nil {
		return nil, 0, 0, pathError("look at", path, err)
	}
	data, err = io.ReadAll(io.NewSectionReader(f, offset, limit))
	if err != nil {
		return nil, 0, 0, pathError("read", path, err)
	}
	return data, st.Size(), sys.Ino, nil
}

// openSmall opens a file that may be a fifo or worse without blocking on it.
// Links are followed: these paths are the operator's.
func openSmall(path string) (*os.File, os.FileInfo, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, nil, pathError("open", path, err)
	}
	st, err := f.Stat()
	if err == nil && !st.Mode().IsRegular() {
		err = ErrNotRegular
	}
	if err != nil {
		_ = f.Close()
		return nil, nil, pathError("open", path, err)
	}
	return f, st, nil
}

// Glob returns the paths that match pattern, sorted.
func (FS) Glob(pattern string) ([]string, error) {
	found, err := filepath.Glob(pattern)
	if err != nil {
		return nil, pathError("match", pattern, err)
	}
	slices.Sort(found)
	return found, nil
}

// WriteFile replaces path atomically and durably, creating its folder.
func (f FS) WriteFile(path string, data []byte) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return pathError("create", filepath.Dir(path), err)
	}
	if f.Kept != "" && path == f.Kept {
		return writeKept(path, data)
	}
	return fullHint(f.Room.Spend(func() error { return replaceFile(path, data, 0o644) }))
}

// fullHint says what makes room, if that is what is wrong.
func fullHint(err error) error {
	if !IsFull(err) {
		return err
	}
	return pipeline.Problemf(pipeline.ProblemFailed, "`pipedeck settle OUTPUT` makes room by uploading, or remove something there that is not pipedeck's", "%w", err)
}

// Remove removes one of the deck's small files. None is no error.
func (FS) Remove(path string) error { return ReleaseReserve(path) }

// replaceFile writes a file beside path, syncs it and renames it over path.
func replaceFile(path string, data []byte, mode os.FileMode) error {
	f, err := os.CreateTemp(filepath.Dir(path), ".tmp-"+filepath.Base(path)+"-*")
	if err != nil {
		return pathError("write", path, err)
	}
	_, err = f.Write(data)
	err = errors.Join(err, f.Chmod(mode), f.Sync(), f.Close())
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		_ = os.Remove(f.Name())
		return pathError("write", path, err)
	}
	return syncDir(filepath.Dir(path))
}

func syncDir(dir string) error {
	f, err := os.Open(dir)
	if err != nil {
		return pathError("open", dir, err)
	}
	if err := errors.Join(f.Sync(), f.Close()); err != nil {
		return pathError("sync", dir, err)
	}
	return nil
}

// Reserve makes sure that the file path holds size bytes of disk that are
// really allocated, to be given up when the disk is full.
func Reserve(path string, size int64) error {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return pathError("reserve", path, err)
	}
	err = allocate(int(f.Fd()), size)
	if errors.Is(err, unix.EOPNOTSUPP) {
		err = fillUp(f, size)
	}
	if err = errors.Join(err, f.Close()); err != nil {
		// A part of a reserve only makes a full disk fuller.
		_ = os.Remove(path)
		return pathError("reserve", path, err)
	}
	return nil
}

// fillUp writes zeros, where the filesystem cannot allocate without.
func fillUp(f *os.File, size int64) error {
	zeros := make([]byte, 1<<20)
	for off := int64(0); off < size; {
		n, err := f.WriteAt(zeros[:min(int64(len(zeros)), size-off)], off)
		if err != nil {
			return err
		}
		off += int64(n)
	}
	return f.Sync()
}

// ReleaseReserve gives the room of a reserve back. None there is no error.
func ReleaseReserve(path string) error {
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return pathError("release", path, err)
	}
	return nil
}
