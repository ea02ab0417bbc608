package main

import (
	"github.com/spf13/cobra"

	"pipedeck/pipeline/spec"
)

// completeTargets offers the stages, workers or outputs of the spec at hand.
// It asks no agent: completion must be quick and change nothing.
func (a *app) completeTargets(x act) func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
	return func(_ *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
		if x.target == "" || (len(args) > 0 && !x.outputs) {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		s, err := a.loadSpec()
		if err != nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return targets(s.Spec, x), cobra.ShellCompDirectiveNoFileComp
	}
}

func targets(sp *spec.Spec, x act) []string {
	var out []string
	for _, st := range sp.Stages {
		if x.outputs {
			for _, o := range st.Outputs {
				out = append(out, st.Name+"/"+o.Name)
			}
			continue
		}
		if x.target != "WORKER" {
			out = append(out, st.Name)
		}
		for rank := range st.Workers.Count {
			out = append(out, workerName(st.Name, rank))
		}
	}
	return out
}

// completeNodes offers the nodes of the spec at hand.
func (a *app) completeNodes(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
	s, err := loadSpecFile(a.flag.spec, "")
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	names := make([]string, 0, len(s.Nodes))
	for _, n := range s.Nodes {
		names = append(names, n.Name)
	}
	return names, cobra.ShellCompDirectiveNoFileComp
}
