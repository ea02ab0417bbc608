package deck

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"pipedeck/pipeline"
	"pipedeck/pipeline/engine"
)

// Do runs one step. Each kind probes first: what already has its effect is
// verified without being done again.
func (d *Deck) Do(ctx context.Context, _ pipeline.Plan, s pipeline.Step, report func(string)) engine.Outcome {
	switch s.Kind {
	case pipeline.StepStopWorkers:
		return d.stopWorkers(ctx, s, report)
	case pipeline.StepStartWorkers:
		return d.startWorkers(ctx, s, report)
	case pipeline.StepDoneSet:
		return d.writeDoneSets(ctx, s)
	case pipeline.StepSettle:
		return d.settle(ctx, s, report)
	case pipeline.StepPause:
		return d.pauseUploads(ctx, true)
	case pipeline.StepResume:
		return d.pauseUploads(ctx, false)
	}
	return failed("this agent does not know the step %q", s.Kind)
}

func failed(format string, args ...any) engine.Outcome {
	return engine.Outcome{Result: pipeline.ActionFailed, Text: fmt.Sprintf(format, args...)}
}

func verified(format string, args ...any) engine.Outcome {
	return engine.Outcome{Result: pipeline.Verified, Text: fmt.Sprintf(format, args...)}
}

func unknown(format string, args ...any) engine.Outcome {
	return engine.Outcome{Result: pipeline.Unverified, Text: fmt.Sprintf(format, args...)}
}

// writeDoneSets writes the done-set of each stage named in the step.
func (d *Deck) writeDoneSets(ctx context.Context, s pipeline.Step) engine.Outcome {
	text := ""
	for _, name := range s.On {
		st := d.sp.Stage(name)
		if st == nil {
			return failed("the spec has no stage %q", name)
		}
		if st.DoneSet == nil {
			continue
		}
		n, err := d.p.Mover.WriteDoneSet(ctx, name)
		if err != nil {
			return asReason(err)
		}
		text = fmt.Sprintf("%d ids are done", n)
	}
	return verified("%s", text)
}

func (d *Deck) pauseUploads(ctx context.Context, on bool) engine.Outcome {
	if err := d.p.Mover.Pause(ctx, on); err != nil {
		return failed("%v", err)
	}
	d.foldMover()
	if on {
		return verified("uploads are paused; workers go on")
	}
	return verified("uploads go on")
}

// settle waits until every complete file of the outputs is stored. It has no
// deadline: a console that goes away leaves it running.
func (d *Deck) settle(ctx context.Context, s pipeline.Step, report func(string)) engine.Outcome {
	if err := d.activateOutputs(ctx, s.On); err != nil {
		return failed("%v", err)
	}
	d.p.Mover.Retry()
	tick := time.NewTicker(moverEvery)
	defer tick.Stop()
	last := ""
	for {
		r := d.p.Mover.Outputs()
		d.fold(r)
		st := settleState(r, s.On)
		switch {
		case st.missing != "":
			return failed("the agent has no output %q", st.missing)
		case st.settled && st.stuck > 0:
			return failed("%d files cannot be stored: %s", st.stuck, st.why)
		case st.settled:
			return verified("every complete file is stored")
		}
		if text := st.text(); text != last {
			report(text)
			last = text
		}
		select {
		case <-ctx.Done():
			return unknown("interrupted")
		case <-tick.C:
		}
	}
}

// artifactsName stands for the deck's artifacts among output names.
const artifactsName = "artifacts"

func (d *Deck) activateOutputs(ctx context.Context, names []string) error {
	for _, name := range names {
		if name == artifactsName {
			d.p.Mover.QueueArtifacts()
			continue
		}
		st, _, err := d.sp.FindOutput(name)
		if err != nil {
			return err
		}
		if err := d.p.Mover.Activate(ctx, st.Name); err != nil {
			return err
		}
	}
	return nil
}

// settling is how far outputs are from being settled.
type settling struct {
	missing string
	settled bool
	left    int64
	stuck   int64
	why     string
}

func (s settling) text() string {
	t := fmt.Sprintf("%d files left", s.left)
	if s.why != "" {
		t += ": " + s.why
	}
	return t
}

func settleState(r pipeline.MoverReading, names []string) settling {
	out := settling{settled: true}
	for _, name := range names {
		o := findReading(r, name)
		if o == nil {
			return settling{missing: name}
		}
		out.left += o.Queue.WaitingFiles + o.Queue.InFlight
		if o.FailedFiles != nil {
			out.stuck += *o.FailedFiles
		}
		if !o.Settled {
			out.settled = false
		}
		if o.StateReason != "" {
			out.why = o.StateReason
		}
	}
	return out
}

func findReading(r pipeline.MoverReading, name string) *pipeline.OutputReading {
	if name == artifactsName {
		return r.Artifacts
	}
	for i := range r.Outputs {
		if o := &r.Outputs[i]; o.Stage+"/"+o.Name == name {
			return o
		}
	}
	return nil
}

// asReason turns an error into an outcome: what could not be asked is unknown,
// anything else has failed.
func asReason(err error) engine.Outcome {
	out := failed("%v", err)
	var p *pipeline.Problem
	if !errors.As(err, &p) {
		return out
	}
	if p.Kind == pipeline.ProblemUnreachable {
		out.Result = pipeline.Unverified
	}
	if p.Hint != "" && !strings.Contains(out.Text, p.Hint) {
		out.Text += " (" + p.Hint + ")"
	}
	return out
}
