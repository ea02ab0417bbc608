//go:build unix && !linux

package gpu

import "golang.org/x/sys/unix"

// filesystemName is for the node's report, and nodes run Linux.
func filesystemName(*unix.Statfs_t) string { return "" }
