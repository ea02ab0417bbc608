package proc

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"pipedeck/pipeline"
)

// deckFile, in the runs directory, names the deck and itself.
const deckFile = "deck-id.json"

// deckRecord is deckFile.
type deckRecord struct {
	ID   string `json:"id"`
	File origin `json:"file"`
}

// origin tells a file from its copy. A rename, a reboot and a disk that moves to
// another machine keep it; cp, rsync and tar do not.
type origin struct {
	Inode uint64 `json:"inode"`
	Born  int64  `json:"born_unix_ns"` // 0 where the filesystem does not know
}

// originOf reads the origin of an open file. It is zero, which is like any
// other, on FUSE, where inode numbers may be made up anew by each mount.
func originOf(f *os.File) (origin, error) {
	var sfs unix.Statfs_t
	if err := unix.Fstatfs(int(f.Fd()), &sfs); err != nil {
		return origin{}, fmt.Errorf("cannot look at %q: %w", f.Name(), err)
	}
	if uint32(sfs.Type) == unix.FUSE_SUPER_MAGIC { //nolint:gosec // only 32 bits are used on every architecture
		return origin{}, nil
	}
	var st unix.Statx_t
	err := unix.Statx(int(f.Fd()), "", unix.AT_EMPTY_PATH, unix.STATX_INO|unix.STATX_BTIME, &st)
	if err != nil {
		return origin{}, fmt.Errorf("cannot look at %q: %w", f.Name(), err)
	}
	o := origin{Inode: st.Ino}
	if st.Mask&unix.STATX_BTIME != 0 {
		o.Born = st.Btime.Sec*1e9 + int64(st.Btime.Nsec)
	}
	return o, nil
}

// same compares what both know.
func (o origin) same(p origin) bool {
	return (o.Inode == p.Inode || o.Inode == 0 || p.Inode == 0) && (o.Born == p.Born || o.Born == 0 || p.Born == 0)
}

// isCopy says that the file at path is not the one that was recorded. One that
// is gone is no copy.
func isCopy(path string, recorded origin) (bool, error) {
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	defer f.Close()
	now, err := originOf(f)
	return err == nil && !now.same(recorded), err
}

// checkOrigin refuses a copied state directory: what it wants to run may run
// where it was copied from, with the same launch ids and into the same bucket.
func checkOrigin(path string, recorded origin) error {
	copied, err := isCopy(path, recorded)
	if err != nil || !copied {
		return err
	}
	state := filepath.Dir(filepath.Dir(path))
	return pipeline.Problemf(pipeline.ProblemRefused,
		fmt.Sprintf("if the deck that it was copied from has stopped for good, `rm %s` takes it over: its launches then count as lost, and what was wanted to run is started; "+
			"else remove %s or give this deck a run and a state_dir of its own", path, state),
		"cannot use %q: it is a copy of another state directory", state)
}
