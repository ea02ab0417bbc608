package deck

import (
	"context"
	"slices"
	"strings"
	"time"

	"pipedeck/pipeline"
)

const (
	afterEvery = time.Second
	// afterPatience is how long beyond the loading time a start is watched.
	afterPatience = 10 * time.Minute
	probePatience = 30 * time.Second
)

// watchStart fills in the after-start checks of an action that started
// workers, until each is decided, the stage is acted on again, or time is up.
func (d *Deck) watchStart(p pipeline.Plan, a pipeline.Action) {
	name := startedBy(p)
	if name == "" {
		return
	}
	w := pipeline.StartWatch{
		Stage: d.sp.Stage(name), Since: a.BeganAt, Verified: d.verifiedOf(name), Written: d.writtenBy(name),
		Store: pipeline.Check{Name: "store probe", Result: pipeline.Running, Observed: "writing, reading back and deleting a small object"},
	}
	if w.Stage == nil {
		return
	}
	d.work.Go(func() {
		ctx, cancel := context.WithTimeout(d.life, w.Stage.Workers.LoadingTimeout+afterPatience)
		defer cancel()
		probed := make(chan pipeline.Check, 1)
		d.work.Go(func() { probed <- d.probeStore(ctx) })
		d.watch(ctx, a, w, probed)
	})
}

// startedBy is the stage that a plan starts, or "".
func startedBy(p pipeline.Plan) string {
	i := slices.IndexFunc(p.Steps, func(s pipeline.Step) bool {
		return s.Kind == pipeline.StepStartWorkers || s.Kind == pipeline.StepAdopt
	})
	if i < 0 || len(p.Steps[i].On) == 0 {
		return ""
	}
	name, _, _ := strings.Cut(p.Steps[i].On[0], "/")
	return name
}

// awaitsChecks is what stands for the after-start checks until there are any.
func (d *Deck) awaitsChecks(p pipeline.Plan) []pipeline.Check {
	if startedBy(p) == "" {
		return nil
	}
	return []pipeline.Check{{Name: "workers", Result: pipeline.Running, Observed: "being started", At: d.p.Now()}}
}

func (d *Deck) watch(ctx context.Context, a pipeline.Action, w pipeline.StartWatch, probed <-chan pipeline.Check) {
	tick := time.NewTicker(afterEvery)
	defer tick.Stop()
	defer func() { d.closeAfter(a) }()
	for {
		snap, err := d.Snapshot(ctx)
		if err == nil {
			if !w.Written.Known {
				w.Written = d.writtenBy(w.Stage.Name) // what is known first is what counts from
			}
			a.After = pipeline.AfterStart(snap, w)
			if !d.noteAfter(a) || !pipeline.Pending(a.After) {
				return
			}
		}
		select {
		case <-ctx.Done():
			return
		case c := <-probed:
			w.Store = c
		case <-tick.C:
		}
	}
}

// noteAfter shows the newest checks; false: a later action made them moot.
func (d *Deck) noteAfter(a pipeline.Action) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if _, known := d.actions[a.ID]; !known {
		return false
	}
	d.actions[a.ID] = a
	d.wakeLocked()
	stage, _, _ := strings.Cut(a.Target, "/")
	for _, id := range d.order[slices.Index(d.order, a.ID)+1:] {
		if later, _, _ := strings.Cut(d.actions[id].Target, "/"); later == stage {
			return false
		}
	}
	return true
}

// closeAfter ends the list: what is still open is not known.
func (d *Deck) closeAfter(a pipeline.Action) {
	a.After = slices.Clone(a.After)
	for i := range a.After {
		if c := &a.After[i]; c.Result == pipeline.Running {
			c.Result, c.Observed = pipeline.Unverified, "not decided in time: "+c.Observed
		}
	}
	d.noteAfter(a)
}

func (d *Deck) verifiedOf(stage string) int64 {
	var n int64
	for _, o := range d.p.Mover.Outputs().Outputs {
		if o.Stage != stage {
			continue
		}
		if o.VerifiedFiles == nil {
			return -1
		}
		n += *o.VerifiedFiles
	}
	return n
}

func (d *Deck) writtenBy(stage string) pipeline.Written {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, n := range d.world.Snapshot(d.p.Now()).Nodes {
		for _, st := range n.Stages {
			if st.Name == stage {
				return pipeline.WrittenBy(st)
			}
		}
	}
	return pipeline.Written{}
}

func (d *Deck) probeStore(ctx context.Context) pipeline.Check {
	bounded, cancel := context.WithTimeout(ctx, probePatience)
	defer cancel()
	c := pipeline.Check{Name: "store probe", Result: pipeline.Verified, Observed: "written, read back, deleted"}
	if err := d.p.Custody.ProbeStore(bounded); err != nil {
		c.Result, c.Observed = pipeline.ActionFailed, pipeline.Clean(err.Error())
	}
	c.At = d.p.Now()
	return c
}
