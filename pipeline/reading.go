package pipeline

import "time"

// Reading is one observation, or one change of what is wanted, that is folded
// into the World. GPUReading, MachineReading and MoverReading are readings too.
type Reading interface{ reading() }

// DisksReading is one look at all filesystems of the deck.
type DisksReading struct {
	At    time.Time
	Disks []DiskReading
}

// LaunchesReading is one look at the processes of all workers. With Err set,
// nothing is known of them since the last good one.
type LaunchesReading struct {
	At   time.Time
	Seen []LaunchSeen
	Err  string
}

// ProgressReading is what the declared progress source of one worker says, or
// of a whole stage with Rank -1. Nil is unknown. Counts are cumulative over
// restarts if the script's are: the fold notices when they fall.
type ProgressReading struct {
	At        time.Time
	Stage     string
	Rank      int
	Done      *int64
	Total     *int64
	Skipped   *int64
	Failed    *int64
	ChangedAt time.Time // mtime of the source; zero if it has none
	Err       string
}

// StageWant is what the operator wants of a stage. The deck keeps it durably.
type StageWant struct {
	Want  Want `json:"want"`
	World int  `json:"world"` // ranks of the last start
	// Place is this node's part of the ranks, in a deck of several nodes.
	Place   *Placement         `json:"place,omitempty"`
	Since   time.Time          `json:"since"`
	Workers map[int]WorkerWant `json:"workers"` // by rank
}

// Want is whether a stage's workers should live.
type Want string

// Values of Want.
const (
	WantNothing Want = ""        // never started here
	WantRunning Want = "running" // start and restart workers by policy
	WantStopped Want = "stopped"
)

// WorkerWant is the supervision of one worker.
type WorkerWant struct {
	Launch     string    `json:"launch"`   // id of its newest launch, "" before the first
	Launches   int       `json:"launches"` // how many there were
	Restarts   int       `json:"restarts"` // automatic ones since the last healthy stretch
	Held       string    `json:"held"`     // why it is not restarted any more; "" if it may be
	NextAt     time.Time `json:"next_at"`  // earliest time of the next restart
	Done       bool      `json:"done"`     // ended with 0: a one-shot worker that is finished
	Stopping   bool      `json:"stopping"` // an action is stopping it: no restart
	StopSentAt time.Time `json:"stop_sent_at"`
	Asked      bool      `json:"asked"` // its leader was, or is just being, sent the stop's first signal
	GPUs       []GPURef  `json:"gpus"`
	Code       string    `json:"code,omitempty"` // that was there when it was launched; "" not known
}

// WantsReading replaces what is wanted, by stage name.
type WantsReading struct {
	At     time.Time
	Stages map[string]StageWant
}

// ActionReading is the running action, or the last one with its result; nil
// when there never was one.
type ActionReading struct {
	At     time.Time
	Action *Action
}

// NoticeReading is one line for the operator. Seq and Count are set by the fold.
type NoticeReading struct{ Event Event }

func (GPUReading) reading()      {}
func (MachineReading) reading()  {}
func (DisksReading) reading()    {}
func (LaunchesReading) reading() {}
func (ProgressReading) reading() {}
func (MoverReading) reading()    {}
func (WantsReading) reading()    {}
func (ActionReading) reading()   {}
func (NoticeReading) reading()   {}
