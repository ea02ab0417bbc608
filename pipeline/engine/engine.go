// Package engine runs a plan step by step through an executor and journals
// each step before and after it, so that what was begun and what was proven
// can be told apart after a crash.
package engine

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"pipedeck/pipeline"
)

// Executor does one step. It must be idempotent by probing first: a step that
// already has its effect is verified without being done again.
type Executor interface {
	Do(ctx context.Context, j Job) Outcome
}

// Job is one step of an action under way.
type Job struct {
	Action string
	Plan   pipeline.Plan
	Step   pipeline.Step
	Report func(string) // progress in words
}

// Outcome is what came of a step. The zero value is not a success.
type Outcome struct {
	Result pipeline.Verdict
	Text   string
	Checks []pipeline.Check
}

// Engine runs plans. Observe is told of every change of the action.
type Engine struct {
	Journal pipeline.Journal
	Exec    Executor
	Now     func() time.Time
	Observe func(pipeline.Action)
}

// Begin journals that a plan was confirmed, in full, and returns its action.
// Until this record is on disk nothing may be done.
func (e *Engine) Begin(id string, p pipeline.Plan, req pipeline.ApplyRequest) (pipeline.Action, error) {
	now := e.Now()
	a := pipeline.Action{
		ID: id, Plan: p.ID, Verb: p.Action, Target: p.Target, By: req.By,
		Result: pipeline.Running, BeganAt: now, Steps: []pipeline.StepResult{}, Undo: p.Undo,
	}
	for _, s := range p.Steps {
		a.Steps = append(a.Steps, pipeline.StepResult{N: s.N, Kind: s.Kind, Checks: []pipeline.Check{}})
	}
	err := e.Journal.Append(pipeline.JournalRecord{
		At: now, Kind: KindBegin, Action: id, Plan: p.ID, By: req.By, From: req.From,
		Text: beginText(p, req.Confirm), Data: p,
	})
	if err != nil {
		return a, fmt.Errorf("cannot journal action %q: %w", id, err)
	}
	return a, nil
}

func beginText(p pipeline.Plan, typed string) string {
	text := strings.TrimSpace(fmt.Sprintf("%s %s", p.Action, p.Target))
	if c := p.Intent.Code; c != nil {
		text += ", code " + c.Hash
	}
	if p.Confirm == nil {
		return text
	}
	return fmt.Sprintf("%s, confirmed by %q", text, typed)
}

// The kinds of journal records that the engine writes.
const (
	KindBegin  = "begin"
	KindIntent = "intent"
	KindSent   = "sent" // a signal, within a step
	KindEnd    = "end"
)

// Run does the steps from index first on and ends at the first that is not
// verified: nothing is rolled forward blindly. It returns the ended action, or
// the open one if ctx ended first.
func (e *Engine) Run(ctx context.Context, p pipeline.Plan, a pipeline.Action, first int) pipeline.Action {
	a = copyAction(a) // the caller's may be shown to others already
	result := pipeline.Verified
	for i := first; i < len(p.Steps); i++ {
		out := e.step(ctx, p, &a, i)
		if by, taken := takenOver(ctx); taken {
			return e.End(a, pipeline.Unverified, fmt.Sprintf("step %d of %d, %s: taken over by %s; what it had done so far: %s",
				i+1, len(p.Steps), p.Steps[i].Kind, by, orNothing(out.Text)))
		}
		if ctx.Err() != nil {
			// The agent is ending. Without an end record the next one goes on here.
			return a
		}
		if out.Result == pipeline.Verified {
			continue
		}
		result = out.Result
		reason := fmt.Sprintf("step %d of %d, %s: %s", i+1, len(p.Steps), p.Steps[i].Kind, out.Text)
		a.Reason = &reason
		break
	}
	return e.end(a, result)
}

// End ends an action where it stands, with the reason.
func (e *Engine) End(a pipeline.Action, result pipeline.Verdict, reason string) pipeline.Action {
	a = copyAction(a)
	a.Reason = &reason
	return e.end(a, result)
}

func (e *Engine) end(a pipeline.Action, result pipeline.Verdict) pipeline.Action {
	end := e.Now()
	a.Result, a.EndedAt, a.Waits = result, &end, false
	text := string(a.Result)
	if a.Reason != nil {
		text += ": " + *a.Reason
	}
	rec := pipeline.JournalRecord{
		At: end, Kind: KindEnd, Action: a.ID, Plan: a.Plan, By: a.By, Text: text,
		Data: map[string]float64{"seconds": end.Sub(a.BeganAt).Seconds()},
	}
	if err := e.Journal.Append(rec); err != nil {
		a.Result = pipeline.Unverified
		reason := fmt.Sprintf("cannot journal the end: %v", err)
		a.Reason = &reason
	}
	e.Observe(a)
	return a
}

// TakenOver is the cause with which a context ends that another operator took
// the lease from.
type TakenOver struct{ By string } //nolint:errname // a cause, not a failure

// Error says who took over.
func (t TakenOver) Error() string { return "taken over by " + t.By }

func takenOver(ctx context.Context) (string, bool) {
	t, ok := errors.AsType[TakenOver](context.Cause(ctx))
	return t.By, ok
}

func orNothing(text string) string {
	if text == "" {
		return "not known"
	}
	return text
}

// step runs one step between its two journal records.
func (e *Engine) step(ctx context.Context, p pipeline.Plan, a *pipeline.Action, i int) Outcome {
	s, res := p.Steps[i], &a.Steps[i]
	began := e.Now()
	res.BeganAt = &began
	res.Result = pipeline.Running
	rec := pipeline.JournalRecord{At: began, Kind: KindIntent, Action: a.ID, Plan: a.Plan, Step: s.N, Text: fmt.Sprintf("%s %v", s.Kind, s.On)}
	if err := e.Journal.Append(rec); err != nil {
		return e.close(a, i, Outcome{Result: pipeline.ActionFailed, Text: fmt.Sprintf("cannot journal the step, so it was not begun: %v", err)})
	}
	e.Observe(copyAction(*a))
	out := e.Exec.Do(ctx, Job{Action: a.ID, Plan: p, Step: s, Report: func(text string) {
		res.Text = text
		e.Observe(copyAction(*a))
	}})
	if ctx.Err() != nil {
		return out
	}
	if out.Result != pipeline.Verified && out.Result != pipeline.ActionFailed {
		out.Result = pipeline.Unverified
	}
	return e.close(a, i, out)
}

func (e *Engine) close(a *pipeline.Action, i int, out Outcome) Outcome {
	res := &a.Steps[i]
	end := e.Now()
	res.EndedAt = &end
	res.Result, res.Text = out.Result, out.Text
	if out.Checks != nil {
		res.Checks = out.Checks
	}
	rec := pipeline.JournalRecord{
		At: end, Kind: string(out.Result), Action: a.ID, Plan: a.Plan, Step: res.N, Text: out.Text, Data: res.Checks,
	}
	if err := e.Journal.Append(rec); err != nil && out.Result == pipeline.Verified {
		out = Outcome{Result: pipeline.Unverified, Text: fmt.Sprintf("done, but cannot journal it: %v", err)}
		res.Result, res.Text = out.Result, out.Text
	}
	e.Observe(copyAction(*a))
	return out
}

// copyAction lets observers keep an action while the engine goes on with it.
func copyAction(a pipeline.Action) pipeline.Action {
	a.Steps = append([]pipeline.StepResult{}, a.Steps...)
	return a
}
