package proc

import (
	"context"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"pipedeck/pipeline"
)

func adopt(t *testing.T, h *Host, l pipeline.Launch, pid int) {
	t.Helper()
	if err := h.Adopt(context.Background(), l, one(t, h, pid)); err != nil {
		t.Fatal(err)
	}
}

// pids returns the living members of a set.
func pids(set pipeline.ProcessSet) []int {
	var out []int
	for _, p := range set.Members {
		if p.Threads > 0 {
			out = append(out, p.PID)
		}
	}
	return out
}

func TestAdoptedIsAWorkerLikeAnyOther(t *testing.T) {
	t.Parallel()
	d := newDeck(t)
	h := d.up(t)
	id := byHand(t, d.root, "setsid sh -c 'echo $$ > child; exec sleep 60' & exec sleep 60")
	child := awaitPID(t, filepath.Join(d.root, "child"))
	t.Cleanup(func() { _ = unix.Kill(child, unix.SIGKILL) })
	adopt(t, h, d.launch("w-0-1", ""), id.PID)
	check := func(h *Host) {
		t.Helper()
		if got := seen(t, h); got.State != pipeline.ProcRunning || got.PID != id.PID || got.StartTicks != id.Ticks || got.Stragglers != 1 {
			t.Errorf("observed: %+v", got)
		}
		set := inspect(t, h, "w-0-1")
		if got := pids(set); !slices.Equal(got, slices.Sorted(slices.Values([]int{id.PID, child}))) || set.ShimAlive || set.Exit != nil {
			t.Errorf("evidence: %+v, want %d and %d", set, id.PID, child)
		}
		if got := strangers(t, h, id.PID, child); len(got) != 0 {
			t.Errorf("still strangers: %+v", got)
		}
		if err := h.Adopt(context.Background(), d.launch("w-0-2", ""), pipeline.Stranger{PID: id.PID, StartTicks: id.Ticks}); problemKind(err) != pipeline.ProblemRefused {
			t.Errorf("adopted twice: %v", err)
		}
		other := d.launch("x-0-1", "")
		other.Stage = "x"
		s, _ := h.fs.stat(child)
		if err := h.Adopt(context.Background(), other, pipeline.Stranger{PID: child, StartTicks: s.Ticks}); problemKind(err) != pipeline.ProblemRefused {
			t.Errorf("adopted a part of a worker: %v", err)
		}
		if err := h.Start(context.Background(), d.launch("w-0-2", "exit 0")); problemKind(err) != pipeline.ProblemRefused {
			t.Errorf("started beside it: %v", err)
		}
	}
	check(h)
	next := d.up(t) // the agent after this one
	check(next)

	// The leader's end makes an orphan of the child; it is known all the same,
	// by the agent after that too.
	if sent, err := next.Signal(context.Background(), "w-0-1", "SIGTERM", pipeline.ToLeader); err != nil || len(sent) != 1 || sent[0].PID != id.PID {
		t.Errorf("sent %+v, %v", sent, err)
	}
	for _, host := range []*Host{h, next, d.up(t)} {
		await(t, "the straggler", func() bool { s := seen(t, host); return s.State == pipeline.ProcLost && s.Stragglers == 1 })
		if got := seen(t, host); !strings.Contains(got.Reason, "code unknown") || got.Exit != nil {
			t.Errorf("the end: %+v", got)
		}
		if got := pids(inspect(t, host, "w-0-1")); !slices.Equal(got, []int{child}) {
			t.Errorf("left are %v, want %d", got, child)
		}
	}
	if _, err := h.Signal(context.Background(), "w-0-1", "SIGKILL", pipeline.ToSet); err != nil {
		t.Fatal(err)
	}
	await(t, "an empty set", func() bool { return gone(child) && seen(t, h).Stragglers == 0 })
	if verdict, checks := judge(t, h, "w-0-1"); verdict != pipeline.Verified || !strings.Contains(said(checks), "code unknown") {
		t.Errorf("%s: %s", verdict, said(checks))
	}
	start(t, h, d.launch("w-0-2", "exit 3"))
	if got := awaitState(t, h, pipeline.ProcExited); *got.Exit.Code != 3 {
		t.Errorf("the next launch: %+v", got)
	}
}

