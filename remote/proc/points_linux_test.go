package proc

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"pipedeck/pipeline"
)

// crashVar holds FILE=POINT: the process that reaches the point says so in the
// file and is killed.
const crashVar = "PIPEDECK_TEST_CRASH"

func crashHook(want string) hook {
	file, name, ok := strings.Cut(want, "=")
	if !ok {
		return nil
	}
	return func(p point) {
		if string(p) == name && os.WriteFile(file, []byte(name), 0o600) == nil {
			_ = unix.Kill(os.Getpid(), unix.SIGKILL)
			select {} // the signal is on its way
		}
	}
}

// allPoints reads the names from the source: a new one is tested at once.
func allPoints(t *testing.T) []string {
	t.Helper()
	src, err := os.ReadFile("points.go")
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, m := range regexp.MustCompile(`point += "([^"]+)"`).FindAllSubmatch(src, -1) {
		out = append(out, string(m[1]))
	}
	if len(out) < 10 {
		t.Fatalf("only %d points found", len(out))
	}
	return out
}

// onlyOne is a worker that tells when another one runs beside it.
const onlyOne = `mkdir running || echo $$ >> twice; echo $$ >> starts
until test -e go; do sleep 0.02; done; rmdir running; exit 7`

// A process is killed at each point. The next agent never runs two workers for
// one rank, and knows how each ended or says that it does not.
func TestCrashPoints(t *testing.T) {
	t.Parallel()
	for _, name := range allPoints(t) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			crashAt(t, name)
		})
	}
}

func crashAt(t *testing.T, name string) {
	t.Helper()
	d := newDeck(t)
	at := filepath.Join(d.root, "crashed")
	cmd := exec.Command("/proc/self/exe", "agent", d.root, onlyOne)
	cmd.Env = append(os.Environ(), crashVar+"="+at+"="+name)
	out, err := cmd.CombinedOutput()
	if err == nil {
		t.Fatalf("the agent lives on: %s", out)
	}
	h := d.up(t)
	if strings.HasPrefix(name, "shim: exit") || strings.HasPrefix(name, "shim: reaped") {
		letGo(t, d)
	}
	await(t, "the crash", func() bool { raw, err := os.ReadFile(at); return err == nil && string(raw) == name })
	if slices.Contains([]point{shimForked, shimStartedTmp, shimStarted}, point(name)) {
		awaitFile(t, filepath.Join(d.root, "starts")) // before anybody looks
	}
	took := takeOver(t, h, d)
	letGo(t, d)
	end := settled(t, h, d)
	switch {
	case end.State == pipeline.ProcExited && end.Exit != nil && end.Exit.Code != nil && *end.Exit.Code == 7:
	case end.State == pipeline.ProcLost && strings.Contains(end.Reason, "unknown") && !took:
	default:
		t.Errorf("the end is %+v", end)
	}
	kept := []point{shimExitKept, shimReapedTmp, shimReaped}
	if slices.Contains(kept, point(name)) && end.State != pipeline.ProcExited {
		t.Errorf("the exit record was lost: %+v", end)
	}
	if raw, err := os.ReadFile(filepath.Join(d.root, "twice")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a second worker ran beside the first: %q, %v", raw, err)
	}
	starts, err := os.ReadFile(filepath.Join(d.root, "starts"))
	if n := strings.Count(string(starts), "\n"); err != nil || n != 1 {
		t.Errorf("%d workers ran, want 1 (%v)", n, err)
	}
}

// takeOver does what a supervisor would: it starts a worker unless one lives or
// has ended with a code. It says whether it did.
func takeOver(t *testing.T, h *Host, d deck) bool {
	t.Helper()
	var got []pipeline.LaunchSeen
	await(t, "the launch to be judged", func() bool {
		var err error
		got, err = h.Observe(context.Background())
		if err != nil {
			t.Fatal(err)
		}
		return len(got) == 0 || got[0].State != pipeline.ProcIntended
	})
	if _, err := os.Stat(filepath.Join(d.root, "running")); err == nil && (len(got) == 0 || got[0].State != pipeline.ProcRunning) {
		t.Errorf("a worker lives, seen is %+v", got) // it would be killed as a straggler
	}
	if len(got) > 0 && (got[0].State != pipeline.ProcLost || workerRan(d)) {
		return false
	}
	id := "w-0-2"
	if len(got) == 0 {
		id = "w-0-1" // recorded nowhere: as if it had never been asked for
	}
	start(t, h, d.launch(id, onlyOne))
	return true
}

func workerRan(d deck) bool {
	_, err := os.Stat(filepath.Join(d.root, "starts"))
	return err == nil
}

// settled waits until nothing can change any more.
func settled(t *testing.T, h *Host, d deck) pipeline.LaunchSeen {
	t.Helper()
	var end pipeline.LaunchSeen
	await(t, "the end", func() bool {
		end = seen(t, h)
		_, err := os.Stat(filepath.Join(d.root, "running"))
		return errors.Is(err, fs.ErrNotExist) && end.State != pipeline.ProcRunning && end.State != pipeline.ProcIntended
	})
	return end
}

func letGo(t *testing.T, d deck) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(d.root, "go"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
}
