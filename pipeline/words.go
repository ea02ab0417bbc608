package pipeline

// The words of the Snapshot. They are part of the JSON contract.

// Health is the worst state of a deck.
type Health string

// Values of Health.
const (
	Healthy  Health = "healthy"
	Degraded Health = "degraded"
	Failed   Health = "failed"
	Stale    Health = "stale"
)

// LinkState is the state of the connection to an agent.
type LinkState string

// Values of LinkState.
const (
	LinkConnecting LinkState = "connecting"
	LinkLive       LinkState = "live"
	LinkSlow       LinkState = "slow"
	LinkStale      LinkState = "stale"
	LinkLost       LinkState = "lost"
	LinkAuth       LinkState = "auth"
	LinkVersion    LinkState = "version"
)

// StageState is the state of a stage as a whole.
type StageState string

// Values of StageState.
const (
	StageIdle     StageState = "idle"
	StageStarting StageState = "starting"
	StageRunning  StageState = "running"
	StagePausing  StageState = "pausing"
	StagePaused   StageState = "paused"
	StageDraining StageState = "draining"
	StageStopping StageState = "stopping"
	StageStopped  StageState = "stopped"
	StageFailed   StageState = "failed"
	StageDone     StageState = "done"
	StageUnknown  StageState = "unknown"
)

// OutputState is the state of the mover on one output.
type OutputState string

// Values of OutputState.
const (
	OutputIdle      OutputState = "idle"
	OutputRunning   OutputState = "running"
	OutputPaused    OutputState = "paused"
	OutputThrottled OutputState = "throttled"
	OutputBacklog   OutputState = "backlog"
	OutputBlocked   OutputState = "blocked"
	OutputStopped   OutputState = "stopped"
	OutputUnknown   OutputState = "unknown"
)

// GPUState is the state of one GPU.
type GPUState string

// Values of GPUState.
const (
	GPUOK          GPUState = "ok"
	GPULost        GPUState = "lost"
	GPUDenied      GPUState = "denied"
	GPUUnsupported GPUState = "unsupported"
	GPUUnknown     GPUState = "unknown"
)

// WorkerState is the state of one worker or service process.
type WorkerState string

// Values of WorkerState.
const (
	WorkerInit     WorkerState = "init"
	WorkerLoading  WorkerState = "loading"
	WorkerRunning  WorkerState = "running"
	WorkerIdle     WorkerState = "idle"
	WorkerWaiting  WorkerState = "waiting"
	WorkerDraining WorkerState = "draining"
	WorkerStalled  WorkerState = "stalled"
	WorkerExited   WorkerState = "exited"
	WorkerFailed   WorkerState = "failed"
	WorkerOOM      WorkerState = "oom"
	WorkerLost     WorkerState = "lost"
	WorkerDone     WorkerState = "done"
	WorkerUnknown  WorkerState = "unknown"
)

// Level is the weight of an Event.
type Level string

// Values of Level.
const (
	Info  Level = "info"
	Warn  Level = "warn"
	Error Level = "error"
)
