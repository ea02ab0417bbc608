// Package spec reads pipedeck.yaml: strict parsing with positions, defaults,
// validation and template expansion. It touches no file and no network.
package spec

import "time"

// Spec is one validated deck: what the operator wants, with every default
// filled in. Paths are as written (relative to Workdir unless absolute).
type Spec struct {
	Version   int
	Deck      string
	Run       string // one production; part of every object key
	Workdir   string // absolute, on the node
	StateDir  string // absolute; WORKDIR/.pipedeck unless given
	Nodes     []Node // never empty: without nodes in the file, one node "local"
	Store     Store
	Artifacts []string // globs below Workdir
	Sync      []Sync
	Notify    []Notify
	Stages    []Stage // in the file's order

	Hash   string // SHA-256 of the source bytes, hex
	Source []byte // the bytes it was parsed from
}

// Node is one machine with GPUs.
type Node struct {
	Name string
	SSH  string // empty: this machine
	GPUs GPUSet
}

// GPUSet selects GPUs by index or UUID. The zero value selects none.
type GPUSet struct {
	All     bool
	Indexes []int
	UUIDs   []string
}

// Store is where outputs go and how fast.
type Store struct {
	Bucket            string
	Endpoint          string // empty: AWS
	Region            string
	PathStyle         bool
	Prefix            string // without a trailing slash; may be empty
	Credentials       string // CredentialsNode or CredentialsForward
	MaxParallel       int    // files (or parts) in flight at once
	MaxMemory         int64  // bytes of buffers of uploads in flight
	Bandwidth         int64  // bytes/s, 0 = no limit
	RequestsPerSecond float64
}

// Values of Store.Credentials.
const (
	CredentialsNode    = "node"
	CredentialsForward = "forward"
)

// Sync names local files that are pushed to the node before a start.
type Sync struct{ From, To string }

// Notify is one receiver of notifications: a webhook or a command.
type Notify struct {
	Webhook string
	Command []string
}

// Stage is one step of the pipeline.
type Stage struct {
	Name             string
	Total            int64 // samples; 0 = not stated
	Inputs           []string
	Setup            [][]string
	Services         []Service
	Workers          Workers
	Outputs          []Output
	Progress         Progress
	DoneSet          *DoneSet
	IDsDependOnWorld bool
	Gates            []Gate
	Scratch          []string
	Launcher         string // LauncherLocal or LauncherSlurm
	Pause            *Pause
}

// Values of Stage.Launcher.
const (
	LauncherLocal = "local"
	LauncherSlurm = "slurm"
)

// Workers says how a stage's processes are started and stopped.
type Workers struct {
	PerGPU         int    // ranks per GPU; 0 when Count is used
	Count          int    // ranks; 0 when PerGPU is used
	GPUs           GPUSet // GPUs that a Count stage holds as a whole
	Command        []string
	Env            []EnvVar // in the file's order
	Stop           Stop
	Restart        Restart
	GPUMemory      int64 // bytes a loaded worker holds; 0 = not stated
	LoadingTimeout time.Duration
	StallAfter     time.Duration
}

// EnvVar is one variable of a worker's environment; Value may hold templates.
type EnvVar struct{ Name, Value string }

// Stop is a graceful stop: Signal to the leader, then Grace before escalation.
type Stop struct {
	Signal string // "SIGTERM", …
	Grace  time.Duration
}

// Restart bounds automatic restarts of a worker that ended by itself.
type Restart struct {
	Max     int
	Backoff time.Duration // before the first restart; doubles, with jitter
}

// Service is a server that a stage's workers need.
type Service struct {
	Name      string
	PerGPU    int
	Count     int
	Command   []string
	Env       []EnvVar
	Port      int // + rank
	Ready     Ready
	Metrics   string
	Stop      Stop
	Restart   Restart
	GPUMemory int64
}

// Ready says when a service can take work.
type Ready struct {
	HTTP    string
	Timeout time.Duration // of one probe
	Within  time.Duration // of all of them
}

// Output is a directory plus a pattern of files that a stage produces.
type Output struct {
	Name        string
	Dir         string // below Workdir; may hold templates ({rank})
	Match       string // glob relative to Dir, ** allowed
	Format      string // one of the Format constants
	Marker      string // for FormatMarker: the file that completes a directory
	Settle      time.Duration
	ID          string // regexp with one group, or empty
	Key         string // template below PREFIX/RUN/
	AfterUpload string // one of the After constants
	Every       time.Duration
	KeepLast    int // 0 = keep all

	compiled *compiled
}

// Values of Output.Format.
const (
	FormatSafetensors = "safetensors"
	FormatZip         = "zip"
	FormatJSONL       = "jsonl"
	FormatParquet     = "parquet"
	FormatArrow       = "arrow"
	FormatAny         = "any"
	FormatMarker      = "marker"
)

// Values of Output.AfterUpload.
const (
	AfterDelete      = "delete"
	AfterKeep        = "keep"
	AfterPlaceholder = "placeholder"
)

// Progress says where the count of done samples is read. Exactly one source
// is set; the zero value counts output files.
type Progress struct {
	JSON       string // path template of a status file
	Done       string // its keys
	Total      string
	Skipped    string
	Failed     string
	JSONL      string // glob of files whose complete lines count
	Log        string // regexp with a "done" group, optionally "total"
	Prometheus string // url template
	Metric     string
}

// DoneSet is the file that tells workers which ids are done.
type DoneSet struct {
	File string
	Form string // DoneLines or DoneJSON
}

// Values of DoneSet.Form.
const (
	DoneLines = "lines"
	DoneJSON  = "json"
)

// Gate is a check that must pass before a start.
type Gate struct {
	LossMask *LossMaskGate
	Command  []string
}

// LossMaskGate refuses a dataset whose loss masks are mostly empty.
type LossMaskGate struct {
	Dataset       string
	Column        string
	MinSum        int
	MaxShareBelow float64
	MaxModeShare  float64
}

// Pause says how a stage's workers are held back: by a signal or by commands.
type Pause struct {
	Signal  string
	Command []string
	Resume  []string
}
