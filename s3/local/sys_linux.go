package local

import (
	"errors"

	"golang.org/x/sys/unix"
)

func identityOf(st *unix.Stat_t) Identity {
	return Identity{
		Dev: st.Dev, Ino: st.Ino, Size: st.Size,
		MTimeNS: st.Mtim.Nano(), CTimeNS: st.Ctim.Nano(),
	}
}

// openBeneath opens rel below dir; no component may be a symbolic link or
// lead out of dir.
func openBeneath(dir int, rel string, flags int) (int, error) {
	how := unix.OpenHow{
		Flags:   uint64(flags &^ unix.O_NOFOLLOW), // RESOLVE_NO_SYMLINKS tells a link from a file in the way
		Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS,
	}
	fd, err := ignoringEINTR(func() (int, error) { return unix.Openat2(dir, rel, &how) })
	switch {
	case errors.Is(err, unix.ENOSYS), errors.Is(err, unix.EPERM), errors.Is(err, unix.EAGAIN):
		// No openat2, a sandbox that refuses it, or a rename got in its way.
		return walkBeneath(dir, rel, flags)
	default:
		return fd, err
	}
}

// renameNoReplace renames and never replaces: EEXIST if the new name is taken.
// EINVAL or ENOSYS: this filesystem cannot do that.
func renameNoReplace(fromDir int, from string, toDir int, to string) error {
	return unix.Renameat2(fromDir, from, toDir, to, unix.RENAME_NOREPLACE)
}

// exchange swaps two names in one step.
func exchange(dirA int, a string, dirB int, b string) error {
	return unix.Renameat2(dirA, a, dirB, b, unix.RENAME_EXCHANGE)
}

// probeWriter asks for a read lease, which the kernel refuses while anyone has
// the file open (or mapped) for writing, and returns it at once, because an
// open for writing would wait for its holder.
func probeWriter(fd int) (WriterState, error) {
	_, err := unix.FcntlInt(uintptr(fd), unix.F_SETLEASE, unix.F_RDLCK)
	switch {
	case err == nil:
		_, err = unix.FcntlInt(uintptr(fd), unix.F_SETLEASE, unix.F_UNLCK)
		return WriterNone, err
	case errors.Is(err, unix.EAGAIN):
		return WriterOpen, nil
	default:
		return WriterUnknown, err
	}
}

// firstHole returns the offset of the first hole at or after from; the size of
// the file if there is none.
func firstHole(fd int, from int64) (int64, error) {
	return unix.Seek(fd, from, unix.SEEK_HOLE)
}

func allocate(fd int, size int64) error { return unix.Fallocate(fd, 0, 0, size) }

// mountOf returns the id of the mount that a path is on, and whether the path
// is its root. ok is false where the kernel cannot tell (before 5.8).
func mountOf(path string) (id uint64, isRoot, ok bool) {
	var sx unix.Statx_t
	err := unix.Statx(unix.AT_FDCWD, path, unix.AT_SYMLINK_NOFOLLOW, unix.STATX_MNT_ID, &sx)
	if err != nil || sx.Mask&unix.STATX_MNT_ID == 0 || sx.Attributes_mask&unix.STATX_ATTR_MOUNT_ROOT == 0 {
		return 0, false, false
	}
	return sx.Mnt_id, sx.Attributes&unix.STATX_ATTR_MOUNT_ROOT != 0, true
}
