package pipeline

import (
	"reflect"
	"slices"
	"time"
)

// Verb is what an operator can ask for.
type Verb string

// The verbs of the commands.
const (
	VerbStart   Verb = "start"
	VerbStop    Verb = "stop"
	VerbKill    Verb = "kill"
	VerbRestart Verb = "restart"
	VerbSettle  Verb = "settle"
	VerbPause   Verb = "pause"
	VerbResume  Verb = "resume"
	VerbWipe    Verb = "wipe"
	VerbPivot   Verb = "pivot"
	VerbPush    Verb = "push"
	VerbUndo    Verb = "undo"
	VerbAdopt   Verb = "adopt"
	VerbReap    Verb = "reap"
)

// Intent is what was asked, as data: a key press or a command line.
type Intent struct {
	Verb   Verb   `json:"verb"`
	Target string `json:"target"` // stage, "stage/rank", output or action id; empty for pause, resume, push
	// From is the stage that a pivot leaves; empty: the one that is active.
	From string `json:"from,omitempty"`
	// Leave says what a pivot does with the outputs of the stage it leaves.
	Leave LeaveHow `json:"leave,omitempty"`
	// ProvenOnly keeps a wipe from everything that is not proven.
	ProvenOnly bool `json:"proven_only,omitempty"`
	// Scratch makes a wipe act on the scratch directories of the stage Target.
	Scratch bool `json:"scratch,omitempty"`
	// PIDs are the processes to adopt, in the order of their ranks, or to reap.
	PIDs []int `json:"pids,omitempty"`
	// Accept names what may differ from the record of this run: inputs,
	// command, world.
	Accept []string `json:"accept,omitempty"`
	// Code is what a start, restart or pivot shall run, where a console pushes it.
	Code *Code `json:"code,omitempty"`
	// Place is which ranks of the stage that is started are this node's, in a
	// deck of several nodes; nil: as the last start had it.
	Place *Placement `json:"place,omitempty"`
}

// Same says whether two intents ask for the same.
func (in Intent) Same(other Intent) bool { return reflect.DeepEqual(in, other) }

// LeaveHow is what a pivot does with the outputs that it leaves.
type LeaveHow string

// Values of LeaveHow; empty is LeaveSettle.
const (
	LeaveSettle  LeaveHow = "settle"
	LeaveKeep    LeaveHow = "keep"
	LeaveDiscard LeaveHow = "discard"
)

// Plan is what an action will do, step by step, and what it would lose. It is
// shown, confirmed, then executed once.
type Plan struct {
	Schema      int       `json:"schema"`
	ID          string    `json:"id"`
	Action      Verb      `json:"action"`
	Target      string    `json:"target"`
	Deck        string    `json:"deck"`
	Node        string    `json:"node"`
	MadeAt      time.Time `json:"made_at"`
	ExpiresAt   time.Time `json:"expires_at"`
	Executable  bool      `json:"executable"`
	Blocked     []string  `json:"blocked"` // why it is not executable
	Steps       []Step    `json:"steps"`
	Loss        Loss      `json:"loss"`
	Store       PlanStore `json:"store"`
	Safer       *Safer    `json:"safer"`
	Undo        Undo      `json:"undo"`
	Confirm     *string   `json:"confirm"` // the text to type; null: nothing is asked
	Fingerprint string    `json:"fingerprint"`
	// Checking is set while the loss is still being found out: the plan is not
	// executable yet, and asking for it again tells how far that is.
	Checking *Checking `json:"checking,omitempty"`
	// Unreachable says that what blocks it could not be looked at, rather than
	// that it was refused.
	Unreachable bool `json:"unreachable,omitempty"`
	// Notes say what else the operator should know, in order of weight.
	Notes []string `json:"notes,omitempty"`
	// Processes are those that an adoption or a reaping showed: a process that
	// got one of their numbers later is another.
	Processes []ProcessID `json:"processes,omitempty"`
	Intent    Intent      `json:"intent"`
}

// ProcessID tells a process from a later one with its number.
type ProcessID struct {
	PID        int    `json:"pid"`
	StartTicks uint64 `json:"start_ticks"`
}

// Shown picks the processes that the plan showed from those that are there.
func (p Plan) Shown(found []Stranger) []Stranger {
	return slices.DeleteFunc(slices.Clone(found), func(s Stranger) bool {
		return !slices.Contains(p.Processes, ProcessID{PID: s.PID, StartTicks: s.StartTicks})
	})
}

// Checking is how far the look at files and store is; Total 0: not known yet.
type Checking struct {
	Done  int64 `json:"done"`
	Total int64 `json:"total"`
}

// PlanStore is what the store holds of what the plan touches.
type PlanStore struct {
	Bucket      string     `json:"bucket"`
	Prefix      string     `json:"prefix"`
	StoredFiles *int64     `json:"stored_files"`
	Total       *int64     `json:"total"` // samples of the stage
	CheckedAt   *time.Time `json:"checked_at"`
	Reason      *string    `json:"reason"` // why something is null
}

// PlanFiles is one page of the files that a plan would lose or move.
type PlanFiles struct {
	Schema int          `json:"schema"`
	Plan   string       `json:"plan"`
	Total  int64        `json:"total"`
	Offset int64        `json:"offset"`
	Files  []ListedFile `json:"files"` // those that would be lost first
}

// StepKind names what a step does.
type StepKind string

