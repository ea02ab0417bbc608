//go:build linux && cgo

package main

import (
	"os"
	"strconv"
	"strings"
	"syscall"
)

// librarySwap returns a check that the mapped NVML library is still the file at
// its path: a driver upgrade replaces it, and the old one then answers with
// errors, or not at all.
func librarySwap(maps string) func() string {
	return func() string {
		raw, err := os.ReadFile(maps)
		if err != nil {
			return ""
		}
		for line := range strings.Lines(string(raw)) {
			if why := swapped(strings.TrimSpace(line)); why != "" {
				return why
			}
		}
		return ""
	}
}

func swapped(line string) string {
	at := strings.IndexByte(line, '/')
	if at < 0 || !strings.Contains(line[at:], "libnvidia-ml.so") {
		return ""
	}
	path, deleted := strings.CutSuffix(line[at:], " (deleted)")
	if deleted {
		return "the NVML library " + path + " was replaced on disk"
	}
	fields := strings.Fields(line[:at])
	if len(fields) < 5 {
		return ""
	}
	inode, err := strconv.ParseUint(fields[4], 10, 64)
	var st syscall.Stat_t
	if err != nil || syscall.Stat(path, &st) != nil || st.Ino == inode {
		return ""
	}
	return "the NVML library " + path + " was replaced on disk"
}
