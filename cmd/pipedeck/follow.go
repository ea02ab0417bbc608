package main

import (
	"context"
	"fmt"
	"time"

	"pipedeck/pipeline"
	"pipedeck/remote/client"
)

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
func (a *app) follow(ctx context.Context, c *client.Client, act pipeline.Action, say func(string, ...any)) (pipeline.Action, error) {
	last := make([]string, len(act.Steps))
	for {
		for i, s := range act.Steps {
			line := stepLine(s, len(act.Steps))
			if i < len(last) && line != "" && line != last[i] {
				say("%s", line)
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
			say("not followed any more; %s of %q goes on in the agent (`pipedeck history`)", act.Verb, act.Target)
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

// followAfter reports the after-start checks as they are decided.
func (a *app) followAfter(ctx context.Context, c *client.Client, act pipeline.Action, say func(string, ...any)) (pipeline.Action, error) {
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
				say("%s", line)
				last[k.Name] = line
			}
		}
		if len(act.After) > 0 && !pipeline.Pending(act.After) {
			return act, nil
		}
	}
}
