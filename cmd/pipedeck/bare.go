package main

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"time"

	"pipedeck/gpu"
	"pipedeck/pipeline"
	"pipedeck/remote/client"
)

// bareEvery is how often a node without an agent is looked at: each look costs
// it a few processes.
const bareEvery = 2 * time.Second

// bareDeck shows a node on which nothing may be installed: its GPUs and disks, by
// the programs that are there anyway.
type bareDeck struct {
	noAgent
	f   *far
	smi *gpu.SMI

	mu   sync.Mutex // one look at a time
	last time.Time
}

// bare is the deck of a node without an agent, nil where there is one or where
// one may be installed.
func (a *app) bare(ctx context.Context, s specFile) (*bareDeck, error) {
	if !a.flag.noDeploy || s.node.SSH == "" {
		return nil, nil
	}
	f, err := a.overSSH(s)
	if err != nil {
		return nil, err
	}
	return f.bare(ctx)
}

// lookAtEach is eachNode for a look: a node without an agent is shown by its own
// programs where none may be installed.
func (a *app) lookAtEach(ctx context.Context, nodes []specFile) []nodeDeck {
	out := a.eachNode(ctx, nodes, reach.ensure)
	var all sync.WaitGroup
	for i := range out {
		n := &out[i]
		if n.err != nil {
			all.Go(func() {
				if bare, err := a.bare(ctx, n.s); bare != nil && err == nil {
					n.bare, n.err = bare, nil
				}
			})
		}
	}
	all.Wait()
	return out
}

// bare is the deck of this node without an agent, nil where there is one.
func (f *far) bare(ctx context.Context) (*bareDeck, error) {
	c, err := f.dial(ctx)
	switch {
	case err == nil:
		c.Close()
		return nil, nil
	case !errors.Is(err, client.ErrNoAgent):
		return nil, err
	}
	d := &bareDeck{f: f, noAgent: noAgent{
		node: f.s.node.Name, why: "no agent runs there, and none may be installed", hint: "start pipedeck without --no-deploy",
	}}
	d.smi = gpu.NewSMIOver(d.nvidiaSMI, time.Now)
	return d, nil
}

// nvidiaSMI runs the node's own.
func (d *bareDeck) nvidiaSMI(ctx context.Context, args ...string) (string, error) {
	out, code, err := d.f.node.Run(ctx, append([]string{"nvidia-smi"}, args...)...)
	switch {
	case err != nil:
		return "", err
	case code == shellNotFound:
		return "", exec.ErrNotFound
	case code != 0:
		return out, fmt.Errorf("nvidia-smi: exit status %d: %s", code, pipeline.Clean(out))
	}
	return out, nil
}

// shellNotFound is how a shell says that there is no such program.
const shellNotFound = 127

// Snapshot implements pipeline.Deck: what was looked at, and a word for all else.
func (d *bareDeck) Snapshot(ctx context.Context) (pipeline.Snapshot, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	timer := time.NewTimer(bareEvery - time.Since(d.last))
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
		return pipeline.Snapshot{}, ctx.Err()
	}
	defer func() { d.last = time.Now() }()
	s := d.f.s
	disks, err := d.disks(ctx)
	if err != nil {
		return pipeline.Snapshot{}, err
	}
	why := "without an agent: only GPUs and disks are looked at, by the node's own programs"
	via, none, age := d.f.node.Via()+", without an agent", 0.0, 0.0
	r := d.smi.Read(ctx)
	reason := "over plain ssh, " + why
	if r.Reason != "" {
		reason = r.Reason
	}
	gpus := r.GPUs
	if gpus == nil {
		gpus = []pipeline.GPUSnapshot{}
	}
	snap := pipeline.UnseenOf(s.Spec, s.node.Name, pipeline.Link{State: pipeline.LinkLive, AgeSeconds: &age, Via: &via}, time.Now())
	snap.HealthReasons = []string{fmt.Sprintf("node %s: %s", s.node.Name, why)}
	n := &snap.Nodes[0]
	n.Host = pipeline.MachineSnapshot{Reason: &why}
	n.GPUSource = pipeline.GPUSourceInfo{Kind: r.Kind, AgeSeconds: &none, Reason: &reason}
	n.GPUs, n.Disks = gpus, disks
	return snap, nil
}