// The kinds of steps that exist so far.
const (
	StepStopWorkers  StepKind = "stop_workers"
	StepStartWorkers StepKind = "start_workers"
	StepDoneSet      StepKind = "done_set"
	StepSettle       StepKind = "settle"
	StepPause        StepKind = "pause_uploads"
	StepResume       StepKind = "resume_uploads"
	StepKillWorkers  StepKind = "kill_workers"
	StepSuspend      StepKind = "pause_output"  // the mover keeps off it
	StepRelease      StepKind = "resume_output" // the mover goes on
	StepRecount      StepKind = "recount"       // files and store once more, against the plan
	StepTrash        StepKind = "trash"         // the listed files are moved out of the way
	StepQuarantine   StepKind = "quarantine"    // incomplete files are moved aside
	StepCode         StepKind = "code"          // the operator's code is there as planned
	StepRecord       StepKind = "record"        // how the outputs are made, in the bucket
	StepGPUsFree     StepKind = "gpus_free"
	StepGates        StepKind = "gates"
	StepLeave        StepKind = "leave_stage" // outputs stay where they are, untouched
	StepUntrash      StepKind = "untrash"
	StepAdopt        StepKind = "adopt"
	StepReap         StepKind = "reap"
)

// Step is one typed step of a Plan.
type Step struct {
	N              int      `json:"n"`
	Kind           StepKind `json:"kind"`
	On             []string `json:"on"` // worker ids, outputs or stages
	TimeoutSeconds float64  `json:"timeout_seconds"`
	Proof          string   `json:"proof"` // what will show that it worked
}

// Loss counts the files that an action touches, by what the store proves of
// them. The categories exclude each other and sum to Files.
type Loss struct {
	Files            int64    `json:"files"`
	Bytes            int64    `json:"bytes"`
	Proven           int64    `json:"proven"`
	Unproven         int64    `json:"unproven"`
	Mismatched       int64    `json:"mismatched"`
	Missing          int64    `json:"missing"`
	Unknown          int64    `json:"unknown"`
	BeingWritten     int64    `json:"being_written"`
	LostFiles        int64    `json:"lost_files"`
	LostBytes        int64    `json:"lost_bytes"`
	InFlight         int64    `json:"in_flight"`   // of the missing: an upload is under way
	OtherFiles       int64    `json:"other_files"` // in scratch, of no output; outside Files
	OtherBytes       int64    `json:"other_bytes"`
	RecomputeSeconds *float64 `json:"recompute_seconds"`
	RecomputeReason  *string  `json:"recompute_reason"` // why that is null
}

// Safer is an alternative that loses less.
type Safer struct {
	Action  Verb     `json:"action"`
	Then    Verb     `json:"then"`
	Seconds *float64 `json:"seconds"`
}

// Undo says until when an action can be taken back, or why not.
type Undo struct {
	Until  *time.Time `json:"until"`
	Reason *string    `json:"reason"`
}

// Verdict is the outcome of a check, a step or an action. Silence is never
// success: what could not be observed is unknown.
type Verdict string

// Values of Verdict.
const (
	Running       Verdict = "running" // not ended yet
	Verified      Verdict = "verified"
	ActionFailed  Verdict = "failed"
	Unverified    Verdict = "unknown"
	NotApplicable Verdict = "not_applicable"
)

// Check is one piece of evidence of a step.
type Check struct {
	Name     string    `json:"name"`
	Result   Verdict   `json:"result"`
	Observed string    `json:"observed"`
	At       time.Time `json:"at"`
}

// StepResult is what came of one step.
type StepResult struct {
	N       int        `json:"n"`
	Kind    StepKind   `json:"kind"`
	Result  Verdict    `json:"result"`
	Text    string     `json:"text"` // progress or outcome in words
	Checks  []Check    `json:"checks"`
	BeganAt *time.Time `json:"began_at"`
	EndedAt *time.Time `json:"ended_at"`
}

// Action is a Plan in execution, or its result.
type Action struct {
	ID      string       `json:"id"`
	Plan    string       `json:"plan"`
	Verb    Verb         `json:"action"`
	Target  string       `json:"target"`
	By      string       `json:"by"`
	Result  Verdict      `json:"result"`
	Reason  *string      `json:"reason"`
	BeganAt time.Time    `json:"began_at"`
	EndedAt *time.Time   `json:"ended_at"`
	Steps   []StepResult `json:"steps"`
	// Undo is the plan's word on whether it can be brought back.
	Undo Undo `json:"undo"`
	// After are the checks after a start: a live list, filled in while the
	// workers load and produce. Empty for other actions.
	After []Check `json:"after_start,omitempty"`
	// Waits says that the action was interrupted and waits for the operator:
	// `pipedeck action resume|abandon ID`.
	Waits bool `json:"waits,omitempty"`
}

// ApplyRequest confirms and starts a plan. Key makes a repeated request
// harmless: the same key answers with the first result.
type ApplyRequest struct {
	Plan    string `json:"plan"`
	Confirm string `json:"confirm"`
	By      string `json:"by"`   // user@host of the operator
	From    string `json:"from"` // how the node was reached, with the key's fingerprint; "" on the node itself
	Key     string `json:"key"`
}

// Resolve says what to do with an action that was interrupted or that holds
// the lease.
type Resolve struct {
	Action string     `json:"action"`
	How    ResolveHow `json:"how"`
	By     string     `json:"by"`
}

// ResolveHow is one way out of an interrupted action.
type ResolveHow string

// Values of ResolveHow.
const (
	ResolveResume   ResolveHow = "resume"   // go on with the step that was open, which probes first
	ResolveAbandon  ResolveHow = "abandon"  // end it here, with what was and was not done
	ResolveTakeover ResolveHow = "takeover" // end a running action at its next safe point and free the lease
)
