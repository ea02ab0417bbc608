package main

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"pipedeck/pipeline"
	"pipedeck/s3/store"
)

// account lets the workers end, settles what they left, and prints the final
// snapshot.
func (d *demo) account(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), demoSettle)
	defer cancel()
	if err := d.stopWorkers(ctx); err != nil {
		return err
	}
	if err := d.settle(ctx); err != nil {
		return err
	}
	s, err := d.client.Snapshot(ctx)
	if err != nil {
		return err
	}
	if err := d.a.printJSON(s); err != nil {
		return err
	}
	return d.lost(ctx)
}

func (d *demo) stopWorkers(ctx context.Context) error {
	p, err := d.client.Plan(ctx, pipeline.Intent{Verb: pipeline.VerbStop, Target: "extract"})
	if err != nil {
		return err
	}
	return d.do(ctx, p)
}

func (d *demo) settle(ctx context.Context) error {
	p, err := d.client.Plan(ctx, pipeline.Intent{Verb: pipeline.VerbSettle, Target: "extract/hidden_states"})
	if err != nil {
		return err
	}
	return d.do(ctx, p)
}

func (d *demo) do(ctx context.Context, p pipeline.Plan) error {
	confirm := ""
	if p.Confirm != nil {
		confirm = *p.Confirm
	}
	act, err := d.client.Apply(ctx, pipeline.ApplyRequest{Plan: p.ID, Confirm: confirm, By: operator()})
	for err == nil && act.EndedAt == nil {
		act, err = d.client.Action(ctx, act.ID, time.Second)
	}
	if err != nil {
		return err
	}
	return d.a.outcome(act, d.a.say)
}

// lost compares what the workers say they wrote with what is on disk or in the
// store: the demo fails if a single sample is in neither. The order matters:
// a file goes from the disk only after it is in the store.
func (d *demo) lost(ctx context.Context) error {
	written, err := d.written()
	if err != nil {
		return err
	}
	local := d.local()
	stored, err := d.storedKeys(ctx)
	if err != nil {
		return err
	}
	missing := 0
	for _, name := range written {
		if !local[name] && !stored["r1/hidden_states/"+name] {
			missing++
		}
	}
	if missing > 0 {
		return pipeline.Problemf(pipeline.ProblemFailed, "this is a fault of pipedeck", "cannot find %s: neither on disk nor in the store", pipeline.Counted(missing, "sample", "samples"))
	}
	return nil
}

// written are the files that the workers noted after they wrote them.
func (d *demo) written() ([]string, error) {
	notes, err := filepath.Glob(filepath.Join(d.dir, "work", "written-*"))
	if err != nil {
		return nil, err
	}
	var names []string
	for _, path := range notes {
		raw, err := os.ReadFile(path)
		if err != nil {
			return nil, err
		}
		for line := range strings.Lines(string(raw)) {
			id, err := strconv.Atoi(strings.TrimSuffix(line, "\n"))
			if err != nil || !strings.HasSuffix(line, "\n") {
				continue // the last line of a worker that was killed
			}
			names = append(names, simName(id))
		}
	}
	return names, nil
}

// local are the files in the output directory and where files lie aside.
func (d *demo) local() map[string]bool {
	names := map[string]bool{}
	for _, dir := range []string{"hidden_states", ".pipedeck"} {
		// A file that goes while this looks is in the store.
		_ = filepath.WalkDir(filepath.Join(d.dir, "work", dir), func(path string, e fs.DirEntry, err error) error {
			if err == nil && !e.IsDir() {
				names[filepath.Base(path)] = true
			}
			return nil
		})
	}
	return names
}

// storedKeys asks the store itself, not the agent.
func (d *demo) storedKeys(ctx context.Context) (map[string]bool, error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), demoSettle)
	defer cancel()
	c := store.New(storeOptions(d.spec, store.LoadCredentials(nil)))
	defer c.Close()
	keys := map[string]bool{}
	req := pipeline.ListRequest{Prefix: d.spec.RunPrefix()}
	for {
		page, err := c.List(ctx, req)
		if err != nil {
			return nil, fmt.Errorf("cannot list the demo's store: %w", err)
		}
		for _, o := range page.Objects {
			keys[o.Key] = true
		}
		if page.Next == "" {
			return keys, nil
		}
		req.Token = page.Next
	}
}
