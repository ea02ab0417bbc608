package pipeline

import (
	"fmt"
	"strconv"
	"time"

	"pipedeck/pipeline/spec"
)

// healthyStretch is how long a worker must live before earlier restarts are
// forgiven; a crash every few minutes is still a crash loop.
const healthyStretch = 5 * time.Minute

// intentPatience is how long a recorded launch may show no process before it
// counts as lost: the shim answers within milliseconds unless it died.
const intentPatience = 30 * time.Second

// maxBackoff caps the delay before an automatic restart.
const maxBackoff = 5 * time.Minute

// Duty is one thing that supervision wants done for a worker now.
type Duty struct {
	Rank int
	Kind DutyKind
	Why  string
}

// DutyKind names a Duty.
type DutyKind string

// Values of DutyKind.
const (
	// DutyLaunch starts the worker under WorkerWant.Launch, which the returned
	// wants already hold: once they are on disk, a second agent finds the same
	// id and cannot start the worker twice.
	DutyLaunch DutyKind = "launch"
	// DutyReap ends what a dead leader left behind, before a new one starts.
	DutyReap DutyKind = "reap"
)

// Supervise decides for the workers of one stage: which to start, which
// leftovers to end, which to hold. It returns the wants after the decision,
// which must be on disk before the duties are done. jitter is in [0,1).
func Supervise(st *spec.Stage, want StageWant, seen map[int]LaunchSeen, now time.Time, jitter float64) (StageWant, []Duty) {
	if want.Want != WantRunning {
		return want, nil
	}
	next := want
	next.Workers = make(map[int]WorkerWant, len(want.Workers))
	var duties []Duty
	for rank, end := want.Ranks(); rank < end; rank++ {
		w := want.Workers[rank]
		launch, ok := seen[rank]
		if ok && launch.ID != w.Launch {
			ok = false
		}
		var d *Duty
		w, d = superviseOne(st, rank, w, launch, ok, now, jitter)
		next.Workers[rank] = w
		if d != nil {
			duties = append(duties, *d)
		}
	}
	return next, duties
}

func superviseOne(st *spec.Stage, rank int, w WorkerWant, seen LaunchSeen, ok bool, now time.Time, jitter float64) (WorkerWant, *Duty) {
	if w.Stopping || w.Held != "" || w.Done {
		return w, nil
	}
	if w.Launch == "" {
		w = newLaunch(st.Name, rank, w)
		return w, &Duty{Rank: rank, Kind: DutyLaunch, Why: "start"}
	}
	if !ok {
		if waits(w, now) {
			return w, nil
		}
		return w, &Duty{Rank: rank, Kind: DutyLaunch, Why: "recorded but never begun"}
	}
	switch seen.State {
	case ProcRunning:
		if w.Restarts > 0 && now.Sub(seen.StartedAt) > healthyStretch {
			w.Restarts = 0
		}
		return w, nil
	case ProcIntended:
		if now.Sub(seen.StartedAt).Abs() < intentPatience {
			return w, nil
		}
	case ProcNoExec:
		w.Held = "cannot be started: " + seen.Reason
		return w, nil
	case ProcExited, ProcLost:
		if seen.Exit != nil && seen.Exit.Code != nil && *seen.Exit.Code == 0 {
			w.Done = true
			return w, nil
		}
	}
	return superviseEnded(st, rank, w, seen, now, jitter)
}

// superviseEnded handles a worker that ended without being asked to.
func superviseEnded(st *spec.Stage, rank int, w WorkerWant, seen LaunchSeen, now time.Time, jitter float64) (WorkerWant, *Duty) {
	if w.Restarts >= st.Workers.Restart.Max {
		w.Held = fmt.Sprintf("%s after %s", EndText(seen), Counted(w.Restarts, "automatic restart", "automatic restarts"))
		return w, nil
	}
	if w.NextAt.IsZero() {
		w.NextAt = now.Add(Backoff(st.Workers.Restart.Backoff, w.Restarts, jitter))
	}
	if seen.Stragglers > 0 {
		return w, &Duty{Rank: rank, Kind: DutyReap, Why: strconv.Itoa(seen.Stragglers) + " left behind"}
	}
	if waits(w, now) {
		return w, nil
	}
	w.Restarts++
	w = newLaunch(st.Name, rank, w)
	return w, &Duty{Rank: rank, Kind: DutyLaunch, Why: "restart"}
}

// waits says whether a backoff lasts. One longer than any was made by a clock
// that has been set back since.
func waits(w WorkerWant, now time.Time) bool {
	left := w.NextAt.Sub(now)
	return left > 0 && left <= maxBackoff+maxBackoff/10
}

func newLaunch(stage string, rank int, w WorkerWant) WorkerWant {
	w.Launches++
	w.Launch = fmt.Sprintf("%s-%d-%d", stage, rank, w.Launches)
	w.NextAt = time.Time{}
	w.StopSentAt, w.Asked = time.Time{}, false
	return w
}

// Backoff is the delay before restart n (from 0): base doubled n times and
// capped, give or take 10 % so that ranks that died together do not come back
// together. jitter is in [0,1).
func Backoff(base time.Duration, n int, jitter float64) time.Duration {
	d := base
	for range n {
		if d >= maxBackoff {
			break
		}
		d *= 2
	}
	d = min(d, maxBackoff)
	return d + time.Duration((jitter-0.5)*0.2*float64(d))
}

// EndText says in words how a launch ended.
func EndText(seen LaunchSeen) string {
	switch {
	case seen.State == ProcNoExec:
		return "could not be started: " + seen.Reason
	case seen.Exit == nil || seen.Exit.Code == nil:
		if seen.Reason != "" {
			return "ended, code unknown: " + seen.Reason
		}
		return "ended, code unknown"
	case seen.Exit.OOM && seen.Exit.Said != "":
		return fmt.Sprintf("out of memory (code %d): %s", *seen.Exit.Code, Clean(seen.Exit.Said))
	case seen.Exit.OOM:
		return fmt.Sprintf("out of memory (code %d)", *seen.Exit.Code)
	case seen.Exit.Signal != "":
		return fmt.Sprintf("ended by %s (code %d)", seen.Exit.Signal, *seen.Exit.Code)
	default:
		return fmt.Sprintf("ended with code %d", *seen.Exit.Code)
	}
}
