package main

import (
	"syscall"
	"testing"
	"time"

	"pipedeck/pipeline"
)

// testWorkerKilled kills a worker behind the deck's back: it is shown as
// exited, with its code. How fast is printed, not judged.
func testWorkerKilled(t *testing.T, bin string) {
	t.Helper()
	m := &move{files: 100_000, size: 1000, ranks: 2, maxMemory: 64e6}
	m.prepare(t, bin, 5)
	m.must(t, "start", "extract")
	s := m.snapshot(t)
	pid := stageOf(s).Workers[1].PID
	if pid == nil {
		t.Fatalf("extract/1 has no process: %+v", stageOf(s).Workers[1])
	}
	killed := time.Now()
	if err := syscall.Kill(*pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	var w pipeline.WorkerSnapshot
	eventually(t, "the killed worker is exited", func() bool {
		w = stageOf(m.snapshot(t)).Workers[1]
		return w.State == pipeline.WorkerExited
	})
	t.Logf("shown %d ms after the kill", time.Since(killed).Milliseconds())
	if w.ExitCode == nil || *w.ExitCode != 137 {
		t.Errorf("exit code %v, not 137", w.ExitCode)
	}
	took := milliseconds(func() { m.snapshot(t) })
	t.Logf("--json took %.0f ms", took)
	m.must(t, "stop", "extract", "--confirm", "e2e")
}
