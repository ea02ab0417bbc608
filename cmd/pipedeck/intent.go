package main

import (
	"slices"

	"github.com/spf13/cobra"

	"pipedeck/pipeline"
)

// option is a flag that some actions take.
type option int

const (
	optAccept option = iota
	optWait
	optProvenOnly
	optScratch
	optFrom
	optKeep
	optDiscard
	optPIDs
)

// intentFlags are the flags that become part of an intent.
type intentFlags struct {
	accept     []string
	wait       bool
	provenOnly bool
	scratch    string
	from       string
	keep       bool
	discard    bool
	pids       []int
}

func (o *intentFlags) add(cmd *cobra.Command, options []option) {
	f := cmd.Flags()
	for _, opt := range options {
		switch opt {
		case optAccept:
			f.StringSliceVar(&o.accept, "accept", nil, "what may differ from the record of this run: inputs, command, world")
		case optWait:
			f.BoolVar(&o.wait, "wait", false, "follow the after-start checks too: memory, first output, first proven upload")
		case optProvenOnly:
			f.BoolVar(&o.provenOnly, "proven-only", false, "remove only what is proven in the store")
		case optScratch:
			f.StringVar(&o.scratch, "scratch", "", "the stage whose scratch directories are meant")
		case optFrom:
			f.StringVar(&o.from, "from", "", "the stage to leave, where several are active")
		case optKeep:
			f.BoolVar(&o.keep, "keep", false, "leave its outputs where they are, untouched")
		case optDiscard:
			f.BoolVar(&o.discard, "discard", false, "remove its outputs; the plan says what is lost")
		case optPIDs:
			f.IntSliceVar(&o.pids, "pid", nil, "the processes, in the order of their ranks")
		}
	}
}

// intent makes what was typed into data.
func (o *intentFlags) intent(verb pipeline.Verb, args []string) (pipeline.Intent, error) {
	in := pipeline.Intent{Verb: verb, From: o.from, ProvenOnly: o.provenOnly, PIDs: o.pids, Accept: o.accept}
	if len(args) > 0 {
		in.Target = args[0]
	}
	if o.keep && o.discard {
		return in, pipeline.Problemf(pipeline.ProblemUsage, "without either the outputs are settled",
			"cannot %s %q: --keep and --discard exclude each other", verb, in.Target)
	}
	for _, what := range o.accept {
		if !slices.Contains([]string{"inputs", "command", "world"}, what) {
			return in, pipeline.Problemf(pipeline.ProblemUsage, "it takes inputs, command, world",
				"cannot %s %q: --accept does not take %q", verb, in.Target, what)
		}
	}
	if verb == pipeline.VerbWipe && (in.Target == "") == (o.scratch == "") {
		return in, pipeline.Problemf(pipeline.ProblemUsage, "`pipedeck wipe OUTPUT`, or `pipedeck wipe --scratch STAGE`",
			"cannot wipe: one output or one stage's scratch is wanted")
	}
	if o.scratch != "" {
		in.Target, in.Scratch = o.scratch, true
	}
	switch {
	case o.keep:
		in.Leave = pipeline.LeaveKeep
	case o.discard:
		in.Leave = pipeline.LeaveDiscard
	}
	return in, nil
}
