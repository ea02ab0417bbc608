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
	"time"

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
	var confirm string
	var dry bool
	var o intentFlags
	cmd := &cobra.Command{
		Use: use, Short: x.short, Long: x.long, Args: args, Example: x.example,
		ValidArgsFunction: a.completeTargets(x),
		RunE: func(cmd *cobra.Command, args []string) error {
			in, err := o.intent(x.verb, args)
			if err != nil {
				return err
			}
			return a.toAct(cmd.Context(), in.Verb, func(c *client.Client) error {
				if len(in.PIDs) == 0 && (in.Verb == pipeline.VerbAdopt || in.Verb == pipeline.VerbReap) {
					return a.candidates(cmd.Context(), c, in.Verb)
				}
				if dry {
					return a.showPlan(cmd.Context(), c, in)
				}
				return a.act(cmd.Context(), c, in, confirm, o.wait)
			})
		},
	}
	cmd.Flags().StringVar(&confirm, "confirm", "", "the confirmation text, for scripts")
	cmd.Flags().BoolVar(&dry, "dry-run", false, "show the plan and change nothing")
	o.add(cmd, x.options)
	return cmd
}

func (a *app) artifactsCommand() *cobra.Command {
	cmd := group(&cobra.Command{Use: "artifacts", Short: "Upload what makes resuming easier", Example: pushAct.example})
	cmd.AddCommand(a.actCommand(pushAct))
	return cmd
}

// act plans an intent, gets its confirmation, applies it and follows it.
func (a *app) act(ctx context.Context, c *client.Client, in pipeline.Intent, confirm string, wait bool) error {
	p, err := a.plan(ctx, c, in)
	if err != nil {
		return err
	}
	if p.Executable && p.Confirm != nil && confirm == "" {
		confirm, err = a.ask(p)
		if err != nil {
			return err
		}
	}
	return a.apply(ctx, c, p.ID, confirm, wait)
}

// plan asks for a plan until what it would lose is known, saying how far that
// is.
func (a *app) plan(ctx context.Context, c *client.Client, in pipeline.Intent) (pipeline.Plan, error) {
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
			a.say("comparing local files with the store: %d of %d", p.Checking.Done, p.Checking.Total)
		} else {
			a.say("comparing local files with the store: %d so far", p.Checking.Done)
		}
	}
}

// apply starts a plan and follows it to its end.
func (a *app) apply(ctx context.Context, c *client.Client, plan, confirm string, wait bool) error {
	act, err := a.applyPlan(ctx, c, pipeline.ApplyRequest{Plan: plan, Confirm: confirm, By: operator(), From: a.origin()})
	if err != nil {
		return err
	}
	act, err = a.follow(ctx, c, act)
	if err == nil && wait && act.Result == pipeline.Verified {
		act, err = a.followAfter(ctx, c, act)
	}
	if err != nil {
		return err
	}
	if a.flag.json {
		if err := a.printAction(act); err != nil {
			return err
		}
	}
	if err := a.withLog(ctx, c, a.outcome(act), act); err != nil {
		return err
	}
	if wait {
		return afterOutcome(act)
	}
	return nil
}

