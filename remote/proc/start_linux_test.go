package proc

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"pipedeck/pipeline"
)

func TestExitCodesAndSignals(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		script string
		code   int
		signal string
	}{
		"zero":    {"exit 0", 0, ""},
		"code":    {"exit 3", 3, ""},
		"term":    {"kill -TERM $$", 143, "SIGTERM"},
		"kill":    {"kill -KILL $$", 137, "SIGKILL"},
		"default": {"kill -INT $$; exit 1", 130, "SIGINT"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := newDeck(t)
			h := d.up(t)
			start(t, h, d.launch("w-0-1", c.script))
			got := awaitState(t, h, pipeline.ProcExited)
			if got.Exit == nil || got.Exit.Code == nil || *got.Exit.Code != c.code || got.Exit.Signal != c.signal {
				t.Errorf("exit = %+v, want %d %q", got.Exit, c.code, c.signal)
			}
			if got.Exit.OOM {
				t.Error("taken for an OOM kill")
			}
		})
	}
}

func TestExecFailure(t *testing.T) {
	t.Parallel()
	plain := filepath.Join(t.TempDir(), "plain")
	if err := os.WriteFile(plain, []byte("x"), 0o644); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		argv []string
		dir  string
		want string
	}{
		"not in PATH":    {[]string{"no-such-command"}, "/", `cannot find "no-such-command" in PATH`},
		"not executable": {[]string{plain}, "/", "not an executable file"},
		"no folder":      {[]string{"/bin/true"}, "/no/such/folder", "no such file or directory"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := newDeck(t)
			h := d.up(t)
			l := d.launch("w-0-1", "")
			l.Argv, l.Dir = c.argv, c.dir
			start(t, h, l)
			got := seen(t, h)
			if got.State != pipeline.ProcNoExec || !strings.Contains(got.Reason, c.want) {
				t.Errorf("state %s, reason %q, want %q", got.State, got.Reason, c.want)
			}
		})
	}
}

func TestWorkerEnvironment(t *testing.T) {
	t.Parallel()
	d := newDeck(t)
	h := d.up(t)
	h.opt.BaseEnv = append(h.opt.BaseEnv, "AWS_SECRET_ACCESS_KEY=hidden", "MY_TOKEN=hidden", "CUDA_HOME=/cuda", "A=base")
	l := d.launch("w-0-1", "exec sleep 60")
	l.Env = []string{"A=spec", "HF_TOKEN=wanted"}
	start(t, h, l)
	got := seen(t, h)
	var environ string
	await(t, "exec", func() bool {
		data, err := os.ReadFile(procFS{root: "/proc"}.path(got.PID, "environ"))
		environ = "\n" + strings.ReplaceAll(string(data), "\x00", "\n")
		return err == nil && len(data) > 0
	})
	for _, want := range []string{"CUDA_HOME=/cuda", "A=spec", "HF_TOKEN=wanted", "PIPEDECK_RUN=d/r1", "PIPEDECK_LAUNCH=w-0-1", "PIPEDECK_DECK_ID=" + h.here.deckID, "PWD=" + d.root} {
		if !strings.Contains(environ, "\n"+want+"\n") {
			t.Errorf("%q is missing in %s", want, environ)
		}
	}
	shim, err := os.ReadFile(procFS{root: "/proc"}.path(shimOf(t, d, "w-0-1").PID, "environ"))
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(environ, "hidden") || strings.Contains(string(shim), "hidden") {
		t.Error("a secret of the agent reached worker or shim")
	}
	intent, err := os.ReadFile(filepath.Join(d.root, "runs/w/0/w-0-1", runFile))
	if err != nil || strings.Contains(string(intent), "hidden") {
		t.Errorf("a secret of the agent reached the disk (%v)", err)
	}
}

func TestRefusals(t *testing.T) {
	t.Parallel()
	d, other := newDeck(t), newDeck(t)
	h, h2 := d.up(t), other.up(t)
	h2.opt.LocksDir = h.opt.LocksDir
	l := d.launch("w-0-1", "exec sleep 60")
	l.GPUs = []pipeline.GPURef{{Index: 0, UUID: "GPU-a/b"}}
	start(t, h, l)

	err := h.Start(context.Background(), l)
	if problemKind(err) != pipeline.ProblemRefused || !strings.Contains(err.Error(), "started before") {
		t.Errorf("same id: %v", err)
	}
	again := d.launch("w-0-2", "exit 0")
	err = h.Start(context.Background(), again)
	if problemKind(err) != pipeline.ProblemRefused || !strings.Contains(err.Error(), "still runs") {
		t.Errorf("second launch of a running worker: %v", err)
	}
	foreign := other.launch("x-0-1", "exit 0")
	foreign.GPUs = l.GPUs
	err = h2.Start(context.Background(), foreign)
	if problemKind(err) != pipeline.ProblemRefused || !strings.Contains(err.Error(), `"w-0-1"`) {
		t.Errorf("GPU of another deck: %v", err)
	}
	if _, err := os.Stat(filepath.Join(other.root, "runs/w")); err == nil {
		t.Error("the refused launch left a run directory")
	}
	for _, bad := range []string{"", "../x", "a/b", ".hidden"} {
		if err := h.Start(context.Background(), d.launch(bad, "exit 0")); err == nil {
			t.Errorf("launch id %q was accepted", bad)
		}
	}
}

