package pipeline

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"pipedeck/pipeline/spec"
)

const (
	quarantineTimeout = 10 * time.Minute
	gpusTimeout       = 2 * time.Minute
	recordTimeout     = 2 * time.Minute
	codeTimeout       = 5 * time.Minute
	// leastRoom is the free space below which a start would fill the disk
	// before anything could be uploaded; of a small disk its twentieth part.
	leastRoom = 64 << 20
)

func (d *decision) block(format string, args ...any) {
	d.plan.Blocked = append(d.plan.Blocked, fmt.Sprintf(format, args...))
}

// quarantinable are the outputs whose format tells an incomplete file.
func quarantinable(st *spec.Stage) []string {
	var out []string
	for _, o := range st.Outputs {
		switch o.Format {
		case spec.FormatSafetensors, spec.FormatZip, spec.FormatParquet, spec.FormatArrow, spec.FormatMarker:
			out = append(out, st.Name+"/"+o.Name)
		}
	}
	return out
}

func commandGates(st *spec.Stage) bool {
	return slices.ContainsFunc(st.Gates, func(g spec.Gate) bool { return len(g.Command) > 0 })
}

// start of a running stage brings back only what ended for good, so on a
// healthy one it does nothing.
func (d *decision) start(t target) {
	on := []string{t.on()}
	if len(t.workers()) > 0 && (t.rank >= 0 || isActive(t.seen.State)) {
		on = missingWorkers(t)
	}
	d.code(t, len(on) > 0)
	if len(on) == 0 {
		return
	}
	if d.noRanks(t) {
		return
	}
	d.startable(t)
	d.placeable(t, false)
	d.startSteps(t, on)
}

func isActive(s StageState) bool {
	switch s {
	case StageStarting, StageRunning, StagePausing, StagePaused, StageUnknown:
		return true
	case StageIdle, StageDraining, StageStopping, StageStopped, StageFailed, StageDone:
	}
	return false
}

// missingWorkers are those that start can bring back: ended and not done. On
// a stage that is active, one whose restart is on its way comes by itself.
func missingWorkers(t target) []string {
	var ids []string
	for _, w := range t.workers() {
		if hasEnded(w) && (w.State != WorkerDone || t.rank >= 0) {
			ids = append(ids, w.ID)
		}
	}
	return ids
}

func hasEnded(w WorkerSnapshot) bool {
	switch w.State {
	case WorkerExited, WorkerFailed, WorkerOOM, WorkerLost, WorkerDone:
		return w.PID == nil
	case WorkerInit, WorkerLoading, WorkerRunning, WorkerIdle, WorkerWaiting, WorkerDraining, WorkerStalled, WorkerUnknown:
	}
	return false
}

func (d *decision) startSteps(t target, on []string) {
	if formats := quarantinable(t.st); len(formats) > 0 {
		d.step(StepQuarantine, quarantineTimeout, "no incomplete file that nobody writes is left", t.st.Name)
	}
	if d.holdsGPUs(t.st) {
		d.step(StepGPUsFree, gpusTimeout, "each GPU holds what it held before, and nobody else's process", on...)
	}
	if commandGates(t.st) {
		d.step(StepGates, gatesTimeout, "each gate's command ends with 0", t.st.Name)
	}
	if t.st.DoneSet != nil {
		d.step(StepDoneSet, doneSetTimeout, "the file lists every id that is stored or complete on the disk", t.st.Name)
	}
	if len(t.st.Outputs) > 0 {
		d.step(StepRecord, recordTimeout, "the bucket says how this run's outputs are made", t.st.Name)
	}
	d.step(StepStartWorkers, startTimeout, "each worker is alive under its recorded identity, or ended with 0", on...)
}

// startable collects what forbids a start, as far as it is known: the agent
// looks again when it starts.
func (d *decision) startable(t target) {
	block := d.block
	if t.st.Launcher == spec.LauncherSlurm {
		block("stage %q is launched through Slurm, which this agent does not drive", t.st.Name)
	}
	if len(t.st.Services) > 0 {
		block("stage %q needs its service %q, which this agent does not start", t.st.Name, t.st.Services[0].Name)
	}
	if t.seen.State == StageStopping || t.seen.State == StageDraining {
		block("stage %q is being stopped; wait until it is stopped", t.st.Name)
	}
	if d.holdsGPUs(t.st) {
		d.freeGPUs(t.st, block)
	}
	d.record(t)
	d.room(t)
}

func (d *decision) holdsGPUs(st *spec.Stage) bool { return wantsGPUs(st) }

func wantsGPUs(st *spec.Stage) bool {
	g := st.Workers.GPUs
	return st.Workers.PerGPU > 0 || g.All || len(g.Indexes) > 0 || len(g.UUIDs) > 0
}

