package pipeline

import (
	"errors"
	"fmt"
)

// ProblemKind is the class of a Problem; it decides the exit code.
type ProblemKind string

// Values of ProblemKind, with the exit code of each.
const (
	ProblemFailed      ProblemKind = "failed"      // 2
	ProblemUnreachable ProblemKind = "unreachable" // 3: also unknown, incomplete
	ProblemUsage       ProblemKind = "usage"       // 64: usage or spec
	ProblemRefused     ProblemKind = "refused"     // 75
)

// Problem is an error for the operator: `cannot VERB OBJECT: cause`, lower
// case, the value quoted, and a hint that stands on its own line.
type Problem struct { //nolint:errname // it is a value of the JSON contract first, an error second
	Kind ProblemKind `json:"kind"`
	Text string      `json:"text"`
	Hint string      `json:"hint,omitempty"`
	// Plan carries the plan that was refused, so that a headless caller can
	// show its id and confirmation text.
	Plan *Plan `json:"plan,omitempty"`
	// Needs says what the caller can bring before it asks again.
	Needs string `json:"needs,omitempty"`
	Err   error  `json:"-"`
}

// NeedsCode is Problem.Needs of a plan whose code is not on the node yet.
const NeedsCode = "code"

// Error returns the text without the hint.
func (p *Problem) Error() string { return p.Text }

// Unwrap returns the cause, if one was kept.
func (p *Problem) Unwrap() error { return p.Err }

// Wrapf says what an error kept from being done. The kind and the hint of a
// Problem in it stay; without one it is a failure.
func Wrapf(err error, format string, args ...any) *Problem {
	kind, hint := ProblemFailed, ""
	if p, ok := errors.AsType[*Problem](err); ok {
		kind, hint = p.Kind, p.Hint
	}
	return Problemf(kind, hint, "%s: %w", fmt.Sprintf(format, args...), err)
}

// Problemf makes a Problem. A %w operand stays reachable with errors.Is.
func Problemf(kind ProblemKind, hint, format string, args ...any) *Problem {
	err := fmt.Errorf(format, args...)
	return &Problem{Kind: kind, Text: err.Error(), Hint: hint, Err: errors.Unwrap(err)}
}