// followAfter reports the after-start checks as they are decided.
func (a *app) followAfter(ctx context.Context, c *client.Client, act pipeline.Action) (pipeline.Action, error) {
	last := map[string]string{}
	for {
		next, err := a.nextNews(ctx, c, act.ID)
		if err != nil {
			return act, err
		}
		act = next
		for _, k := range act.After {
			line := fmt.Sprintf("%s: %s, %s", k.Name, k.Result, k.Observed)
			if last[k.Name] != line {
				a.say("%s", line)
				last[k.Name] = line
			}
		}
		if len(act.After) > 0 && !pipeline.Pending(act.After) {
			return act, nil
		}
	}
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

// printAction prints an ended action, versioned as all JSON is.
func (a *app) printAction(act pipeline.Action) error {
	return a.printJSON(struct {
		Schema int `json:"schema"`
		pipeline.Action
	}{pipeline.SchemaVersion, act})
}

// ask shows a plan and reads its confirmation from a terminal. Headless the
// plan is refused, with all that a script needs to confirm it.
func (a *app) ask(p pipeline.Plan) (string, error) {
	if !isTerminal(a.in) || !isTerminal(a.err) {
		return "", &pipeline.Problem{
			Kind: pipeline.ProblemRefused, Plan: &p,
			Text: fmt.Sprintf("cannot %s without confirmation: plan %s asks for %q", deed(p.Action, p.Target), p.ID, *p.Confirm),
			Hint: fmt.Sprintf("pipedeck apply %s --confirm %q", p.ID, *p.Confirm),
		}
	}
	a.say("%s", planText(p))
	if _, err := fmt.Fprintf(a.err, "Type %q to go on, anything else to leave it: ", *p.Confirm); err != nil {
		return "", err
	}
	line, err := bufio.NewReader(a.in).ReadString('\n')
	if err != nil {
		return "", &pipeline.Problem{Kind: pipeline.ProblemRefused, Text: fmt.Sprintf("cannot %s: not confirmed", deed(p.Action, p.Target))}
	}
	typed := strings.TrimRight(line, "\r\n")
	if typed != *p.Confirm {
		return "", &pipeline.Problem{Kind: pipeline.ProblemRefused, Text: fmt.Sprintf("cannot %s: not confirmed; nothing was changed", deed(p.Action, p.Target))}
	}
	return typed, nil
}

// backWait is how long a follower waits for an agent that died: its keeper
// starts the next one within a second, and that one goes on with the action.
const backWait = 8 * time.Second

// nextNews asks for an action's progress, of the next agent if this one dies.
func (a *app) nextNews(ctx context.Context, c *client.Client, id string) (pipeline.Action, error) {
	end := time.Now().Add(backWait)
	tick := time.NewTicker(200 * time.Millisecond)
	defer tick.Stop()
	for {
		act, err := c.Action(ctx, id, followWait)
		if err == nil || ctx.Err() != nil {
			return act, err
		}
		if time.Now().After(end) {
			return act, pipeline.Problemf(pipeline.ProblemUnreachable, "any command starts the agent, which goes on with the action; `pipedeck history` tells how it ended",
				"cannot follow action %q any more: %w", id, err)
		}
		select {
		case <-ctx.Done():
			return act, ctx.Err()
		case <-tick.C:
		}
	}
}

// followWait is how long one question for news may take on the agent's side.
const followWait = 10 * time.Second

// follow reports an action's steps on stderr until it ends.
func (a *app) follow(ctx context.Context, c *client.Client, act pipeline.Action) (pipeline.Action, error) {
	last := make([]string, len(act.Steps))
	for {
		for i, s := range act.Steps {
			line := stepLine(s, len(act.Steps))
			if i < len(last) && line != "" && line != last[i] {
				a.say("%s", line)
				last[i] = line
			}
		}
		if act.EndedAt != nil {
			return act, nil
		}
		if act.Waits {
			return act, &pipeline.Problem{
				Kind: pipeline.ProblemUnreachable, Text: fmt.Sprintf("%s %q waits: %s", act.Verb, act.Target, reasonOf(act)),
			}
		}
		next, err := a.nextNews(ctx, c, act.ID)
		if ctx.Err() != nil {
			a.say("pipedeck: not followed any more; %s of %q goes on in the agent (`pipedeck history`)", act.Verb, act.Target)
			return act, exitError(exitUnknown)
		}
		if err != nil {
			return act, err
		}
		act = next
	}
}

func stepLine(s pipeline.StepResult, n int) string {
	if s.BeganAt == nil || (s.Result == pipeline.Running && s.Text == "") {
		return ""
	}
	word := string(s.Result)
	if s.Result == pipeline.Running {
		word = "…"
	}
	return fmt.Sprintf("[%d/%d] %s: %s %s", s.N, n, s.Kind, word, s.Text)
}

// outcome turns an ended action into the exit code.
func (a *app) outcome(act pipeline.Action) error {
	switch act.Result {
	case pipeline.Verified:
		if len(act.Steps) == 0 {
			a.say("nothing to do: %s", strings.TrimSpace(string(act.Verb)+" "+act.Target))
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

// origin says how the node of this invocation was reached, "" on the node.
func (a *app) origin() string {
	for _, f := range a.nodes.all() {
		if from := f.node.Origin(); from != "" {
			return from
		}
	}
	return ""
}

func (a *app) printJSON(v any) error {
	enc := json.NewEncoder(a.out)
	enc.SetEscapeHTML(false)
	return enc.Encode(v)
}

// sameSpec makes sure that an action is decided on this spec: an agent that
// runs another version is started anew if nothing lives under it, and is left
// alone otherwise.
func (a *app) sameSpec(ctx context.Context, s specFile, c *client.Client) (*client.Client, error) {
	hello, err := c.Hello(ctx)
	if err != nil || hello.SpecHash == s.Hash {
		return c, err
	}
	snap, err := c.Snapshot(ctx)
	if err != nil {
		return nil, err
	}
	if busy := busyWith(snap); busy != "" {
		return nil, pipeline.Problemf(pipeline.ProblemRefused,
			"stop the workers first; the next start takes this spec",
			"cannot act on %q: the agent runs another version of it and %s", a.flag.spec, busy)
	}
	r, err := a.reach(s)
	if err != nil {
		return nil, err
	}
	c.Close() // where a node allows one session it would be in the way
	if _, err := r.end(ctx); err != nil {
		return nil, err
	}
	return r.ensure(ctx)
}

// busyWith says what lives under an agent, or "".
func busyWith(snap pipeline.Snapshot) string {
	for _, n := range snap.Nodes {
		if n.Action != nil && n.Action.EndedAt == nil {
			return fmt.Sprintf("%s of %q is running", n.Action.Verb, n.Action.Target)
		}
	}
	switch live := alive(snap); len(live) {
	case 0:
		return ""
	case 1:
		return live[0] + " lives"
	default:
		return strings.Join(live, ", ") + " live"
	}
}

// alive names the workers that have a process.
func alive(snap pipeline.Snapshot) []string {
	var ids []string
	for _, n := range snap.Nodes {
		for _, st := range n.Stages {
			for _, w := range st.Workers {
				if w.PID != nil {
					ids = append(ids, w.ID)
				}
			}
		}
	}
	return ids
}
