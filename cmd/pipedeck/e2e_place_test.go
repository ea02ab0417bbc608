package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"pipedeck/remote/agent/wire"
)

// testPlace takes the state directory away from under a deck: another bucket,
// a copy, a removal. Each ends in one agent at most, and a word that says why.
func testPlace(t *testing.T, bin string) {
	t.Helper()
	m := &move{files: 100_000, size: 1000, ranks: 2, maxMemory: 64e6}
	m.prepare(t, bin, 5)
	m.must(t, "start", "extract")
	state := wire.State{Dir: filepath.Join(m.dir, ".pipedeck")}
	workers := recordedLaunches(state.Dir)
	t.Cleanup(func() {
		for _, l := range workers {
			if l.Worker.alive() {
				_ = syscall.Kill(l.Worker.PID, syscall.SIGKILL)
			}
		}
	})
	anotherBucket(t, m, state)
	copied(t, m, state)
	for _, l := range workers {
		if !l.Worker.alive() {
			t.Errorf("worker %d was ended", l.Worker.PID)
		}
	}
	removed(t, m, state)
}

// anotherBucket is refused for good: neither agent nor keeper stays.
func anotherBucket(t *testing.T, m *move, state wire.State) {
	t.Helper()
	eventually(t, "something is stored", func() bool {
		o := stageOf(m.snapshot(t)).Outputs[0]
		return o.VerifiedFiles != nil && *o.VerifiedFiles > 0
	})
	m.must(t, "agent", "stop")
	spec, err := os.ReadFile(filepath.Join(m.dir, "pipedeck.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	m.write(t, "other.yaml", strings.Replace(string(spec), `"`+m.gateway.Bucket+`"`, `"another-bucket"`, 1))
	_, errs, code := m.run(t, "-f", "other.yaml", "--json")
	if code != exitRefused || !strings.Contains(errs, "cannot use the ledger") || !strings.Contains(errs, "hint: ") {
		t.Errorf("another bucket ends with %d: %s", code, errs)
	}
	eventually(t, "the keeper ends", func() bool {
		_, held, err := wire.Held(state.KeeperLock())
		return err == nil && !held
	})
	m.snapshot(t) // the right bucket is as good as ever
}

// copied runs the deck from a copy of its folder.
func copied(t *testing.T, m *move, state wire.State) {
	t.Helper()
	dir := filepath.Join(m.dir, "copy")
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.CommandContext(t.Context(), "cp", "-a", state.Dir, dir).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	spec, err := os.ReadFile(filepath.Join(m.dir, "pipedeck.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	m.write(t, "copy.yaml", strings.Replace(string(spec), `workdir: "`+m.dir, `workdir: "`+dir, 1))
	_, errs, code := m.run(t, "-f", "copy.yaml", "--json")
	if code != exitRefused || !strings.Contains(errs, "copy of another state directory") {
		t.Fatalf("a copy ends with %d: %s", code, errs)
	}
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
}

// removed makes room for a second agent: the first ends by itself.
func removed(t *testing.T, m *move, state wire.State) {
	t.Helper()
	m.snapshot(t)
	first := wire.ReadRecord(state.AgentLock()).PID
	keeper := wire.ReadRecord(state.KeeperLock()).PID
	// An agent at work may put a file into a folder that was just emptied.
	eventually(t, "the state directory is removed", func() bool { return os.RemoveAll(state.Dir) == nil })
	eventually(t, "agent and keeper end with their directory", func() bool {
		return syscall.Kill(first, 0) != nil && syscall.Kill(keeper, 0) != nil
	})
	m.snapshot(t)
	if now := wire.ReadRecord(state.AgentLock()).PID; now == first || now == 0 {
		t.Errorf("agent %d runs, the first was %d", now, first)
	}
}