// The slot stays taken while anything of the launch lives: after the kill of
// its shim, and after the end of its leader.
func TestSlotOutlivesShimAndLeader(t *testing.T) {
	t.Parallel()
	d, other := newDeck(t), newDeck(t)
	h, h2 := d.up(t), other.up(t)
	h2.opt.LocksDir = h.opt.LocksDir
	l := d.launch("w-0-1", "sleep 60 & echo $! > pid; wait")
	l.GPUs = []pipeline.GPURef{{UUID: "GPU-1"}}
	start(t, h, l)
	child := awaitPID(t, filepath.Join(d.root, "pid"))
	killShim(t, d, "w-0-1")
	if _, err := h.Signal(context.Background(), "w-0-1", "SIGKILL", pipeline.ToLeader); err != nil {
		t.Fatal(err)
	}
	awaitState(t, h, pipeline.ProcLost)
	foreign := other.launch("x-0-1", "exit 0")
	foreign.GPUs = l.GPUs
	if err := h2.Start(context.Background(), foreign); problemKind(err) != pipeline.ProblemRefused {
		t.Fatalf("slot is free while child %d lives: %v", child, err)
	}
	if _, err := h.Signal(context.Background(), "w-0-1", "SIGKILL", pipeline.ToSet); err != nil {
		t.Fatal(err)
	}
	await(t, "the slot", func() bool { return h2.Start(context.Background(), foreign) == nil })
}

func TestLogAppendsAndRotates(t *testing.T) {
	t.Parallel()
	d := newDeck(t)
	h := d.up(t)
	l := d.launch("w-0-1", "dd if=/dev/zero bs=300000 count=1 2>/dev/null; touch one; until test -e go; do sleep 0.05; done; echo end; exec sleep 60")
	l.LogMaxBytes, l.LogKeep = 299_000, 2
	start(t, h, l)
	awaitFileExists(t, filepath.Join(d.root, "one"))
	await(t, "rotation", func() bool { info, err := os.Stat(l.Log); return err == nil && info.Size() == 0 })
	if err := os.WriteFile(filepath.Join(d.root, "go"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	await(t, "the cumulative size", func() bool { return seen(t, h).LogBytes == 300_004 })
	if data, err := os.ReadFile(l.Log); err != nil || string(data) != "end\n" {
		t.Errorf("log after rotation = %q, %v", data, err)
	}
}

func awaitFileExists(t *testing.T, path string) {
	t.Helper()
	await(t, path, func() bool { _, err := os.Stat(path); return err == nil })
}

func TestExitsTellsEarly(t *testing.T) {
	t.Parallel()
	d := newDeck(t)
	h := d.up(t)
	start(t, h, d.launch("w-0-1", "exec sleep 60"))
	pid := seen(t, h).PID
	began := time.Now()
	if _, err := h.Signal(context.Background(), "w-0-1", "SIGKILL", pipeline.ToLeader); err != nil {
		t.Fatal(err)
	}
	select {
	case <-h.Exits():
	case <-time.After(10 * time.Second):
		t.Fatalf("the end of %d was not told", pid)
	}
	if got := seen(t, h); got.State != pipeline.ProcExited || *got.Exit.Code != 137 {
		t.Errorf("after the hint: %+v (%s after the kill)", got, time.Since(began))
	}
}

func TestOldRunsArePruned(t *testing.T) {
	t.Parallel()
	d := newDeck(t)
	h := d.up(t)
	runs := filepath.Join(d.root, "runs/w/0")
	for i := range keepLaunches + 3 {
		id := fmt.Sprint("old-", i)
		rec := h.record(d.launch(id, "exit 0"))
		rec.Seq = int64(i)
		put(t, filepath.Join(runs, id, runFile), rec)
		if i != 1 { // of this one nobody knows whether it ended
			put(t, filepath.Join(runs, id, exitFile), exitRecord{})
			put(t, filepath.Join(runs, id, reapedFile), now())
		}
	}
	// A process of it lives without a shim.
	stray := exec.Command("/bin/sleep", "60")
	stray.Env = marks(d.launch("old-1", ""), h.here.deckID)
	if err := stray.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = stray.Process.Kill(); _ = stray.Wait() }()

	start(t, h, d.launch("new", "exit 0"))
	entries, err := os.ReadDir(runs)
	if err != nil {
		t.Fatal(err)
	}
	var left []string
	for _, e := range entries {
		left = append(left, e.Name())
	}
	if len(left) != keepLaunches+1 || !slices.Contains(left, "old-1") || slices.Contains(left, "old-3") || !slices.Contains(left, "old-4") {
		t.Errorf("left are %q", left)
	}
	if got := awaitState(t, h, pipeline.ProcExited); got.ID != "new" {
		t.Errorf("newest is %q", got.ID)
	}
}

func put(t *testing.T, path string, v any) {
	t.Helper()
	data, err := json.Marshal(v)
	if err == nil {
		err = os.MkdirAll(filepath.Dir(path), 0o700)
	}
	if err == nil {
		err = os.WriteFile(path, data, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
}

func TestCleanEnv(t *testing.T) {
	t.Parallel()
	in := []string{
		"PATH=/bin", "HOME=/root", "LANG=C", "LD_LIBRARY_PATH=/l", "CUDA_VISIBLE_DEVICES=0", "VIRTUAL_ENV=/v",
		"TOKENIZERS_PARALLELISM=false", "EMPTY=", "AWS_REGION=x", "aws_profile=x", "X_SECRET_Y=1", "HF_TOKEN=1",
		"PGPASSWORD=1", "MY_CREDENTIALS=1", "OPENAI_API_KEY=1", "SSH_KEY=1", "SSH_AUTH_SOCK=/s", "PIPEDECK_LAUNCH=x", "broken",
	}
	got := CleanEnv(in)
	if want := in[:8]; strings.Join(got, " ") != strings.Join(want, " ") {
		t.Errorf("CleanEnv = %q, want %q", got, want)
	}
}
