//go:build unix

package tui

import (
	"os"

	"golang.org/x/sys/unix"
)

// redirect makes the descriptor of at another name of to, and returns what it
// was before.
func redirect(to, at *os.File) (before *os.File, err error) {
	fd, err := unix.FcntlInt(at.Fd(), unix.F_DUPFD_CLOEXEC, 3)
	if err != nil {
		return nil, err
	}
	before = os.NewFile(uintptr(fd), at.Name())
	if err := dup(int(to.Fd()), int(at.Fd())); err != nil {
		_ = before.Close()
		return nil, err
	}
	return before, nil
}
