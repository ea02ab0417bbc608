package deck

import (
	"context"
	"fmt"
	"strings"

	"pipedeck/pipeline"
	"pipedeck/pipeline/engine"
)

// cleared is what a recount found that an action may take.
type cleared struct {
	take   []pipeline.ListedFile
	others []string
}

func counting(report func(string), what string) pipeline.Progress {
	return func(done, total int64) {
		if total > 0 {
			report(fmt.Sprintf("%s: %d of %s", what, done, pipeline.Counted(total, "file", "files")))
			return
		}
		report(what + ": " + pipeline.Counted(done, "file", "files"))
	}
}

func (d *Deck) suspend(ctx context.Context, j engine.Job) engine.Outcome {
	j.Report("waiting for what is in flight")
	if err := d.p.Custody.Suspend(ctx, j.Action, j.Step.On); err != nil {
		return asReason(err)
	}
	d.foldMover()
	return verified("the mover keeps off %s", strings.Join(j.Step.On, ", "))
}

func (d *Deck) releaseOutputs(ctx context.Context, j engine.Job) engine.Outcome {
	if err := d.p.Custody.Release(ctx, j.Action); err != nil {
		return asReason(err)
	}
	d.foldMover()
	return verified("the mover goes on")
}

// area is where a plan's steps act, as a request for a look.
func (d *Deck) area(on []string, fresh bool) pipeline.HoldingsRequest {
	req := pipeline.HoldingsRequest{Fresh: fresh}
	for _, name := range on {
		if strings.HasPrefix(name, "/") {
			req.Scratch = append(req.Scratch, name)
		} else {
			req.Outputs = append(req.Outputs, name)
		}
	}
	return req
}

// recount looks at files and store once more, now that nobody writes, and
// refuses if something would be lost that the plan does not list as lost.
func (d *Deck) recount(ctx context.Context, j engine.Job) engine.Outcome {
	list, err := d.readList(j.Action)
	if err != nil {
		return unknown("%v", err)
	}
	now, err := d.p.Custody.Holdings(ctx, d.area(j.Step.On, true), counting(j.Report, "counting again"))
	if err != nil {
		return asReason(err)
	}
	r := pipeline.Recount(list, now)
	checks := []pipeline.Check{{Name: "files against the plan", Result: pipeline.Verified, Observed: r.Text(), At: d.p.Now()}}
	if why := r.Refusal(); why != "" {
		checks[0].Result, checks[0].Observed = pipeline.ActionFailed, r.Text()+"; "+why
		return engine.Outcome{Result: pipeline.ActionFailed, Text: why + d.stoppedHint(j.Plan), Checks: checks}
	}
	d.mu.Lock()
	d.cleared[j.Action] = cleared{take: r.Take, others: r.Others}
	d.mu.Unlock()
	return engine.Outcome{Result: pipeline.Verified, Text: r.Text(), Checks: checks}
}

// stoppedHint says how the workers that the action stopped come back.
func (d *Deck) stoppedHint(p pipeline.Plan) string {
	for _, s := range p.Steps {
		if s.Kind == pipeline.StepStopWorkers && len(s.On) > 0 {
			return fmt.Sprintf(" (the workers are stopped; `pipedeck start %s` begins them again)", s.On[0])
		}
	}
	return ""
}

// trash moves what the recount cleared, then looks afresh at the directory.
func (d *Deck) trash(ctx context.Context, j engine.Job) engine.Outcome {
	d.mu.Lock()
	c, ok := d.cleared[j.Action]
	d.mu.Unlock()
	if !ok {
		if out := d.recount(ctx, j); out.Result != pipeline.Verified {
			return out
		}
		d.mu.Lock()
		c = d.cleared[j.Action]
		d.mu.Unlock()
	}
	rep, err := d.p.Custody.Trash(ctx, j.Action, c.take, counting(j.Report, "moving"))
	if err != nil {
		out := asReason(err)
		out.Text = fmt.Sprintf("%s moved before it ended: %s (`pipedeck undo %s` brings back what was moved)", pipeline.Counted(rep.Moved, "file was", "files were"), out.Text, j.Action)
		return out
	}
	rep.Moved = d.movedInAll(ctx, j.Action, rep.Moved)
	now, err := d.p.Custody.Holdings(ctx, d.area(j.Step.On, false), nil)
	if err != nil {
		return unknown("%s moved, and the directory cannot be looked at: %v", pipeline.Counted(rep.Moved, "file was", "files were"), err)
	}
	d.foldMover()
	return d.judgeTrash(j, c, rep, now)
}