// disks asks df for the places of the deck that exist.
func (d *bareDeck) disks(ctx context.Context) ([]pipeline.DiskSnapshot, error) {
	out := []pipeline.DiskSnapshot{}
	for _, path := range []string{d.f.s.Workdir, "/dev/shm"} {
		text, code, err := d.f.node.Run(ctx, "df", "-Pk", path)
		if err != nil {
			return nil, err
		}
		why, age := "not told without an agent", 0.0
		disk := pipeline.DiskSnapshot{Path: path, FullReason: &why, AgeSeconds: &age}
		if disk.TotalBytes, disk.UsedBytes, disk.FreeBytes = parseDF(text); code != 0 || disk.TotalBytes == nil {
			why = pipeline.Clean(strings.TrimSpace(text))
		}
		out = append(out, disk)
	}
	return out, nil
}

// parseDF reads the line of `df -Pk PATH`; nil is unknown.
func parseDF(text string) (total, used, free *int64) {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	fields := strings.Fields(lines[len(lines)-1])
	if len(lines) < 2 || len(fields) < 6 {
		return nil, nil, nil
	}
	var n [3]int64
	for i := range n {
		kb, err := strconv.ParseInt(fields[i+1], 10, 64)
		if err != nil || kb < 0 {
			return nil, nil, nil
		}
		n[i] = kb << 10
	}
	return &n[0], &n[1], &n[2]
}

// noAgent refuses all that needs an agent, saying why there is none.
type noAgent struct{ node, why, hint string }

func (n noAgent) err() error {
	return pipeline.Problemf(pipeline.ProblemRefused, n.hint, "cannot do that on %q: %s", n.node, n.why)
}

// Snapshot implements pipeline.Deck.
func (n noAgent) Snapshot(context.Context) (s pipeline.Snapshot, err error) { return s, n.err() }

// Plan implements pipeline.Deck.
func (n noAgent) Plan(context.Context, pipeline.Intent) (p pipeline.Plan, err error) {
	return p, n.err()
}

// Apply implements pipeline.Deck.
func (n noAgent) Apply(context.Context, pipeline.ApplyRequest) (a pipeline.Action, err error) {
	return a, n.err()
}

// Action implements pipeline.Deck.
func (n noAgent) Action(context.Context, string, time.Duration) (a pipeline.Action, err error) {
	return a, n.err()
}

// Coverage implements pipeline.Deck.
func (n noAgent) Coverage(context.Context, []string, bool) (c pipeline.CoverageReport, err error) {
	return c, n.err()
}

// History implements pipeline.Deck.
func (n noAgent) History(context.Context, int) ([]pipeline.JournalRecord, error) { return nil, n.err() }

// Events implements pipeline.Deck.
func (n noAgent) Events(context.Context, int64, time.Duration) ([]pipeline.Event, error) {
	return nil, n.err()
}

// Log implements pipeline.Deck.
func (n noAgent) Log(context.Context, pipeline.LogRequest) (c pipeline.LogChunk, err error) {
	return c, n.err()
}

// Retry implements pipeline.Deck.
func (n noAgent) Retry(context.Context) error { return n.err() }

// Failures implements pipeline.Deck.
func (n noAgent) Failures(context.Context) ([]pipeline.Failure, error) { return nil, n.err() }

// Describe implements pipeline.Deck.
func (n noAgent) Describe(context.Context, string) (w pipeline.WorkerDetail, err error) {
	return w, n.err()
}

// PlanFiles implements pipeline.Deck.
func (n noAgent) PlanFiles(context.Context, string, int, int) (f pipeline.PlanFiles, err error) {
	return f, n.err()
}

// Resolve implements pipeline.Deck.
func (n noAgent) Resolve(context.Context, pipeline.Resolve) (a pipeline.Action, err error) {
	return a, n.err()
}

// Strangers implements pipeline.Deck.
func (n noAgent) Strangers(context.Context, []int) ([]pipeline.Stranger, error) { return nil, n.err() }
