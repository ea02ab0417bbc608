package deck

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"pipedeck/pipeline"
	"pipedeck/pipeline/engine"
)

// Do runs one step. Each kind probes first: what already has its effect is
// verified without being done again.
func (d *Deck) Do(ctx context.Context, j engine.Job) engine.Outcome {
	do := d.steps()[j.Step.Kind]
	if do == nil {
		return failed("this agent does not know the step %q", j.Step.Kind)
	}
	return do(ctx, j)
}

func (d *Deck) steps() map[pipeline.StepKind]func(context.Context, engine.Job) engine.Outcome {
	return map[pipeline.StepKind]func(context.Context, engine.Job) engine.Outcome{
		pipeline.StepStopWorkers:  d.stopWorkers,
		pipeline.StepKillWorkers:  d.killWorkers,
		pipeline.StepStartWorkers: d.startWorkers,
		pipeline.StepDoneSet:      d.writeDoneSets,
		pipeline.StepSettle:       d.settle,
		pipeline.StepPause:        d.pauseUploads,
		pipeline.StepResume:       d.resumeUploads,
		pipeline.StepSuspend:      d.suspend,
		pipeline.StepRelease:      d.releaseOutputs,
		pipeline.StepRecount:      d.recount,
		pipeline.StepTrash:        d.trash,
		pipeline.StepUntrash:      d.untrash,
		pipeline.StepQuarantine:   d.quarantine,
		pipeline.StepLeave:        d.leaveStages,
		pipeline.StepGPUsFree:     d.gpusFree,
		pipeline.StepGates:        d.gates,
		pipeline.StepCode:         d.checkCode,
		pipeline.StepRecord:       d.writeRecord,
		pipeline.StepAdopt:        d.adoptProcesses,
		pipeline.StepReap:         d.reapStrays,
	}
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
func (d *Deck) writeDoneSets(ctx context.Context, j engine.Job) engine.Outcome {
	text := ""
	for _, name := range j.Step.On {
		st := d.sp.Stage(name)
		if st == nil {
			return failed("the spec has no stage %q", name)
		}
		if st.DoneSet == nil {
			continue
		}
		n, lacks, err := d.p.Mover.WriteDoneSet(ctx, name)
		if err != nil {
			return asReason(err)
		}
		text = pipeline.Counted(n, "id is done", "ids are done")
		if lacks != "" {
			text += "; " + lacks
		}
	}
	return verified("%s", text)
}

func (d *Deck) pauseUploads(ctx context.Context, _ engine.Job) engine.Outcome {
	return d.holdUploads(ctx, true)
}

func (d *Deck) resumeUploads(ctx context.Context, _ engine.Job) engine.Outcome {
	return d.holdUploads(ctx, false)
}

func (d *Deck) holdUploads(ctx context.Context, on bool) engine.Outcome {
	if err := d.p.Mover.Pause(ctx, on); err != nil {
		return failed("%v", err)
	}
	d.foldMover()
	if on {
		return verified("uploads are paused; workers go on")
	}
	return verified("uploads go on")
}

// How long a settle waits where nothing is on its way: files that fail are
// tried again by themselves, and a store that verifies late is not stuck.
const (
	stuckPatience = 15 * time.Second
	quietPatience = 2 * time.Minute
)

// settle waits until every complete file of the outputs is stored. As long as
// anything is on its way it has no deadline: a console that goes away leaves it
// running.
func (d *Deck) settle(ctx context.Context, j engine.Job) engine.Outcome {
	s, report := j.Step, j.Report
	if err := d.activateOutputs(ctx, s.On); err != nil {
		return failed("%v", err)
	}
	d.p.Mover.Retry()
	d.p.Mover.Hasten(s.On)
	tick := time.NewTicker(moverEvery)
	defer tick.Stop()
	last, quiet := "", d.p.Now()
	for {
		r := d.p.Mover.Outputs()
		d.fold(r)
		st := settleState(r, s.On)
		if st.moving() {
			quiet = d.p.Now()
		}
		if out := st.verdict(d.p.Now().Sub(quiet), func() string { return d.example(s.On) }); out != nil {
			return *out
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
	missing string // an output that the mover does not have
	settled bool
	unseen  bool  // something local cannot be counted
	left    int64 // waiting or in flight, those that fail among them
	stuck   int64 // failed or mismatched
	why     string
}

// moving says whether files are on their way that do not merely fail again.
func (s settling) moving() bool { return s.left > s.stuck }

// verdict is the end of a settle after nothing has moved for quiet; nil: it
// goes on. example tells of one of the files that cannot be stored.
func (s settling) verdict(quiet time.Duration, example func() string) *engine.Outcome {
	var out engine.Outcome
	switch {
	case s.missing != "":
		out = failed("the agent has no output %q", s.missing)
	case s.settled:
		out = verified("every complete file is stored")
	case s.stuck > 0 && quiet > stuckPatience:
		out = failed("%s cannot be stored: %s", pipeline.Counted(s.stuck, "file", "files"), cmp.Or(example(), s.why, "the reason is not known"))
	case s.unseen && quiet > stuckPatience, quiet > quietPatience:
		out = unknown("it does not come to an end: %s", cmp.Or(s.why, "the store was not asked to the end"))
	default:
		return nil
	}
	return &out
}

// example tells of the file of outputs that has had trouble for longest.
func (d *Deck) example(outputs []string) string {
	list := slices.DeleteFunc(d.p.Mover.Failures(), func(f pipeline.Failure) bool {
		return !slices.Contains(outputs, f.Output) || f.Kind != pipeline.FailureUpload && f.Kind != pipeline.FailureMismatched
	})
	if len(list) == 0 {
		return ""
	}
	f := slices.MinFunc(list, func(x, y pipeline.Failure) int { return cmp.Or(x.Since.Compare(y.Since), cmp.Compare(x.Path, y.Path)) })
	text := fmt.Sprintf("%q: %s", pipeline.Clean(f.Path), pipeline.Clean(f.Reason))
	if n := len(list) - 1; n > 0 {
		text += fmt.Sprintf("; and %d more", n)
	}
	return text
}

func (s settling) text() string {
	t := pipeline.Counted(s.left, "file left", "files left")
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
		out.unseen = out.unseen || o.LocalFiles == nil
		out.settled = out.settled && o.Settled
		for _, why := range []string{o.StateReason, o.Reason} {
			if why != "" {
				out.why = why
			}
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
