package pipeline

import (
	"context"
	"time"
)

// Deck is what a console may ask of an agent. The agent implements it in
// process; the client implements it over the socket. Errors for the operator
// are *Problem.
type Deck interface {
	Snapshot(ctx context.Context) (Snapshot, error)
	// Plan decides what an intent would do and changes nothing.
	Plan(ctx context.Context, in Intent) (Plan, error)
	// Apply starts a plan and returns at once; follow it with Action.
	Apply(ctx context.Context, req ApplyRequest) (Action, error)
	// Action returns an action by id. It waits up to wait for the action to
	// end or to change from what since (a StepsDone-like counter) saw.
	Action(ctx context.Context, id string, wait time.Duration) (Action, error)
	// Coverage audits local files against the store; no names: all outputs.
	Coverage(ctx context.Context, outputs []string, ids bool) (CoverageReport, error)
	// History returns journal records, oldest first; limit 0: all.
	History(ctx context.Context, limit int) ([]JournalRecord, error)
	// Events returns events after seq, oldest first, waiting up to wait for one.
	Events(ctx context.Context, after int64, wait time.Duration) ([]Event, error)
	// Log reads a worker's log.
	Log(ctx context.Context, req LogRequest) (LogChunk, error)
	// Retry asks the mover to try failed and waiting files now.
	Retry(ctx context.Context) error
	// Failures lists the files that need the operator or another try, those
	// that have waited longest first, at most MaxFailures.
	Failures(ctx context.Context) ([]Failure, error)
	// Describe says how a worker ("stage/rank") was started.
	Describe(ctx context.Context, worker string) (WorkerDetail, error)
	// PlanFiles pages the files that a plan touches, lost ones first.
	PlanFiles(ctx context.Context, plan string, offset, limit int) (PlanFiles, error)
	// Resolve resumes, abandons or takes over an action, and returns it.
	Resolve(ctx context.Context, req Resolve) (Action, error)
	// Strangers lists processes that could be adopted or reaped: those of
	// pids, or without any those that carry this deck's run id and belong to
	// no living launch, and those that hold GPU memory.
	Strangers(ctx context.Context, pids []int) ([]Stranger, error)
}

// Holder is a Deck that can take part in an action on several nodes: all leases
// are taken before anything begins.
type Holder interface {
	// Planned returns a plan that was made and not applied yet.
	Planned(ctx context.Context, plan string) (Plan, error)
	// Hold checks all that can refuse a plan, its confirmation included, and
	// takes the lease for it. It lasts until Apply of this plan, Release, or for a
	// minute. A Problem that NeedsCode leaves the lease taken.
	Hold(ctx context.Context, req ApplyRequest) error
	// Release gives the lease back.
	Release(ctx context.Context, plan string) error
}

// Clock is the wall clock and its timers.
type Clock interface {
	Now() time.Time
}

// Host starts, watches and signals the node's worker processes. All state is
// in its run directories and /proc: an agent that comes back sees with Observe
// what an earlier one started.
type Host interface {
	// Start records the intent durably, then launches a shim that execs the
	// worker. It returns when the shim has recorded the worker's identity or
	// its failure to start, which the next Observe shows. It refuses with an
	// error if the launch id was used before or the GPU slot is taken.
	Start(ctx context.Context, req Launch) error
	// Observe returns the newest launch of each worker, read afresh.
	Observe(ctx context.Context) ([]LaunchSeen, error)
	// Inspect collects fresh evidence of the process set of one launch.
	Inspect(ctx context.Context, launch string) (ProcessSet, error)
	// Signal sends sig ("SIGTERM", …) to the leader or the whole set of a
	// launch, each process checked against its recorded identity first. The
	// answer says what was sent to whom; nothing to signal is not an error.
	Signal(ctx context.Context, launch, sig string, to Scope) ([]Signalled, error)
}

// Adopter takes over or ends processes that no launch of the deck owns.
type Adopter interface {
	// Strangers describes processes that no launch of this deck owns: those of
	// pids, or without any those whose environment carries this deck's run id.
	Strangers(ctx context.Context, pids []int) ([]Stranger, error)
	// Adopt records a process that was started by hand as a launch of this
	// deck, if it is still the one that was looked at (pid and start time). It
	// has no shim: how it ends is not known. Observe shows it from then on.
	Adopt(ctx context.Context, req Launch, who Stranger) error
	// Reap ends a stranger's whole set by SIGTERM, then SIGKILL, if it carries
	// this deck's run id and is still the one that was looked at, and says who
	// is left.
	Reap(ctx context.Context, who Stranger) ([]Process, error)
}

