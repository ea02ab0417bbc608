package main

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"pipedeck/pipeline"
	"pipedeck/remote/client"
)

// actionCommand holds the ways out of an action that was interrupted.
func (a *app) actionCommand() *cobra.Command {
	cmd := group(&cobra.Command{
		Use: "action", Short: "Resume, abandon or take over an interrupted action",
		Example: "  pipedeck action resume a-7f3a\n  pipedeck action abandon a-7f3a",
	})
	for _, x := range []struct {
		how   pipeline.ResolveHow
		short string
	}{
		{pipeline.ResolveResume, "Go on with the step that was open; it probes first"},
		{pipeline.ResolveAbandon, "End it here, with the account of what was done"},
		{pipeline.ResolveTakeover, "End a running action of somebody else and free its lease"},
	} {
		cmd.AddCommand(&cobra.Command{
			Use: string(x.how) + " ACTION_ID", Short: x.short, Args: cobra.ExactArgs(1),
			Example:           "  pipedeck action " + string(x.how) + " a-7f3a",
			ValidArgsFunction: a.completeTargets(act{target: "ACTION_ID"}),
			RunE: func(cmd *cobra.Command, args []string) error {
				one := func(_ specFile, c *client.Client) error {
					return a.resolve(cmd.Context(), c, pipeline.Resolve{Action: args[0], How: x.how, By: operator()})
				}
				return a.withNodes(cmd.Context(), one, func(open []nodeDeck) error {
					n, err := whoActs(cmd.Context(), open, args[0])
					if err != nil {
						return n.s.atNode(err)
					}
					return n.s.atNode(one(n.s, n.c))
				})
			},
		})
	}
	return cmd
}

// whoActs finds the node of an action; where none knows it, one that was not
// reached may.
func whoActs(ctx context.Context, open []nodeDeck, id string) (nodeDeck, error) {
	answers := every(ctx, open, func(ctx context.Context, n nodeDeck) (pipeline.Action, error) { return n.c.Action(ctx, id, 0) })
	for i, n := range answers {
		if n.err == nil {
			return open[i], nil
		}
	}
	for i, n := range open {
		if n.err != nil {
			return open[i], n.err
		}
	}
	return open[0], answers[0].err
}

func (a *app) resolve(ctx context.Context, c *client.Client, req pipeline.Resolve) error {
	act, err := c.Resolve(ctx, req)
	if err != nil {
		return err
	}
	if req.How == pipeline.ResolveResume {
		if act, err = a.follow(ctx, c, act, a.say); err != nil {
			return err
		}
	}
	if a.flag.json {
		if err := a.printAction(act); err != nil {
			return err
		}
	}
	if req.How == pipeline.ResolveResume {
		return a.outcome(act, a.say)
	}
	a.say("%s of %q has ended: %s", act.Verb, act.Target, reasonOf(act))
	return nil
}

// candidates lists processes that could be adopted or reaped.
func (a *app) candidates(ctx context.Context, c *client.Client, verb pipeline.Verb) error {
	list, err := c.Strangers(ctx, nil)
	if err != nil {
		return err
	}
	if a.flag.json {
		return a.printJSON(struct {
			Schema    int                 `json:"schema"`
			Strangers []pipeline.Stranger `json:"strangers"`
		}{pipeline.SchemaVersion, append([]pipeline.Stranger{}, list...)})
	}
	if len(list) == 0 {
		a.say("no process was found that carries this deck's run id or holds GPU memory; name others with --pid")
		return nil
	}
	var t table
	t.row("PID", "USER", "STARTED", "GPU MEMORY", "RUN", "COMMAND")
	for _, s := range list {
		mem := "-"
		if s.GPUMem >= 0 {
			mem = pipeline.HumanBytes(s.GPUMem)
		}
		t.row(strconv.Itoa(s.PID), s.User, s.StartedAt.Local().Format(time.DateTime), mem, dashed(s.Run), pipeline.Clean(strings.Join(s.Argv, " ")))
	}
	a.say("hint: %s", fmt.Sprintf("pipedeck %s … --pid P,… after looking at what they are", verb))
	return t.print(a.out)
}
