package pipeline

import (
	"fmt"
)

// maxReasons bounds the list of what is wrong.
const maxReasons = 50

// diagnosis collects what is wrong with a deck, the failures first.
type diagnosis struct {
	failed, degraded []string
}

func (d *diagnosis) fail(format string, args ...any) {
	d.failed = append(d.failed, fmt.Sprintf(format, args...))
}

func (d *diagnosis) degrade(format string, args ...any) {
	d.degraded = append(d.degraded, fmt.Sprintf(format, args...))
}

// judgeHealth is the worst state of a node's parts, with every reason. A deck
// where nothing runs and nothing is broken is healthy.
func judgeHealth(n NodeSnapshot) (Health, []string) {
	var d diagnosis
	busy := map[string]bool{} // GPUs of stages that should run, by UUID
	needsGPU := false
	for _, st := range n.Stages {
		d.stage(st)
		if !shouldRun(st.State) {
			continue
		}
		for _, w := range st.Workers {
			if w.GPUUUID != nil {
				busy[*w.GPUUUID] = true
				needsGPU = true
			}
		}
	}
	d.gpus(n, busy, needsGPU)
	if n.Artifacts != nil {
		d.output(*n.Artifacts, n.Artifacts.Name)
	}
	d.store(n)
	for _, disk := range n.Disks {
		d.disk(disk)
	}
	reasons := append(append([]string{}, d.failed...), d.degraded...)
	if more := len(reasons) - maxReasons; more > 0 {
		reasons = append(reasons[:maxReasons:maxReasons], fmt.Sprintf("and %d more", more))
	}
	switch {
	case len(d.failed) > 0:
		return Failed, reasons
	case len(d.degraded) > 0:
		return Degraded, reasons
	}
	return Healthy, reasons
}

func shouldRun(s StageState) bool {
	switch s {
	case StageStarting, StageRunning, StagePausing, StagePaused, StageFailed, StageUnknown:
		return true
	case StageIdle, StageDraining, StageStopping, StageStopped, StageDone:
	}
	return false
}

func (d *diagnosis) stage(st StageSnapshot) {
	if st.State == StageFailed {
		d.fail("stage %s: %s", st.Name, orElse(st.StateReason, "failed"))
	}
	if st.State == StageUnknown {
		d.degrade("stage %s: %s", st.Name, orElse(st.StateReason, "unknown"))
	}
	if missing := unaccounted(st); missing > 0 {
		d.degrade("stage %s: every worker ended with code 0, but %s", st.Name, notAccounted(missing, *st.Total))
	}
	if shouldRun(st.State) {
		for _, w := range st.Workers {
			d.worker(w)
		}
	}
	for _, o := range st.Outputs {
		d.output(o, st.Name+"/"+o.Name)
	}
}

// unaccounted is how many samples of a done stage nobody has done, skipped or
// given up.
func unaccounted(st StageSnapshot) int64 {
	if st.State != StageDone || st.Done == nil || st.Total == nil {
		return 0
	}
	left := *st.Total - *st.Done
	for _, n := range []*int64{st.Skipped, st.FailedSamples} {
		if n != nil {
			left -= *n
		}
	}
	if p := st.Placement; p != nil && p.Count < p.World && left <= int64(p.Count) {
		return 0 // how the script cuts the samples is known to one a rank only
	}
	return max(0, left)
}

func notAccounted(missing, total int64) string {
	return CountedOf(missing, total, "sample", "samples", "is", "are") + " not accounted for"
}

func (d *diagnosis) worker(w WorkerSnapshot) {
	switch w.State {
	case WorkerStalled, WorkerFailed, WorkerOOM, WorkerLost, WorkerExited:
		d.degrade("worker %s: %s, %s", w.ID, w.State, orElse(w.StateReason, "no reason is known"))
	case WorkerInit:
		if w.Restarts > 0 {
			d.degrade("worker %s: restarting", w.ID)
		}
	case WorkerLoading, WorkerRunning, WorkerIdle, WorkerWaiting, WorkerDraining, WorkerDone, WorkerUnknown:
	}
}

func (d *diagnosis) output(o OutputSnapshot, name string) {
	if o.State == OutputBlocked {
		d.degrade("output %s: uploads blocked: %s", name, orElse(o.StateReason, "no reason is known"))
	}
	if n := valueOf(o.FailedFiles); n > 0 {
		d.degrade("output %s: %s failed", name, Counted(n, "file", "files"))
	}
	if o.Coverage != nil && o.Coverage.Mismatched > 0 {
		d.degrade("output %s: %s from the object of the same name", name, Counted(o.Coverage.Mismatched, "file differs", "files differ"))
	}
}

// store tells of a bucket that cannot be used even where no output waits for it:
// the next start would not get far.
func (d *diagnosis) store(n NodeSnapshot) {
	if n.Store == nil {
		return
	}
	blocked := n.Artifacts != nil && n.Artifacts.State == OutputBlocked
	for _, st := range n.Stages {
		for _, o := range st.Outputs {
			blocked = blocked || o.State == OutputBlocked
		}
	}
	if n.Store.Problem != nil && !blocked {
		d.degrade("store: %s", *n.Store.Problem)
	}
	if why := credentialsWarning(n); why != "" {
		d.degrade("%s", why)
	}
}

func (d *diagnosis) gpus(n NodeSnapshot, busy map[string]bool, needed bool) {
	if needed && n.GPUSource.Kind == sourceNone && n.GPUSource.AgeSeconds != nil {
		d.degrade("no GPU readings: %s", orElse(n.GPUSource.Reason, "no source was found"))
	}
	for _, g := range n.GPUs {
		if g.State != GPULost {
			continue
		}
		if busy[g.UUID] {
			d.fail("GPU %d: lost: %s", g.Index, orElse(g.StateReason, unreached))
		} else {
			d.degrade("GPU %d: lost: %s", g.Index, orElse(g.StateReason, unreached))
		}
	}
}

func (d *diagnosis) disk(k DiskSnapshot) {
	switch {
	case nearlyFull(k.FreeBytes, k.TotalBytes):
		d.degrade("disk %s: nearly full, %s free", k.Path, humanBytes(*k.FreeBytes))
	case k.FullInSeconds != nil && *k.FullInSeconds < soonFull.Seconds():
		d.degrade("disk %s: full in %.0f min", k.Path, *k.FullInSeconds/60)
	}
}
