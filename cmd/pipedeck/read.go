package main

import (
	"strconv"
	"strings"

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
			return a.withDeck(cmd.Context(), func(_ specFile, c *client.Client) error {
				rep, err := c.Coverage(cmd.Context(), args, ids)
				if err != nil {
					return err
				}
				if err := a.printCoverage(rep); err != nil {
					return err
				}
				return coverageCode(rep)
			})
		},
	}
	cmd.Flags().BoolVar(&ids, "ids", false, "list sample ids too")
	return cmd
}

func (a *app) printCoverage(rep pipeline.CoverageReport) error {
	if a.flag.json {
		return a.printJSON(rep)
	}
	var t table
	t.row("OUTPUT", "LOCAL", "PROVEN", "UNPROVEN", "MISMATCHED", "MISSING", "UNKNOWN", "BEING WRITTEN")
	for _, o := range rep.Outputs {
		cells := []string{pipeline.Clean(o.Name)}
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
			return a.withDeck(cmd.Context(), func(_ specFile, c *client.Client) error {
				p := &logPrinter{out: a.out, raw: raw}
				return p.copy(cmd.Context(), c, pipeline.LogRequest{Worker: args[0], Tail: tail}, follow)
			})
		},
	}
	cmd.Flags().BoolVarP(&follow, "follow", "f", false, "go on with what is written")
	cmd.Flags().IntVar(&tail, "tail", 200, "begin with the last N lines")
	cmd.Flags().BoolVar(&raw, "raw", false, "keep control sequences")
	return cmd
}
