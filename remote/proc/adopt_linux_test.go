package proc

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"pipedeck/pipeline"
)

func TestAdoptionAfterAgentDeath(t *testing.T) {
	t.Parallel()
	d := newDeck(t)
	// The worker outlives the agent and ends with a code of its own.
	cmd := exec.Command("/proc/self/exe", "agent", d.root, "until test -e go; do sleep 0.05; done; exit 7")
	cmd.Stderr = os.Stderr
	if err := cmd.Run(); err == nil || err.Error() != "signal: killed" {
		t.Fatalf("the agent was not killed: %v", err)
	}
	h := d.up(t)
	got := seen(t, h)
	if got.State != pipeline.ProcRunning || got.PID <= 1 || got.StartTicks == 0 {
		t.Fatalf("not adopted: %+v", got)
	}
	if err := os.WriteFile(filepath.Join(d.root, "go"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	select {
	case <-h.Exits():
	case <-time.After(10 * time.Second):
		t.Error("the end of the adopted worker was not told")
	}
	if got = awaitState(t, h, pipeline.ProcExited); got.Exit == nil || *got.Exit.Code != 7 {
		t.Errorf("exit of the adopted worker = %+v", got.Exit)
	}
}

func TestShimKilled(t *testing.T) {
	t.Parallel()
	d := newDeck(t)
	h := d.up(t)
	start(t, h, d.launch("w-0-1", "trap '' TERM; sleep 60 & echo $! > child; wait"))
	worker := seen(t, h).PID
	awaitPID(t, filepath.Join(d.root, "child"))
	killShim(t, d, "w-0-1")
	if got := seen(t, h); got.State != pipeline.ProcRunning || got.PID != worker {
		t.Fatalf("worker without shim: %+v", got)
	}
	set := inspect(t, h, "w-0-1")
	if set.ShimAlive || set.Exit != nil || living(set) < 2 {
		t.Errorf("evidence without shim: %+v", set)
	}
	if _, err := h.Signal(context.Background(), "w-0-1", "SIGKILL", pipeline.ToSet); err != nil {
		t.Fatal(err)
	}
	await(t, "the end of the set", func() bool { return living(inspect(t, h, "w-0-1")) == 0 })
	got := awaitState(t, h, pipeline.ProcLost)
	if got.Reason == "" || got.Exit != nil || got.Stragglers != 0 {
		t.Errorf("end without shim: %+v", got)
	}
	// Only root can read the environments of other users' new processes.
	if set = inspect(t, h, "w-0-1"); living(set) != 0 || len(set.Unknown) != 0 && os.Getuid() == 0 {
		t.Errorf("evidence after the kill: %+v", set)
	}
}

// A shim killed between fork and record leaves a worker that only its
// environment ties to the launch.
func TestStartNotRecorded(t *testing.T) {
	t.Parallel()
	d := newDeck(t)
	h := d.up(t)
	start(t, h, d.launch("w-0-1", "sleep 60 & echo $! > child; wait"))
	worker := seen(t, h).PID
	awaitPID(t, filepath.Join(d.root, "child"))
	killShim(t, d, "w-0-1")
	if err := os.Remove(filepath.Join(d.root, "runs/w/0/w-0-1", startedFile)); err != nil {
		t.Fatal(err)
	}
	h2 := d.up(t)
	if got := seen(t, h2); got.State != pipeline.ProcRunning || got.PID != worker || got.Stragglers != 1 {
		t.Fatalf("found by environment: %+v, want pid %d", got, worker)
	}
	sent, err := h2.Signal(context.Background(), "w-0-1", "SIGTERM", pipeline.ToLeader)
	if err != nil || len(sent) != 1 || sent[0].PID != worker {
		t.Errorf("signal to the leader found by environment: %+v, %v", sent, err)
	}
	if _, err := h2.Signal(context.Background(), "w-0-1", "SIGKILL", pipeline.ToSet); err != nil {
		t.Fatal(err)
	}
	awaitState(t, h2, pipeline.ProcLost)
}

func TestIntentWithoutShim(t *testing.T) {
	t.Parallel()
	d := newDeck(t)
	h := d.up(t)
	dir := filepath.Join(d.root, "runs/w/0/w-0-1")
	lock, err := h.makeRun(dir, h.record(d.launch("w-0-1", "exit 0")))
	if err != nil {
		t.Fatal(err)
	}
	if got := seen(t, h); got.State != pipeline.ProcIntended {
		t.Errorf("while it is being started: %+v", got)
	}
	lock.Close()
	if got := seen(t, h); got.State != pipeline.ProcLost {
		t.Errorf("after the agent died: %+v", got)
	}
}

func (h *Host) record(l pipeline.Launch) runRecord {
	return runRecord{Launch: l, Seq: 1, DeckID: h.here.deckID, BootID: h.here.bootID, PIDNS: h.here.pidNS, Ticks: bootTicks(), At: now()}
}

func TestReboot(t *testing.T) {
	t.Parallel()
	d := newDeck(t)
	h := d.up(t)
	start(t, h, d.launch("w-0-1", "exec sleep 60"))
	o := h.opt
	o.BootID = "another"
	after := New(o)
	got := seen(t, after)
	if got.State != pipeline.ProcLost || !bytes.HasPrefix([]byte(got.Reason), []byte("reboot")) {
		t.Errorf("after a reboot: %+v", got)
	}
	sent, err := after.Signal(context.Background(), "w-0-1", "SIGKILL", pipeline.ToSet)
	if err != nil || len(sent) != 0 {
		t.Errorf("signalled pids of an earlier boot: %+v, %v", sent, err)
	}
}

// A recycled pid is another process: it is neither seen as the worker nor
// signalled, and neither is what shares its session.
func TestRecycledPID(t *testing.T) {
	t.Parallel()
	d := newDeck(t)
	h := d.up(t)
	start(t, h, d.launch("w-0-1", "exit 0"))
	awaitState(t, h, pipeline.ProcExited)
	dir := filepath.Join(d.root, "runs/w/0/w-0-1")
	await(t, "the shim to end", func() bool { return !locked(dir) })

	stranger := exec.Command("/bin/sh", "-c", "sleep 60 & echo $! > child; wait")
	stranger.Dir, stranger.SysProcAttr = d.root, setsid()
	if err := stranger.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = unix.Kill(-stranger.Process.Pid, unix.SIGKILL)
		_ = stranger.Wait()
	}()
	awaitPID(t, filepath.Join(d.root, "child"))
	s, err := h.fs.stat(stranger.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	fake := startedRecord{
		BootID: h.here.bootID, PIDNS: h.here.pidNS, SID: s.PID, At: now(),
		Worker: identity{PID: s.PID, Ticks: s.Ticks - 1}, Shim: identity{PID: s.PID, Ticks: s.Ticks - 1},
	}
	if err := writeRecord(filepath.Join(dir, startedFile), fake); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{exitFile, reapedFile} {
		if err := os.Remove(filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	h2 := d.up(t)
	if got := seen(t, h2); got.State != pipeline.ProcLost {
		t.Errorf("recycled pid is seen as %+v", got)
	}
	for _, to := range []pipeline.Scope{pipeline.ToLeader, pipeline.ToSet} {
		sent, err := h2.Signal(context.Background(), "w-0-1", "SIGKILL", to)
		if err != nil || len(sent) != 0 {
			t.Errorf("signalled a stranger: %+v, %v", sent, err)
		}
	}
	set := inspect(t, h2, "w-0-1")
	if len(set.Members) != 0 {
		t.Errorf("evidence with a recycled pid: %+v", set)
	}
	if gone(stranger.Process.Pid) {
		t.Fatal("the stranger is dead")
	}
	// With its leader gone the session could be the worker's: no signal, but
	// no proof either.
	if err := stranger.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = stranger.Wait()
	set = inspect(t, h2, "w-0-1")
	if len(set.Members) != 0 || len(set.Unknown) == 0 {
		t.Errorf("evidence with strangers in the session: %+v", set)
	}
}

// A demo removes its folder as soon as its workers are gone: the shim must not
// go on trying to record the end there.
func TestShimEndsWithItsFolder(t *testing.T) {
	t.Parallel()
	d := newDeck(t)
	h := d.host()
	defer h.Close()
	start(t, h, d.launch("w-0-1", "exec sleep 60"))
	shim := shimOf(t, d, "w-0-1")
	worker := seen(t, h).PID
	if err := os.RemoveAll(filepath.Join(d.root, "runs")); err != nil {
		t.Fatal(err)
	}
	if err := unix.Kill(worker, unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	await(t, "the shim to end", func() bool { return gone(shim.PID) })
}
