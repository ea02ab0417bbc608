//go:build unix

package gpu

import (
	"errors"
	"io/fs"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// statDisk asks the filesystem of path, or of its nearest parent that exists:
// an output directory may not have been made yet.
func statDisk(path string) (diskStat, error) {
	for {
		var st unix.Statfs_t
		var file unix.Stat_t
		err := unix.Statfs(path, &st)
		if err == nil {
			err = unix.Stat(path, &file)
		}
		if errors.Is(err, fs.ErrNotExist) && path != filepath.Dir(path) {
			path = filepath.Dir(path)
			continue
		}
		if err != nil {
			return diskStat{}, err
		}
		block := int64(st.Bsize) //nolint:unconvert // uint32 on darwin
		return diskStat{
			device: uint64(file.Dev), //nolint:unconvert // int32 on darwin
			kind:   filesystemName(&st),
			total:  int64(st.Blocks) * block,
			used:   int64(st.Blocks-st.Bfree) * block,
			// What root could still take is not free for a worker.
			free: int64(st.Bavail) * block,
		}, nil
	}
}
