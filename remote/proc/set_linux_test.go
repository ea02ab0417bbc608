package proc

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"pipedeck/pipeline"
)

func setsid() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setsid: true} }

func TestSetFollowsEscapes(t *testing.T) {
	t.Parallel()
	d := newDeck(t)
	h := d.up(t)
	// One child in a session of its own, one orphaned by a double fork, one
	// that also dropped its environment.
	start(t, h, d.launch("w-0-1", `
		setsid sh -c 'echo $$ > a; exec sleep 60' &
		(setsid sh -c 'echo $$ > b; exec sleep 60' &)
		(env -i setsid sh -c 'echo $$ > c; exec sleep 60' &)
		exec sleep 60`))
	want := []int{seen(t, h).PID}
	for _, name := range []string{"a", "b", "c"} {
		want = append(want, awaitPID(t, filepath.Join(d.root, name)))
	}
	slices.Sort(want)
	set := inspect(t, h, "w-0-1")
	var got []int
	for _, p := range set.Members {
		if p.Threads > 0 {
			got = append(got, p.PID)
		}
		if p.PID == shimOf(t, d, "w-0-1").PID {
			t.Error("the shim is a member")
		}
	}
	if !slices.Equal(got, want) || len(set.Unknown) != 0 || !set.ShimAlive {
		t.Errorf("set = %+v, want pids %v", set, want)
	}

	// TERM to the leader only: the others go on, and hold the launch open.
	if _, err := h.Signal(context.Background(), "w-0-1", "SIGTERM", pipeline.ToLeader); err != nil {
		t.Fatal(err)
	}
	if s := awaitState(t, h, pipeline.ProcExited); s.Stragglers != 3 || *s.Exit.Code != 143 {
		t.Errorf("after TERM to the leader: %+v", s)
	}
	sent, err := h.Signal(context.Background(), "w-0-1", "SIGKILL", pipeline.ToSet)
	if err != nil || len(sent) < 3 {
		t.Errorf("kill of the rest: %+v, %v", sent, err)
	}
	await(t, "an empty set", func() bool { return living(inspect(t, h, "w-0-1")) == 0 })
	await(t, "the shim to end", func() bool { return !inspect(t, h, "w-0-1").ShimAlive })
	if s := seen(t, h); s.Stragglers != 0 {
		t.Errorf("stragglers after the kill: %+v", s)
	}
}

func TestEnvironmentTiesAfterShimDeath(t *testing.T) {
	t.Parallel()
	d := newDeck(t)
	h := d.up(t)
	start(t, h, d.launch("w-0-1", `(setsid sh -c 'echo $$ > a; exec sleep 60' &) ; exec sleep 60`))
	child := awaitPID(t, filepath.Join(d.root, "a"))
	killShim(t, d, "w-0-1")
	if _, err := h.Signal(context.Background(), "w-0-1", "SIGKILL", pipeline.ToLeader); err != nil {
		t.Fatal(err)
	}
	awaitState(t, h, pipeline.ProcLost)
	await(t, "one straggler", func() bool { return seen(t, h).Stragglers == 1 })
	i := slices.IndexFunc(inspect(t, h, "w-0-1").Members, func(p pipeline.Process) bool { return p.PID == child })
	if i < 0 || inspect(t, h, "w-0-1").Members[i].By != byEnvironment {
		t.Errorf("child %d is not found by its environment: %+v", child, inspect(t, h, "w-0-1"))
	}
	// A newer launch makes it a stray of the deck.
	start(t, h, d.launch("w-0-2", "exec sleep 60"))
	strays, err := h.Strangers(context.Background(), nil)
	if err != nil || len(strays) != 1 || strays[0].PID != child || !strays[0].Ours || strays[0].Run != "d/r1" {
		t.Errorf("strays = %+v, %v", strays, err)
	}
}

func TestKillForkLoops(t *testing.T) {
	t.Parallel()
	for name, argv := range map[string][]string{
		"tree":  {"/bin/sh", "-c", "while :; do sleep 1 & sleep 0.01; done"},
		"chain": {"/proc/self/exe", "fork-chain"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := newDeck(t)
			h := d.up(t)
			l := d.launch("w-0-1", "")
			l.Argv = argv
			if name == "chain" {
				exe, err := os.Executable()
				if err != nil {
					t.Fatal(err)
				}
				l.Argv[0] = exe
			}
			start(t, h, l)
			dir := filepath.Join(d.root, "runs/w/0/w-0-1")
			await(t, "forks", func() bool { return seen(t, h).CPUSeconds >= 0 && living(inspect(t, h, "w-0-1")) > 0 })
			await(t, "the end of the fork loop", func() bool {
				_, err := h.Signal(context.Background(), "w-0-1", "SIGKILL", pipeline.ToSet)
				return err == nil && living(inspect(t, h, "w-0-1")) == 0
			})
			await(t, "the shim to end", func() bool { return !locked(dir) })
		})
	}
}

