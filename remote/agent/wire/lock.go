package wire

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// LockState is what the holder of a lock file says about itself in it.
type LockState string

// Values of LockState.
const (
	LockStarting LockState = "starting"
	LockReady    LockState = "ready"   // the agent reached its socket
	LockStopped  LockState = "stopped" // the agent ended because it was told to
	LockKeeping  LockState = "keeping" // the keeper has an agent
	LockBackoff  LockState = "backoff" // the keeper waits: agents end before they reach their socket
	LockRefused  LockState = "refused" // the keeper ended: its agent refuses, with the exit code as count
)

var (
	// ErrHeld means that another process holds a lock.
	ErrHeld = errors.New("held by another process")
	// ErrLost means that a lock is held on a file that is no longer the one at
	// its path: another process can lock that.
	ErrLost = errors.New("its file was removed or replaced")
)

// recordSize is the fixed size of a lock file: it is overwritten in place, so
// a full disk does not lose it.
const recordSize = 64

// Lock is an flock on a file, held until Release or the death of the process.
type Lock struct {
	file *os.File
	path string
}

// Record is the content of a lock file. It informs; only the flock decides.
type Record struct {
	PID   int
	State LockState
	Count int // agents in a row that ended before they reached their socket
}

// TryLock takes the lock at path, creating the file with mode 0600. The error
// wraps ErrHeld when another process has it. It tries for a short while, since
// Held in another process takes the lock for a moment.
func TryLock(path string) (*Lock, error) {
	file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	for try := 0; ; try++ {
		err = flock(file, syscall.LOCK_EX|syscall.LOCK_NB)
		if err == nil {
			lock := &Lock{file: file, path: path}
			if err := lock.Check(); err != nil {
				return nil, errors.Join(err, file.Close())
			}
			return lock, nil
		}
		if !errors.Is(err, syscall.EWOULDBLOCK) || try == 10 {
			break
		}
		time.Sleep(10 * time.Millisecond)
	}
	_ = file.Close()
	if errors.Is(err, syscall.EWOULDBLOCK) {
		return nil, fmt.Errorf("cannot lock %q: %w", path, ErrHeld)
	}
	return nil, fmt.Errorf("cannot lock %q: %w", path, err)
}

// Check returns an error that wraps ErrLost once the file at the lock's path is
// not the locked one any more, and nil where that cannot be seen: an error of
// the disk is not a removal.
func (l *Lock) Check() error {
	held, unseen := l.file.Stat()
	now, err := os.Stat(l.path)
	gone := errors.Is(err, syscall.ENOENT) || errors.Is(err, syscall.ENOTDIR)
	if gone || unseen == nil && err == nil && !os.SameFile(held, now) {
		return fmt.Errorf("cannot rely on the lock %q: %w", l.path, ErrLost)
	}
	return nil
}

// Write replaces the record with this process's pid, a state and a count.
func (l *Lock) Write(state LockState, count int) error {
	text := fmt.Sprintf("%d %s %d", os.Getpid(), state, count)
	_, err := l.file.WriteAt([]byte(fmt.Sprintf("%-*s\n", recordSize-1, text)), 0)
	return err
}

// Release gives the lock up. The file stays: removing it would let two
// processes lock two files of the same name.
func (l *Lock) Release() error { return l.file.Close() }

// ReadRecord reads a lock file without taking the lock. A missing or foreign
// file gives the zero Record.
func ReadRecord(path string) Record {
	data, err := os.ReadFile(path)
	if err != nil || len(data) > recordSize {
		return Record{}
	}
	fields := strings.Fields(string(data))
	if len(fields) != 3 {
		return Record{}
	}
	pid, err1 := strconv.Atoi(fields[0])
	count, err2 := strconv.Atoi(fields[2])
	if err1 != nil || err2 != nil {
		return Record{}
	}
	return Record{PID: pid, State: LockState(fields[1]), Count: count}
}

// Held says whether a process holds the lock at path now, and its record.
func Held(path string) (Record, bool, error) {
	file, err := os.Open(path)
	if errors.Is(err, os.ErrNotExist) {
		return Record{}, false, nil
	}
	if err != nil {
		return Record{}, false, err
	}
	defer func() { _ = file.Close() }()
	rec := ReadRecord(path)
	err = flock(file, syscall.LOCK_SH|syscall.LOCK_NB)
	if errors.Is(err, syscall.EWOULDBLOCK) {
		return rec, true, nil
	}
	return rec, false, err
}

// A keeper that waits looks at the time of its lock file, because a signal
// could hit another process that has its pid by now.

// AskRetry tells the keeper with this lock to start an agent now.
func AskRetry(lockPath string) error {
	now := time.Now()
	return os.Chtimes(lockPath, now, now)
}

// AskEnd tells the keeper with this lock to end if it has no agent. It is to
// be repeated until the lock is free: a keeper that is busy misses it.
func AskEnd(lockPath string) error {
	return os.Chtimes(lockPath, endTime(), endTime())
}

// EndAsked says whether modified, the time of a lock file, is AskEnd's.
func EndAsked(modified time.Time) bool { return modified.Equal(endTime()) }

func endTime() time.Time { return time.Unix(1, 0) }

func flock(file *os.File, how int) error {
	for {
		err := syscall.Flock(int(file.Fd()), how)
		if !errors.Is(err, syscall.EINTR) {
			return err
		}
	}
}
