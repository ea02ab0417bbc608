package pipeline

import "time"

// SchemaVersion is the "schema" of every JSON object that pipedeck prints.
const SchemaVersion = 1

// Snapshot is all that is known of a deck at one moment. Numbers are raw with
// the unit in the key; unknown is null with a reason beside it.
type Snapshot struct {
	Schema        int            `json:"schema"`
	Deck          string         `json:"deck"`
	Run           string         `json:"run"`
	At            time.Time      `json:"at"`
	Health        Health         `json:"health"`
	HealthReasons []string       `json:"health_reasons"`
	Nodes         []NodeSnapshot `json:"nodes"`
}

// NodeSnapshot is one node of a deck.
type NodeSnapshot struct {
	Name          string          `json:"name"`
	Link          Link            `json:"link"`
	Agent         *AgentInfo      `json:"agent"`
	Host          MachineSnapshot `json:"host"`
	GPUSource     GPUSourceInfo   `json:"gpu_source"`
	GPUs          []GPUSnapshot   `json:"gpus"`
	Stages        []StageSnapshot `json:"stages"`
	Artifacts     *OutputSnapshot `json:"artifacts,omitempty"` // null without artifacts in the spec
	Store         *StoreSnapshot  `json:"store,omitempty"`     // null before the agent told
	Disks         []DiskSnapshot  `json:"disks"`
	UploadsPaused bool            `json:"uploads_paused"`
	// UploadsAgeSeconds is how old the mover's account is; null before the first.
	UploadsAgeSeconds *float64 `json:"uploads_age_seconds"`
	Action            *Action  `json:"action"` // the running action, or null
	Events            []Event  `json:"events"` // the newest ones, oldest first
}

// Link is the console's connection to the agent. In a Snapshot made by the
// agent itself it is live with age 0.
type Link struct {
	State      LinkState `json:"state"`
	AgeSeconds *float64  `json:"age_seconds"`
	Reason     *string   `json:"reason"`
	// Via says how the agent is reached, where that is not this machine's socket.
	Via *string `json:"via,omitempty"`
	// ClockOffsetSeconds is how far the node's clock is ahead of the console's.
	ClockOffsetSeconds *float64 `json:"clock_offset_seconds,omitempty"`
}

// AgentInfo identifies one agent process.
type AgentInfo struct {
	Version   string    `json:"version"`
	Instance  string    `json:"instance"` // random, new at every start
	PID       int       `json:"pid"`
	StartedAt time.Time `json:"started_at"`
	SpecHash  string    `json:"spec_hash"`
}

// MachineSnapshot is CPU and memory of the node.
type MachineSnapshot struct {
	CPUPercent    *float64 `json:"cpu_percent"` // of all cores, 0 to 100
	MemUsedBytes  *int64   `json:"mem_used_bytes"`
	MemTotalBytes *int64   `json:"mem_total_bytes"`
	Load1         *float64 `json:"load1"`
	AgeSeconds    *float64 `json:"age_seconds"`
	Reason        *string  `json:"reason"` // why something is null
}

// GPUSourceInfo says where GPU readings come from.
type GPUSourceInfo struct {
	Kind       string   `json:"kind"` // nvml, nvidia-smi, simulated or none
	AgeSeconds *float64 `json:"age_seconds"`
	Reason     *string  `json:"reason"`
}

// GPUSnapshot is one GPU. Unknown values are null, never 0.
type GPUSnapshot struct {
	Index         int          `json:"index"`
	UUID          string       `json:"uuid"`
	Name          string       `json:"name"`
	State         GPUState     `json:"state"`
	StateReason   *string      `json:"state_reason"`
	MemUsedBytes  *int64       `json:"mem_used_bytes"`
	MemTotalBytes *int64       `json:"mem_total_bytes"`
	UtilPercent   *float64     `json:"util_percent"`
	PowerWatts    *float64     `json:"power_watts"`
	TempCelsius   *float64     `json:"temp_celsius"`
	Processes     []GPUProcess `json:"processes"`      // null: unknown, [] : none
	More          *GPUMore     `json:"more,omitempty"` // what only NVML tells; absent from other sources
}

