package deck

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"time"

	"pipedeck/pipeline"
)

// firstLook is how long a snapshot waits for the first look at the processes:
// before it, nothing true could be said of any worker.
const firstLook = 2 * time.Second

// Snapshot folds the mover's newest account first, so that its counts are of
// this very moment.
func (d *Deck) Snapshot(ctx context.Context) (pipeline.Snapshot, error) {
	timer := time.NewTimer(firstLook)
	defer timer.Stop()
	select {
	case <-d.ready:
	case <-timer.C:
	case <-ctx.Done():
		return pipeline.Snapshot{}, ctx.Err()
	}
	d.foldMover()
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.world.Snapshot(d.p.Now()), nil
}

// Coverage audits outputs against the store.
func (d *Deck) Coverage(ctx context.Context, outputs []string, ids bool) (pipeline.CoverageReport, error) {
	rep := pipeline.CoverageReport{Schema: pipeline.SchemaVersion, Deck: d.sp.Deck, Run: d.sp.Run, Outputs: []pipeline.OutputCoverage{}}
	names, err := d.outputNames(outputs)
	if err != nil {
		return rep, err
	}
	got, err := d.p.Mover.Coverage(ctx, names, ids)
	if err != nil {
		return rep, err
	}
	rep.Outputs = append(rep.Outputs, got...)
	return rep, nil
}

// outputNames resolves names as typed to "stage/output"; none means all.
func (d *Deck) outputNames(typed []string) ([]string, error) {
	var names []string
	for _, t := range typed {
		st, o, err := d.sp.FindOutput(t)
		if err != nil {
			return nil, pipeline.Problemf(pipeline.ProblemUsage, "", "%w", err)
		}
		names = append(names, st.Name+"/"+o.Name)
	}
	if len(typed) > 0 {
		return names, nil
	}
	for _, st := range d.sp.Stages {
		for _, o := range st.Outputs {
			names = append(names, st.Name+"/"+o.Name)
		}
	}
	return names, nil
}

// History reads the journal.
func (d *Deck) History(_ context.Context, limit int) ([]pipeline.JournalRecord, error) {
	return d.p.Journal.Read(limit)
}

// Events returns the events after seq, waiting for one if there is none.
func (d *Deck) Events(ctx context.Context, after int64, wait time.Duration) ([]pipeline.Event, error) {
	timer := time.NewTimer(wait)
	defer timer.Stop()
	for {
		d.mu.Lock()
		evs, changed := d.world.EventsAfter(after), d.changed
		d.mu.Unlock()
		if len(evs) > 0 || wait <= 0 {
			return evs, nil
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-timer.C:
			return []pipeline.Event{}, nil
		case <-changed:
		}
	}
}

// Log reads the log of a worker that was started here at least once.
func (d *Deck) Log(ctx context.Context, req pipeline.LogRequest) (pipeline.LogChunk, error) {
	stage, rank, err := splitWorker(req.Worker)
	if err != nil {
		return pipeline.LogChunk{}, pipeline.Problemf(pipeline.ProblemUsage, "for example `pipedeck logs extract/0`", "cannot read a log: %w", err)
	}
	seen, ok := d.seenAll()[stage][rank]
	if !ok {
		hint := "`pipedeck --json` lists the workers"
		if d.sp.Stage(stage) != nil {
			hint = "it was never started here; `pipedeck start " + stage + "` starts it"
		}
		return pipeline.LogChunk{}, pipeline.Problemf(pipeline.ProblemUsage, hint, "cannot read the log of %q: no such worker", req.Worker)
	}
	if strings.HasSuffix(seen.Log, adoptedLog) {
		return pipeline.LogChunk{}, pipeline.Problemf(pipeline.ProblemFailed, "a restart gives it a log here",
			"cannot read the log of %q: it was adopted, and its output stays where it was sent when it was started", req.Worker)
	}
	return d.p.Logs.Read(ctx, seen.Log, req)
}

// Retry tries failed and waiting uploads now.
func (d *Deck) Retry(context.Context) error {
	d.p.Mover.Retry()
	return nil
}

// Failures lists files with trouble, those that have waited longest first.
func (d *Deck) Failures(context.Context) ([]pipeline.Failure, error) {
	list := d.p.Mover.Failures()
	slices.SortFunc(list, func(a, b pipeline.Failure) int {
		return cmp.Or(a.Since.Compare(b.Since), cmp.Compare(a.Output, b.Output), cmp.Compare(a.Path, b.Path))
	})
	return append([]pipeline.Failure{}, list[:min(len(list), pipeline.MaxFailures)]...), nil
}

// Describe says how a worker was started, or would be.
func (d *Deck) Describe(_ context.Context, worker string) (pipeline.WorkerDetail, error) {
	stage, rank, err := splitWorker(worker)
	if err != nil {
		return pipeline.WorkerDetail{}, pipeline.Problemf(pipeline.ProblemUsage, "", "cannot describe a worker: %w", err)
	}
	st, want := d.sp.Stage(stage), d.wants.stage(stage)
	w, started := want.Workers[rank]
	if st == nil || !started || w.Launch == "" {
		return pipeline.WorkerDetail{}, pipeline.Problemf(pipeline.ProblemUsage, "it was never started here",
			"cannot describe %q: nothing is known of it", worker)
	}
	req, err := d.launchRequest(st, rank, want)
	if err != nil {
		return pipeline.WorkerDetail{}, err
	}
	out := pipeline.WorkerDetail{
		ID: worker, Rank: rank, World: want.World, Launch: w.Launch, Launches: w.Launches,
		Command: pipeline.MaskArgs(req.Argv), Env: pipeline.MaskEnv(req.Env), Dir: req.Dir,
		GPUs: append([]pipeline.GPURef{}, w.GPUs...), Restarts: w.Restarts, Log: req.Log,
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if seen, ok := d.seen[stage][rank]; ok {
		if !seen.StartedAt.IsZero() {
			out.StartedAt = new(seen.StartedAt)
		}
		if seen.State == pipeline.ProcRunning {
			out.PID = new(seen.PID)
		}
	}
	if e, ok := d.exits[worker]; ok {
		out.LastExit = &e
	}
	out.Evidence = d.world.Evidence(stage, rank, d.p.Now())
	return out, nil
}
