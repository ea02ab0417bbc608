package pipeline

import (
	"fmt"
	"strings"
	"time"
)

const (
	gatesTimeout = 30 * time.Minute
	leaveTimeout = 30 * time.Second
)

// pivoted resolves the two stages of a pivot; from.st is nil where no stage is
// active and none was named.
func (d *decision) pivoted() (from, to target, err error) {
	if to, err = d.find(); err != nil {
		return from, to, err
	}
	if to.rank >= 0 {
		return from, to, d.usage("pipedeck pivot "+to.st.Name, "a pivot goes to a whole stage")
	}
	switch d.in.Leave {
	case "", LeaveSettle, LeaveKeep, LeaveDiscard:
	default:
		return from, to, d.usage("settle, keep or discard", "%q is no way to leave a stage", d.in.Leave)
	}
	name := d.in.From
	if name == "" {
		if name, err = d.activeBeside(to.st.Name); err != nil || name == "" {
			return target{rank: -1}, to, err
		}
	}
	if name == to.st.Name {
		return from, to, d.usage("", "a pivot leaves one stage for another; both are %q", name)
	}
	leave := *d
	leave.in.Target = name
	from, err = leave.find()
	if err == nil && from.rank >= 0 {
		err = d.usage("", "--from takes a stage, and %q is a worker", name)
	}
	return from, to, err
}

// activeBeside is the one other stage that has something to leave.
func (d *decision) activeBeside(to string) (string, error) {
	var active []string
	for _, s := range d.node.Stages {
		if s.Name != to && (isActive(s.State) || s.State == StageStopping || s.State == StageDraining || s.State == StageFailed) {
			active = append(active, s.Name)
		}
	}
	switch len(active) {
	case 0:
		return "", nil
	case 1:
		return active[0], nil
	}
	return "", d.usage("name one with --from", "several stages are active: %s", strings.Join(active, ", "))
}

// left is what a pivot takes from the stage that it leaves.
func (d *decision) left(from target) wiping {
	if from.st == nil {
		return wiping{}
	}
	return wiping{
		st: from.st, outputs: outputNames(from.st), scratch: d.scratchDirs(from.st),
		keepOutputs: d.in.Leave != LeaveDiscard,
	}
}

func (d *decision) pivot() error {
	from, to, err := d.pivoted()
	if err != nil {
		return err
	}
	d.plan.Confirm = new(to.st.Name)
	runs := to.seen.State != "" && isActive(to.seen.State) && len(missingWorkers(to)) == 0 && len(to.workers()) > 0
	d.code(to, !runs) // before a worker is stopped
	if from.st != nil {
		d.leaveStage(from)
	} else {
		d.note("no other stage is active: this starts " + to.st.Name)
	}
	if runs {
		d.note(fmt.Sprintf("stage %q runs already and stays as it is", to.st.Name))
	} else if !d.noRanks(to) {
		d.startable(to)
		d.placeable(to, false)
		d.startSteps(to, []string{to.on()})
	}
	d.askForLoss(to.st.Name)
	return nil
}

// leaveStage stops the stage, deals with its outputs, then clears its scratch:
// only what is settled or was confirmed is taken.
func (d *decision) leaveStage(from target) {
	w := d.left(from)
	d.leaving = from.st.Name
	d.account(w)
	takes := len(w.removes(d.facts.Holdings)) > 0 || d.facts.Checking != nil
	discard := d.in.Leave == LeaveDiscard && len(w.outputs) > 0 && takes
	if discard {
		d.step(StepSuspend, suspendTimeout, "the mover keeps off it and nothing is in flight", w.outputs...)
	}
	if d.stoppable(from) {
		d.stopStep(from)
	}
	switch {
	case len(w.outputs) == 0 || d.in.Leave == LeaveDiscard:
	case d.in.Leave == LeaveKeep:
		d.step(StepLeave, leaveTimeout, "its outputs stay where they are and are not uploaded until start or settle names them", from.st.Name)
	default:
		if d.node.UploadsPaused {
			d.block("uploads are paused, so %s cannot be settled; `pipedeck resume` first", from.st.Name)
		}
		d.step(StepSettle, settleTimeout, "every complete local file is stored, nothing is queued or in flight", w.outputs...)
	}
	if takes && len(w.names()) > 0 {
		d.takeAway(w)
	}
	if d.plan.Loss.LostFiles > 0 && discard {
		d.plan.Safer = &Safer{Action: VerbSettle, Then: VerbPivot, Seconds: d.settleSeconds(w)}
	}
}
