package main

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"pipedeck/pipeline"
	"pipedeck/pipeline/spec"
	"pipedeck/remote/client"
)

// completeWait is how long a completion waits for an agent of this machine.
// Completion must be quick and change nothing: it starts none, and asks nobody
// over SSH.
const completeWait = 500 * time.Millisecond

// completedActions is how many of the newest actions are offered.
const completedActions = 10

type completion = func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective)

// completeTargets offers the stages, workers, outputs or actions of the spec at
// hand.
func (a *app) completeTargets(x act) completion {
	return func(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
		const none = cobra.ShellCompDirectiveNoFileComp
		if x.target == "" || (len(args) > 0 && !x.outputs) {
			return nil, none
		}
		s, err := a.loadSpec()
		if err != nil {
			return nil, none
		}
		if strings.Contains(x.target, "ACTION") {
			return pastActions(cmd.Context(), s), none | cobra.ShellCompDirectiveKeepOrder
		}
		var workers []string
		if strings.Contains(x.target, "WORKER") {
			workers = workersOf(cmd.Context(), s)
		}
		return targets(s.Spec, x, workers), none
	}
}

func targets(sp *spec.Spec, x act, workers []string) []string {
	var out []string
	for _, st := range sp.Stages {
		if strings.Contains(x.target, "STAGE") {
			out = append(out, st.Name)
		}
		if x.outputs {
			for _, o := range st.Outputs {
				out = append(out, st.Name+"/"+o.Name)
			}
		}
	}
	return append(out, workers...)
}

// workersOf are the workers that the agent here knows, and those that the spec
// tells the number of.
func workersOf(ctx context.Context, s specFile) []string {
	var out []string
	askHere(ctx, s, func(ctx context.Context, c *client.Client) {
		if snap, err := c.Snapshot(ctx); err == nil {
			for _, n := range snap.Nodes {
				for _, st := range n.Stages {
					for _, w := range st.Workers {
						out = append(out, w.ID)
					}
				}
			}
		}
	})
	for _, st := range s.Stages {
		for rank := range ranksTold(s.Spec, st) {
			if name := workerName(st.Name, rank); !slices.Contains(out, name) {
				out = append(out, name)
			}
		}
	}
	return out
}

// ranksTold is how many ranks a stage has as far as the spec says, 0 where only
// the nodes know.
func ranksTold(sp *spec.Spec, st spec.Stage) int {
	gpus := 0
	for _, n := range sp.Nodes {
		if n.GPUs.All {
			return st.Workers.Count
		}
		gpus += len(n.GPUs.Indexes) + len(n.GPUs.UUIDs)
	}
	return max(st.Workers.Count, st.Workers.PerGPU*gpus)
}

// pastActions are the newest actions of the agent here, with what they were.
func pastActions(ctx context.Context, s specFile) []string {
	var out []string
	askHere(ctx, s, func(ctx context.Context, c *client.Client) {
		recs, _ := c.History(ctx, 0)
		for _, r := range slices.Backward(recs) {
			if r.Kind == "begin" && r.Action != "" && len(out) < completedActions {
				out = append(out, cobra.CompletionWithDesc(r.Action, pipeline.Clean(r.Text)))
			}
		}
	})
	return out
}

// askHere asks the agent of this machine, if the spec has one and it runs.
func askHere(ctx context.Context, s specFile, ask func(context.Context, *client.Client)) {
	if s.node.SSH != "" {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, completeWait)
	defer cancel()
	c, err := here{s: s}.dial(ctx)
	if err != nil {
		return
	}
	defer c.Close()
	ask(ctx, c)
}

// completeNodes offers the nodes of the spec at hand.
func (a *app) completeNodes(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
	s, err := loadSpecFile(a.flag.spec, "")
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	names := make([]string, 0, len(s.Nodes))
	for _, n := range s.Nodes {
		names = append(names, n.Name)
	}
	return names, cobra.ShellCompDirectiveNoFileComp
}