// Runner runs a command of the spec to its end.
type Runner interface {
	// Run waits for the command and returns its code and the end of what it
	// printed. An error says that it could not be run or was interrupted.
	Run(ctx context.Context, dir string, argv []string) (Ran, error)
}

// Ran is how a command ended.
type Ran struct {
	Code int
	Tail string // the last lines of stdout and stderr, raw
}

// Stranger is a process that this deck did not start, or lost track of.
type Stranger struct {
	PID        int       `json:"pid"`
	StartTicks uint64    `json:"start_ticks"`
	StartedAt  time.Time `json:"started_at"`
	Argv       []string  `json:"argv"` // cleaned of control sequences
	User       string    `json:"user"`
	Dir        string    `json:"dir"`
	Run        string    `json:"run"`      // DECK/RUN in its environment, "" without
	Ours       bool      `json:"ours"`     // a launch of this very deck left it behind: it may be reaped
	GPUMem     int64     `json:"gpu_mem"`  // bytes over all GPUs; -1 unknown
	GPUs       []string  `json:"gpus"`     // UUIDs on which it holds memory
	Children   int       `json:"children"` // living descendants
	Set        []int     `json:"set"`      // their pids and its own
}

// Scope says whom a signal is for.
type Scope string

// Values of Scope.
const (
	ToLeader Scope = "leader"
	ToSet    Scope = "set"
)

// Launch is one start of one worker.
type Launch struct {
	ID          string   `json:"id"` // unique per deck, for example "extract-0-3"; names the run directory
	Deck        string   `json:"deck"`
	Run         string   `json:"run"`
	Stage       string   `json:"stage"`
	Rank        int      `json:"rank"`
	World       int      `json:"world"`
	Argv        []string `json:"argv"`
	Env         []string `json:"env"`           // "NAME=value" from the spec, on top of the agent's cleaned environment
	Dir         string   `json:"dir"`           // absolute working directory
	GPUs        []GPURef `json:"gpus"`          // slots to lock, by UUID
	Log         string   `json:"log"`           // absolute path, appended to
	LogMaxBytes int64    `json:"log_max_bytes"` // rotate at this size; 0 = 64 MiB
	LogKeep     int      `json:"log_keep"`      // old logs kept; 0 = 3
}

// GPURef names one slot of one GPU: with several ranks per GPU, each rank
// holds a slot of its own.
type GPURef struct {
	Index int    `json:"index"`
	UUID  string `json:"uuid"`
	Slot  int    `json:"slot"`
}

// ProcState is what is known of a launch's worker process.
type ProcState string

// Values of ProcState.
const (
	ProcIntended ProcState = "intended" // recorded, no process was seen (yet)
	ProcRunning  ProcState = "running"
	ProcExited   ProcState = "exited"      // see Exit
	ProcNoExec   ProcState = "exec_failed" // the command could not be started; see Reason
	ProcLost     ProcState = "lost"        // gone without an exit record, or the node rebooted
)

// LaunchSeen is one observation of one launch.
type LaunchSeen struct {
	ID, Stage   string
	Rank, World int
	GPUs        []GPURef
	State       ProcState
	Reason      string
	PID         int    // of the worker, as the node's agent sees it
	StartTicks  uint64 // field 22 of /proc/PID/stat
	StartedAt   time.Time
	Exit        *Exit
	Stragglers  int     // living members of the set besides the leader
	CPUSeconds  float64 // of the whole set, cumulative
	ReadBytes   int64   // of the whole set, cumulative; -1 unknown
	LogBytes    int64   // cumulative, over rotations
	Log         string
}

// Exit is how a worker ended.
type Exit struct {
	Code   *int      `json:"code"` // 128+n for signal n; null unknown
	Signal string    `json:"signal,omitempty"`
	OOM    bool      `json:"oom"`            // the kernel's counter of OOM kills rose, or the worker said so
	Said   string    `json:"said,omitempty"` // the line of its log that says that it ran out of memory
	At     time.Time `json:"at"`
}

