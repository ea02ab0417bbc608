package local

import (
	"bytes"
	"os"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"
)

// writerInProc looks through the descriptors of every process that /proc
// shows for one that has the file open for writing. It is slow (milliseconds)
// and blind to other users' processes and other containers.
func writerInProc(id Identity) bool {
	fds, err := filepath.Glob("/proc/[0-9]*/fd/*")
	if err != nil {
		return false
	}
	for _, fd := range fds {
		var st unix.Stat_t
		if unix.Stat(fd, &st) != nil {
			continue
		}
		if got := identityOf(&st); got.Dev == id.Dev && got.Ino == id.Ino && writableFD(fd) {
			return true
		}
	}
	return false
}

// writableFD reads the open flags from fdinfo. What cannot be read counts as
// writable: the file is open there after all.
func writableFD(fd string) bool {
	info, err := os.ReadFile(filepath.Join(filepath.Dir(fd), "..", "fdinfo", filepath.Base(fd)))
	if err != nil {
		return true
	}
	for line := range bytes.Lines(info) {
		value, ok := bytes.CutPrefix(line, []byte("flags:"))
		if !ok {
			continue
		}
		flags, err := strconv.ParseInt(string(bytes.TrimSpace(value)), 8, 64)
		return err != nil || flags&unix.O_ACCMODE != unix.O_RDONLY
	}
	return true
}
