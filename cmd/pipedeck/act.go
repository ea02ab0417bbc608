package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/user"
	"strings"

	"github.com/spf13/cobra"

	"pipedeck/pipeline"
	"pipedeck/remote/client"
)

// act describes a command that plans, asks, applies and follows.
type act struct {
	verb    pipeline.Verb
	target  string // "" none, else the word in the usage line
	short   string
	long    string
	example string
	outputs bool // targets are outputs
	options []option
	noArg   bool // the target may be missing
}

func (a *app) actCommand(x act) *cobra.Command {
	use, args := string(x.verb), cobra.NoArgs
	switch {
	case x.noArg:
		use, args = use+" ["+x.target+"]", cobra.MaximumNArgs(1)
	case x.target != "":
		use, args = use+" "+x.target, cobra.ExactArgs(1)
	}
	var how actOptions
	var o intentFlags
	cmd := &cobra.Command{
		Use: use, Short: x.short, Long: x.long, Args: args, Example: x.example,
		ValidArgsFunction: a.completeTargets(x),
		RunE: func(cmd *cobra.Command, args []string) error {
			in, err := o.intent(x.verb, args)
			if err != nil {
				return err
			}
			how.wait = o.wait
			return a.toAct(cmd.Context(), in, how)
		},
	}
	cmd.Flags().StringVar(&how.confirm, "confirm", "", "the confirmation text, for scripts")
	cmd.Flags().BoolVar(&how.dry, "dry-run", false, "show the plan and change nothing")
	o.add(cmd, x.options)
	return cmd
}

func (a *app) artifactsCommand() *cobra.Command {
	cmd := group(&cobra.Command{Use: "artifacts", Short: "Upload what makes resuming easier", Example: pushAct.example})
	cmd.AddCommand(a.actCommand(pushAct))
	return cmd
}

// actOptions say how an action is confirmed and followed.
type actOptions struct {
	confirm string
	wait    bool // for the after-start checks too
	dry     bool // only show the plan
	shown   bool // the plan was shown before: nobody is asked again
}

// actPlanned gets a plan's confirmation, applies it and follows it.
func (a *app) actPlanned(ctx context.Context, n nodeDeck, p pipeline.Plan, o actOptions) error {
	var err error
	if p.Executable && p.Confirm != nil && o.confirm == "" {
		o.confirm, err = a.ask(question{
			what: deed(p.Action, p.Target), show: planText(p), ids: []string{p.ID}, confirm: *p.Confirm, plan: &p,
		})
		if err != nil {
			return err
		}
	}
	return a.apply(ctx, n, p.ID, o.confirm, o.wait)
}

// plan asks for a plan until what it would lose is known, saying how far that
// is.
func (a *app) plan(ctx context.Context, c *client.Client, in pipeline.Intent, say func(string, ...any)) (pipeline.Plan, error) {
	in, err := a.askPlan(ctx, c, in)
	if err != nil {
		return pipeline.Plan{}, err
	}
	for {
		p, err := c.Plan(ctx, in)
		if err != nil {
			return p, err
		}
		if p.Checking == nil {
			return p, tookCode(in, p)
		}
		if p.Checking.Total > 0 {
			say("comparing local files with the store: %d of %d", p.Checking.Done, p.Checking.Total)
		} else {
			say("comparing local files with the store: %d so far", p.Checking.Done)
		}
	}
}

// apply starts a plan and follows it to its end.
func (a *app) apply(ctx context.Context, n nodeDeck, plan, confirm string, wait bool) error {
	c, say := n.c, a.teller(n.s)
	act, err := a.applyPlan(ctx, c, pipeline.ApplyRequest{Plan: plan, Confirm: confirm, By: operator(), From: originOf(n.reach)})
	if err != nil {
		return err
	}
	act, err = a.follow(ctx, c, act, say)
	if err == nil && wait && act.Result == pipeline.Verified {
		act, err = a.followAfter(ctx, c, act, say)
	}
	if err != nil {
		return err
	}
	if a.flag.json {
		if err := a.printAction(act); err != nil {
			return err
		}
	}
	if err := a.withLog(ctx, c, a.outcome(act, say), act); err != nil {
		return err
	}
	if wait {
		return afterOutcome(act)
	}
	return nil
}

func afterOutcome(act pipeline.Action) error {
	for _, k := range act.After {
		switch k.Result {
		case pipeline.Verified, pipeline.NotApplicable:
		case pipeline.ActionFailed:
			return pipeline.Problemf(pipeline.ProblemFailed, "", "%s %q: after the start, %s failed: %s", act.Verb, act.Target, k.Name, k.Observed)
		case pipeline.Running, pipeline.Unverified:
			return pipeline.Problemf(pipeline.ProblemUnreachable, "", "%s %q: after the start, %s is not known: %s", act.Verb, act.Target, k.Name, k.Observed)
		}
	}
	return nil
}

