// Package logs rotates and reads the log files of workers.
package logs

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"
)

const (
	defaultMaxBytes = 64 << 20
	defaultKeep     = 3
)

// Position says where the first byte of a log file lies in all that was ever
// written to it. It is kept beside the log, in PATH.pos.
type Position struct {
	Gen   int64 `json:"gen"`   // rotations so far
	Start int64 `json:"start"` // bytes rotated out before the file's first byte
	// Cut is the size that a rotation under way cuts off. The truncation
	// itself commits it: a file shorter than Cut has been cut.
	Cut int64 `json:"cut,omitempty"`
}

// settled resolves a rotation that was caught, or died, in its middle.
func (p Position) settled(size int64) Position {
	if p.Cut > 0 && size < p.Cut {
		return Position{Gen: p.Gen + 1, Start: p.Start + p.Cut}
	}
	return Position{Gen: p.Gen, Start: p.Start}
}

// Written returns the bytes ever written to the log at path, those of rotated
// files included; 0 for a log that does not exist.
func Written(path string) (int64, error) {
	info, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, fmt.Errorf("cannot stat log: %w", err)
	}
	p := readPosition(os.ReadFile, path).settled(info.Size())
	return p.Start + info.Size(), nil
}

// readPosition returns the zero Position where none was kept: a log that was
// never rotated.
func readPosition(read func(string) ([]byte, error), path string) Position {
	var p Position
	data, err := read(path + ".pos")
	if err != nil || json.Unmarshal(data, &p) != nil {
		return Position{}
	}
	return p
}

// RotatedName is the name that generation gen of the log at path gets.
func RotatedName(path string, gen int64) string {
	return path + "." + strconv.FormatInt(gen, 10)
}

// Rotate cuts the log at path once it has reached maxBytes (0: 64 MiB), and
// keeps the newest keep (0: 3) generations as PATH.GEN. It copies and then
// truncates, because the worker holds the file open with O_APPEND and can not
// be told to open another; lines written in between are lost. It reports
// whether it cut. A rotation by another process is left to that process; on a
// full disk the log grows until there is room for a copy.
func Rotate(path string, maxBytes int64, keep int) (bool, error) {
	if maxBytes <= 0 {
		maxBytes = defaultMaxBytes
	}
	if keep <= 0 {
		keep = defaultKeep
	}
	info, err := os.Stat(path)
	if err != nil || info.Size() < maxBytes {
		return false, ignoreMissing(err)
	}
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return false, fmt.Errorf("cannot rotate log: %w", err)
	}
	defer f.Close()
	if unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB) != nil {
		return false, nil
	}
	if info, err = f.Stat(); err != nil || info.Size() < maxBytes {
		return false, err
	}
	if !makeRoom(f, path, info.Size()) {
		return false, nil // a copy that cannot be whole would take the last room from everybody
	}
	return true, rotate(f, path, info.Size(), keep)
}

func rotate(f *os.File, path string, size int64, keep int) error {
	p := readPosition(os.ReadFile, path).settled(size)
	dropBefore(path, p.Gen-int64(keep))
	out, err := os.OpenFile(RotatedName(path, p.Gen), os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o640)
	if err != nil {
		return fmt.Errorf("cannot rotate log: %w", err)
	}
	defer out.Close()
	if p.Cut, err = io.Copy(out, f); err != nil {
		_ = os.Remove(out.Name())
		return fmt.Errorf("cannot rotate log: %w", err)
	}
	if err := writePosition(path, p); err != nil {
		return err
	}
	// What came meanwhile, so that next to nothing lies between the last read
	// and the cut.
	more, err := io.Copy(out, f)
	if err = errors.Join(err, out.Close()); err != nil { // some filesystems say only now that the copy failed
		return fmt.Errorf("cannot rotate log: %w", err)
	}
	if err := f.Truncate(0); err != nil {
		return fmt.Errorf("cannot truncate log: %w", err)
	}
	return writePosition(path, Position{Gen: p.Gen + 1, Start: p.Start + p.Cut + more})
}

// dropBefore removes generations up to newest. One that stays is only disk
// space.
func dropBefore(path string, newest int64) {
	for gen := newest; gen > newest-8 && gen >= 0; gen-- {
		_ = os.Remove(RotatedName(path, gen))
	}
}

// makeRoom says whether the disk takes a copy of a log, and one as large
// beside it for those who fill it meanwhile. If it does not, the older
// generations go before their time.
func makeRoom(f *os.File, path string, size int64) bool {
	if room(f, size) {
		return true
	}
	dropBefore(path, readPosition(os.ReadFile, path).Gen-1)
	return room(f, size)
}

func room(f *os.File, size int64) bool {
	var st unix.Statfs_t
	err := unix.Fstatfs(int(f.Fd()), &st)
	return err != nil || st.Bavail >= uint64(2*size)/uint64(st.Bsize) //nolint:gosec // neither is negative
}

func writePosition(path string, p Position) error {
	data, err := json.Marshal(p)
	if err != nil {
		return fmt.Errorf("cannot encode log position: %w", err)
	}
	tmp := filepath.Join(filepath.Dir(path), "."+filepath.Base(path)+".pos.tmp")
	if err := os.WriteFile(tmp, data, 0o640); err != nil {
		return fmt.Errorf("cannot write log position: %w", err)
	}
	if err := os.Rename(tmp, path+".pos"); err != nil {
		return fmt.Errorf("cannot write log position: %w", err)
	}
	return nil
}

func ignoreMissing(err error) error {
	if err == nil || errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return fmt.Errorf("cannot stat log: %w", err)
}
