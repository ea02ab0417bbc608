package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"pipedeck/pipeline"
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
			return a.toAct(cmd.Context(), in, actOptions{dry: true})
		},
	}
	o.add(cmd, []option{optAccept, optProvenOnly, optScratch, optFrom, optKeep, optDiscard, optPIDs})
	return cmd
}

func (a *app) showPlan(p pipeline.Plan) error {
	if a.flag.json {
		return a.printJSON(p)
	}
	_, err := fmt.Fprint(a.out, planText(p))
	return err
}

// jointPlan is what `plan --json` prints of an action on several nodes.
type jointPlan struct {
	Schema     int             `json:"schema"`
	Action     pipeline.Verb   `json:"action"`
	Target     string          `json:"target"`
	Deck       string          `json:"deck"`
	Executable bool            `json:"executable"` // all are
	Plans      []pipeline.Plan `json:"plans"`      // one a node, in the spec's order
	Loss       pipeline.Loss   `json:"loss"`       // of all
	Confirm    *string         `json:"confirm"`    // the one text for all; null: nothing is asked
}

// showPlans shows the plans of several nodes; that of one as any other.
func (a *app) showPlans(group []member) error {
	plans := plansOf(group)
	if len(plans) == 1 {
		return a.showPlan(plans[0])
	}
	if !a.flag.json {
		_, err := fmt.Fprint(a.out, plansText(plans))
		return err
	}
	doc := jointPlan{
		Schema: pipeline.SchemaVersion, Action: plans[0].Action, Target: plans[0].Target, Deck: plans[0].Deck, Executable: true,
		Plans: plans, Loss: pipeline.JointLoss(plans), Confirm: pipeline.JointConfirm(plans),
	}
	for _, p := range plans {
		doc.Executable = doc.Executable && p.Executable
	}
	return a.printJSON(doc)
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
		Use:   "apply PLAN_ID...",
		Short: "Execute a plan that was made before, once",
		Long: `Execute a plan that was made before, once. Of an action on several nodes name
the plans of all: they have one confirmation, all leases are taken or none, and
they are followed together.`,
		Example: `  pipedeck apply p-7f3a --confirm my-deck
  pipedeck apply p-7f3a p-91c2 --confirm "1204 my-deck"`,
		Args: cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			nodes, err := a.chosen()
			if err != nil {
				return err
			}
			if len(nodes) > 1 || len(args) > 1 {
				return a.applyPlans(cmd.Context(), nodes, args, actOptions{confirm: confirm, wait: wait, shown: true})
			}
			n := a.eachNode(cmd.Context(), nodes, reach.ensure)[0]
			if n.err != nil {
				return n.err
			}
			defer n.c.Close()
			a.sayOtherSpec(cmd.Context(), n.s, n.c)
			return a.apply(cmd.Context(), n, args[0], confirm, wait)
		},
	}
	cmd.Flags().StringVar(&confirm, "confirm", "", "the plan's confirmation text")
	cmd.Flags().BoolVar(&wait, "wait", false, "follow the after-start checks too")
	return cmd
}
