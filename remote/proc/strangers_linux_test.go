package proc

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"pipedeck/pipeline"
)

// byHand starts a script as an operator would, without a shim and no child of
// this process, and ends it with the test. The script runs in dir.
func byHand(t *testing.T, dir, script string, env ...string) identity {
	t.Helper()
	file := filepath.Join(t.TempDir(), "pid")
	cmd := exec.Command("/bin/sh", "-c", `setsid sh -c 'echo $$ > "$0"; eval "$1"' "$0" "$1" </dev/null >/dev/null 2>&1 &`, file, script)
	cmd.Dir, cmd.Env = dir, append([]string{"PATH=" + os.Getenv("PATH")}, env...)
	if err := cmd.Run(); err != nil {
		t.Fatal(err)
	}
	pid := awaitPID(t, file)
	s, err := procFS{root: "/proc"}.stat(pid)
	if err != nil {
		t.Fatal(err)
	}
	id := identity{PID: pid, Ticks: s.Ticks}
	t.Cleanup(func() { endSession(t, id) })
	await(t, "the orphan to be let go", func() bool {
		s, err := procFS{root: "/proc"}.stat(pid)
		return err != nil || s.PPID != os.Getpid() && s.PPID != cmd.Process.Pid
	})
	return id
}

// endSession kills what byHand started; nothing else is in its session.
func endSession(t *testing.T, id identity) {
	t.Helper()
	f := procFS{root: "/proc"}
	await(t, "the processes of a test to end", func() bool {
		procs, err := f.all()
		if err != nil {
			t.Fatal(err)
		}
		left := false
		for _, s := range procs {
			if s.SID == id.PID && s.Ticks >= id.Ticks && !s.dead() {
				left = true
				_ = unix.Kill(s.PID, unix.SIGKILL)
			}
		}
		return !left
	})
}

