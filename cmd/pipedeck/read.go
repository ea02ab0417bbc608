package main

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"pipedeck/pipeline"
	"pipedeck/remote/client"
)

func (a *app) coverageCommand() *cobra.Command {
	var ids bool
	cmd := &cobra.Command{
		Use:   "coverage [OUTPUT...]",
		Short: "Audit local files against the store; moves nothing",
		Long: `Audit local files against the store; moves nothing.

Exit codes: 0 all local files are proven, 1 gaps, 3 the audit is incomplete.`,
		Example: `  pipedeck coverage
  pipedeck coverage extract/hidden_states --json`,
		ValidArgsFunction: a.completeTargets(act{outputs: true, target: "OUTPUT"}),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.withNodes(cmd.Context(), func(_ specFile, c *client.Client) error {
				rep, err := c.Coverage(cmd.Context(), args, ids)
				if err != nil {
					return err
				}
				return a.endCoverage(rep)
			}, func(open []nodeDeck) error { return a.coverAll(cmd.Context(), open, args, ids) })
		},
	}
	cmd.Flags().BoolVar(&ids, "ids", false, "list sample ids too")
	return cmd
}

func (a *app) endCoverage(rep pipeline.CoverageReport) error {
	if err := a.printCoverage(rep); err != nil {
		return err
	}
	return coverageCode(rep)
}

// coverAll audits the outputs on each node. What a node that does not answer has
// is in the report as an audit that is not complete.
func (a *app) coverAll(ctx context.Context, open []nodeDeck, typed []string, ids bool) error {
	answers := every(ctx, open, func(ctx context.Context, n nodeDeck) (pipeline.CoverageReport, error) {
		return n.c.Coverage(ctx, typed, ids)
	})
	s := open[0].s
	rep := pipeline.CoverageReport{Schema: pipeline.SchemaVersion, Deck: s.Deck, Run: s.Run, Outputs: []pipeline.OutputCoverage{}}
	for _, n := range answers {
		if p, ok := errors.AsType[*pipeline.Problem](n.err); ok && p.Kind == pipeline.ProblemUsage {
			return n.err // it is what was typed
		}
		outputs := n.value.Outputs
		if n.err != nil {
			a.report(n.s.atNode(n.err))
			outputs = notAudited(s, typed, n.err)
		}
		for _, o := range outputs {
			o.Node = n.name()
			rep.Outputs = append(rep.Outputs, o)
		}
	}
	return a.endCoverage(rep)
}

func notAudited(s specFile, typed []string, cause error) []pipeline.OutputCoverage {
	var out []pipeline.OutputCoverage
	for i := range s.Stages {
		st := &s.Stages[i]
		for _, o := range st.Outputs {
			name := st.Name + "/" + o.Name
			if len(typed) > 0 && !slices.Contains(typed, name) && !slices.Contains(typed, o.Name) {
				continue
			}
			out = append(out, pipeline.OutputCoverage{
				Name: name, CoverageCounts: pipeline.CoverageCounts{At: time.Now().UTC()},
				Reason: new("the node was not reached: " + pipeline.Clean(cause.Error())),
			})
		}
	}
	return out
}

func (a *app) printCoverage(rep pipeline.CoverageReport) error {
	if a.flag.json {
		return a.printJSON(rep)
	}
	var t table
	t.row("OUTPUT", "LOCAL", "PROVEN", "UNPROVEN", "MISMATCHED", "MISSING", "UNKNOWN", "BEING WRITTEN")
	for _, o := range rep.Outputs {
		cells := []string{pipeline.Clean(strings.TrimPrefix(o.Node+": "+o.Name, ": "))}
		if !o.Complete && o.Node != "" && o.Local == 0 {
			t.row(cells[0], "-", "-", "-", "-", "-", "-", "-", pipeline.Clean(because(o.Reason)))
			continue
		}
		for _, n := range []int64{o.Local, o.Proven, o.Unproven, o.Mismatched, o.Missing, o.Unknown, o.BeingWritten} {
			cells = append(cells, strconv.FormatInt(n, 10))
		}
		if o.Reason != nil {
			cells = append(cells, pipeline.Clean(*o.Reason))
		}
		t.row(cells...)
		if o.IDs != nil {
			t.row("  stored ids: " + pipeline.Clean(strings.Join(o.IDs.Stored, " ")))
			t.row("  unproven ids: " + pipeline.Clean(strings.Join(o.IDs.Unproven, " ")))
		}
	}
	return t.print(a.out)
}

func coverageCode(rep pipeline.CoverageReport) error {
	worst := exitOK
	for _, o := range rep.Outputs {
		switch {
		case !o.Complete:
			return exitError(exitUnknown)
		case o.Proven < o.Local || o.BeingWritten > 0:
			worst = exitDegraded
		}
	}
	if worst == exitOK {
		return nil
	}
	return exitError(worst)
}

// whoLogs finds the node whose worker it is.
func whoLogs(ctx context.Context, open []nodeDeck, worker string) (nodeDeck, error) {
	stage, _, _ := strings.Cut(worker, "/")
	if i := holderOf(ctx, open, stage, rankOf(worker)); i >= 0 {
		return open[i], nil
	}
	for _, n := range open {
		if n.err != nil { // it may be there
			return n, n.s.atNode(n.err)
		}
	}
	return open[0], nil // whose agent says what is wrong with the name
}

func dashed(s string) string {
	if s == "" {
		return "-"
	}
	return s
}

func (a *app) logsCommand() *cobra.Command {
	var follow, raw bool
	var tail int
	cmd := &cobra.Command{
		Use:   "logs WORKER",
		Short: "Show a worker's log",
		Example: `  pipedeck logs extract/0
  pipedeck logs extract/0 -f`,
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: a.completeTargets(act{target: "WORKER"}),
		RunE: func(cmd *cobra.Command, args []string) error {
			show := func(_ specFile, c *client.Client) error {
				p := &logPrinter{out: a.out, say: a.say, raw: raw}
				return p.copy(cmd.Context(), c, pipeline.LogRequest{Worker: args[0], Tail: tail}, follow)
			}
			return a.withNodes(cmd.Context(), show, func(open []nodeDeck) error {
				n, err := whoLogs(cmd.Context(), open, args[0])
				if err != nil {
					return err
				}
				return n.s.atNode(show(n.s, n.c))
			})
		},
	}
	cmd.Flags().BoolVarP(&follow, "follow", "f", false, "go on with what is written, until the worker has ended and will not be started again")
	cmd.Flags().IntVar(&tail, "tail", 200, "begin with the last N lines")
	cmd.Flags().BoolVar(&raw, "raw", false, "keep control sequences")
	return cmd
}
