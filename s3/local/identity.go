package local

import "time"

// Identity is what makes a local file that very file with that very content:
// a rewrite, a replacement or an append changes at least one of the five.
type Identity struct {
	Dev, Ino uint64
	Size     int64 // bytes
	MTimeNS  int64 // nanoseconds since the epoch
	CTimeNS  int64 // nanoseconds since the epoch; no program can set it back
}

// Same says whether both name the same file, unchanged.
func (a Identity) Same(b Identity) bool { return a == b }

// SameIgnoringCTime is Same for a file that was renamed or linked in between,
// which moves ctime alone.
func (a Identity) SameIgnoringCTime(b Identity) bool {
	a.CTimeNS = b.CTimeNS
	return a == b
}

// timestampGrain is above the coarsest clock tick with which a kernel stamps
// files (10 ms at HZ=100): two writes within it may leave the same mtime.
const timestampGrain = 20 * time.Millisecond

// Racy says that a file changed so shortly before now that a further write
// could leave its identity unchanged. Hash it again later.
func Racy(id Identity, now time.Time) bool { return !Settled(id, now, timestampGrain) }

// Settled says whether a file has been unchanged for settle at time now, by
// its mtime and its ctime. A time in the future is not settled.
func Settled(id Identity, now time.Time, settle time.Duration) bool {
	limit := now.Add(-settle).UnixNano()
	return id.MTimeNS <= limit && id.CTimeNS <= limit
}

// IsPlaceholder says whether a file is empty: beside a non-empty object of
// its key it only marks that the sample is done.
func IsPlaceholder(id Identity) bool { return id.Size == 0 }

// Kind is what a directory entry is.
type Kind string

// Values of Kind.
const (
	KindRegular Kind = "regular"
	KindSymlink Kind = "symlink"
	KindDir     Kind = "dir"
	KindOther   Kind = "other" // fifo, socket or device
)

// Entry is one thing that a scan saw.
type Entry struct {
	Rel    string // path below the root, any bytes but NUL
	ID     Identity
	Kind   Kind
	Nlink  uint32 // above 1: other names hold the same data
	Blocks int64  // allocated, in units of 512 bytes
}
