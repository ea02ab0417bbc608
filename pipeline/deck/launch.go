package deck

import (
	"context"
	"errors"
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	"pipedeck/pipeline"
	"pipedeck/pipeline/spec"
)

// launchTimeout bounds one start of one worker: the shim answers in
// milliseconds, but a loaded node may be slow to fork.
const launchTimeout = 20 * time.Second

// launchRetry is the pause after a start that failed for a passing reason.
const launchRetry = 5 * time.Second

// supervise starts, restarts and tidies up as the wants say. Wants are on
// disk before anything is done, so that a second agent repeats nothing.
func (d *Deck) supervise(ctx context.Context) {
	for i := range d.sp.Stages {
		st := &d.sp.Stages[i]
		want := d.wants.stage(st.Name)
		next, duties := pipeline.Supervise(st, want, d.seenAll()[st.Name], d.p.Now(), d.p.Jitter())
		if !changedWants(want, next) && len(duties) == 0 {
			continue
		}
		// Only this loop and actions write wants; an action that stops a worker
		// in between must win over a decision made before it.
		code := d.wants.code()
		err := d.wants.change(st.Name, func(s *pipeline.StageWant) { mergeDecision(s, next, code) })
		if err != nil {
			d.notice(pipeline.Error, "agent", "cannot supervise %s: %v", st.Name, err)
			continue
		}
		d.fold(pipeline.WantsReading{At: d.p.Now(), Stages: d.wants.stages()})
		d.perform(ctx, st, duties)
	}
}

// mergeDecision takes over what was decided; what is launched runs the code
// that is here now.
func mergeDecision(s *pipeline.StageWant, next pipeline.StageWant, code string) {
	for rank, w := range next.Workers {
		if cur := s.Workers[rank]; cur.Stopping && !w.Stopping {
			continue
		} else if cur.Stopping {
			w.Asked = cur.Asked
		}
		if w.Launch != s.Workers[rank].Launch {
			w.Code = code
		}
		s.Workers[rank] = w
	}
}

func changedWants(a, b pipeline.StageWant) bool {
	for rank, w := range b.Workers {
		o := a.Workers[rank]
		if o.Launch != w.Launch || o.Held != w.Held || o.Done != w.Done ||
			o.Restarts != w.Restarts || !o.NextAt.Equal(w.NextAt) {
			return true
		}
	}
	return false
}

// perform does the duties of one stage. One done-set serves all workers that
// start together.
func (d *Deck) perform(ctx context.Context, st *spec.Stage, duties []pipeline.Duty) {
	launching := false
	for _, du := range duties {
		if du.Kind == pipeline.DutyLaunch {
			launching = true
		}
	}
	if launching && st.DoneSet != nil {
		if _, _, err := d.p.Mover.WriteDoneSet(ctx, st.Name); err != nil {
			// Starting without it could compute everything again; the duty comes
			// back with the next look.
			d.notice(pipeline.Warn, st.Name, "workers wait for the done-set: %v", err)
			return
		}
	}
	for _, du := range duties {
		id := workerID(st.Name, du.Rank)
		var err error
		switch du.Kind {
		case pipeline.DutyLaunch:
			err = d.launch(ctx, st, du.Rank)
		case pipeline.DutyReap:
			_, err = d.p.Host.Signal(ctx, d.wants.stage(st.Name).Workers[du.Rank].Launch, "SIGKILL", pipeline.ToSet)
		}
		if err != nil {
			d.launchFailed(st.Name, du.Rank, err)
			continue
		}
		d.record("worker", "%s %s: %s", du.Kind, id, du.Why)
	}
}

// launchFailed decides what a failed duty means: a refusal (such as a GPU slot
// that is taken) waits for the operator, anything else is tried again.
func (d *Deck) launchFailed(stage string, rank int, cause error) {
	d.notice(pipeline.Error, workerID(stage, rank), "%v", cause)
	var prob *pipeline.Problem
	refused := errors.As(cause, &prob) && prob.Kind == pipeline.ProblemRefused
	err := d.wants.change(stage, func(s *pipeline.StageWant) {
		w := s.Workers[rank]
		w.NextAt = d.p.Now().Add(launchRetry)
		if refused {
			w.Held = cause.Error()
		}
		s.Workers[rank] = w
	})
	if err != nil {
		d.notice(pipeline.Error, "agent", "%v", err)
	}
	d.fold(pipeline.WantsReading{At: d.p.Now(), Stages: d.wants.stages()})
}

