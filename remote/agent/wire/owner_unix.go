//go:build unix

package wire

import (
	"os"
	"syscall"
)

// ownerOf is the owner of dir, or the caller while dir does not exist: the
// caller will create it. So root finds the socket of another user's agent.
func ownerOf(dir string) int {
	if info, err := os.Stat(dir); err == nil {
		if st, ok := info.Sys().(*syscall.Stat_t); ok {
			return int(st.Uid)
		}
	}
	return os.Getuid()
}
