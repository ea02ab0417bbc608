package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"pipedeck/pipeline"
	"pipedeck/remote/client"
)

func (a *app) planCommand() *cobra.Command {
	var o intentFlags
	cmd := &cobra.Command{
		Use:   "plan ACTION [TARGET]",
		Short: "Make and show a plan; change nothing",
		Example: `  pipedeck plan stop extract
  pipedeck plan wipe extract/hidden_states --json`,
		Args:              cobra.RangeArgs(1, 2),
		ValidArgsFunction: a.completePlan,
		RunE: func(cmd *cobra.Command, args []string) error {
			in, err := o.intent(pipeline.Verb(args[0]), args[1:])
			if err != nil {
				return err
			}
			return a.toAct(cmd.Context(), in.Verb, func(c *client.Client) error {
				return a.showPlan(cmd.Context(), c, in)
			})
		},
	}
	o.add(cmd, []option{optAccept, optProvenOnly, optScratch, optFrom, optKeep, optDiscard, optPIDs})
	return cmd
}

func (a *app) showPlan(ctx context.Context, c *client.Client, in pipeline.Intent) error {
	p, err := a.plan(ctx, c, in)
	if err != nil {
		return err
	}
	if a.flag.json {
		return a.printJSON(p)
	}
	_, err = fmt.Fprint(a.out, planText(p))
	return err
}

// completePlan offers the verbs, then the targets of the one given.
func (a *app) completePlan(cmd *cobra.Command, args []string, part string) ([]string, cobra.ShellCompDirective) {
	var verbs []string
	for _, x := range planned() {
		if len(args) == 1 && args[0] == string(x.verb) {
			return a.completeTargets(x)(cmd, nil, part)
		}
		verbs = append(verbs, string(x.verb))
	}
	if len(args) > 0 {
		verbs = nil
	}
	return verbs, cobra.ShellCompDirectiveNoFileComp
}

func (a *app) applyCommand() *cobra.Command {
	var confirm string
	var wait bool
	cmd := &cobra.Command{
		Use:     "apply PLAN_ID",
		Short:   "Execute a plan that was made before, once",
		Example: `  pipedeck apply p-7f3a --confirm my-deck`,
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.withDeck(cmd.Context(), func(_ specFile, c *client.Client) error {
				return a.apply(cmd.Context(), c, args[0], confirm, wait)
			})
		},
	}
	cmd.Flags().StringVar(&confirm, "confirm", "", "the plan's confirmation text")
	cmd.Flags().BoolVar(&wait, "wait", false, "follow the after-start checks too")
	return cmd
}
