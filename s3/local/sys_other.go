//go:build !linux

package local

import (
	"errors"

	"golang.org/x/sys/unix"
)

// errLinuxOnly keeps the console buildable elsewhere; the agent runs on Linux.
var errLinuxOnly = errors.New("works on linux only")

func identityOf(st *unix.Stat_t) Identity {
	return Identity{
		Dev: uint64(st.Dev), Ino: st.Ino, Size: st.Size,
		MTimeNS: st.Mtim.Nano(), CTimeNS: st.Ctim.Nano(),
	}
}

func openBeneath(dir int, rel string, flags int) (int, error) { return walkBeneath(dir, rel, flags) }

func renameNoReplace(int, string, int, string) error { return errLinuxOnly }

func exchange(int, string, int, string) error { return errLinuxOnly }

func probeWriter(int) (WriterState, error) { return WriterUnknown, errLinuxOnly }

func firstHole(int, int64) (int64, error) { return 0, errLinuxOnly }

func allocate(int, int64) error { return errLinuxOnly }

func mountOf(string) (id uint64, isRoot, ok bool) { return 0, false, false }