func TestZombieLeaderIsGone(t *testing.T) {
	t.Parallel()
	d := newDeck(t)
	h := d.up(t)
	start(t, h, d.launch("w-0-1", "exec sleep 60"))
	worker := seen(t, h).PID
	shim := shimOf(t, d, "w-0-1")
	// A stopped shim does not reap.
	if err := unix.Kill(shim.PID, unix.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Kill(shim.PID, unix.SIGCONT) })
	if _, err := h.Signal(context.Background(), "w-0-1", "SIGKILL", pipeline.ToSet); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	got := awaitState(t, h, pipeline.ProcLost)
	if since := time.Since(began); since > 10*time.Second {
		t.Errorf("seen as lost only after %s", since)
	}
	if got.PID != worker || got.Reason == "" {
		t.Errorf("zombie leader: %+v", got)
	}
	set := inspect(t, h, "w-0-1")
	if len(set.Members) != 1 || set.Members[0].State != "Z" || set.Members[0].Threads != 0 {
		t.Errorf("evidence: %+v, want a zombie without threads", set)
	}
	if err := unix.Kill(shim.PID, unix.SIGCONT); err != nil {
		t.Fatal(err)
	}
	if got = awaitState(t, h, pipeline.ProcExited); *got.Exit.Code != 137 {
		t.Errorf("after the shim went on: %+v", got.Exit)
	}
}

func TestCountersNeverFall(t *testing.T) {
	t.Parallel()
	d := newDeck(t)
	h := d.up(t)
	start(t, h, d.launch("w-0-1", "i=0; while test $i -lt 300000; do i=$((i+1)); done; touch done; exec sleep 60"))
	awaitFileExists(t, filepath.Join(d.root, "done"))
	var cpu float64
	await(t, "CPU time", func() bool {
		s := seen(t, h)
		if s.CPUSeconds < cpu || s.ReadBytes < -1 {
			t.Fatalf("fell from %v to %+v", cpu, s)
		}
		cpu = s.CPUSeconds
		return cpu > 0
	})
}

func TestSignalGuards(t *testing.T) {
	t.Parallel()
	d := newDeck(t)
	h := d.up(t)
	for _, pid := range []int{-1, 0, 1, os.Getpid()} {
		s, _ := h.fs.stat(max(pid, 1))
		if sent, ok := h.send(identity{PID: pid, Ticks: s.Ticks}, unix.SIGCONT); ok {
			t.Errorf("signalled %d: %+v", pid, sent)
		}
	}
	own := exec.Command("/bin/sleep", "60") // in the group of this process
	if err := own.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = own.Process.Kill(); _ = own.Wait() }()
	s, err := h.fs.stat(own.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	if sent, ok := h.send(identity{PID: s.PID, Ticks: s.Ticks}, unix.SIGKILL); !ok || sent.Err == "" {
		t.Errorf("a member of the own group was signalled: %+v", sent)
	}
	if _, err := h.Signal(context.Background(), "none", "SIGTERM", pipeline.ToSet); err == nil {
		t.Error("an unknown launch is no error")
	}
	start(t, h, d.launch("w-0-1", "exit 0"))
	if _, err := h.Signal(context.Background(), "w-0-1", "TERM-ish", pipeline.ToSet); err == nil {
		t.Error("an unknown signal is no error")
	}
}

func TestParseStat(t *testing.T) {
	t.Parallel()
	line := []byte("42 (a) R (b)) S 7 41 40 34816 -1 4194304 1 2 3 4 10 20 30 40 20 0 5 0 987654 1 2 3\n")
	got, err := parseStat(42, line)
	want := procStat{PID: 42, PPID: 7, PGID: 41, SID: 40, State: 'S', Comm: "a) R (b)", Ticks: 987654, CPU: 100}
	if err != nil || got != want {
		t.Errorf("parseStat = %+v, %v, want %+v", got, err, want)
	}
	for _, bad := range []string{"", "42", "42 (x", "42 (x) S", "42 (x) S a b c d e f g h i j k l m n o p q r s t"} {
		if _, err := parseStat(42, []byte(bad)); err == nil {
			t.Errorf("parseStat(%q) is no error", bad)
		}
	}
}
