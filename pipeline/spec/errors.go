package spec

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// maxErrors is more than anyone reads at once.
const maxErrors = 100

// Error is one fault of a spec, at the place where it can be corrected.
// Line and Column count from 1.
type Error struct {
	File   string
	Line   int
	Column int
	Text   string
	Hint   string // what to do about it; may be empty
}

// Error returns "FILE:LINE:COLUMN: TEXT", without the hint.
func (e Error) Error() string {
	return fmt.Sprintf("%s:%d:%d: %s", e.File, e.Line, e.Column, e.Text)
}

// Errors are all faults of a spec, in the file's order.
type Errors []Error

var _ error = Errors(nil)

// Error returns one line for each fault, without hints.
func (es Errors) Error() string {
	lines := make([]string, len(es))
	for i, e := range es {
		lines[i] = e.Error()
	}
	return strings.Join(lines, "\n")
}

func (es Errors) sorted() Errors {
	slices.SortStableFunc(es, func(a, b Error) int {
		return cmp.Or(cmp.Compare(a.Line, b.Line), cmp.Compare(a.Column, b.Column))
	})
	es = slices.Compact(es)
	if more := len(es) - maxErrors; more > 0 {
		es = es[:maxErrors]
		last := es[maxErrors-1]
		es = append(es, Error{File: last.File, Line: last.Line, Column: last.Column, Text: fmt.Sprintf("and %d more", more)})
	}
	return es
}
