package gpu

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"sync"
	"time"

	"pipedeck/pipeline"
)

// smiDeadline bounds one call of nvidia-smi: 20 ms when all is well, several
// seconds without persistence mode.
const smiDeadline = 8 * time.Second

// SMI reads GPUs by running nvidia-smi. Calls never overlap: a wedged driver
// leaves the process in D state, and a second one would only join it.
type SMI struct {
	path string
	now  func() time.Time
	// run is exec in production; tests put a captured answer in its place.
	run func(ctx context.Context, args ...string) (string, error)

	turn chan struct{} // holds one token: the right to run nvidia-smi

	mu    sync.Mutex
	since time.Time // when the call that is out began
	last  pipeline.GPUReading
}

var _ Source = (*SMI)(nil)

// NewSMI reads GPUs with the nvidia-smi at path, or the one of PATH if path is
// empty.
func NewSMI(path string, now func() time.Time) *SMI {
	if path == "" {
		path = "nvidia-smi"
	}
	s := &SMI{path: path, now: now, turn: make(chan struct{}, 1)}
	s.turn <- struct{}{}
	s.run = s.exec
	return s
}

// NewSMIOver reads GPUs with an nvidia-smi that run runs elsewhere, such as on a
// node without an agent. An error that wraps exec.ErrNotFound says that there is
// none.
func NewSMIOver(run func(ctx context.Context, args ...string) (string, error), now func() time.Time) *SMI {
	s := NewSMI("", now)
	s.run = run
	return s
}

// Read asks nvidia-smi once, after a call that is out has come back: a reading
// that proves something must have begun after it was asked for. If nothing
// comes in time, the reading is unknown with that reason; the GPUs seen before
// keep their rows.
func (s *SMI) Read(ctx context.Context) pipeline.GPUReading {
	ctx, cancel := context.WithTimeout(ctx, smiDeadline+time.Second)
	defer cancel()
	select {
	case <-ctx.Done():
		return s.unanswered()
	case <-s.turn:
	}
	s.mu.Lock()
	s.since = s.now()
	s.mu.Unlock()
	got := make(chan pipeline.GPUReading, 1)
	go func() {
		// The call may outlive the caller, so it has a deadline of its own.
		call, cancel := context.WithTimeout(context.WithoutCancel(ctx), smiDeadline)
		defer cancel()
		r := s.read(call)
		s.mu.Lock()
		s.last = r
		s.mu.Unlock()
		s.turn <- struct{}{}
		got <- r
	}()
	select {
	case r := <-got:
		return r
	case <-ctx.Done():
		return s.unanswered()
	}
}

// unanswered is a reading without values for the GPUs that were seen before.
func (s *SMI) unanswered() pipeline.GPUReading {
	s.mu.Lock()
	defer s.mu.Unlock()
	reason := fmt.Sprintf("nvidia-smi has not answered for %.0f s", s.now().Sub(s.since).Seconds())
	r := pipeline.GPUReading{At: s.now(), Kind: KindSMI, Reason: reason}
	for _, g := range s.last.GPUs {
		r.GPUs = append(r.GPUs, pipeline.GPUSnapshot{
			Index: g.Index, UUID: g.UUID, Name: g.Name, State: pipeline.GPUUnknown, StateReason: &reason,
		})
	}
	return r
}

func (s *SMI) read(ctx context.Context) pipeline.GPUReading {
	r := pipeline.GPUReading{Kind: KindSMI}
	out, err := s.run(ctx, "--query-gpu="+gpuColumns, "--format=csv,noheader,nounits")
	gpus, parseErr := parseGPUs(out, gpuColumns)
	switch {
	case errors.Is(err, exec.ErrNotFound):
		return pipeline.GPUReading{At: s.now(), Kind: KindNone, Reason: "nvidia-smi was not found: no NVIDIA driver, or not in PATH"}
	case err != nil || parseErr != nil:
		gpus, r.Reason = s.oneByOne(ctx, firstError(err, parseErr))
	}
	r.At, r.GPUs = s.now(), gpus
	s.addProcesses(ctx, &r)
	return r
}

func firstError(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// oneByOne asks each GPU alone: one that fell off the bus makes the common
// call fail for all.
func (s *SMI) oneByOne(ctx context.Context, cause error) (gpus []pipeline.GPUSnapshot, reason string) {
	list, listErr := s.run(ctx, "-L")
	known, complaints := parseList(list)
	known = s.withRemembered(known)
	if len(known) == 0 {
		return nil, firstError(cause, listErr).Error()
	}
	for _, k := range known {
		gpus = append(gpus, s.readOne(ctx, k))
	}
	reason = cause.Error()
	if len(complaints) > 0 {
		reason = strings.Join(complaints, "; ")
	}
	return gpus, reason
}

// withRemembered adds GPUs of the last reading that the list lacks: a GPU that
// vanished keeps its row.
func (s *SMI) withRemembered(list []pipeline.GPUSnapshot) []pipeline.GPUSnapshot {
	s.mu.Lock()
	defer s.mu.Unlock()
	have := map[string]bool{}
	for _, g := range list {
		have[g.UUID] = true
	}
	for _, g := range s.last.GPUs {
		if !have[g.UUID] {
			list = append(list, pipeline.GPUSnapshot{Index: g.Index, UUID: g.UUID, Name: g.Name})
		}
	}
	return list
}

func (s *SMI) readOne(ctx context.Context, known pipeline.GPUSnapshot) pipeline.GPUSnapshot {
	var last error
	for _, columns := range []string{gpuColumns, minimalColumns} {
		out, err := s.run(ctx, "-i", known.UUID, "--query-gpu="+columns, "--format=csv,noheader,nounits")
		gpus, parseErr := parseGPUs(out, columns)
		if err == nil && parseErr == nil && len(gpus) == 1 {
			if gpus[0].Name == "" {
				gpus[0].Name = known.Name
			}
			return gpus[0]
		}
		last = firstError(err, parseErr)
	}
	reason := "cannot be read"
	if last != nil {
		reason = last.Error()
	}
	known.State, known.StateReason = pipeline.GPULost, &reason
	return known
}

// addProcesses fills who holds memory. A failed query leaves the processes
// unknown: an empty list would look like an idle GPU.
func (s *SMI) addProcesses(ctx context.Context, r *pipeline.GPUReading) {
	if len(r.GPUs) == 0 {
		return
	}
	out, err := s.run(ctx, "--query-compute-apps="+appColumns, "--format=csv,noheader,nounits")
	if err != nil {
		return
	}
	apps, bad := parseApps(out)
	if bad > 0 && len(apps) == 0 {
		return
	}
	for i := range r.GPUs {
		procs := apps[r.GPUs[i].UUID]
		if procs == nil {
			procs = []pipeline.GPUProcess{}
		}
		r.GPUs[i].Processes = procs
	}
}

// exec runs nvidia-smi. Its exit codes are NVML's; the words on stdout and
// stderr say more than they do.
func (s *SMI) exec(ctx context.Context, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, s.path, args...)
	cmd.WaitDelay = time.Second
	cmd.Env = append(cmd.Environ(), "LC_ALL=C")
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	err := cmd.Run()
	if err == nil || errors.Is(err, exec.ErrNotFound) {
		return out.String(), err
	}
	said := strings.TrimSpace(errs.String() + " " + out.String())
	if len(said) > 300 {
		said = said[:300]
	}
	return out.String(), fmt.Errorf("nvidia-smi: %w: %s", err, pipeline.Clean(said))
}
