package engine

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"pipedeck/pipeline"
)

// Open is an action that an agent left unfinished.
type Open struct {
	Plan   pipeline.Plan
	Action pipeline.Action
	First  int       // index of the first step without a verified record
	Last   time.Time // of its newest record
}

// Unfinished finds the actions that began and have no end in the journal,
// oldest first, and the one that ended last, if any: its operator may still be
// asking an agent that died at the end of it.
func Unfinished(recs []pipeline.JournalRecord) (unfinished []Open, ended *pipeline.Action, err error) {
	open := map[string]*Open{}
	var order []string
	for _, r := range recs {
		switch {
		case r.Kind == KindBegin:
			o, err := reopen(r)
			if err != nil {
				return nil, nil, err
			}
			open[r.Action] = o
			order = append(order, r.Action)
		case r.Kind == KindEnd:
			if o := open[r.Action]; o != nil {
				ended = o.close(r)
			}
			delete(open, r.Action)
		case open[r.Action] != nil:
			open[r.Action].note(r)
		}
	}
	for _, id := range order {
		if o := open[id]; o != nil {
			unfinished = append(unfinished, *o)
		}
	}
	return unfinished, ended, nil
}

// close is the action as its end record has it.
func (o *Open) close(r pipeline.JournalRecord) *pipeline.Action {
	a := o.Action
	result, reason, why := strings.Cut(r.Text, ": ")
	a.Result, a.EndedAt = pipeline.Verdict(result), &r.At
	if why {
		a.Reason = &reason
	}
	return &a
}

func reopen(r pipeline.JournalRecord) (*Open, error) {
	raw, err := json.Marshal(r.Data)
	if err != nil {
		return nil, fmt.Errorf("cannot read the plan of action %q: %w", r.Action, err)
	}
	o := &Open{}
	if err := json.Unmarshal(raw, &o.Plan); err != nil {
		return nil, fmt.Errorf("cannot read the plan of action %q: %w", r.Action, err)
	}
	o.Action = pipeline.Action{
		ID: r.Action, Plan: r.Plan, Verb: o.Plan.Action, Target: o.Plan.Target, By: r.By,
		Result: pipeline.Running, BeganAt: r.At, Steps: []pipeline.StepResult{}, Undo: o.Plan.Undo,
	}
	o.Last = r.At
	for _, s := range o.Plan.Steps {
		o.Action.Steps = append(o.Action.Steps, pipeline.StepResult{N: s.N, Kind: s.Kind, Checks: []pipeline.Check{}})
	}
	return o, nil
}

// note takes a step's record: verified steps are not done again.
func (o *Open) note(r pipeline.JournalRecord) {
	o.Last = r.At
	for i := range o.Action.Steps {
		s := &o.Action.Steps[i]
		if s.N != r.Step {
			continue
		}
		at := r.At
		if r.Kind == KindSent {
			return
		}
		if r.Kind == KindIntent {
			s.BeganAt = &at
			return
		}
		s.Result, s.Text, s.EndedAt = pipeline.Verdict(r.Kind), r.Text, &at
		if s.Result == pipeline.Verified && i == o.First {
			o.First++
		}
		return
	}
}
