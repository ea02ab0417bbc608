package pipeline

import (
	"fmt"
	"math"
	"time"

	"pipedeck/pipeline/spec"
)

// staleAfter is how old the last look at processes or GPUs may be before what
// it said no longer counts as known.
const staleAfter = 5 * time.Second

// Bounds on what readings can make the World hold.
const (
	maxRanks = 4096
	maxGPUs  = 1024
	maxDisks = 256
)

// Values of GPUReading.Kind that the core looks at.
const (
	sourceNone      = "none"
	sourceSimulated = "simulated"
)

// World is everything known of one deck on one node, folded from readings. It
// is not safe for concurrent use.
type World struct {
	sp     *spec.Spec
	node   string
	agent  AgentInfo
	events eventRing

	stages    []*stageWorld
	artifacts *outputWorld // nil without artifacts in the spec
	launches  lookWorld
	mover     lookWorld
	paused    bool
	gpus      gpuWorld
	machine   MachineReading
	disks     []*diskWorld
	action    *Action
	health    Health
	store     storeWorld
}

// lookWorld is when a source was last read well, and what is wrong since.
type lookWorld struct {
	good time.Time
	err  string
	any  bool
}

// stageWorld is what is known of one stage.
type stageWorld struct {
	sp       *spec.Stage
	want     StageWant
	workers  map[int]*workerWorld
	whole    sourceWorld // of the stage, where counts come without a rank
	total    tracker     // of the stage's done count
	rate     counter
	basis    countBasis
	outputs  []*outputWorld
	byRank   bool // some output tells which rank made a file
	produced bool // since its last start
	wasDone  bool
}

// sourceWorld is the newest word of one declared progress source. Counts stay
// while the source cannot be read; err then says so.
type sourceWorld struct {
	done, total, skipped, failed *int64
	changedAt                    time.Time
	err                          string
	any                          bool
}

// workerWorld is what is known of one rank of a stage.
type workerWorld struct {
	rank     int
	seen     *LaunchSeen
	launch   string // the launch that the trackers follow
	source   sourceWorld
	declared tracker
	files    tracker
	newest   time.Time
	rate     counter
	rateFrom rateSource
	motion   motionWorld
	trail    trailWorld

	state  WorkerState
	reason string
	since  time.Time
}

// motionWorld is what moves in a worker that has made no output yet.
type motionWorld struct {
	cpu   float64
	read  int64
	log   int64
	mem   int64
	at    time.Time
	alive time.Duration
	still time.Duration
	oom   bool // the node was nearly out of memory at the last look
}

// outputWorld is what is known of one output, or of the artifacts.
type outputWorld struct {
	name, dir string
	reading   *OutputReading
	files     counter
	bytes     counter
	produced  counter
	state     OutputState
}

// storeWorld is how the node stands to the bucket.
type storeWorld struct {
	problem     string
	credentials *CredentialReading
	warned      time.Time // the end of credentials that was told of
}

// gpuWorld is the newest look at the GPUs.
type gpuWorld struct {
	reading GPUReading
	any     bool
	states  map[string]GPUState  // last told, by UUID
	xids    map[string]time.Time // when the newest error event that was told came, by UUID
}

// diskWorld is one filesystem and the trend of its free space.
type diskWorld struct {
	reading DiskReading
	trend   trend
	tight   bool
}

// NewWorld knows the spec and nothing else.
func NewWorld(sp *spec.Spec, node string, agent AgentInfo) *World {
	w := &World{sp: sp, node: node, agent: agent}
	// Later agents go on with higher numbers, so that a follower misses nothing.
	w.events.seq = max(0, agent.StartedAt.UnixMilli())
	w.gpus.states, w.gpus.xids = map[string]GPUState{}, map[string]time.Time{}
	for i := range sp.Stages {
		st := &stageWorld{sp: &sp.Stages[i], workers: map[int]*workerWorld{}}
		for j := range st.sp.Outputs {
			o := &st.sp.Outputs[j]
			st.outputs = append(st.outputs, &outputWorld{name: o.Name, dir: o.Dir})
		}
		w.stages = append(w.stages, st)
	}
	if len(sp.Artifacts) > 0 {
		w.artifacts = &outputWorld{name: artifactsTarget, dir: "."}
	}
	return w
}

// Fold takes one reading. Any reading is taken in any order, twice, or late;
// what names an unknown stage is dropped.
func (w *World) Fold(r Reading) {
	switch r := r.(type) {
	case LaunchesReading:
		w.foldLaunches(r)
	case ProgressReading:
		w.foldProgress(r)
	case WantsReading:
		w.foldWants(r)
	case MoverReading:
		w.foldMover(r)
	case GPUReading:
		w.foldGPUs(r)
	case MachineReading:
		w.machine = r
	case DisksReading:
		w.foldDisks(r)
	case ActionReading:
		w.action = r.Action
	case NoticeReading:
		w.events.add(r.Event)
	}
}

// EventsAfter returns the events that came after the one with Seq seq, oldest
// first; 2,000 are kept. A Seq that this World never gave returns all.
func (w *World) EventsAfter(seq int64) []Event { return w.events.after(seq) }

// LastSeq is the Seq of the newest event, 0 before the first.
func (w *World) LastSeq() int64 { return w.events.seq }