// The shell from which a worker was started is in the same session. It must
// live, and so must the other jobs in it.
func TestAdoptedSparesTheOperatorsShell(t *testing.T) {
	t.Parallel()
	d := newDeck(t)
	h := d.up(t)
	// As an interactive shell does, it gives each job a process group.
	shell := byHand(t, d.root, `exec python3 -c '
import os, subprocess, time
def job(script): subprocess.Popen(["sh", "-c", script], process_group=0)
job("sleep 60 & echo $! > a; echo $$ > w; wait")
job("echo $$ > other; exec sleep 60")
time.sleep(60)'`)
	worker, child := awaitPID(t, filepath.Join(d.root, "w")), awaitPID(t, filepath.Join(d.root, "a"))
	other := awaitPID(t, filepath.Join(d.root, "other"))
	if s, err := h.fs.stat(worker); err != nil || s.SID != shell.PID || s.PGID != worker {
		t.Fatalf("the worker is no job of the shell: %+v, %v", s, err)
	}
	adopt(t, h, d.launch("w-0-1", ""), worker)
	if got := pids(inspect(t, h, "w-0-1")); !slices.Equal(got, slices.Sorted(slices.Values([]int{worker, child}))) {
		t.Errorf("the set is %v, want %d and %d", got, worker, child)
	}
	sent, err := h.Signal(context.Background(), "w-0-1", "SIGKILL", pipeline.ToSet)
	if err != nil || len(sent) != 2 {
		t.Errorf("sent %+v, %v", sent, err)
	}
	await(t, "the worker's end", func() bool { return gone(worker) && gone(child) })
	if gone(shell.PID) || gone(other) {
		t.Errorf("the shell is gone: %t, the other job: %t", gone(shell.PID), gone(other))
	}
}

// A process group that the worker leads is its own, wherever its members'
// parents went.
func TestAdoptedProcessGroup(t *testing.T) {
	t.Parallel()
	d := newDeck(t)
	h := d.up(t)
	id := byHand(t, d.root, "(sleep 60 & echo $! > orphan); exec sleep 60")
	orphan := awaitPID(t, filepath.Join(d.root, "orphan"))
	await(t, "the orphan", func() bool { s, err := h.fs.stat(orphan); return err == nil && s.PPID != id.PID })
	adopt(t, h, d.launch("w-0-1", ""), id.PID)
	set := inspect(t, h, "w-0-1")
	i := slices.IndexFunc(set.Members, func(p pipeline.Process) bool { return p.PID == orphan })
	if i < 0 || set.Members[i].By != byGroup {
		t.Errorf("the orphan %d is not found by its group: %+v", orphan, set)
	}
}

// Nobody took part in the life of an adopted process: a member that was never
// seen while its parent lived is a doubt, not a victim.
func TestAdoptedUnseenOrphanIsADoubt(t *testing.T) {
	t.Parallel()
	d := newDeck(t)
	h := d.up(t)
	id := byHand(t, d.root, "until test -e go; do :; done; sleep 60 & echo $! > child")
	adopt(t, h, d.launch("w-0-1", ""), id.PID)
	letGo(t, d)
	child := awaitPID(t, filepath.Join(d.root, "child"))
	// While it is a zombie its number, and so its group, is still its own.
	await(t, "the leader to be reaped", func() bool { _, err := h.fs.stat(id.PID); return err != nil })
	h.mu.Lock()
	for _, l := range h.cache.launches {
		l.kin = maps.Clone(l.kin)
		delete(l.kin, identity{PID: child, Ticks: ticksOf(t, child)})
	}
	h.mu.Unlock()
	verdict, checks := judge(t, h, "w-0-1")
	if verdict != pipeline.Unverified || !strings.Contains(said(checks), "process "+itoa(child)) {
		t.Errorf("%s: %s", verdict, said(checks))
	}
	if sent, err := h.Signal(context.Background(), "w-0-1", "SIGKILL", pipeline.ToSet); err != nil || len(sent) != 0 {
		t.Errorf("signalled %+v, %v", sent, err)
	}
}

func ticksOf(t *testing.T, pid int) uint64 {
	t.Helper()
	s, err := procFS{root: "/proc"}.stat(pid)
	if err != nil {
		t.Fatal(err)
	}
	return s.Ticks
}