// ProcessSet is the evidence of who of a launch is still there.
type ProcessSet struct {
	At        time.Time
	Members   []Process // living or zombie, the shim excluded
	Exit      *Exit     // the shim's exit record, nil if there is none
	ShimAlive bool
	User      string // as whom the host runs: others' processes it may not be able to end
	// Unknown lists what could not be looked at (permission, hidepid): an
	// empty set with unknowns is not proof.
	Unknown []string
}

// Process is one member of a launch's set.
type Process struct {
	PID        int
	StartTicks uint64
	State      string // letter of /proc/PID/stat: R S D Z T …
	Threads    int    // living threads; 0 for a fully dead zombie
	Comm       string
	User       string
	By         string // how it was attributed: leader, session, descendant, environment
	WaitChan   string // for D state
}

// Signalled is one signal that was sent, or why it was not.
type Signalled struct {
	PID    int
	Signal string
	Err    string
}

// Sensor reads the node's hardware. Each method has its own deadline inside;
// an error is a reading that says why, never a zero.
type Sensor interface {
	GPUs(ctx context.Context) GPUReading
	Machine(ctx context.Context) MachineReading
	Disks(ctx context.Context, paths []string) []DiskReading
}

// GPUReading is one look at all GPUs. Kind is nvml, nvidia-smi, simulated or
// none; Reason says why there is no or only partial data.
type GPUReading struct {
	At     time.Time
	Kind   string
	Reason string
	GPUs   []GPUSnapshot // Processes without Worker: the fold joins them
}

// MachineReading is one look at CPU and memory; nil is unknown.
type MachineReading struct {
	At            time.Time
	CPUPercent    *float64
	MemUsedBytes  *int64
	MemTotalBytes *int64
	Load1         *float64
	Reason        string
}

// DiskReading is one look at one filesystem; nil is unknown.
type DiskReading struct {
	At         time.Time
	Path       string
	UsedBytes  *int64
	FreeBytes  *int64
	TotalBytes *int64
	Filesystem string // ext4, tmpfs, nfs, …
	Reason     string
}

// Mover uploads, verifies and removes finished files. Its readings come from
// memory and never wait for the store.
type Mover interface {
	// Activate makes the outputs of a stage the mover's, for this run, until
	// told otherwise; kept across agent restarts.
	Activate(ctx context.Context, stage string) error
	// Live says whether processes of a stage are alive: while none is, growing
	// files (jsonl) are final.
	Live(stage string, alive bool)
	// Pause holds or resumes all uploads; kept across agent restarts.
	Pause(ctx context.Context, on bool) error
	// Retry clears backoffs: failed and waiting files are tried now.
	Retry()
	// Hasten lets the files of outputs ("stage/output") that wait for their
	// interval (`every`) go now.
	Hasten(outputs []string)
	// QueueArtifacts looks at the artifacts again.
	QueueArtifacts()
	Outputs() MoverReading
	// Failures lists the files that need the operator or another try, in no
	// particular order.
	Failures() []Failure
	// WriteDoneSet writes the done ids of a stage to its done_set file,
	// atomically, and returns how many there are. It waits until the local
	// files of the stage were scanned and what the bucket holds is known, or
	// fails with a Problem that says why not. What other nodes of the deck stored
	// since is in it as far as the store tells at once; lacks says why it may
	// not be.
	WriteDoneSet(ctx context.Context, stage string) (ids int, lacks string, err error)
	// Coverage audits outputs ("stage/output") against the store now.
	Coverage(ctx context.Context, outputs []string, ids bool) ([]OutputCoverage, error)
}

// MoverReading is the mover's account of every output of the spec.
type MoverReading struct {
	At        time.Time
	Paused    bool
	Outputs   []OutputReading
	Artifacts *OutputReading // nil without artifacts
	Events    []Event        // since the last call; Seq and Count unset
	// Problem is why the store cannot be used; "" if it can, or nothing was tried.
	Problem string
	// Credentials are those that were forwarded; nil where the node has its own.
	Credentials *CredentialReading
}

