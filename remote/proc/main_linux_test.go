package proc

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"pipedeck/pipeline"
)

// TestMain lets the test binary be the shim and the agent that dies.
func TestMain(m *testing.M) {
	switch {
	case len(os.Args) == 4 && os.Args[1] == "shim":
		os.Exit(shimMain(os.Args[3], crashHook(os.Getenv(crashVar))))
	case len(os.Args) == 4 && os.Args[1] == "agent":
		os.Exit(agentMain(os.Args[2], os.Args[3]))
	case len(os.Args) == 2 && os.Args[1] == "fork-chain":
		forkChain()
	case len(os.Args) == 3 && os.Args[1] == "stop":
		os.Exit(stopMain(os.Args[2]))
	case len(os.Args) == 3 && os.Args[1] == "become-root":
		becomeRoot(os.Args[2])
	}
	os.Exit(m.Run())
}

// agentMain starts one worker that sleeps, then dies without a goodbye.
func agentMain(root, script string) int {
	d := deck{root: root}
	o := d.options()
	o.point = crashHook(os.Getenv(crashVar))
	h := New(o)
	if err := h.Start(context.Background(), d.launch("w-0-1", script)); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	if _, err := h.Observe(context.Background()); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	_ = unix.Kill(os.Getpid(), unix.SIGKILL)
	return 0
}

// forkChain forks a copy of itself again and again, each ending at once: what
// a look at the processes finds is gone before a signal reaches it.
func forkChain() {
	signal.Ignore(unix.SIGTERM)
	time.Sleep(2 * time.Millisecond)
	cmd := exec.Command("/proc/self/exe", "fork-chain")
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	_ = cmd.Start()
	os.Exit(0)
}

// deck is one state directory of a test.
type deck struct{ root string }

func newDeck(t *testing.T) deck {
	t.Helper()
	return deck{root: t.TempDir()}
}

func (d deck) host() *Host { return New(d.options()) }

func (d deck) options() Options {
	return Options{
		RunsDir: filepath.Join(d.root, "runs"), LocksDir: filepath.Join(d.root, "locks"),
		ShimArgv: []string{"/proc/self/exe", "shim"}, BaseEnv: os.Environ(),
	}
}

func (d deck) launch(id, script string) pipeline.Launch {
	return pipeline.Launch{
		ID: id, Deck: "d", Run: "r1", Stage: "w", Rank: 0, World: 1,
		Argv: []string{"/bin/sh", "-c", script},
		Dir:  d.root, Log: filepath.Join(d.root, "logs", "w-0.log"),
	}
}

// up returns a Host that is closed, and whose processes are ended, with the test.
func (d deck) up(t *testing.T) *Host {
	t.Helper()
	h := d.host()
	t.Cleanup(func() {
		h.mu.Lock()
		_ = h.reload()
		all := maps.Clone(h.cache.launches)
		h.mu.Unlock()
		for _, l := range all {
			_, _ = h.Signal(context.Background(), l.rec.Launch.ID, "SIGKILL", pipeline.ToSet)
		}
		h.Close()
		await(t, "shims to end", func() bool {
			for dir := range all {
				if locked(dir) {
					return false
				}
			}
			return true
		})
	})
	return h
}

func start(t *testing.T, h *Host, l pipeline.Launch) {
	t.Helper()
	if err := h.Start(context.Background(), l); err != nil {
		t.Fatal(err)
	}
}

// await polls until ok or fails the test.
func await(t *testing.T, what string, ok func() bool) {
	t.Helper()
	deadline := time.Now().Add(time.Minute)
	for !ok() {
		if time.Now().After(deadline) {
			t.Fatalf("waited in vain for %s", what)
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// seen returns the newest launch of rank 0.
func seen(t *testing.T, h *Host) pipeline.LaunchSeen {
	t.Helper()
	all, err := h.Observe(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	if len(all) != 1 {
		t.Fatalf("observed %d workers, want 1: %+v", len(all), all)
	}
	return all[0]
}

func awaitState(t *testing.T, h *Host, want pipeline.ProcState) pipeline.LaunchSeen {
	t.Helper()
	var last pipeline.LaunchSeen
	deadline := time.Now().Add(time.Minute)
	for time.Now().Before(deadline) {
		if last = seen(t, h); last.State == want {
			return last
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Fatalf("state is %s (%s), want %s", last.State, last.Reason, want)
	return last
}

func inspect(t *testing.T, h *Host, id string) pipeline.ProcessSet {
	t.Helper()
	set, err := h.Inspect(context.Background(), id)
	if err != nil {
		t.Fatal(err)
	}
	return set
}

// living leaves out zombies without threads.
func living(set pipeline.ProcessSet) int {
	n := 0
	for _, p := range set.Members {
		if p.Threads > 0 {
			n++
		}
	}
	return n
}

func shimOf(t *testing.T, d deck, id string) identity {
	t.Helper()
	var rec startedRecord
	if err := readRecord(filepath.Join(d.root, "runs/w/0", id, startedFile), &rec); err != nil {
		t.Fatal(err)
	}
	return rec.Shim
}

// killShim ends a shim that this test's Host started.
func killShim(t *testing.T, d deck, id string) {
	t.Helper()
	shim := shimOf(t, d, id)
	if err := unix.Kill(shim.PID, unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	await(t, "the shim to end", func() bool { return !locked(filepath.Join(d.root, "runs/w/0", id)) })
}

func awaitFile(t *testing.T, path string) string {
	t.Helper()
	var data []byte
	await(t, path, func() bool {
		var err error
		data, err = os.ReadFile(path)
		return err == nil && len(data) > 0
	})
	return strings.TrimSpace(string(data))
}

func awaitPID(t *testing.T, path string) int {
	t.Helper()
	pid, err := strconv.Atoi(awaitFile(t, path))
	if err != nil {
		t.Fatal(err)
	}
	return pid
}

func gone(pid int) bool {
	s, err := procFS{root: "/proc"}.stat(pid)
	return err != nil || s.dead()
}

func problemKind(err error) pipeline.ProblemKind {
	if p, ok := errors.AsType[*pipeline.Problem](err); ok {
		return p.Kind
	}
	return ""
}

func itoa(n int) string { return strconv.Itoa(n) }
