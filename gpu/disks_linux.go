package gpu

import "golang.org/x/sys/unix"

// filesystemName names the common filesystems by their magic number (statfs(2)).
func filesystemName(st *unix.Statfs_t) string {
	switch int64(st.Type) { //nolint:unconvert // int32 on some architectures
	case unix.EXT4_SUPER_MAGIC:
		return "ext4"
	case unix.XFS_SUPER_MAGIC:
		return "xfs"
	case unix.BTRFS_SUPER_MAGIC:
		return "btrfs"
	case unix.TMPFS_MAGIC:
		return "tmpfs"
	case unix.OVERLAYFS_SUPER_MAGIC:
		return "overlay"
	case unix.NFS_SUPER_MAGIC:
		return "nfs"
	case unix.FUSE_SUPER_MAGIC:
		return "fuse"
	case 0x2fc12fc1:
		return "zfs"
	}
	return ""
}