// GPUProcess is a process that holds GPU memory.
type GPUProcess struct {
	PID       int     `json:"pid"`
	MemBytes  *int64  `json:"mem_bytes"`
	MemReason *string `json:"mem_reason"` // why that is null
	Worker    *string `json:"worker"`     // "stage/rank" when it is ours
	Name      *string `json:"name"`       // null: not known here
	User      *string `json:"user"`
	// Foreign: the pid is of another pid namespace and names nobody here.
	Foreign bool `json:"foreign,omitempty"`
	// UtilPercent is its own share of the GPU's time; null: not told.
	UtilPercent *float64 `json:"util_percent,omitempty"`
}

// StageSnapshot is one stage of the spec, in the spec's order.
type StageSnapshot struct {
	Name             string            `json:"name"`
	State            StageState        `json:"state"`
	StateReason      *string           `json:"state_reason"`
	Placement        *Placement        `json:"placement,omitempty"` // this node's part of the ranks, in a deck of several nodes
	Done             *int64            `json:"done"`
	DoneReason       *string           `json:"done_reason"`
	Skipped          *int64            `json:"skipped"`
	FailedSamples    *int64            `json:"failed_samples"`
	Total            *int64            `json:"total"`
	TotalReason      *string           `json:"total_reason"`
	SamplesPerSecond *float64          `json:"samples_per_second"`
	RateReason       *string           `json:"rate_reason"`
	ETASeconds       *float64          `json:"eta_seconds"`
	ETAReason        *string           `json:"eta_reason"`
	Workers          []WorkerSnapshot  `json:"workers"`
	Services         []ServiceSnapshot `json:"services"`
	Outputs          []OutputSnapshot  `json:"outputs"`
}

// WorkerSnapshot is one worker process of a stage.
type WorkerSnapshot struct {
	ID               string      `json:"id"` // "stage/rank"
	Rank             int         `json:"rank"`
	GPU              *int        `json:"gpu"` // index; null without one
	GPUUUID          *string     `json:"gpu_uuid"`
	PID              *int        `json:"pid"` // null when no process lives
	State            WorkerState `json:"state"`
	StateReason      *string     `json:"state_reason"`
	StateSince       *time.Time  `json:"state_since"`
	Done             *int64      `json:"done"`
	Total            *int64      `json:"total"`
	SamplesPerSecond *float64    `json:"samples_per_second"`
	RateReason       *string     `json:"rate_reason"`
	LastOutputAt     *time.Time  `json:"last_output_at"`
	Restarts         int         `json:"restarts"`
	MaxRestarts      int         `json:"max_restarts"`
	ExitCode         *int        `json:"exit_code"` // 128+n for a signal n
	ExitReason       *string     `json:"exit_reason"`
	StartedAt        *time.Time  `json:"started_at"`
	GPUMemBytes      *int64      `json:"gpu_mem_bytes"`
	Reason           *string     `json:"reason"` // why numbers without a reason of their own are null
	Log              string      `json:"log"`    // path on the node
	// Stopped says that nothing of it is left, and that nothing but a start or a
	// restart begins it again.
	Stopped bool `json:"stopped,omitempty"`
	// Code is the hash of the code that it was started with, where `sync` pushed one.
	Code *string `json:"code,omitempty"`
}

// ServiceSnapshot is one server of a stage. No service runs yet: the list is
// empty until services are supervised.
type ServiceSnapshot struct {
	Name  string      `json:"name"`
	Rank  int         `json:"rank"`
	State WorkerState `json:"state"`
}

