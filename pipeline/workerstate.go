package pipeline

import (
	"fmt"
	"time"
)

// workerFacts is everything that the state of one worker rests on.
type workerFacts struct {
	want    WorkerWant
	running bool // the stage is wanted running
	seen    *LaunchSeen
	now     time.Time

	gpuLost  string // why the worker's GPU is lost, "" if it is not
	memTight bool   // the node was nearly out of memory when it ended

	counted    bool // something tells what it has produced
	shared     bool // but only of the stage as a whole
	adopted    bool // it ran before this agent did
	readErr    string
	produced   bool
	still      time.Duration // the counter has stood still for so long
	workLeft   bool
	alive      time.Duration // since the start, as observed
	motionless time.Duration
	// seesMotion: whatever may move in a loading worker can be read. What cannot
	// be read accuses nobody.
	seesMotion bool
	evidence   string // of its motion, in words

	loadingTimeout time.Duration
	stallAfter     time.Duration
	maxRestarts    int
}

// judgeWorker returns the state of a worker and the reason in words, "" where
// the state says it all.
func judgeWorker(f workerFacts) (WorkerState, string) {
	if f.seen == nil || superseded(f) {
		return judgeUnseen(f)
	}
	switch f.seen.State {
	case ProcIntended:
		return WorkerInit, "its start is recorded, no process was seen yet"
	case ProcRunning:
		return judgeAlive(f)
	case ProcNoExec:
		return WorkerFailed, "could not be started: " + f.seen.Reason
	case ProcExited, ProcLost:
		return judgeEnded(f)
	}
	return WorkerUnknown, fmt.Sprintf("process state %q is not known", f.seen.State)
}

// superseded says whether what was seen is an ended launch of the past: another
// one is wanted in its place, or is about to be.
func superseded(f workerFacts) bool {
	if f.seen.ID == f.want.Launch || f.seen.State == ProcRunning {
		return false
	}
	return f.want.Launch != "" || (f.running && !f.want.Stopping)
}

// Over says whether a worker has ended and nothing but a start or a restart
// begins it again, in a stage of that state. What is not known is not over.
func (w WorkerSnapshot) Over(stage StageState) bool {
	if w.PID != nil {
		return false
	}
	switch w.State {
	case WorkerDone, WorkerFailed: // failed: held back from another restart
		return true
	case WorkerExited, WorkerOOM, WorkerLost:
		return w.Stopped || stage == StageFailed || stage != StageUnknown && !shouldRun(stage)
	case WorkerInit, WorkerLoading, WorkerRunning, WorkerIdle, WorkerWaiting, WorkerDraining, WorkerStalled, WorkerUnknown:
	}
	return false
}

func judgeUnseen(f workerFacts) (WorkerState, string) {
	switch {
	case f.want.Done:
		return WorkerDone, "ended with code 0"
	case f.want.Held != "":
		return WorkerFailed, "held: " + f.want.Held
	case !f.running || f.want.Stopping:
		return WorkerExited, "no process, and none is wanted"
	case f.want.Launch == "":
		return WorkerInit, "not started yet"
	default:
		return WorkerInit, "being started"
	}
}

func judgeAlive(f workerFacts) (WorkerState, string) {
	switch {
	case f.gpuLost != "":
		return WorkerLost, fmt.Sprintf("%s; process %d still lives", f.gpuLost, f.seen.PID)
	case f.want.Stopping || !f.want.StopSentAt.IsZero():
		return WorkerDraining, drainText(f)
	case !f.workLeft:
		return WorkerIdle, "no work is left"
	case !f.counted:
		return judgeUncounted(f)
	case !f.produced:
		return judgeLoading(f)
	case f.still > f.stallAfter:
		return WorkerStalled, stallText(f)
	case f.shared:
		return WorkerRunning, "counts are told of the stage only, not of this worker"
	}
	return WorkerRunning, ""
}