// withLog adds to a failure where the worker that ended tells why.
func (a *app) withLog(ctx context.Context, c *client.Client, failure error, act pipeline.Action) error {
	var p *pipeline.Problem
	starts := act.Verb == pipeline.VerbStart || act.Verb == pipeline.VerbRestart || act.Verb == pipeline.VerbPivot
	if !errors.As(failure, &p) || p.Hint != "" || !starts {
		return failure
	}
	snap, err := c.Snapshot(ctx)
	if err != nil {
		return failure
	}
	stage, _, _ := strings.Cut(act.Target, "/")
	for _, n := range snap.Nodes {
		for _, st := range n.Stages {
			for _, w := range st.Workers {
				if st.Name == stage && w.PID == nil && w.State != pipeline.WorkerDone {
					p.Hint = fmt.Sprintf("`pipedeck logs %s` shows what it said last", w.ID)
					return failure
				}
			}
		}
	}
	return failure
}

// nodeAction is what became of one node's part of an action.
type nodeAction struct {
	Node string `json:"node"`
	pipeline.Action
	Error *string `json:"error"` // why it did not begin or is not followed to its end
}

// printActions prints what became of an action on several nodes.
func (a *app) printActions(group []member) error {
	doc := struct {
		Schema  int          `json:"schema"`
		Actions []nodeAction `json:"actions"`
	}{Schema: pipeline.SchemaVersion}
	for _, m := range group {
		out := nodeAction{Node: m.name(), Action: m.act}
		if m.act.BeganAt.IsZero() {
			out.Plan, out.Verb, out.Target, out.By, out.Result = m.plan.ID, m.plan.Action, m.plan.Target, operator(), pipeline.Unverified
		}
		if m.err != nil {
			out.Error = new(m.err.Error())
		}
		doc.Actions = append(doc.Actions, out)
	}
	return a.printJSON(doc)
}

// printAction prints an ended action, versioned as all JSON is.
func (a *app) printAction(act pipeline.Action) error {
	return a.printJSON(struct {
		Schema int `json:"schema"`
		pipeline.Action
	}{pipeline.SchemaVersion, act})
}

// question is one or several plans that wait for one confirmation.
type question struct {
	what    string // what they do
	show    string
	ids     []string
	confirm string
	plan    *pipeline.Plan // where it is one
}

// ask shows plans and reads their confirmation from a terminal. Headless they
// are refused, with all that a script needs to confirm them.
func (a *app) ask(q question) (string, error) {
	if !isTerminal(a.in) || !isTerminal(a.err) {
		plans := "plan " + q.ids[0] + " asks"
		if len(q.ids) > 1 {
			plans = "plans " + strings.Join(q.ids, ", ") + " together ask"
		}
		return "", &pipeline.Problem{
			Kind: pipeline.ProblemRefused, Plan: q.plan, Hint: applyHint(q.ids, q.confirm),
			Text: fmt.Sprintf("cannot %s without confirmation: %s for %q", q.what, plans, q.confirm),
		}
	}
	a.say("%s", q.show)
	if _, err := fmt.Fprintf(a.err, "Type %q to go on, anything else to leave it: ", q.confirm); err != nil {
		return "", err
	}
	line, err := bufio.NewReader(a.in).ReadString('\n')
	if err != nil {
		return "", &pipeline.Problem{Kind: pipeline.ProblemRefused, Text: fmt.Sprintf("cannot %s: not confirmed", q.what)}
	}
	typed := strings.TrimRight(line, "\r\n")
	if typed != q.confirm {
		return "", &pipeline.Problem{Kind: pipeline.ProblemRefused, Text: fmt.Sprintf("cannot %s: not confirmed; nothing was changed", q.what)}
	}
	return typed, nil
}

// outcome turns an ended action into the exit code.
func (a *app) outcome(act pipeline.Action, say func(string, ...any)) error {
	switch act.Result {
	case pipeline.Verified:
		if len(act.Steps) == 0 {
			say("nothing to do: %s", strings.TrimSpace(string(act.Verb)+" "+act.Target))
		}
		return nil
	case pipeline.ActionFailed:
		return pipeline.Problemf(pipeline.ProblemFailed, "", "cannot %s: %s", deed(act.Verb, act.Target), reasonOf(act))
	case pipeline.Running, pipeline.Unverified, pipeline.NotApplicable:
		fallthrough
	default:
		return pipeline.Problemf(pipeline.ProblemUnreachable, "look at the evidence with `pipedeck history`",
			"%s ended unproven: %s", deed(act.Verb, act.Target), reasonOf(act))
	}
}

// deed names what was asked for; some verbs have no target.
func deed(v pipeline.Verb, target string) string {
	if target == "" {
		return string(v)
	}
	return fmt.Sprintf("%s %q", v, target)
}

func reasonOf(act pipeline.Action) string {
	if act.Reason == nil {
		return "no reason was given"
	}
	return *act.Reason
}

// operator says who acts, for the journal.
func operator() string {
	name := "unknown"
	if u, err := user.Current(); err == nil {
		name = u.Username
	}
	host, err := os.Hostname()
	if err != nil {
		host = "unknown"
	}
	return name + "@" + host
}

// originOf says how a node was reached, "" on the node.
func originOf(r reach) string {
	if f, ok := r.(*far); ok {
		return f.node.Origin()
	}
	return ""
}

func (a *app) printJSON(v any) error {
	enc := json.NewEncoder(a.out)
	enc.SetEscapeHTML(false)
	return enc.Encode(v)
}
