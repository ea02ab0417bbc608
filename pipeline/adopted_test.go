package pipeline

import "testing"

func TestAnAdoptedWorkerIsNotSaidToLoad(t *testing.T) {
	t.Parallel()
	seen := &LaunchSeen{ID: "extract-0-1", State: ProcRunning}
	f := workerFacts{seen: seen, want: WorkerWant{Launch: "extract-0-1"}, running: true, workLeft: true, loadingTimeout: 1}
	if state, _ := judgeWorker(f); state != WorkerLoading {
		t.Errorf("a new worker without a count is %s", state)
	}
	f.adopted = true
	if state, why := judgeWorker(f); state != WorkerRunning || why == "" {
		t.Errorf("an adopted worker without a count is %s (%q)", state, why)
	}
}
