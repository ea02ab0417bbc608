package pipeline

import "time"

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
)

// Intent is what was asked, as data: a key press or a command line.
type Intent struct {
	Verb   Verb   `json:"verb"`
	Target string `json:"target"` // stage, "stage/rank" or output; empty for pause, resume, push
}

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
	Safer       *Safer    `json:"safer"`
	Undo        Undo      `json:"undo"`
	Confirm     *string   `json:"confirm"` // the text to type; null: nothing is asked
	Fingerprint string    `json:"fingerprint"`
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
}

// ApplyRequest confirms and starts a plan. Key makes a repeated request
// harmless: the same key answers with the first result.
type ApplyRequest struct {
	Plan    string `json:"plan"`
	Confirm string `json:"confirm"`
	By      string `json:"by"` // user@host of the operator
	Key     string `json:"key"`
}
