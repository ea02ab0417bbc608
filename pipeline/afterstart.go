package pipeline

import (
	"fmt"
	"time"

	"pipedeck/pipeline/spec"
)

// StartWatch is what an after-start check compares with.
type StartWatch struct {
	Stage    *spec.Stage
	Since    time.Time // of the action
	Verified int64     // stored files of the stage when the start ended; -1 unknown
	Written  Written   // by the stage then
	Store    Check     // of the store probe, whatever it came to
}

// AfterStart says how far a started stage is. Zeros shortly after a start are
// "loading" and not failure: a check runs until the world decides it.
func AfterStart(s Snapshot, w StartWatch) []Check {
	var node NodeSnapshot
	if len(s.Nodes) > 0 {
		node = s.Nodes[0]
	}
	var st StageSnapshot
	for _, x := range node.Stages {
		if x.Name == w.Stage.Name {
			st = x
		}
	}
	checks := []Check{{Name: "agent alive", Result: Verified, Observed: agentText(node.Agent)}, aliveCheck(st)}
	checks = append(checks, memoryCheck(st, w.Stage.Workers.GPUMemory), w.Store, outputCheck(st, w), provenCheck(st, w))
	for i := range checks {
		if checks[i].At.IsZero() {
			checks[i].At = s.At
		}
	}
	return checks
}

func agentText(a *AgentInfo) string {
	if a == nil {
		return "it answers"
	}
	return fmt.Sprintf("pid %d, version %s", a.PID, a.Version)
}

func aliveCheck(st StageSnapshot) Check {
	c := Check{Name: "worker processes alive", Result: Verified}
	alive, done := 0, 0
	for _, w := range st.Workers {
		switch {
		case w.PID != nil:
			alive++
		case w.State == WorkerDone:
			done++
		case w.State == WorkerExited || w.State == WorkerFailed || w.State == WorkerOOM || w.State == WorkerLost:
			c.Result = ActionFailed
			c.Observed = fmt.Sprintf("%s is %s", w.ID, w.State)
			return c
		default:
			c.Result = Running
		}
	}
	c.Observed = fmt.Sprintf("%d of %d alive", alive, len(st.Workers))
	if done > 0 {
		c.Observed += fmt.Sprintf(", %d done", done)
	}
	return c
}

func memoryCheck(st StageSnapshot, expected int64) Check {
	c := Check{Name: "GPU memory reached", Result: Verified}
	if expected <= 0 {
		return Check{Name: c.Name, Result: NotApplicable, Observed: "the spec states no gpu_memory"}
	}
	// A model need not fill what was stated to the byte.
	enough, reached, workers := expected-expected/10, 0, 0
	var least *int64
	for _, w := range st.Workers {
		if w.State == WorkerDone {
			continue
		}
		workers++
		if w.GPUMemBytes == nil {
			c.Result = Running
			continue
		}
		if *w.GPUMemBytes >= enough {
			reached++
		}
		if least == nil || *w.GPUMemBytes < *least {
			least = w.GPUMemBytes
		}
	}
	c.Observed = fmt.Sprintf("%d of %d hold %s", reached, workers, humanBytes(expected))
	if reached < workers {
		c.Result = Running
		if least != nil {
			c.Observed += "; loading: the least holds " + humanBytes(*least)
		}
	}
	return c
}

func outputCheck(st StageSnapshot, w StartWatch) Check {
	c := Check{Name: "first output", Result: Running, Observed: "none yet: loading"}
	if len(w.Stage.Outputs) == 0 {
		return Check{Name: c.Name, Result: NotApplicable, Observed: "the stage has no outputs"}
	}
	now := WrittenBy(st)
	switch {
	case !now.Known || !w.Written.Known:
		c.Observed = "not known: the output directories were not read"
	case now.Files > w.Written.Files:
		c.Result, c.Observed = Verified, Counted(now.Files-w.Written.Files, "file", "files")+" since the start"
	case now.Bytes > w.Written.Bytes:
		c.Result, c.Observed = Verified, humanBytes(now.Bytes-w.Written.Bytes)+" since the start"
	case st.State == StageDone:
		c.Result, c.Observed = NotApplicable, "the stage is done"
	}
	return c
}

// Written is what a stage has written in this run, on the disk or gone from it.
// Counters of workers are no measure: they count what is skipped, too.
type Written struct {
	Files, Bytes int64 // bytes on the disk only
	Known        bool
}

// WrittenBy sums up the outputs of a stage.
func WrittenBy(st StageSnapshot) Written {
	w := Written{Known: true}
	for _, o := range st.Outputs {
		if o.LocalFiles == nil || o.LocalBytes == nil || o.DeletedLocalFiles == nil {
			return Written{}
		}
		w.Files += *o.LocalFiles + *o.DeletedLocalFiles
		w.Bytes += *o.LocalBytes
	}
	return w
}

func provenCheck(st StageSnapshot, w StartWatch) Check {
	c := Check{Name: "first proven upload", Result: Running, Observed: "none yet"}
	if len(w.Stage.Outputs) == 0 {
		return Check{Name: c.Name, Result: NotApplicable, Observed: "the stage has no outputs"}
	}
	var verified int64
	for _, o := range st.Outputs {
		if o.VerifiedFiles == nil {
			c.Observed = "what is stored is not known"
			return c
		}
		verified += *o.VerifiedFiles
		if o.StateReason != nil && o.State != OutputRunning {
			c.Observed = "none yet: " + *o.StateReason
		}
	}
	if w.Verified >= 0 && verified > w.Verified {
		c.Result, c.Observed = Verified, Counted(verified-w.Verified, "file", "files")+" since the start"
	} else if st.State == StageDone {
		c.Result, c.Observed = NotApplicable, "the stage is done"
	}
	return c
}

// Pending says whether a list of checks can still change.
func Pending(checks []Check) bool {
	for _, c := range checks {
		if c.Result == Running {
			return true
		}
	}
	return false
}
