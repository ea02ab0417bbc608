package main

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
)

// table is text in columns. Its cells are cleaned by whoever fills them.
type table [][]string

func (t *table) row(cells ...string) { *t = append(*t, cells) }

// print writes the rows, aligned, without blanks at the ends of lines.
func (t *table) print(out io.Writer) error {
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	for _, cells := range *t {
		if _, err := fmt.Fprintln(w, strings.Join(cells, "\t")); err != nil {
			return err
		}
	}
	if err := w.Flush(); err != nil {
		return err
	}
	for line := range strings.Lines(b.String()) {
		if _, err := fmt.Fprintln(out, strings.TrimRight(line, " \n")); err != nil {
			return err
		}
	}
	return nil
}
