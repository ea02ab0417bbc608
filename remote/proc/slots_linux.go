package proc

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"pipedeck/pipeline"
)

// slotHolder is written into a slot lock, for the message of who is refused.
// The lock itself is the truth.
type slotHolder struct {
	Deck   string    `json:"deck"`
	Run    string    `json:"run"`
	Launch string    `json:"launch"`
	State  string    `json:"runs_dir"`
	At     time.Time `json:"at"`
}

// takeSlots locks the launch's GPUs, all or none. The locks travel to the shim
// and its worker with the open files.
func (h *Host) takeSlots(l pipeline.Launch) ([]*os.File, error) {
	var taken []*os.File
	if len(l.GPUs) > 0 {
		if err := makeLocksDir(h.opt.LocksDir); err != nil {
			return nil, err
		}
	}
	for _, gpu := range l.GPUs {
		f, err := h.takeSlot(l, gpu)
		if err != nil {
			closeAll(taken)
			return nil, err
		}
		taken = append(taken, f)
	}
	return taken, nil
}

func (h *Host) takeSlot(l pipeline.Launch, gpu pipeline.GPURef) (*os.File, error) {
	path := filepath.Join(h.opt.LocksDir, slotName(gpu))
	for range 10 {
		f, err := openLock(path)
		if err != nil {
			return nil, pipeline.Problemf(pipeline.ProblemFailed, "see who owns the file, or name another locks folder",
				"cannot open lock of GPU %d: %w", gpu.Index, err)
		}
		err = unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if err != nil {
			holder := readHolder(f)
			f.Close()
			return nil, pipeline.Problemf(pipeline.ProblemRefused, "stop that worker first, or choose another GPU",
				"cannot start %q: GPU %d (%s) is held by %s", l.ID, gpu.Index, gpu.UUID, holder)
		}
		if !sameFile(f, path) { // removed by a cleaner of temporary files
			f.Close()
			continue
		}
		writeHolder(f, slotHolder{Deck: l.Deck, Run: l.Run, Launch: l.ID, State: h.opt.RunsDir, At: now()})
		return f, nil
	}
	return nil, pipeline.Problemf(pipeline.ProblemFailed, "", "cannot lock GPU %d: %q keeps being replaced", gpu.Index, path)
}

// slotName tells the slots of one GPU apart: several ranks may share it.
func slotName(gpu pipeline.GPURef) string {
	clean := strings.Map(func(r rune) rune {
		if r == '-' || r >= '0' && r <= '9' || r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' {
			return r
		}
		return '_'
	}, gpu.UUID)
	if gpu.Slot > 0 {
		clean += "-slot" + strconv.Itoa(gpu.Slot)
	}
	return "gpu-" + clean + ".lock"
}

// makeLocksDir makes a folder like /tmp: every user may add locks.
func makeLocksDir(dir string) error {
	err := os.Mkdir(dir, 0o777)
	if errors.Is(err, fs.ErrNotExist) {
		err = os.MkdirAll(dir, 0o777)
	}
	if errors.Is(err, fs.ErrExist) {
		return nil
	}
	if err == nil {
		err = os.Chmod(dir, 0o777|fs.ModeSticky)
	}
	if err != nil {
		return fmt.Errorf("cannot make locks folder: %w", err)
	}
	return nil
}

// openLock opens without O_CREAT first: the kernel refuses O_CREAT on another
// user's file in a sticky folder (fs.protected_regular).
func openLock(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if errors.Is(err, fs.ErrPermission) {
		return os.Open(path) // enough for flock
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return f, err
	}
	f, err = os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o666)
	if errors.Is(err, fs.ErrExist) {
		return os.OpenFile(path, os.O_RDWR, 0)
	}
	if err == nil {
		// The umask took bits that other users need.
		_ = f.Chmod(0o666)
	}
	return f, err
}

func sameFile(f *os.File, path string) bool {
	a, err := f.Stat()
	if err != nil {
		return false
	}
	b, err := os.Stat(path)
	return err == nil && os.SameFile(a, b)
}

// writeHolder is best effort: a file of another user may be read-only.
func writeHolder(f *os.File, h slotHolder) {
	data, err := json.Marshal(h)
	if err == nil && f.Truncate(0) == nil {
		_, _ = f.WriteAt(data, 0)
	}
}

func readHolder(f *os.File) string {
	buf := make([]byte, 4096)
	n, _ := f.ReadAt(buf, 0)
	var h slotHolder
	if json.Unmarshal(buf[:n], &h) != nil || h.Launch == "" {
		return "a process that did not say who it is"
	}
	return fmt.Sprintf("%q of deck %q, run %q, since %s (%s)", h.Launch, h.Deck, h.Run, h.At.Format(time.RFC3339), h.State)
}

func closeAll(files []*os.File) {
	for _, f := range files {
		f.Close()
	}
}
