package journal

import (
	"os"

	"golang.org/x/sys/unix"
)

// allocate makes sure that size bytes at from, behind the end of a file, are on
// disk without making the file longer.
func allocate(f *os.File, from, size int64) error {
	return unix.Fallocate(int(f.Fd()), unix.FALLOC_FL_KEEP_SIZE, from, size)
}
