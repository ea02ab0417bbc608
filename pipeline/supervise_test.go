package pipeline

import (
	"testing"
	"time"

	"pipedeck/pipeline/spec"
)

var superviseStart = time.Date(2026, 11, 30, 10, 0, 0, 0, time.UTC)

func superviseStage() *spec.Stage {
	return &spec.Stage{Name: "extract", Workers: spec.Workers{
		Count: 1, Restart: spec.Restart{Max: 2, Backoff: 10 * time.Second},
	}}
}

type superviseCase struct {
	want WorkerWant
	seen *LaunchSeen
	duty DutyKind
	then func(WorkerWant) bool
}

func TestSuperviseOneWorker(t *testing.T) {
	t.Parallel()
	now := superviseStart
	crashed := LaunchSeen{ID: "extract-0-1", State: ProcExited, Exit: &Exit{Code: new(1), At: now}}
	left := crashed
	left.Stragglers = 2
	runSupervise(t, map[string]superviseCase{
		"first start": {
			duty: DutyLaunch,
			then: func(w WorkerWant) bool { return w.Launch == "extract-0-1" && w.Restarts == 0 },
		},
		"recorded, agent died before the launch": {
			want: WorkerWant{Launch: "extract-0-1", Launches: 1},
			duty: DutyLaunch,
			then: func(w WorkerWant) bool { return w.Launch == "extract-0-1" && w.Launches == 1 },
		},
		"adopted": {
			want: WorkerWant{Launch: "extract-0-1", Launches: 1},
			seen: &LaunchSeen{ID: "extract-0-1", State: ProcRunning, StartedAt: now},
			then: func(w WorkerWant) bool { return w.Launches == 1 },
		},
		"crash waits for the backoff": {
			want: WorkerWant{Launch: "extract-0-1", Launches: 1},
			seen: &crashed,
			then: func(w WorkerWant) bool { return w.NextAt.After(now) && w.Restarts == 0 },
		},
		"crash after the backoff": {
			want: WorkerWant{Launch: "extract-0-1", Launches: 1, NextAt: now},
			seen: &crashed,
			duty: DutyLaunch,
			then: func(w WorkerWant) bool {
				return w.Launch == "extract-0-2" && w.Restarts == 1 && w.NextAt.IsZero()
			},
		},
		"leftovers end before a restart": {
			want: WorkerWant{Launch: "extract-0-1", Launches: 1, NextAt: now},
			seen: &left,
			duty: DutyReap,
			then: func(w WorkerWant) bool { return w.Launches == 1 },
		},
		"crash loop is held": {
			want: WorkerWant{Launch: "extract-0-1", Launches: 1, Restarts: 2},
			seen: &crashed,
			then: func(w WorkerWant) bool { return w.Held != "" },
		},
		"exit 0 is done": {
			want: WorkerWant{Launch: "extract-0-1", Launches: 1},
			seen: &LaunchSeen{ID: "extract-0-1", State: ProcExited, Exit: &Exit{Code: new(0)}},
			then: func(w WorkerWant) bool { return w.Done },
		},
		"an action is stopping it": {
			want: WorkerWant{Launch: "extract-0-1", Launches: 1, Stopping: true},
			seen: &crashed,
			then: func(w WorkerWant) bool { return w.Launches == 1 && w.Held == "" },
		},
		"cannot exec": {
			want: WorkerWant{Launch: "extract-0-1", Launches: 1},
			seen: &LaunchSeen{ID: "extract-0-1", State: ProcNoExec, Reason: "no such file"},
			then: func(w WorkerWant) bool { return w.Held != "" },
		},
		"long healthy life forgives": {
			want: WorkerWant{Launch: "extract-0-3", Launches: 3, Restarts: 2},
			seen: &LaunchSeen{ID: "extract-0-3", State: ProcRunning, StartedAt: now.Add(-time.Hour)},
			then: func(w WorkerWant) bool { return w.Restarts == 0 },
		},
	})
}

func TestSuperviseWhenTheClockIsSetBack(t *testing.T) {
	t.Parallel()
	now := superviseStart
	crashed := LaunchSeen{ID: "extract-0-1", State: ProcExited, Exit: &Exit{Code: new(1), At: now}}
	runSupervise(t, map[string]superviseCase{
		"the backoff is not prolonged": {
			want: WorkerWant{Launch: "extract-0-1", Launches: 1, NextAt: now.Add(time.Hour)},
			seen: &crashed,
			duty: DutyLaunch,
			then: func(w WorkerWant) bool { return w.Launch == "extract-0-2" },
		},
		"nor that of a launch that never began": {
			want: WorkerWant{Launch: "extract-0-1", Launches: 1, NextAt: now.Add(time.Hour)},
			duty: DutyLaunch,
			then: func(w WorkerWant) bool { return w.Launch == "extract-0-1" },
		},
		"nor the patience with a start": {
			want: WorkerWant{Launch: "extract-0-1", Launches: 1},
			seen: &LaunchSeen{ID: "extract-0-1", State: ProcIntended, StartedAt: now.Add(time.Hour)},
			then: func(w WorkerWant) bool { return w.NextAt.After(now) && w.Launches == 1 },
		},
	})
}

func runSupervise(t *testing.T, tests map[string]superviseCase) {
	t.Helper()
	now := superviseStart
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			want := StageWant{Want: WantRunning, World: 1, Workers: map[int]WorkerWant{0: tc.want}}
			seen := map[int]LaunchSeen{}
			if tc.seen != nil {
				seen[0] = *tc.seen
			}
			next, duties := Supervise(superviseStage(), want, seen, now, 0.5)
			var kind DutyKind
			if len(duties) > 0 {
				kind = duties[0].Kind
			}
			if kind != tc.duty {
				t.Errorf("duty = %q, want %q", kind, tc.duty)
			}
			if !tc.then(next.Workers[0]) {
				t.Errorf("after: %+v", next.Workers[0])
			}
			if want.Workers[0].Launches != tc.want.Launches {
				t.Error("the given wants were changed")
			}
		})
	}
}

func TestBackoffGrowsAndIsCapped(t *testing.T) {
	t.Parallel()
	last := time.Duration(0)
	for n := range 12 {
		d := Backoff(10*time.Second, n, 0.5)
		if d < last || d > maxBackoff {
			t.Fatalf("restart %d: %s after %s", n, d, last)
		}
		last = d
	}
	if Backoff(0, 3, 0.9) != 0 {
		t.Error("no base must give no delay")
	}
}