// OutputSnapshot is one output's journey to the store.
type OutputSnapshot struct {
	Name                   string          `json:"name"`
	Dir                    string          `json:"dir"`
	State                  OutputState     `json:"state"`
	StateReason            *string         `json:"state_reason"`
	LocalFiles             *int64          `json:"local_files"` // with those being written and moved aside
	LocalBytes             *int64          `json:"local_bytes"`
	Queue                  Queue           `json:"queue"`
	VerifiedFiles          *int64          `json:"verified_files"` // stored in this run
	VerifiedBytes          *int64          `json:"verified_bytes"`
	DeletedLocalFiles      *int64          `json:"deleted_local_files"` // stored keys without a local file
	FailedFiles            *int64          `json:"failed_files"`
	QuarantinedFiles       *int64          `json:"quarantined_files"`
	FilesPerSecond         *float64        `json:"files_per_second"` // verified
	BytesPerSecond         *float64        `json:"bytes_per_second"`
	ProducedBytesPerSecond *float64        `json:"produced_bytes_per_second"`
	Coverage               *CoverageCounts `json:"coverage"` // from the mover's own knowledge
	CoverageMap            *CoverageMap    `json:"coverage_map"`
	CoverageMapReason      *string         `json:"coverage_map_reason"` // why that is null
	Reason                 *string         `json:"reason"`              // why something is null
}

// CoverageMap is where in the range of sample ids, from 0 to the stage's
// total, what is: counts by cells of equal size, an id counts once.
type CoverageMap struct {
	IDsPerCell int64   `json:"ids_per_cell"`
	StoredIDs  []int64 `json:"stored_ids"`
	LocalIDs   []int64 `json:"local_ids"` // complete here and not stored
}

// Queue is what waits for the store. WaitingFiles excludes InFlight.
type Queue struct {
	WaitingFiles  int64    `json:"waiting_files"`
	WaitingBytes  int64    `json:"waiting_bytes"`
	InFlight      int64    `json:"in_flight"`
	MaxParallel   int      `json:"max_parallel"`
	OldestSeconds *float64 `json:"oldest_seconds"`
	OldestReason  *string  `json:"oldest_reason"` // why that is null
}

// CoverageCounts splits the local files of an output by what the store
// proves. The categories exclude each other.
type CoverageCounts struct {
	At         time.Time `json:"at"`
	Complete   bool      `json:"complete"` // false: something could not be asked
	Local      int64     `json:"local"`
	Proven     int64     `json:"proven"`
	Unproven   int64     `json:"unproven"`
	Mismatched int64     `json:"mismatched"`
	Missing    int64     `json:"missing"`
	Unknown    int64     `json:"unknown"`
}

// DiskSnapshot is one filesystem that the deck uses.
type DiskSnapshot struct {
	Path          string   `json:"path"`
	UsedBytes     *int64   `json:"used_bytes"`
	FreeBytes     *int64   `json:"free_bytes"`
	TotalBytes    *int64   `json:"total_bytes"`
	FullInSeconds *float64 `json:"full_in_seconds"`
	FullReason    *string  `json:"full_reason"`
	AgeSeconds    *float64 `json:"age_seconds"`
}

// Event is one line for the operator.
type Event struct {
	Seq    int64     `json:"seq"`
	At     time.Time `json:"at"`
	Level  Level     `json:"level"`
	Source string    `json:"source"` // "extract/0", "s3", "agent", "ops", …
	Text   string    `json:"text"`   // cleaned of control sequences
	Action string    `json:"action,omitempty"`
	Count  int       `json:"count"` // identical repeats folded into one, from 1
}

// CoverageReport answers `coverage --json`.
type CoverageReport struct {
	Schema  int              `json:"schema"`
	Deck    string           `json:"deck"`
	Run     string           `json:"run"`
	Outputs []OutputCoverage `json:"outputs"`
}

// OutputCoverage is the audit of one output, named "stage/output".
type OutputCoverage struct {
	Name string `json:"name"`
	Node string `json:"node,omitempty"` // whose local files; in a deck of several nodes
	CoverageCounts
	BeingWritten int64        `json:"being_written"`
	Reason       *string      `json:"reason"`
	IDs          *CoverageIDs `json:"ids,omitempty"` // with --ids
}

// CoverageIDs lists sample ids, sorted: integers numerically, else as strings.
type CoverageIDs struct {
	Stored   []string `json:"stored"`   // in the store, verified
	Unproven []string `json:"unproven"` // only local, in whatever state
}
