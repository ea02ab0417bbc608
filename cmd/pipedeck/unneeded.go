package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"pipedeck/pipeline"
	"pipedeck/remote/client"
)

// nothingThereError says that a node over SSH has no program, no agent and no process
// that could be ended: installing a program just to find that out helps nobody.
type nothingThereError struct{ launches int }

// Error implements error.
func (n nothingThereError) Error() string {
	return fmt.Sprintf("no program is installed there, and none of its recorded launches (%d) lives or would come back", n.launches)
}

// openFor is how an agent is opened for an intent: a stop or kill needs none where
// nothing runs.
func (a *app) openFor(in pipeline.Intent, o actOptions) opening {
	if o.dry && a.flag.json { // a script wants a plan
		return reach.ensure
	}
	if in.Verb != pipeline.VerbStop && in.Verb != pipeline.VerbKill {
		return reach.ensure
	}
	return func(r reach, ctx context.Context) (*client.Client, error) {
		f, overSSH := r.(*far)
		if !overSSH {
			return r.ensure(ctx)
		}
		// With a program on it a node is asked by its agent.
		if there, err := f.node.Recorded(ctx); err == nil && there.Nothing() {
			return nil, nothingThereError{launches: there.Launches}
		}
		return r.ensure(ctx)
	}
}

// idle takes those nodes from a list on which nothing can be ended, and says so.
func (a *app) idle(open []nodeDeck, in pipeline.Intent) (rest, idle []nodeDeck, err error) {
	for _, n := range open {
		none, ok := errors.AsType[nothingThereError](n.err)
		if !ok {
			rest = append(rest, n)
			continue
		}
		stage, _, _ := strings.Cut(in.Target, "/")
		if n.s.Stage(stage) == nil {
			return nil, nil, pipeline.Problemf(pipeline.ProblemUsage, "the spec has "+strings.Join(stageNames(n.s), ", "),
				"cannot %s: the spec has no stage %q", deed(in.Verb, in.Target), stage)
		}
		idle = append(idle, n)
		a.teller(n.s)("nothing to do: %s %s: %v", in.Verb, in.Target, none)
	}
	return rest, idle, nil
}

func stageNames(s specFile) []string {
	names := make([]string, 0, len(s.Stages))
	for i := range s.Stages {
		names = append(names, s.Stages[i].Name)
	}
	return names
}

// endIdle ends a command that had nothing to do on any of its nodes.
func (a *app) endIdle(idle []nodeDeck, in pipeline.Intent) error {
	if !a.flag.json {
		return nil
	}
	now := time.Now().UTC()
	group := make([]member, 0, len(idle))
	for _, n := range idle {
		group = append(group, member{nodeDeck: nodeDeck{s: n.s}, act: pipeline.Action{
			Verb: in.Verb, Target: in.Target, By: operator(), Result: pipeline.Verified, Reason: new(n.err.Error()),
			BeganAt: now, EndedAt: &now, Steps: []pipeline.StepResult{}, Undo: pipeline.Undo{Reason: new("nothing was done")},
		}})
	}
	if len(group) == 1 {
		return a.printAction(group[0].act)
	}
	return a.printActions(group)
}
