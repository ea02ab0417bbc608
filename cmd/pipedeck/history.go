package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"pipedeck/pipeline"
	"pipedeck/remote/client"
)

// historyFilter picks records of the journal.
type historyFilter struct {
	action, by string
	kinds      []string
	since      time.Duration
}

// historyKinds are the kinds of records that a journal holds.
var historyKinds = []string{"begin", "intent", "sent", "verified", "failed", "unknown", "refused", "expired", "end", "worker", "agent"}

// check refuses what could match nothing, so that a slip does not look like an
// empty journal.
func (f historyFilter) check(limit int) error {
	for _, k := range f.kinds {
		if !slices.Contains(historyKinds, k) {
			return pipeline.Problemf(pipeline.ProblemUsage, "the kinds are "+strings.Join(historyKinds, ", "),
				"cannot show the history: there is no kind %q", k)
		}
	}
	if limit < 0 || f.since < 0 {
		return pipeline.Problemf(pipeline.ProblemUsage, "", "cannot show the history: --limit and --since take no negative value")
	}
	return nil
}

// asked is how many records must be read to pick from.
func (f historyFilter) asked(limit int) int {
	if f.action == "" && f.by == "" && len(f.kinds) == 0 && f.since == 0 {
		return limit
	}
	return 0
}

func (f historyFilter) pick(recs []pipeline.JournalRecord, limit int, now time.Time) []pipeline.JournalRecord {
	out := slices.DeleteFunc(recs, func(r pipeline.JournalRecord) bool {
		return f.action != "" && r.Action != f.action && r.Plan != f.action ||
			f.by != "" && !strings.Contains(r.By, f.by) ||
			len(f.kinds) > 0 && !slices.Contains(f.kinds, r.Kind) ||
			f.since > 0 && now.Sub(r.At) > f.since
	})
	if limit > 0 && len(out) > limit {
		out = out[len(out)-limit:]
	}
	return out
}

func (a *app) historyCommand() *cobra.Command {
	var limit int
	var f historyFilter
	cmd := &cobra.Command{
		Use:   "history",
		Short: "Show the journal of actions",
		Example: `  pipedeck history
  pipedeck history --limit 20 --json
  pipedeck history --action a-7f3a
  pipedeck history --kind refused,failed --since 24h`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := f.check(limit); err != nil {
				return err
			}
			return a.withNodes(cmd.Context(), func(_ specFile, c *client.Client) error {
				recs, err := c.History(cmd.Context(), f.asked(limit))
				if err != nil {
					return err
				}
				picked := f.pick(slices.Clone(recs), limit, time.Now())
				if len(picked) == 0 && len(recs) > 0 && !a.flag.json {
					a.say("no record of the journal is like that")
					return nil
				}
				return a.printHistory(picked)
			}, func(open []nodeDeck) error { return a.historyOfAll(cmd.Context(), open, f, limit) })
		},
	}
	cmd.Flags().IntVar(&limit, "limit", 0, "only the newest N records")
	cmd.Flags().StringVar(&f.action, "action", "", "only those of this action or plan")
	cmd.Flags().StringSliceVar(&f.kinds, "kind", nil, "only these kinds: "+strings.Join(historyKinds, ", "))
	cmd.Flags().StringVar(&f.by, "by", "", "only what this operator did (part of the name)")
	cmd.Flags().DurationVar(&f.since, "since", 0, "only the last stretch of time, such as 24h")
	return cmd
}

// nodeRecord is a record of one node's journal.
type nodeRecord struct {
	Node string `json:"node"`
	pipeline.JournalRecord
}

// historyOfAll shows the journals of several nodes as one, by their clocks.
func (a *app) historyOfAll(ctx context.Context, open []nodeDeck, f historyFilter, limit int) error {
	answers := every(ctx, open, func(ctx context.Context, n nodeDeck) ([]pipeline.JournalRecord, error) {
		return n.c.History(ctx, f.asked(limit))
	})
	recs := []nodeRecord{}
	for _, n := range answers {
		for _, r := range f.pick(slices.Clone(n.value), limit, time.Now()) {
			recs = append(recs, nodeRecord{n.name(), r})
		}
	}
	slices.SortStableFunc(recs, func(x, y nodeRecord) int { return x.At.Compare(y.At) })
	if limit > 0 && len(recs) > limit {
		recs = recs[len(recs)-limit:]
	}
	var err error
	if a.flag.json {
		err = a.printJSON(struct {
			Schema  int          `json:"schema"`
			Records []nodeRecord `json:"records"`
		}{pipeline.SchemaVersion, recs})
	} else {
		var t table
		t.row("AT", "NODE", "WHAT", "ACTION", "BY", "TEXT")
		for _, r := range recs {
			t.row(append([]string{r.At.UTC().Format("2006-01-02 15:04:05Z"), r.Node}, recordCells(r.JournalRecord)...)...)
		}
		err = t.print(a.out)
	}
	if err != nil {
		return err
	}
	return reportLost(a, answers, exitOK)
}

// recordCells are what the tables show of a record, after its time.
func recordCells(r pipeline.JournalRecord) []string {
	what := r.Action
	if r.Step > 0 {
		what = fmt.Sprintf("%s step %d", r.Action, r.Step)
	}
	return []string{r.Kind, dashed(what), dashed(pipeline.Clean(r.By)), pipeline.Clean(r.Text)}
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
	var t table
	t.row("AT", "WHAT", "ACTION", "BY", "TEXT")
	for _, r := range recs {
		t.row(append([]string{r.At.UTC().Format("2006-01-02 15:04:05Z")}, recordCells(r)...)...)
	}
	return t.print(a.out)
}
