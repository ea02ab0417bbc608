package pipeline

import (
	"context"
	"time"
)

// Custody is the care of local files that an action touches: what lies there,
// what the store proves of it, and moving it out of the way so that it can be
// brought back. Only files that a plan listed are ever touched, and each only
// while it is the one that was listed.
type Custody interface {
	// Holdings lists the local files of outputs and scratch directories with
	// what the store proves of each. progress may be nil.
	Holdings(ctx context.Context, req HoldingsRequest, progress Progress) ([]Holding, error)
	// Suspend keeps the mover off outputs ("stage/output") for an action, also
	// across agent restarts, and returns when nothing of them is in flight.
	Suspend(ctx context.Context, action string, outputs []string) error
	// Release ends what Suspend began; an action that suspended nothing is no error.
	Release(ctx context.Context, action string) error
	// Trash moves files to the trash of an action, each only if it is still
	// the one listed and nobody has it open for writing. Where the trash would
	// be on another filesystem (scratch on a tmpfs) it removes them. Done again
	// for the same action it goes on where it was.
	Trash(ctx context.Context, action string, files []ListedFile, progress Progress) (MoveReport, error)
	// Untrash brings back what Trash or Quarantine moved for an action. It
	// never replaces a file: what finds its name taken stays in the trash.
	Untrash(ctx context.Context, action string, progress Progress) (MoveReport, error)
	// Trashes lists what can be brought back.
	Trashes(ctx context.Context) ([]Trashed, error)
	// Purge removes the trash of an action for good; quarantined files stay.
	Purge(ctx context.Context, action string) error
	// Quarantine moves the incomplete files of a stage aside, as far as their
	// format tells, no process has them open for writing and they are
	// unchanged for their output's settle time; it waits that long.
	Quarantine(ctx context.Context, action, stage string, progress Progress) (MoveReport, error)
	// Leave makes the mover leave a stage's outputs alone until it is activated.
	Leave(ctx context.Context, stage string) error
	// StageRecord reads from the bucket how a stage's outputs of this run were
	// made; nil without an error: nobody recorded it yet. known says whether
	// this node's ledger knows the run.
	StageRecord(ctx context.Context, stage string) (rec *StageRecord, known bool, err error)
	// WriteStageRecord replaces the record, unless it changed since it was read.
	WriteStageRecord(ctx context.Context, stage string, rec StageRecord) error
	// DescribeInputs hashes what the stage reads now; Deck and World are unset.
	DescribeInputs(ctx context.Context, stage string) (StageRecord, error)
	// ProbeStore writes, reads back and deletes a small object.
	ProbeStore(ctx context.Context) error
}

// Progress tells how far a long look or move is; total 0: not known yet.
type Progress func(done, total int64)

// HoldingsRequest names what to look at.
type HoldingsRequest struct {
	Outputs []string // "stage/output"
	Scratch []string // absolute directories
	// Fresh asks the store now; otherwise what the mover proved earlier counts.
	Fresh bool
}

// Holding is what lies in one output or scratch directory.
type Holding struct {
	Name     string // "stage/output", or the absolute scratch directory
	Scratch  bool
	Dirs     []string // absolute
	At       time.Time
	Complete bool   // everything could be looked at and asked
	Reason   string // why not
	Files    []ListedFile
	// Undoable: files can be moved to a trash on their own filesystem.
	Undoable bool
	// StoredFiles is how many keys of the output the store holds; -1 unknown.
	StoredFiles int64
}

// FileID tells whether a file is still the one that was looked at.
type FileID struct {
	Dev     uint64 `json:"dev"`
	Ino     uint64 `json:"ino"`
	Size    int64  `json:"size"`
	MTimeNS int64  `json:"mtime_ns"`
	CTimeNS int64  `json:"ctime_ns"`
}

// FileClass is what the store proves of a local file.
type FileClass string

// Values of FileClass. They exclude each other.
const (
	ClassProven       FileClass = "proven"
	ClassUnproven     FileClass = "unproven" // an object of its size is there, its content was not compared
	ClassMismatched   FileClass = "mismatched"
	ClassMissing      FileClass = "missing" // also while its upload is in flight
	ClassUnknown      FileClass = "unknown"
	ClassBeingWritten FileClass = "being_written"
	ClassOther        FileClass = "other" // in scratch, matches no output
)

// ListedFile is one local file that a plan touches.
type ListedFile struct {
	Root  string    `json:"root"` // absolute
	Path  string    `json:"path"` // below Root, raw bytes as the directory has them
	ID    FileID    `json:"id"`
	Class FileClass `json:"class"`
}

// Lost says whether the file's content would be gone with the file.
func (f ListedFile) Lost() bool { return f.Class != ClassProven && f.Class != ClassOther }

// MoveReport is what became of files that were to be moved.
type MoveReport struct {
	Moved      int64        `json:"moved"`
	MovedBytes int64        `json:"moved_bytes"`
	Removed    int64        `json:"removed"` // for good: no trash on that filesystem
	Gone       int64        `json:"gone"`    // were not there any more
	Stayed     []StayedFile `json:"stayed"`  // with reasons, at most MaxStayed
	StayedAll  int64        `json:"stayed_all"`
}

// Stay adds a file that was left where it is.
func (r *MoveReport) Stay(path, reason string) {
	r.StayedAll++
	if len(r.Stayed) < MaxStayed {
		r.Stayed = append(r.Stayed, StayedFile{Path: path, Reason: reason})
	}
}

// MaxStayed bounds the list in a MoveReport.
const MaxStayed = 100

// StayedFile is a file that was left where it is.
type StayedFile struct {
	Path   string `json:"path"` // absolute
	Reason string `json:"reason"`
}

// Trashed is what an action moved and can be brought back.
type Trashed struct {
	Action     string        `json:"action"`
	Quarantine bool          `json:"quarantine"` // never purged without a plan
	Files      int64         `json:"files"`
	Bytes      int64         `json:"bytes"`
	Left       time.Duration `json:"left"` // until it is purged, by the boot clock; 0 for quarantine
}

// StageRecord says how a stage's outputs of one run were made. It is the
// object PREFIX/RUN/.pipedeck/STAGE.json.
type StageRecord struct {
	Schema  int       `json:"schema"`
	Deck    string    `json:"deck"`
	Run     string    `json:"run"`
	Stage   string    `json:"stage"`
	Inputs  string    `json:"inputs"`  // hash of the inputs' content; "" without inputs
	Command string    `json:"command"` // hash of the command as the spec has it
	World   int       `json:"world"`
	Code    string    `json:"code,omitempty"` // hash of the code that `sync` pushed; "" without
	At      time.Time `json:"at"`
	// ETag is the object's, for a conditional replacement; not stored in it.
	ETag string `json:"-"`
}