// movedInAll adds what an agent that was interrupted here had moved before.
func (d *Deck) movedInAll(ctx context.Context, action string, now int64) int64 {
	trashes, err := d.p.Custody.Trashes(ctx)
	if err != nil {
		return now
	}
	for _, t := range trashes {
		if t.Action == action && !t.Quarantine {
			return max(now, t.Files)
		}
	}
	return now
}

func (d *Deck) judgeTrash(j engine.Job, c cleared, rep pipeline.MoveReport, now []pipeline.Holding) engine.Outcome {
	still, missing := pipeline.Remaining(c.take, c.others, now)
	out := engine.Outcome{Result: pipeline.Verified, Text: moveText(rep)}
	check := func(name string, bad []string, verdict pipeline.Verdict, text string) {
		ch := pipeline.Check{Name: name, Result: pipeline.Verified, Observed: text, At: d.p.Now()}
		if len(bad) > 0 {
			ch.Result = verdict
			ch.Observed = fmt.Sprintf("%d: %s", len(bad), pipeline.Clean(strings.Join(bad[:min(3, len(bad))], ", ")))
			out.Result = verdict
			out.Text += "; " + name + " does not hold for " + ch.Observed
		}
		out.Checks = append(out.Checks, ch)
	}
	check("all other files are there", missing, pipeline.Unverified, pipeline.Counted(len(c.others), "file", "files"))
	check("the listed files are gone", still, pipeline.ActionFailed, pipeline.Counted(len(c.take), "file", "files"))
	for _, s := range rep.Stayed[:min(3, len(rep.Stayed))] {
		out.Text += fmt.Sprintf("; %q stays: %s", pipeline.Clean(s.Path), s.Reason)
	}
	if rep.Moved > 0 {
		out.Text += fmt.Sprintf("; `pipedeck undo %s` brings %s back", j.Action, pipeline.Fit(rep.Moved, "it", "them"))
	}
	return out
}

func moveText(rep pipeline.MoveReport) string {
	var parts []string
	if rep.Moved > 0 || rep.Removed == 0 {
		parts = append(parts, pipeline.Counted(rep.Moved, "file moved to the trash", "files moved to the trash"))
	}
	if rep.Removed > 0 {
		parts = append(parts, pipeline.Counted(rep.Removed, "file removed", "files removed"))
	}
	if rep.Gone > 0 {
		parts = append(parts, pipeline.Counted(rep.Gone, "was gone already", "were gone already"))
	}
	if rep.StayedAll > 0 {
		parts = append(parts, fmt.Sprintf("%d stayed", rep.StayedAll))
	}
	return strings.Join(parts, ", ")
}

func (d *Deck) untrash(ctx context.Context, j engine.Job) engine.Outcome {
	if len(j.Step.On) != 1 {
		return failed("the step names no action")
	}
	rep, err := d.p.Custody.Untrash(ctx, j.Step.On[0], counting(j.Report, "bringing back"))
	if err != nil {
		return asReason(err)
	}
	d.foldMover()
	parts := []string{pipeline.Counted(rep.Moved, "file is back", "files are back")}
	for _, s := range rep.Stayed[:min(3, len(rep.Stayed))] {
		parts = append(parts, fmt.Sprintf("%q stays in the trash: %s", pipeline.Clean(s.Path), s.Reason))
	}
	text := strings.Join(parts, "; ")
	if rep.StayedAll > 0 {
		return failed("%s", text)
	}
	return verified("%s", text)
}

// quarantine moves incomplete files out of the way of a start.
func (d *Deck) quarantine(ctx context.Context, j engine.Job) engine.Outcome {
	total := pipeline.MoveReport{}
	for _, stage := range j.Step.On {
		rep, err := d.p.Custody.Quarantine(ctx, j.Action, stage, counting(j.Report, "incomplete files"))
		if err != nil {
			return asReason(err)
		}
		total.Moved += rep.Moved
		total.StayedAll += rep.StayedAll
	}
	d.foldMover()
	if total.Moved == 0 {
		return verified("no incomplete file is left behind")
	}
	return verified("%s moved to quarantine; `pipedeck undo %s` brings %s back", pipeline.Counted(total.Moved, "incomplete file", "incomplete files"), j.Action, pipeline.Fit(total.Moved, "it", "them"))
}

func (d *Deck) leaveStages(ctx context.Context, j engine.Job) engine.Outcome {
	for _, stage := range j.Step.On {
		if err := d.p.Custody.Leave(ctx, stage); err != nil {
			return asReason(err)
		}
	}
	d.foldMover()
	return verified("its outputs stay as they are until start or settle names them")
}
