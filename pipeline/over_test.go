package pipeline

import "testing"

// Only what certainly ended, and is not started again by itself, is over.
func TestOver(t *testing.T) {
	t.Parallel()
	tests := []struct {
		w     WorkerSnapshot
		stage StageState
		want  bool
	}{
		{WorkerSnapshot{State: WorkerDone}, StageRunning, true},
		{WorkerSnapshot{State: WorkerFailed}, StageRunning, true},
		{WorkerSnapshot{State: WorkerExited}, StageRunning, false},
		{WorkerSnapshot{State: WorkerOOM}, StageStarting, false},
		{WorkerSnapshot{State: WorkerExited, Stopped: true}, StageRunning, true},
		{WorkerSnapshot{State: WorkerExited}, StageStopped, true},
		{WorkerSnapshot{State: WorkerLost}, StageFailed, true},
		{WorkerSnapshot{State: WorkerLost}, StageUnknown, false},
		{WorkerSnapshot{State: WorkerLost, PID: new(7)}, StageStopped, false},
		{WorkerSnapshot{State: WorkerUnknown}, StageIdle, false},
		{WorkerSnapshot{State: WorkerInit}, StageIdle, false},
		{WorkerSnapshot{State: WorkerRunning, PID: new(7)}, StageRunning, false},
	}
	for _, tc := range tests {
		if got := tc.w.Over(tc.stage); got != tc.want {
			t.Errorf("%s in a stage that is %s: %t", tc.w.State, tc.stage, got)
		}
	}
}
