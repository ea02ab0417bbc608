package main

import (
	"fmt"
	"strings"
	"text/tabwriter"
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
	w := tabwriter.NewWriter(a.out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "OUTPUT\tLOCAL\tPROVEN\tUNPROVEN\tMISMATCHED\tMISSING\tUNKNOWN\tBEING WRITTEN\t")
	for _, o := range rep.Outputs {
		fmt.Fprintf(w, "%s\t%d\t%d\t%d\t%d\t%d\t%d\t%d\t", o.Name, o.Local, o.Proven, o.Unproven, o.Mismatched, o.Missing, o.Unknown, o.BeingWritten)
		if o.Reason != nil {
			fmt.Fprint(w, pipeline.Clean(*o.Reason))
		}
		fmt.Fprintln(w)
		if o.IDs != nil {
			fmt.Fprintf(w, "  stored ids: %s\n  unproven ids: %s\n", strings.Join(o.IDs.Stored, " "), strings.Join(o.IDs.Unproven, " "))
		}
	}
	return w.Flush()
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

func (a *app) historyCommand() *cobra.Command {
	var limit int
	cmd := &cobra.Command{
		Use:   "history",
		Short: "Show the journal of actions",
		Example: `  pipedeck history
  pipedeck history --limit 20 --json`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.withDeck(cmd.Context(), func(_ specFile, c *client.Client) error {
				recs, err := c.History(cmd.Context(), limit)
				if err != nil {
					return err
				}
				return a.printHistory(recs)
			})
		},
	}
	cmd.Flags().IntVar(&limit, "limit", 0, "only the newest N records")
	return cmd
}

func (a *app) printHistory(recs []pipeline.JournalRecord) error {
	if a.flag.json {
		if recs == nil {
			recs = []pipeline.JournalRecord{}
		}
		return a.printJSON(struct {
			Schema  int                      `json:"schema"`
			Records []pipeline.JournalRecord `json:"records"`
		}{pipeline.SchemaVersion, recs})
	}
	if len(recs) == 0 {
		a.say("the journal is empty")
		return nil
	}
	w := tabwriter.NewWriter(a.out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "AT\tWHAT\tACTION\tBY\tTEXT")
	for _, r := range recs {
		what := r.Action
		if r.Step > 0 {
			what = fmt.Sprintf("%s step %d", r.Action, r.Step)
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\n", r.At.UTC().Format("2006-01-02 15:04:05Z"),
			r.Kind, dashed(what), dashed(pipeline.Clean(r.By)), pipeline.Clean(r.Text))
	}
	return w.Flush()
}

func dashed(s string) string {
	if s == "" {
		return "-"
	}
	return s
}

// logWait is how long one question for new log bytes may take.
const logWait = 10 * time.Second

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
				req := pipeline.LogRequest{Worker: args[0], Tail: tail}
				for {
					chunk, err := c.Log(cmd.Context(), req)
					if cmd.Context().Err() != nil {
						return nil
					}
					if err != nil {
						return err
					}
					if err := p.print(chunk.Data); err != nil {
						return err
					}
					if chunk.EOF && !follow {
						return p.flush()
					}
					req.Cursor = chunk.Cursor
					if follow {
						req.Wait = logWait
					}
				}
			})
		},
	}
	cmd.Flags().BoolVarP(&follow, "follow", "f", false, "go on with what is written")
	cmd.Flags().IntVar(&tail, "tail", 200, "begin with the last N lines")
	cmd.Flags().BoolVar(&raw, "raw", false, "keep control sequences")
	return cmd
}
