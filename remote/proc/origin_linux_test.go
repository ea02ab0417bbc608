package proc

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"pipedeck/pipeline"
)

// A copied state directory is refused. Taken over all the same, it neither sees
// nor signals what the original started, with the same launch ids.
func TestCopiedStateDirectory(t *testing.T) {
	t.Parallel()
	d := newDeck(t)
	h := d.up(t)
	start(t, h, d.launch("w-0-1", "exec sleep 60"))
	worker := seen(t, h).PID

	c := deck{root: t.TempDir()}
	if out, err := exec.Command("cp", "-a", filepath.Join(d.root, "runs"), filepath.Join(c.root, "runs")).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	refused := c.host()
	if err := refused.Ready(); problemKind(err) != pipeline.ProblemRefused {
		t.Fatalf("a copy is used: %v", err)
	}
	if err := refused.Start(context.Background(), c.launch("w-0-2", "exit 0")); problemKind(err) != pipeline.ProblemRefused {
		t.Errorf("a worker was started from a copy: %v", err)
	}
	if _, err := refused.Observe(context.Background()); err == nil {
		t.Error("a copy is observed")
	}

	if err := os.Remove(filepath.Join(c.root, "runs", deckFile)); err != nil {
		t.Fatal(err)
	}
	taken := c.up(t)
	if err := taken.Ready(); err != nil {
		t.Fatal(err)
	}
	if got := seen(t, taken); got.State != pipeline.ProcLost || got.PID != 0 || got.Reason == "" {
		t.Errorf("the original's worker is seen as %+v", got)
	}
	for _, to := range []pipeline.Scope{pipeline.ToLeader, pipeline.ToSet} {
		if sent, err := taken.Signal(context.Background(), "w-0-1", "SIGKILL", to); err != nil || len(sent) != 0 {
			t.Errorf("signalled the original's worker: %+v, %v", sent, err)
		}
	}
	if set := inspect(t, taken, "w-0-1"); len(set.Members) != 0 || set.ShimAlive {
		t.Errorf("evidence of the original's worker: %+v", set)
	}
	// The next launch has the same id in both.
	start(t, h, func() pipeline.Launch { l := d.launch("x-0-1", "exec sleep 60"); l.Stage = "x"; return l }())
	l := c.launch("x-0-1", "sleep 60")
	l.Stage = "x"
	start(t, taken, l)
	for _, p := range inspect(t, taken, "x-0-1").Members {
		if raw, err := os.Readlink(filepath.Join("/proc", itoa(p.PID), "cwd")); err == nil && raw != c.root {
			t.Errorf("process %d works in %q", p.PID, raw)
		}
	}
	strays, err := taken.Strangers(context.Background(), nil)
	if err != nil || len(strays) != 0 {
		t.Errorf("strays of the copy: %+v, %v", strays, err)
	}
	if gone(worker) {
		t.Error("the original's worker is dead")
	}
}

// A state directory that was moved is itself.
func TestMovedStateDirectory(t *testing.T) {
	t.Parallel()
	d := newDeck(t)
	h := d.up(t)
	start(t, h, d.launch("w-0-1", "exec sleep 60"))
	worker := seen(t, h).PID
	m := deck{root: filepath.Join(d.root, "moved")}
	if err := os.Mkdir(m.root, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(filepath.Join(d.root, "runs"), filepath.Join(m.root, "runs")); err != nil {
		t.Fatal(err)
	}
	moved := m.up(t)
	if got := seen(t, moved); got.State != pipeline.ProcRunning || got.PID != worker {
		t.Errorf("after the move: %+v, %v", got, moved.Ready())
	}
}