// launch starts one worker under the launch id that its wants hold.
func (d *Deck) launch(ctx context.Context, st *spec.Stage, rank int) error {
	want := d.wants.stage(st.Name)
	req, err := d.launchRequest(st, rank, want)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, launchTimeout)
	defer cancel()
	return d.p.Host.Start(ctx, req)
}

// launchRequest expands the spec's templates for one worker.
func (d *Deck) launchRequest(st *spec.Stage, rank int, want pipeline.StageWant) (pipeline.Launch, error) {
	w := want.Workers[rank]
	vars := spec.Vars{
		Rank: rank, World: want.World, Stage: st.Name, Workdir: d.sp.Workdir, Run: d.sp.Run,
		GPU: gpuIndexes(w.GPUs), GPUUUID: gpuUUIDs(w.GPUs),
	}
	req := pipeline.Launch{
		ID: w.Launch, Deck: d.sp.Deck, Run: d.sp.Run, Stage: st.Name, Rank: rank, World: want.World,
		Dir: d.sp.Workdir, GPUs: w.GPUs, Log: d.logPath(st.Name, rank),
	}
	for _, arg := range st.Workers.Command {
		s, err := spec.Expand(arg, vars)
		if err != nil {
			return req, err
		}
		req.Argv = append(req.Argv, s)
	}
	for _, e := range st.Workers.Env {
		s, err := spec.Expand(e.Value, vars)
		if err != nil {
			return req, err
		}
		req.Env = append(req.Env, e.Name+"="+s)
	}
	req.Env = append(req.Env, gpuEnviron(req.Env, w.GPUs)...)
	return req, nil
}

// gpuEnviron pins a worker to its GPUs where the spec does not: by UUID, which
// no order of devices changes. An index that the spec gives is one by bus, as
// nvidia-smi counts; CUDA's own order begins with the fastest GPU.
func gpuEnviron(env []string, gpus []pipeline.GPURef) []string {
	if len(gpus) == 0 {
		return nil
	}
	has := func(name string) bool {
		return slices.ContainsFunc(env, func(kv string) bool { return strings.HasPrefix(kv, name+"=") })
	}
	var out []string
	if !has("CUDA_DEVICE_ORDER") {
		out = append(out, "CUDA_DEVICE_ORDER=PCI_BUS_ID")
	}
	if !has("CUDA_VISIBLE_DEVICES") {
		out = append(out, "CUDA_VISIBLE_DEVICES="+gpuUUIDs(gpus))
	}
	return out
}

func (d *Deck) logPath(stage string, rank int) string {
	return path.Join(d.sp.StateDir, "logs", stage+"-"+strconv.Itoa(rank)+".log")
}

func workerID(stage string, rank int) string { return stage + "/" + strconv.Itoa(rank) }

// splitWorker is the reverse of workerID.
func splitWorker(id string) (stage string, rank int, err error) {
	stage, num, ok := strings.Cut(id, "/")
	rank, convErr := strconv.Atoi(num)
	if !ok || convErr != nil {
		return "", 0, fmt.Errorf("%q is no worker: STAGE/RANK is wanted", id)
	}
	return stage, rank, nil
}

func gpuIndexes(refs []pipeline.GPURef) string {
	out := make([]string, 0, len(refs))
	for _, r := range refs {
		out = append(out, strconv.Itoa(r.Index))
	}
	return strings.Join(out, ",")
}

func gpuUUIDs(refs []pipeline.GPURef) string {
	out := make([]string, 0, len(refs))
	for _, r := range refs {
		out = append(out, r.UUID)
	}
	return strings.Join(out, ",")
}