// OutputReading is the mover's account of one output. Unknown numbers (before
// the first scan, or before the store was asked) are nil with Reason.
type OutputReading struct {
	Stage, Name, Dir   string
	State              OutputState
	StateReason        string
	Reason             string // why numbers are nil
	LocalFiles         *int64
	LocalBytes         *int64
	Queue              Queue
	VerifiedFiles      *int64
	VerifiedBytes      *int64
	DeletedLocalFiles  *int64
	FailedFiles        *int64
	QuarantinedFiles   *int64
	VerifiedTotalBytes int64 // verified by this agent process, monotonic, for rates
	VerifiedTotalFiles int64
	ProducedTotalBytes int64 // complete files first seen by this agent process, monotonic, for rates
	Coverage           *CoverageCounts
	IDs                *IDSpread // nil where the spec names no ids
	DoneIDs            *int64    // distinct ids stored or locally complete (files, without id)
	NewestOutputAt     *time.Time
	ByRank             map[int]RankFiles // where the path tells the rank; else empty
	Settled            bool              // every complete local file is stored, nothing is queued or in flight
}

// RankFiles is what one rank has produced, seen by its files.
type RankFiles struct {
	Done     int64
	NewestAt time.Time
}

// Files reads and writes the deck's small files.
type Files interface {
	// ReadFile returns at most limit bytes and the mtime.
	ReadFile(path string, limit int64) ([]byte, time.Time, error)
	// ReadFrom returns up to limit bytes from offset and the file's size and
	// inode, so that a reader notices rotation.
	ReadFrom(path string, offset, limit int64) (data []byte, size int64, inode uint64, err error)
	Glob(pattern string) ([]string, error)
	// WriteFile replaces path atomically and durably, creating its folder.
	WriteFile(path string, data []byte) error
	// Remove removes a file that the deck wrote. None is no error.
	Remove(path string) error
}

// Journal is the append-only record of actions: each Append is on disk when
// it returns.
type Journal interface {
	Append(rec JournalRecord) error
	Read(limit int) ([]JournalRecord, error)
}

// JournalRecord is one line of the journal. Seq, Prev and Hash are set by
// Append; the hashes chain the lines.
type JournalRecord struct {
	Seq    int64     `json:"seq"`
	At     time.Time `json:"at"`
	Kind   string    `json:"kind"` // begin, intent, sent, verified, failed, unknown, refused, expired, end, worker, agent
	Action string    `json:"action,omitempty"`
	Plan   string    `json:"plan,omitempty"`
	Step   int       `json:"step,omitempty"`
	By     string    `json:"by,omitempty"`
	From   string    `json:"from,omitempty"`
	Text   string    `json:"text"`
	Data   any       `json:"data,omitempty"`
	Prev   string    `json:"prev"`
	Hash   string    `json:"hash"`
}

// Logs reads workers' logs.
type Logs interface {
	Read(ctx context.Context, path string, req LogRequest) (LogChunk, error)
}

// LogRequest asks for a part of a worker's log. Without Cursor it starts at
// the last Tail lines. With Wait it waits for new bytes.
//
// With Before it is the part that ends at that place, at most Limit bytes of
// whole lines: for scrolling back. Cursor, Tail and Wait mean nothing then.
type LogRequest struct {
	Worker string        `json:"worker"`
	Cursor string        `json:"cursor"` // LogStart: the oldest byte that is kept
	Before string        `json:"before"` // LogEnd: the newest byte
	Tail   int           `json:"tail"`
	Wait   time.Duration `json:"wait"`
	Limit  int           `json:"limit"` // bytes; 0 = 256 KiB
	Lines  bool          `json:"lines"` // with Cursor: end where a line ends, except at the newest byte
}

// Places in a log that are known without reading it.
const (
	LogStart = "start"
	LogEnd   = "end"
)

// LogChunk is a part of a log, raw: whoever shows it cleans it.
type LogChunk struct {
	Data   []byte `json:"data"`
	Start  string `json:"start,omitempty"` // where Data begins, as Before for what precedes it; only in answers to Before and LogStart
	First  bool   `json:"first,omitempty"` // nothing precedes Start
	Cursor string `json:"cursor"`          // where Data ends
	EOF    bool   `json:"eof"`             // nothing more at the moment
	// Gap is how many bytes before Data were lost to rotation; -1: some, it is
	// not known how many.
	Gap int64 `json:"gap,omitempty"`
}