func strangers(t *testing.T, h *Host, pids ...int) []pipeline.Stranger {
	t.Helper()
	out, err := h.Strangers(context.Background(), pids)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func one(t *testing.T, h *Host, pid int) pipeline.Stranger {
	t.Helper()
	got := strangers(t, h, pid)
	if len(got) != 1 {
		t.Fatalf("%d strangers for pid %d, want 1: %+v", len(got), pid, got)
	}
	return got[0]
}

func TestStrangersAreDescribed(t *testing.T) {
	t.Parallel()
	d := newDeck(t)
	h := d.up(t)
	id := byHand(t, d.root, "sleep 60 & echo $! > child; exec cat /dev/ptmx '6\x1b[2J0'", EnvRun+"=d/\x1b[mr1")
	awaitPID(t, filepath.Join(d.root, "child"))
	await(t, "the exec", func() bool {
		s, err := h.fs.stat(id.PID)
		return err == nil && s.Comm == "cat"
	})
	got := one(t, h, id.PID)
	if got.PID != id.PID || got.StartTicks != id.Ticks || !slices.Equal(got.Argv, []string{"cat", "/dev/ptmx", "6␛0"}) ||
		got.User != h.owner(os.Getpid()) || got.Dir != d.root || got.Run != "d/␛r1" || got.Ours ||
		got.Children != 1 || got.GPUMem != 0 || len(got.GPUs) != 0 {
		t.Errorf("described as %+v", got)
	}
	if age := time.Since(got.StartedAt); age < -time.Second || age > time.Hour {
		t.Errorf("started at %s", got.StartedAt)
	}
	if all := strangers(t, h); len(all) != 0 {
		t.Errorf("without the deck's mark it is listed all the same: %+v", all)
	}
}

func TestStrangersLeavesOutWhatIsOwned(t *testing.T) {
	t.Parallel()
	d := newDeck(t)
	h := d.up(t)
	start(t, h, d.launch("w-0-1", "(setsid sh -c 'echo $$ > child; exec sleep 60' &); exec sleep 60"))
	child := awaitPID(t, filepath.Join(d.root, "child"))
	owned := []int{seen(t, h).PID, child, shimOf(t, d, "w-0-1").PID, os.Getpid(), os.Getppid(), 1<<22 + 1}
	if got := strangers(t, h, owned...); len(got) != 0 {
		t.Errorf("listed: %+v", got)
	}
	if got := strangers(t, h); len(got) != 0 {
		t.Errorf("strays: %+v", got)
	}
	for _, pid := range []int{1, 0, -1} {
		if _, err := h.Strangers(context.Background(), []int{child, pid}); problemKind(err) != pipeline.ProblemUsage {
			t.Errorf("pid %d: %v", pid, err)
		}
	}
	// Without its shim and its leader, what is left is owned by nobody.
	killShim(t, d, "w-0-1")
	if _, err := h.Signal(context.Background(), "w-0-1", "SIGKILL", pipeline.ToLeader); err != nil {
		t.Fatal(err)
	}
	await(t, "a stray", func() bool { s := strangers(t, h); return len(s) == 1 && s[0].PID == child && s[0].Ours })
}

func TestStraysOfAnotherDeckAreNotListed(t *testing.T) {
	t.Parallel()
	d, other := newDeck(t), newDeck(t)
	h, h2 := d.up(t), other.up(t)
	id := byHand(t, d.root, "sleep 60 & exec sleep 60", marks(d.launch("w-0-1", ""), h2.here.deckID)...)
	await(t, "its own deck to list it", func() bool { s := strangers(t, h2); return len(s) == 1 && s[0].PID == id.PID && s[0].Ours })
	if got := strangers(t, h); len(got) != 0 {
		t.Errorf("listed: %+v", got)
	}
	got := one(t, h, id.PID)
	if got.Ours || got.Run != "d/r1" {
		t.Errorf("named: %+v", got)
	}
	if left, err := h.Reap(context.Background(), got); problemKind(err) != pipeline.ProblemRefused {
		t.Errorf("reaped another deck's process: %v, %v", left, err)
	}
	if err := h.Adopt(context.Background(), d.launch("w-0-2", ""), got); problemKind(err) != pipeline.ProblemRefused {
		t.Errorf("adopted another deck's process: %v", err)
	}
	if gone(id.PID) {
		t.Error("it is dead")
	}
}

func TestReapEndsTheWholeSet(t *testing.T) {
	t.Parallel()
	d := newDeck(t)
	h := d.up(t)
	// One ignores SIGTERM, one left session and parents behind.
	script := `trap '' TERM; (setsid sh -c 'echo $$ > a; exec sleep 60' &)
	sh -c 'echo $$ > b; while :; do sleep 0.1; done' & while :; do sleep 0.1; done`
	id := byHand(t, d.root, script, marks(d.launch("old-1", ""), h.here.deckID)...)
	a, b := awaitPID(t, filepath.Join(d.root, "a")), awaitPID(t, filepath.Join(d.root, "b"))
	bystander := byHand(t, d.root, "exec sleep 60")
	who := one(t, h, id.PID)
	if who.Children < 2 || !who.Ours {
		t.Errorf("shown as %+v", who)
	}
	recycled := who
	recycled.StartTicks--
	if left, err := h.Reap(context.Background(), recycled); err != nil || len(left) != 0 || gone(id.PID) {
		t.Fatalf("with another start time: %v, %v, gone %t", left, err, gone(id.PID))
	}
	left, err := h.Reap(context.Background(), who)
	if err != nil || len(left) != 0 {
		t.Errorf("left are %+v, %v", left, err)
	}
	for _, pid := range []int{id.PID, a, b} {
		if !gone(pid) {
			t.Errorf("process %d lives", pid)
		}
	}
	if gone(bystander.PID) {
		t.Error("the bystander is dead")
	}
	if left, err := h.Reap(context.Background(), who); err != nil || len(left) != 0 {
		t.Errorf("again: %+v, %v", left, err)
	}
	if _, err := h.Reap(context.Background(), one(t, h, bystander.PID)); problemKind(err) != pipeline.ProblemRefused {
		t.Errorf("reap of a process without the mark: %v", err)
	}
}

func TestReapSaysWhoIsLeft(t *testing.T) {
	t.Parallel()
	d := newDeck(t)
	h := d.up(t)
	id := byHand(t, d.root, "trap '' TERM; while :; do sleep 0.1; done", marks(d.launch("old-1", ""), h.here.deckID)...)
	await(t, "the trap", func() bool { return strings.Contains(ignored(t, id.PID), "4") })
	ctx, cancel := context.WithTimeout(context.Background(), 300*time.Millisecond)
	defer cancel()
	left, err := h.Reap(ctx, one(t, h, id.PID))
	if err == nil || !slices.ContainsFunc(left, func(p pipeline.Process) bool { return p.PID == id.PID }) {
		t.Errorf("cut short: %+v, %v", left, err)
	}
}

// ignored returns the mask of ignored signals; SIGTERM is its 4 of the last
// digit but three.
func ignored(t *testing.T, pid int) string {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join("/proc", itoa(pid), "status"))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(raw)) {
		if v, ok := strings.CutPrefix(line, "SigIgn:"); ok {
			v = strings.TrimSpace(v)
			return v[len(v)-4 : len(v)-3]
		}
	}
	return ""
}
