package pipeline

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

const (
	killTimeout  = 100 * time.Second // SIGKILL, and the driver slow to give memory back
	adoptTimeout = 30 * time.Second
)

// kill ends the recorded processes at once. It removes no file, but what a
// worker was computing or writing is gone.
func (d *decision) kill(t target) {
	if !d.stoppable(t) {
		d.note("nothing of it is alive")
		d.comesBack(t)
		return
	}
	d.account(wiping{st: t.st, outputs: outputNames(t.st), keepOutputs: true})
	d.plan.Undo = Undo{Reason: new("a kill cannot be taken back; start begins the workers again")}
	d.step(StepKillWorkers, killTimeout, d.stopProof(t), t.on())
	for _, w := range t.workers() {
		if w.PID == nil {
			continue
		}
		text := fmt.Sprintf("%s (pid %d) loses the batch it computes", w.ID, *w.PID)
		if w.LastOutputAt != nil {
			text += fmt.Sprintf("; its last output was %s ago", humanTime(d.plan.MadeAt.Sub(*w.LastOutputAt)))
		}
		d.note(text)
	}
	if n := d.plan.Loss.BeingWritten; n > 0 {
		d.note(Counted(n, "file is", "files are") + " being written now and would stay incomplete; a start moves such files to quarantine")
	}
	d.plan.Confirm = new(d.sp.Deck)
}

// adopt takes over processes that were started by hand, as ranks of a stage.
func (d *decision) adopt(t target) {
	if len(d.in.PIDs) == 0 {
		d.block("no process is named: --pid P,… in the order of the ranks")
	}
	if slices.ContainsFunc(t.seen.Workers, func(w WorkerSnapshot) bool { return w.PID != nil }) {
		d.block("stage %q has workers of its own; stop them first", t.st.Name)
	}
	d.placeable(t, false)
	if want := d.here(t); want > 0 && len(d.in.PIDs) > want {
		d.block("%s named and the stage has %s here", Counted(len(d.in.PIDs), "process is", "processes are"), Counted(want, "rank", "ranks"))
	}
	d.strangers()
	d.record(t)
	d.plan.Undo = Undo{Reason: new("nothing is moved; the processes go on as they are")}
	d.step(StepAdopt, adoptTimeout, "each process is alive under its recorded identity", t.on())
	d.plan.Confirm = new(d.sp.Deck)
}

// reap ends processes that carry this deck's run id and belong to no worker.
func (d *decision) reap() error {
	if d.in.Target != "" {
		return d.usage("pipedeck reap --pid P", "it takes no name")
	}
	if len(d.in.PIDs) == 0 {
		return d.usage("pipedeck reap --pid P,…", "no process is named")
	}
	d.strangers()
	for _, s := range d.facts.Strangers {
		if !s.Ours {
			d.block("pid %d does not carry this deck's mark: pipedeck ends nobody else's processes", s.PID)
		}
	}
	d.plan.Undo = Undo{Reason: new("a kill cannot be taken back")}
	d.step(StepReap, killTimeout, "the processes and their descendants are gone")
	d.plan.Confirm = new(d.sp.Deck)
	return nil
}

// strangers shows what the processes are and blocks on those that are gone.
func (d *decision) strangers() {
	for n, pid := range d.in.PIDs {
		if slices.Contains(d.in.PIDs[:n], pid) {
			d.block("process %d is named twice", pid)
			continue
		}
		i := slices.IndexFunc(d.facts.Strangers, func(s Stranger) bool { return s.PID == pid })
		if i < 0 {
			d.block("there is no process %d, or it belongs to a worker already", pid)
			continue
		}
		s := d.facts.Strangers[i]
		d.plan.Processes = append(d.plan.Processes, ProcessID{PID: s.PID, StartTicks: s.StartTicks})
		mem := "unknown GPU memory"
		if s.GPUMem >= 0 {
			mem = humanBytes(s.GPUMem) + " of GPU memory"
		}
		children := ""
		if s.Children > 0 {
			children = fmt.Sprintf(", %d children", s.Children)
		}
		d.note(fmt.Sprintf("pid %d of %s, started %sZ, %s%s: %s",
			s.PID, s.User, s.StartedAt.UTC().Format(time.DateTime), mem, children, Clean(strings.Join(MaskArgs(s.Argv), " "))))
	}
}

// undone brings back what an action moved.
func (d *decision) undone() error {
	if d.in.Target == "" {
		return d.usage("`pipedeck history` lists the actions", "no action is named")
	}
	i := slices.IndexFunc(d.facts.Trashes, func(t Trashed) bool { return t.Action == d.in.Target })
	if i < 0 {
		var known []string
		for _, t := range d.facts.Trashes {
			known = append(known, t.Action)
		}
		hint := "nothing can be brought back at present"
		if len(known) > 0 {
			hint = "these can: " + strings.Join(known, ", ")
		}
		return Problemf(ProblemUsage, hint, "cannot undo %q: nothing of it is in the trash; it moved no file, or what it moved is back or was purged", d.in.Target)
	}
	t := d.facts.Trashes[i]
	d.note(fmt.Sprintf("%s, %s, %s back to where %s; nothing is replaced", Counted(t.Files, "file", "files"), humanBytes(t.Bytes),
		Fit(t.Files, "comes", "come"), Fit(t.Files, "it was", "they were")))
	d.plan.Undo = Undo{Reason: new("the files are back; wipe moves them away again")}
	d.step(StepUntrash, undoTimeout, "each file is at its place again, or stayed in the trash because its name is taken", t.Action)
	return nil
}
