package local

import (
	"path/filepath"

	"golang.org/x/sys/unix"
)

// SameFilesystem says whether a rename between two existing paths works: the
// same filesystem, seen through the same mount (Linux refuses renames between
// two mounts of one filesystem).
func SameFilesystem(a, b string) (bool, error) {
	var sa, sb unix.Stat_t
	if err := unix.Stat(a, &sa); err != nil {
		return false, pathError("look at", a, err)
	}
	if err := unix.Stat(b, &sb); err != nil {
		return false, pathError("look at", b, err)
	}
	if sa.Dev != sb.Dev {
		return false, nil
	}
	ma, _, okA := mountOf(a)
	mb, _, okB := mountOf(b)
	return !okA || !okB || ma == mb, nil
}

// IsMountPoint says whether an existing path is the root of a mount.
func IsMountPoint(path string) (bool, error) {
	path, err := filepath.Abs(path)
	if err != nil {
		return false, pathError("locate", path, err)
	}
	var st, up unix.Stat_t
	if err := unix.Lstat(path, &st); err != nil {
		return false, pathError("look at", path, err)
	}
	if _, isRoot, ok := mountOf(path); ok {
		return isRoot, nil
	}
	if err := unix.Stat(filepath.Dir(path), &up); err != nil {
		return false, pathError("look at", path, err)
	}
	return st.Dev != up.Dev || path == "/", nil
}

// Space returns the free bytes, as far as this user may take them, and all
// bytes of the filesystem that holds an existing path.
func Space(path string) (free, total int64, err error) {
	var st unix.Statfs_t
	if err := unix.Statfs(path, &st); err != nil {
		return 0, 0, pathError("look at", path, err)
	}
	size := int64(st.Bsize)
	return int64(st.Bavail) * size, int64(st.Blocks) * size, nil
}
