package main

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"pipedeck/pipeline"
	"pipedeck/remote/client"
)

func (a *app) planCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "plan ACTION [TARGET]",
		Short: "Make and show a plan; change nothing",
		Example: `  pipedeck plan stop extract
  pipedeck plan stop extract --json`,
		Args:              cobra.RangeArgs(1, 2),
		ValidArgsFunction: a.completePlan,
		RunE: func(cmd *cobra.Command, args []string) error {
			in := pipeline.Intent{Verb: pipeline.Verb(args[0])}
			if len(args) > 1 {
				in.Target = args[1]
			}
			return a.toAct(cmd.Context(), in.Verb, func(c *client.Client) error {
				p, err := c.Plan(cmd.Context(), in)
				if err != nil {
					return err
				}
				if a.flag.json {
					return a.printJSON(p)
				}
				_, err = fmt.Fprint(a.out, planText(p))
				return err
			})
		},
	}
}

// planned are the actions that can be planned, by their verb.
func planned() []act {
	return []act{startAct, stopAct, restartAct, settleAct, pauseAct, resumeAct, pushAct}
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
	cmd := &cobra.Command{
		Use:     "apply PLAN_ID",
		Short:   "Execute a plan that was made before, once",
		Example: `  pipedeck apply p-7f3a --confirm my-deck`,
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.withDeck(cmd.Context(), func(_ specFile, c *client.Client) error {
				return a.apply(cmd.Context(), c, args[0], confirm)
			})
		},
	}
	cmd.Flags().StringVar(&confirm, "confirm", "", "the plan's confirmation text")
	return cmd
}

// planText shows a plan on a plain terminal.
func planText(p pipeline.Plan) string {
	var b strings.Builder
	fmt.Fprintf(&b, "Plan %s: %s %s of deck %s on %s\n", p.ID, p.Action, p.Target, p.Deck, p.Node)
	for _, why := range p.Blocked {
		fmt.Fprintf(&b, "  not possible: %s\n", why)
	}
	for _, s := range p.Steps {
		fmt.Fprintf(&b, "  %d. %s %s\n     proof: %s\n", s.N, s.Kind, strings.Join(s.On, " "), s.Proof)
	}
	if len(p.Steps) == 0 && p.Executable {
		b.WriteString("  nothing to do\n")
	}
	l := p.Loss
	if l.Files > 0 {
		fmt.Fprintf(&b, "  files touched: %d, of which %d would be lost\n", l.Files, l.LostFiles)
	} else {
		b.WriteString("  no file is removed\n")
	}
	if p.Confirm != nil {
		fmt.Fprintf(&b, "  to confirm: %s (until %s)\n", *p.Confirm, p.ExpiresAt.Local().Format("15:04:05"))
	}
	return b.String()
}