func drainText(f workerFacts) string {
	if f.want.StopSentAt.IsZero() {
		return "being stopped"
	}
	return fmt.Sprintf("asked to stop %s ago", humanTime(f.now.Sub(f.want.StopSentAt)))
}

// judgeUncounted is for a living worker whose counter cannot be read: nothing
// accuses it, but past the loading time nothing excuses it from a look either.
func judgeUncounted(f workerFacts) (WorkerState, string) {
	why := "its progress cannot be read"
	if f.readErr != "" {
		why += ": " + f.readErr
	}
	if f.adopted {
		return WorkerRunning, "taken over from an earlier agent; " + why
	}
	if f.alive <= f.loadingTimeout {
		return WorkerLoading, "no output yet; " + why
	}
	return WorkerRunning, "alive; " + why
}

func judgeLoading(f workerFacts) (WorkerState, string) {
	if f.alive > f.loadingTimeout {
		return WorkerStalled, fmt.Sprintf("no output since its start %s ago, allowed are %s%s",
			humanTime(f.alive), humanTime(f.loadingTimeout), f.evidence)
	}
	why := "no output yet"
	if f.motionless > f.stallAfter {
		unmoved := "GPU memory, disk reads, CPU and log have not moved for " + humanTime(f.motionless)
		if f.seesMotion {
			return WorkerStalled, fmt.Sprintf("no output since its start %s ago; %s%s", humanTime(f.alive), unmoved, f.evidence)
		}
		return WorkerLoading, why + f.evidence + "; " + unmoved
	}
	return WorkerLoading, why + f.evidence
}

func stallText(f workerFacts) string {
	if f.shared {
		return fmt.Sprintf("the stage made no output for %s (counts per worker are not told)%s", humanTime(f.still), f.evidence)
	}
	return fmt.Sprintf("no output for %s%s", humanTime(f.still), f.evidence)
}

func judgeEnded(f workerFacts) (WorkerState, string) {
	end := EndText(*f.seen)
	exit := f.seen.Exit
	byUs := endedByStop(f)
	switch {
	case f.want.Done:
		return WorkerDone, end
	case f.want.Held != "":
		return WorkerFailed, "held: " + f.want.Held
	case exit == nil && f.seen.State == ProcLost && !byUs:
		return WorkerLost, withNext(f, orElse(text(f.seen.Reason), "gone without an exit record"))
	case exit != nil && exit.Code != nil && *exit.Code == 0 && !byUs:
		return WorkerDone, end
	case byUs:
		return WorkerExited, end + " after it was asked to stop"
	case exit != nil && (exit.OOM || (isKilled(*exit) && f.memTight)):
		if !exit.OOM {
			end += "; the node was nearly out of memory"
		}
		return WorkerOOM, withNext(f, end)
	case f.gpuLost != "":
		return WorkerLost, withNext(f, end+"; "+f.gpuLost)
	}
	return WorkerExited, withNext(f, end)
}

// endedByStop says whether a launch ended after it was asked to. A stop of a
// stage marks all its workers, also those that had ended before.
func endedByStop(f workerFacts) bool {
	w := f.want
	if w.Launch != "" && w.Launch != f.seen.ID {
		return false
	}
	if w.StopSentAt.IsZero() || f.seen.Exit == nil || f.seen.Exit.At.IsZero() {
		return w.Stopping || !w.StopSentAt.IsZero()
	}
	return !f.seen.Exit.At.Before(w.StopSentAt)
}

func isKilled(e Exit) bool {
	return e.Signal == "SIGKILL" || (e.Code != nil && *e.Code == 128+9)
}

// withNext adds what follows an end.
func withNext(f workerFacts, end string) string {
	if !f.running || f.want.NextAt.IsZero() {
		return end
	}
	return end + "; " + restartText(f.want, f.maxRestarts, f.now)
}

func restartText(w WorkerWant, most int, now time.Time) string {
	return fmt.Sprintf("restart %d of %d in %s", w.Restarts+1, most, humanTime(w.NextAt.Sub(now)))
}