func (w *World) note(at time.Time, level Level, source, format string, args ...any) {
	w.events.add(Event{At: at, Level: level, Source: source, Text: fmt.Sprintf(format, args...)})
}

func (w *World) stage(name string) *stageWorld {
	for _, st := range w.stages {
		if st.sp.Name == name {
			return st
		}
	}
	return nil
}

// worker returns a rank of a stage, made when it is first heard of.
func (s *stageWorld) worker(rank int) *workerWorld {
	if rank < 0 || rank >= maxRanks {
		return nil
	}
	wk := s.workers[rank]
	if wk == nil {
		wk = &workerWorld{rank: rank, files: tracker{byFiles: true}}
		s.workers[rank] = wk
	}
	return wk
}

func (s *stageWorld) id(rank int) string { return fmt.Sprintf("%s/%d", s.sp.Name, rank) }

// ranks lists the ranks to show: those wanted, and those ever launched here. Of
// ranks that a running stage has not any more only what still lives counts.
func (s *stageWorld) ranks() []int {
	first, end := 0, 0
	if s.want.Want == WantRunning {
		first, end = s.want.Ranks()
	}
	top := end
	for rank := range s.workers {
		top = max(top, rank+1)
	}
	out := []int{}
	for rank := range top {
		wk := s.workers[rank]
		launched := (wk != nil && wk.seen != nil) || s.want.Workers[rank].Launch != ""
		if (rank >= first && rank < end) || (end == 0 && launched) || lives(wk) {
			out = append(out, rank)
		}
	}
	return out
}

func lives(wk *workerWorld) bool {
	return wk != nil && wk.seen != nil && (wk.seen.State == ProcRunning || wk.seen.Stragglers > 0)
}

// Snapshot is all that is known at now. It changes nothing.
func (w *World) Snapshot(now time.Time) Snapshot {
	n := NodeSnapshot{
		Name: w.node, Link: Link{State: LinkLive, AgeSeconds: new(0.0)}, Agent: new(w.agent),
		Host: w.hostSnapshot(now), Stages: []StageSnapshot{}, Disks: []DiskSnapshot{},
		UploadsPaused: w.paused, UploadsAgeSeconds: age(now, w.mover.good), Action: w.runningAction(), Events: w.events.newest(shownEvents),
	}
	n.Agent.StartedAt = wireTime(n.Agent.StartedAt)
	n.GPUSource, n.GPUs = w.gpuSnapshots(now)
	for _, st := range w.stages {
		n.Stages = append(n.Stages, w.stageSnapshot(st, now))
	}
	if w.artifacts != nil {
		n.Artifacts = new(w.outputSnapshot(w.artifacts, now))
	}
	n.Store = w.storeSnapshot(now)
	for _, d := range w.disks {
		n.Disks = append(n.Disks, d.snapshot(now))
	}
	s := Snapshot{
		Schema: SchemaVersion, Deck: w.sp.Deck, Run: w.sp.Run, At: wireTime(now), Nodes: []NodeSnapshot{n},
	}
	s.Health, s.HealthReasons = judgeHealth(n)
	return s
}

func (w *World) hostSnapshot(now time.Time) MachineSnapshot {
	m := w.machine
	out := MachineSnapshot{
		CPUPercent: finite(m.CPUPercent), MemUsedBytes: count(m.MemUsedBytes),
		MemTotalBytes: count(m.MemTotalBytes), Load1: finite(m.Load1), AgeSeconds: age(now, m.At), Reason: text(m.Reason),
	}
	missing := out.CPUPercent == nil || out.MemUsedBytes == nil || out.MemTotalBytes == nil || out.Load1 == nil || out.AgeSeconds == nil
	if missing && out.Reason == nil {
		out.Reason = new("not read yet")
	}
	return out
}

// runningAction is a copy of the action while it runs, else nil.
func (w *World) runningAction() *Action {
	if w.action == nil || w.action.EndedAt != nil {
		return nil
	}
	a := *w.action
	a.Steps = append([]StepResult{}, a.Steps...)
	for i := range a.Steps {
		a.Steps[i].Checks = append([]Check{}, a.Steps[i].Checks...)
	}
	return &a
}

func (d *diskWorld) snapshot(now time.Time) DiskSnapshot {
	out := DiskSnapshot{
		Path: Clean(d.reading.Path), UsedBytes: count(d.reading.UsedBytes),
		FreeBytes: count(d.reading.FreeBytes), TotalBytes: count(d.reading.TotalBytes),
		AgeSeconds: age(now, d.reading.At),
	}
	if out.UsedBytes == nil || out.FreeBytes == nil || out.TotalBytes == nil || out.AgeSeconds == nil {
		out.FullReason = text(d.reading.Reason)
		if out.FullReason == nil {
			out.FullReason = new("the filesystem cannot be read")
		}
		return out
	}
	var why string
	out.FullInSeconds, why = d.trend.full(now, *out.FreeBytes, *out.TotalBytes)
	out.FullReason = text(why)
	return out
}

// round cuts a rate to six significant digits: more would be noise.
func round(f *float64) *float64 {
	if f == nil || *f == 0 {
		return f
	}
	scale := math.Pow(10, 6-math.Ceil(math.Log10(math.Abs(*f))))
	return finite(new(math.Round(*f*scale) / scale))
}
