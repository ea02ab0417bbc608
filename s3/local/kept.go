package local

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// keptStep rounds up the length of a kept file, so that the spare one of the
// same length takes the next content too.
const keptStep = 16 << 10

// writeKept replaces a text file and keeps a spare one of its length beside it.
// On a full disk the spare one is written and changes places with it: that takes
// no new block, however often. Line ends pad the content.
func writeKept(path string, data []byte) error {
	data = append(bytes.Clone(data), bytes.Repeat([]byte("\n"), (keptStep-len(data)%keptStep)%keptStep)...)
	spare := path + ".spare"
	err := replaceFile(path, data, 0o600)
	switch {
	case errors.Is(err, unix.ENOSPC), errors.Is(err, unix.EDQUOT):
		if intoSpare(path, spare, data) == nil {
			return nil
		}
		return err
	case err != nil:
		return err
	}
	if info, err := os.Lstat(spare); err != nil || info.Size() < int64(len(data)) {
		_ = Reserve(spare, int64(len(data))) // the next write tries again
	}
	return nil
}

// intoSpare writes into the blocks of the spare file.
func intoSpare(path, spare string, data []byte) error {
	f, err := os.OpenFile(spare, os.O_WRONLY|unix.O_NOFOLLOW, 0)
	if err != nil {
		return pathError("write", path, err)
	}
	_, err = f.WriteAt(data, 0)
	if err == nil {
		err = f.Truncate(int64(len(data)))
	}
	if err := errors.Join(err, f.Sync(), f.Close()); err != nil {
		return pathError("write", path, err)
	}
	err = exchange(unix.AT_FDCWD, spare, unix.AT_FDCWD, path)
	if errors.Is(err, unix.EINVAL) { // a filesystem that cannot: this once
		err = os.Rename(spare, path)
	}
	if err != nil {
		return pathError("write", path, err)
	}
	return syncDir(filepath.Dir(path))
}
