package pipeline

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"pipedeck/pipeline/spec"
)

const (
	suspendTimeout = 5 * time.Minute // uploads in flight of large files must end
	recountTimeout = 30 * time.Minute
	trashTimeout   = 30 * time.Minute
	undoTimeout    = 30 * time.Minute
	// TrashLife is how long what a plan moved away can be brought back.
	TrashLife = 10 * time.Minute
)

// wiping is what an action takes local files from.
type wiping struct {
	st          *spec.Stage
	outputs     []string
	scratch     []string // absolute
	provenOnly  bool
	keepOutputs bool // outputs are looked at, and stay
}

func (w wiping) request(fresh bool) HoldingsRequest {
	return HoldingsRequest{Outputs: w.outputs, Scratch: w.scratch, Fresh: fresh}
}

// names are the outputs and directories that lose files.
func (w wiping) names() []string {
	if w.keepOutputs {
		return slices.Clone(w.scratch)
	}
	return append(slices.Clone(w.outputs), w.scratch...)
}

// scratchDirs are those of every rank that the stage may have had here: the
// workers that are known, what the spec names, and one for each place on a GPU.
func (d *decision) scratchDirs(st *spec.Stage) []string {
	world := st.Workers.Count
	if st.Workers.PerGPU > 0 {
		for _, g := range d.node.GPUs {
			world += len(g.Slots()) * st.Workers.PerGPU
		}
	}
	for _, seen := range d.node.Stages {
		for _, w := range seen.Workers {
			if seen.Name == st.Name {
				world = max(world, w.Rank+1)
			}
		}
	}
	return d.sp.ScratchDirs(st, world)
}

// wiped resolves the target of a wipe.
func (d *decision) wiped() (wiping, error) {
	if d.in.Scratch {
		t, err := d.find()
		if err != nil {
			return wiping{}, err
		}
		if t.rank >= 0 {
			return wiping{}, d.usage("pipedeck wipe --scratch "+t.st.Name, "scratch belongs to the whole stage")
		}
		if len(t.st.Scratch) == 0 {
			return wiping{}, d.usage("", "stage %q has no scratch directory in the spec", t.st.Name)
		}
		return wiping{st: t.st, scratch: d.scratchDirs(t.st), provenOnly: d.in.ProvenOnly}, nil
	}
	names, err := d.outputs()
	if err != nil {
		return wiping{}, err
	}
	stage, _, _ := strings.Cut(names[0], "/")
	return wiping{st: d.sp.Stage(stage), outputs: names, provenOnly: d.in.ProvenOnly}, nil
}

// wipe moves the listed files of outputs or scratch out of the way; the
// workers that could write there are stopped first and stay stopped.
func (d *decision) wipe() error {
	w, err := d.wiped()
	if err != nil {
		return err
	}
	d.account(w)
	if len(w.removes(d.facts.Holdings)) == 0 && d.facts.Checking == nil {
		d.note("nothing is there to remove")
		return nil
	}
	d.clear(w, d.stage(w.st.Name))
	d.plan.Confirm = new("wipe " + d.sp.Deck)
	d.askForLoss(d.sp.Deck)
	if n := d.plan.Loss.LostFiles; n > 0 && !d.in.Scratch {
		d.plan.Safer = &Safer{Action: VerbSettle, Then: VerbWipe, Seconds: d.settleSeconds(w)}
	}
	if others := d.readers(w); others != "" {
		d.note(others)
	}
	return nil
}

// clear is the part of a plan that takes files away, writers first.
func (d *decision) clear(w wiping, seen StageSnapshot) {
	if len(w.outputs) > 0 && !w.keepOutputs {
		d.step(StepSuspend, suspendTimeout, "the mover keeps off it and nothing is in flight", w.outputs...)
	}
	if t := (target{st: w.st, seen: seen, rank: -1}); d.stoppable(t) {
		d.stopStep(t)
	}
	d.takeAway(w)
}

func (d *decision) takeAway(w wiping) {
	d.step(StepRecount, recountTimeout, "nothing would be lost that this plan does not list", w.names()...)
	d.step(StepTrash, trashTimeout, "the listed names are gone and all others are still there", w.names()...)
	if len(w.outputs) > 0 && !w.keepOutputs {
		d.step(StepRelease, pauseTimeout, "the mover goes on", w.outputs...)
	}
}

// askForLoss makes the number be read where something would be lost.
func (d *decision) askForLoss(name string) {
	if n := d.plan.Loss.LostFiles; n > 0 {
		d.plan.Confirm = new(fmt.Sprintf("%d %s", n, name))
	}
}