// freeGPUs blocks on GPUs that a living worker of another stage holds.
func (d *decision) freeGPUs(st *spec.Stage, block func(string, ...any)) {
	wanted := func(w WorkerSnapshot) bool {
		if w.GPU == nil {
			return false
		}
		g := st.Workers.GPUs
		return st.Workers.PerGPU > 0 || g.All || slices.Contains(g.Indexes, *w.GPU) ||
			(w.GPUUUID != nil && slices.Contains(g.UUIDs, *w.GPUUUID))
	}
	for _, other := range d.node.Stages {
		if other.Name == st.Name || other.Name == d.leaving {
			continue
		}
		for _, w := range other.Workers {
			if w.PID != nil && wanted(w) {
				block("GPU %d is held by %s; stop it first", *w.GPU, w.ID)
			}
		}
	}
}

// Differences are what Intent.Accept may name.
const (
	DiffInputs  = "inputs"
	DiffCommand = "command"
	DiffWorld   = "world"
)

// record blocks a start whose outputs would not fit those that this run has.
func (d *decision) record(t target) {
	m := d.facts.Made
	if m == nil || len(t.st.Outputs) == 0 {
		return
	}
	for _, a := range d.in.Accept {
		if a != DiffInputs && a != DiffCommand && a != DiffWorld {
			d.block("--accept takes inputs, command or world, and not %q", a)
		}
	}
	if m.Err != "" {
		if m.Known {
			d.note("how this run's outputs were made cannot be read (" + m.Err + "); this node's ledger knows the run, so it goes on")
			return
		}
		d.plan.Unreachable = true
		d.block("how this run's outputs were made cannot be read, and this node does not know the run: %s", m.Err)
		return
	}
	if m.Recorded != nil {
		d.compare(t, *m.Recorded, m.Now)
	}
}

func (d *decision) compare(t target, was, now StageRecord) {
	if was.Deck != d.sp.Deck {
		d.block("run %q in this bucket belongs to deck %q; name a new `run` in the spec", d.sp.Run, was.Deck)
		return
	}
	differ := func(what, text string) {
		if slices.Contains(d.in.Accept, what) {
			d.note(text + " (accepted)")
			return
		}
		d.block("%s; name a new `run` in the spec, or `--accept %s`", text, what)
	}
	if was.Inputs != now.Inputs {
		differ(DiffInputs, fmt.Sprintf("the inputs of %q changed since this run's outputs were made", t.st.Name))
	}
	if was.Command != now.Command {
		differ(DiffCommand, fmt.Sprintf("the command of %q changed since this run's outputs were made", t.st.Name))
	}
	if world := d.world(t); t.st.IDsDependOnWorld && was.World > 0 && world > 0 && was.World != world {
		differ(DiffWorld, fmt.Sprintf("the world size of %q was %d and is %d, and its ids depend on it", t.st.Name, was.World, world))
	}
}

// world is how many ranks the stage will have; 0: not known.
func (d *decision) world(t target) int {
	if p := d.placed(t); p != nil {
		return p.World
	}
	if t.st.Workers.PerGPU == 0 {
		return t.st.Workers.Count
	}
	return usableSlots(d.node.GPUs, d.gpuSet()) * t.st.Workers.PerGPU
}

// here is how many of its ranks are this node's; 0: not known.
func (d *decision) here(t target) int {
	if p := d.placed(t); p != nil {
		return p.Count
	}
	return d.world(t)
}

func (d *decision) gpuSet() spec.GPUSet {
	for _, n := range d.sp.Nodes {
		if n.Name == d.node.Name {
			return n.GPUs
		}
	}
	return spec.GPUSet{All: true}
}

// room blocks a start on a disk that would be full before the first upload.
func (d *decision) room(t target) {
	var disk *DiskSnapshot
	for i, dk := range d.node.Disks {
		for _, o := range t.st.Outputs {
			if below(d.sp.Abs(o.Dir), dk.Path) && (disk == nil || len(dk.Path) > len(disk.Path)) {
				disk = &d.node.Disks[i]
			}
		}
	}
	if disk == nil || disk.FreeBytes == nil {
		return
	}
	need := int64(leastRoom)
	if disk.TotalBytes != nil {
		need = min(need, *disk.TotalBytes/20)
	}
	for _, o := range t.seen.Outputs {
		if o.VerifiedFiles != nil && o.VerifiedBytes != nil && *o.VerifiedFiles > 0 {
			need = max(need, 2*int64(max(1, d.here(t)))**o.VerifiedBytes / *o.VerifiedFiles)
		}
	}
	if *disk.FreeBytes < need {
		d.block("%s has %s free: it would be full before the first upload; `pipedeck settle` or `wipe --proven-only` makes room",
			disk.Path, humanBytes(*disk.FreeBytes))
	}
}

func below(path, dir string) bool {
	return path == dir || dir == "/" || strings.HasPrefix(path, dir+"/")
}
