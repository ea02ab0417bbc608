package deck

import (
	"context"
	"fmt"
	"strings"

	"pipedeck/pipeline"
	"pipedeck/pipeline/engine"
	"pipedeck/pipeline/spec"
)

// gates runs the commands that must end with 0 before a stage is started.
func (d *Deck) gates(ctx context.Context, j engine.Job) engine.Outcome {
	var out engine.Outcome
	for _, stage := range j.Step.On {
		st := d.sp.Stage(stage)
		if st == nil {
			return failed("the spec has no stage %q", stage)
		}
		for i, g := range st.Gates {
			if len(g.Command) == 0 {
				continue
			}
			j.Report(fmt.Sprintf("gate %d of %d: %s", i+1, len(st.Gates), strings.Join(g.Command, " ")))
			c := d.gate(ctx, st, g)
			out.Checks = append(out.Checks, c)
			if c.Result != pipeline.Verified {
				out.Result, out.Text = c.Result, c.Name+": "+c.Observed
				return out
			}
		}
	}
	out.Result, out.Text = pipeline.Verified, pipeline.Counted(len(out.Checks), "gate passed", "gates passed")
	return out
}

func (d *Deck) gate(ctx context.Context, st *spec.Stage, g spec.Gate) pipeline.Check {
	c := pipeline.Check{Name: "gate " + strings.Join(g.Command, " "), Result: pipeline.ActionFailed, At: d.p.Now()}
	argv := make([]string, 0, len(g.Command))
	for _, arg := range g.Command {
		s, err := spec.Expand(arg, spec.Vars{Stage: st.Name, Workdir: d.sp.Workdir, Run: d.sp.Run})
		if err != nil {
			c.Observed = err.Error()
			return c
		}
		argv = append(argv, s)
	}
	ran, err := d.p.Runner.Run(ctx, d.sp.Workdir, argv)
	switch {
	case err != nil:
		c.Result, c.Observed = pipeline.Unverified, err.Error()
	case ran.Code != 0:
		c.Observed = fmt.Sprintf("it ended with %d: %s", ran.Code, pipeline.Clean(ran.Tail))
	default:
		c.Result, c.Observed = pipeline.Verified, "it ended with 0"
	}
	return c
}