// account fills in the loss, what the store holds and how it can be undone.
func (d *decision) account(w wiping) {
	d.plan.Checking = d.facts.Checking
	loss := &d.plan.Loss
	undoable := true
	for _, h := range d.facts.Holdings {
		undoable = undoable && h.Undoable
		if !h.Complete {
			d.note(h.Name + ": not everything could be looked at or asked, which counts as not stored: " + h.Reason)
		}
		for _, f := range h.Files {
			loss.count(f)
			taken := (h.Scratch || !w.keepOutputs) && (!w.provenOnly || !f.Lost())
			if taken && f.Lost() {
				loss.LostFiles++
				loss.LostBytes += f.ID.Size
			}
		}
	}
	d.storeOf(w)
	d.undo(undoable)
	d.recompute(w)
	if w.provenOnly {
		d.note("only what is proven is removed; " + Counted(loss.Files-loss.Proven, "file stays", "files stay"))
	}
}

func (l *Loss) count(f ListedFile) {
	if f.Class == ClassOther {
		l.OtherFiles++
		l.OtherBytes += f.ID.Size
		return
	}
	l.Files++
	l.Bytes += f.ID.Size
	switch f.Class {
	case ClassProven:
		l.Proven++
	case ClassUnproven:
		l.Unproven++
	case ClassMismatched:
		l.Mismatched++
	case ClassMissing:
		l.Missing++
	case ClassBeingWritten:
		l.BeingWritten++
	case ClassUnknown, ClassOther:
		l.Unknown++
	default:
		l.Unknown++
	}
}

func (d *decision) storeOf(w wiping) {
	st := PlanStore{Bucket: d.sp.Store.Bucket, Prefix: d.sp.RunPrefix()}
	var stored int64
	known := len(w.outputs) > 0
	for _, h := range d.facts.Holdings {
		if h.Scratch {
			continue
		}
		known = known && h.StoredFiles >= 0
		stored += max(0, h.StoredFiles)
		if st.CheckedAt == nil || h.At.Before(*st.CheckedAt) {
			st.CheckedAt = new(wireTime(h.At))
		}
	}
	if known && len(d.facts.Holdings) > 0 {
		st.StoredFiles = &stored
	}
	if w.st != nil && w.st.Total > 0 {
		st.Total = new(w.st.Total)
	}
	switch {
	case d.facts.Checking != nil:
		st.Reason = new("still checking")
	case len(w.outputs) == 0:
		st.Reason = new("no output is touched")
	case st.StoredFiles == nil:
		st.Reason = new("what the store holds is not known")
	case st.Total == nil:
		st.Reason = new("the spec states no total")
	}
	d.plan.Store = st
}

func (d *decision) undo(undoable bool) {
	if !undoable {
		d.plan.Undo = Undo{Reason: new("the files are on a filesystem of their own (such as a tmpfs), and are removed at once")}
		return
	}
	d.plan.Undo = Undo{
		Until:  new(d.plan.MadeAt.Add(TrashLife)),
		Reason: new(fmt.Sprintf("kept for %s after they are moved, or until the disk needs the space; `pipedeck undo ACTION_ID` brings them back", humanTime(TrashLife))),
	}
}

// recompute says how long the lost samples take to make again.
func (d *decision) recompute(w wiping) {
	loss := &d.plan.Loss
	if loss.LostFiles == 0 {
		loss.RecomputeSeconds, loss.RecomputeReason = new(0.0), nil
		return
	}
	rate := d.stage(w.st.Name).SamplesPerSecond
	if rate == nil || *rate <= 0 {
		loss.RecomputeReason = new("the stage's rate is not known")
		return
	}
	loss.RecomputeSeconds = new(float64(loss.LostFiles) / *rate)
}

// settleSeconds is how long uploading the rest would take at today's speed.
func (d *decision) settleSeconds(w wiping) *float64 {
	var bytes, rate float64
	for _, o := range d.stage(w.st.Name).Outputs {
		if slices.Contains(w.outputs, w.st.Name+"/"+o.Name) && o.BytesPerSecond != nil {
			rate += *o.BytesPerSecond
		}
	}
	bytes = float64(d.plan.Loss.LostBytes)
	if rate <= 0 {
		return nil
	}
	return new(bytes / rate)
}

// readers warns of stages that read what is taken away.
func (d *decision) readers(w wiping) string {
	for _, st := range d.sp.Stages {
		if st.Name == w.st.Name {
			continue
		}
		for _, in := range st.Inputs {
			for _, o := range w.st.Outputs {
				if slices.Contains(w.outputs, w.st.Name+"/"+o.Name) && strings.HasPrefix(in, o.Dir) {
					return fmt.Sprintf("stage %q reads %s", st.Name, in)
				}
			}
		}
	}
	return ""
}

func (d *decision) note(text string) { d.plan.Notes = append(d.plan.Notes, text) }

func (d *decision) stage(name string) StageSnapshot {
	for _, s := range d.node.Stages {
		if s.Name == name {
			return s
		}
	}
	return StageSnapshot{Name: name, State: StageIdle}
}