func TestAdoptRefusals(t *testing.T) {
	t.Parallel()
	d := newDeck(t)
	h := d.up(t)
	id := byHand(t, d.root, "exec sleep 60")
	good := one(t, h, id.PID)
	recycled := good
	recycled.StartTicks--
	start(t, h, func() pipeline.Launch { l := d.launch("x-0-1", "exec sleep 60"); l.Stage = "x"; return l }())
	member := inspect(t, h, "x-0-1").Members[0]
	for name, who := range map[string]pipeline.Stranger{
		"recycled":       recycled,
		"init":           {PID: 1, StartTicks: ticksOf(t, 1)},
		"none":           {},
		"the agent":      {PID: os.Getpid(), StartTicks: ticksOf(t, os.Getpid())},
		"its parent":     {PID: os.Getppid(), StartTicks: ticksOf(t, os.Getppid())},
		"worker's":       {PID: member.PID, StartTicks: member.StartTicks},
		"kernel thread":  {PID: 2, StartTicks: ticksOf(t, 2)},
		"another's shim": {PID: shimAt(t, d, "x/0/x-0-1").PID, StartTicks: shimAt(t, d, "x/0/x-0-1").Ticks},
	} {
		if err := h.Adopt(context.Background(), d.launch("w-0-1", ""), who); problemKind(err) != pipeline.ProblemRefused {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := os.Stat(filepath.Join(d.root, "runs/w")); err == nil {
		t.Error("a refusal left a run directory")
	}
	if err := h.Adopt(context.Background(), d.launch("w-0-1", ""), good); err != nil {
		t.Error(err)
	}
}

func shimAt(t *testing.T, d deck, launch string) identity {
	t.Helper()
	var rec startedRecord
	if err := readRecord(filepath.Join(d.root, "runs", launch, startedFile), &rec); err != nil {
		t.Fatal(err)
	}
	return rec.Shim
}

// A record of a process whose number went to another one is not of that one.
func TestAdoptedRecycledPID(t *testing.T) {
	t.Parallel()
	d := newDeck(t)
	h := d.up(t)
	id := byHand(t, d.root, "sleep 60 & echo $! > child; exec sleep 60")
	awaitPID(t, filepath.Join(d.root, "child"))
	rec := h.record(d.launch("w-0-1", ""))
	rec.Adopted = &adoption{startedRecord: startedRecord{
		BootID: h.here.bootID, PIDNS: h.here.pidNS, SID: id.PID, Worker: identity{PID: id.PID, Ticks: id.Ticks - 1},
	}}
	put(t, filepath.Join(d.root, "runs/w/0/w-0-1", runFile), rec)
	if got := seen(t, h); got.State != pipeline.ProcLost || got.Stragglers != 0 {
		t.Errorf("observed: %+v", got)
	}
	for _, to := range []pipeline.Scope{pipeline.ToLeader, pipeline.ToSet} {
		if sent, err := h.Signal(context.Background(), "w-0-1", "SIGKILL", to); err != nil || len(sent) != 0 {
			t.Errorf("signalled %+v, %v", sent, err)
		}
	}
	if gone(id.PID) {
		t.Error("a stranger was killed")
	}
}

func TestAdoptedHoldsItsGPU(t *testing.T) {
	t.Parallel()
	d := newDeck(t)
	h := d.up(t)
	id := byHand(t, d.root, "exec sleep 60")
	l := d.launch("w-0-1", "")
	l.GPUs = []pipeline.GPURef{{UUID: "GPU-a"}}
	if err := h.Adopt(context.Background(), l, one(t, h, id.PID)); err != nil {
		t.Fatal(err)
	}
	other := d.launch("x-0-1", "exit 0")
	other.Stage, other.GPUs = "x", l.GPUs
	if err := h.Start(context.Background(), other); problemKind(err) != pipeline.ProblemRefused || !strings.Contains(err.Error(), "w-0-1") {
		t.Errorf("started on a GPU that is taken: %v", err)
	}
	if err := h.Close(); err != nil {
		t.Fatal(err)
	}
	next := d.up(t)
	seen(t, next)
	if err := next.Start(context.Background(), other); problemKind(err) != pipeline.ProblemRefused {
		t.Errorf("the next agent does not hold the slot: %v", err)
	}
	if err := unix.Kill(id.PID, unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	await(t, "the end", func() bool { return gone(id.PID) })
	start(t, next, other)
}

// A stray of this deck that is adopted keeps its tag: what else it marked is
// found by it.
func TestAdoptedStray(t *testing.T) {
	t.Parallel()
	d := newDeck(t)
	h := d.up(t)
	start(t, h, d.launch("w-0-1", "(setsid sh -c '(setsid sh -c \"echo \\$\\$ > b; exec sleep 60\" &) ; echo $$ > a; exec sleep 60' &); exec sleep 60"))
	a, b := awaitPID(t, filepath.Join(d.root, "a")), awaitPID(t, filepath.Join(d.root, "b"))
	killShim(t, d, "w-0-1")
	if _, err := h.Signal(context.Background(), "w-0-1", "SIGKILL", pipeline.ToLeader); err != nil {
		t.Fatal(err)
	}
	awaitState(t, h, pipeline.ProcLost)
	wrong := d.launch("x-0-1", "")
	wrong.Stage = "x"
	if err := h.Adopt(context.Background(), wrong, one(t, h, a)); problemKind(err) != pipeline.ProblemRefused {
		t.Errorf("what one worker left was adopted as another: %v", err)
	}
	adopt(t, h, d.launch("w-0-2", ""), a)
	if got := pids(inspect(t, h, "w-0-2")); !slices.Equal(got, slices.Sorted(slices.Values([]int{a, b}))) {
		t.Errorf("the set is %v, want %d and %d", got, a, b)
	}
	if got := strangers(t, h); len(got) != 0 {
		t.Errorf("strays: %+v", got)
	}
}
