package main

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/spf13/cobra"

	"pipedeck/pipeline"
	"pipedeck/pipeline/spec"
)

// The results of a check item, from good to bad; unknown is no good news.
const (
	checkOK      = "ok"
	checkWarn    = "warn"
	checkFail    = "fail"
	checkUnknown = "unknown"
)

// checkItem is one thing that was looked at.
type checkItem struct {
	Group  string  `json:"group"`          // spec, ssh, node, gpus or store
	Node   string  `json:"node,omitempty"` // where it was seen, in a deck of several nodes
	Name   string  `json:"name"`
	Result string  `json:"result"`
	Text   string  `json:"text"`
	Todo   *string `json:"todo"` // what to do about it; null where nothing is
}

// checkReport is what `check --json` prints.
type checkReport struct {
	Schema int         `json:"schema"`
	Spec   string      `json:"spec"`
	Result string      `json:"result"` // the worst of the items
	Items  []checkItem `json:"items"`
}

// add appends an item and keeps the worst result.
func (r *checkReport) add(group, name, result, text, todo string) {
	it := checkItem{Group: group, Name: name, Result: result, Text: pipeline.Clean(text)}
	if todo != "" && result != checkOK {
		it.Todo = &todo
	}
	r.Items = append(r.Items, it)
	if checkRank(result) > checkRank(r.Result) {
		r.Result = result
	}
}

// take appends an item that was looked at apart.
func (r *checkReport) take(it checkItem) {
	r.Items = append(r.Items, it)
	if checkRank(it.Result) > checkRank(r.Result) {
		r.Result = it.Result
	}
}

// checkNodes looks at the nodes at the same time.
func (a *app) checkNodes(ctx context.Context, nodes []specFile) []*checkReport {
	out := make([]*checkReport, len(nodes))
	var all sync.WaitGroup
	for i, s := range nodes {
		rep := &checkReport{}
		out[i] = rep
		all.Go(func() {
			if s.node.SSH != "" {
				a.checkFar(ctx, rep, s)
			} else {
				checkNode(ctx, rep, s)
				checkGPUs(ctx, rep, s)
			}
			if len(s.Nodes) > 1 {
				for j := range rep.Items {
					rep.Items[j].Node = s.node.Name
				}
			}
		})
	}
	all.Wait()
	return out
}

// addSpecErrors adds one item for each fault, named by its place.
func (r *checkReport) addSpecErrors(err error) {
	all, ok := errors.AsType[spec.Errors](err)
	if !ok {
		r.add("spec", "spec", checkFail, err.Error(), "correct the spec")
		return
	}
	for _, e := range all {
		todo := e.Hint
		if todo == "" {
			todo = "correct the spec"
		}
		r.add("spec", fmt.Sprintf("%s:%d:%d", e.File, e.Line, e.Column), checkFail, e.Text, todo)
	}
}

func checkRank(result string) int {
	switch result {
	case checkOK:
		return 0
	case checkWarn:
		return 1
	case checkUnknown:
		return 2
	}
	return 3
}

func (a *app) checkCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "check",
		Short: "Look at spec, node, GPUs and store: what works, what does not, what to do",
		Long: `Look at spec, node, GPUs and store: what works, what does not, what to do.
The store is tried with a scratch object below the run's own prefix, which is
removed again. Nothing else is changed, and no agent is started.

Exit codes: 0 all is well, 1 warnings, 2 something fails, 3 something could not
be looked at, 64 the spec has errors.`,
		Example: "  pipedeck check\n  pipedeck check -f deck.yaml --json",
		Args:    cobra.NoArgs,
		RunE:    func(cmd *cobra.Command, _ []string) error { return a.check(cmd.Context()) },
	}
}

func (a *app) check(ctx context.Context) error {
	rep := &checkReport{Schema: pipeline.SchemaVersion, Spec: a.flag.spec, Result: checkOK, Items: []checkItem{}}
	s, err := a.loadSpec()
	if err != nil {
		if a.flag.json {
			rep.addSpecErrors(err)
			if err := a.printJSON(rep); err != nil {
				return err
			}
		}
		return err
	}
	rep.add("spec", "spec", checkOK, fmt.Sprintf("deck %s, run %s, %s", s.Deck, s.Run, pipeline.Counted(len(s.Stages), "stage", "stages")), "")
	nodes, err := a.chosen()
	if err != nil {
		return err
	}
	for _, of := range a.checkNodes(ctx, nodes) {
		for _, it := range of.Items {
			rep.take(it)
		}
	}
	checkStore(ctx, rep, s)
	if err := a.printCheck(rep); err != nil {
		return err
	}
	switch rep.Result {
	case checkWarn:
		return exitError(exitDegraded)
	case checkUnknown:
		return exitError(exitUnknown)
	case checkFail:
		return exitError(exitFailed)
	}
	return nil
}

func (a *app) printCheck(rep *checkReport) error {
	if a.flag.json {
		return a.printJSON(rep)
	}
	var t table
	for _, it := range rep.Items {
		group := it.Group
		if it.Node != "" {
			group = it.Node + " " + group
		}
		t.row(it.Result, group, it.Name, it.Text)
		if it.Todo != nil {
			t.row("", "", "", "-> "+*it.Todo)
		}
	}
	return t.print(a.out)
}

// hintOf is what an error says to do.
func hintOf(err error) string {
	if p, ok := errors.AsType[*pipeline.Problem](err); ok {
		return p.Hint
	}
	return ""
}
