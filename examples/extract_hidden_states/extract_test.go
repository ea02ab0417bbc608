// Package extract_test tries the example extractor with a stand-in for its
// model: what it writes, counts, skips and leaves when it is stopped.
package extract_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

const (
	count   = 60 // samples, of which one is not finite; two more are too long
	notOK   = 7
	perStep = "0.02" // seconds that the stand-in takes for a batch
)

// samples writes the data set.
func samples(t *testing.T, dir string) string {
	t.Helper()
	var b strings.Builder
	for i := range count + 2 {
		n := 3 + i*7%11
		if i >= count {
			n = 5000
		}
		ids := make([]int, n)
		for k := range ids {
			ids[k] = 1000 + i*31 + k
		}
		if i == notOK {
			ids[0] = 13
		}
		raw, err := json.Marshal(map[string]any{"input_ids": ids, "loss_mask": ids})
		if err != nil {
			t.Fatal(err)
		}
		b.Write(append(raw, '\n'))
	}
	path := filepath.Join(dir, "samples.jsonl")
	if err := os.WriteFile(path, []byte(b.String()), 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}

// extractor is one output folder and how it is filled.
type extractor struct {
	t         *testing.T
	data, dir string
	done      string
}

func newExtractor(t *testing.T) *extractor {
	t.Helper()
	if _, err := exec.LookPath("python3"); err != nil {
		t.Skip("python3 is not installed")
	}
	dir := t.TempDir()
	return &extractor{t: t, data: samples(t, dir), dir: dir}
}

func (x *extractor) command(rank, world int) *exec.Cmd {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	x.t.Cleanup(cancel)
	args := []string{
		"extract.py", "--backend", "fake_states", "--model", perStep, "--data", x.data, "--out", filepath.Join(x.dir, "out"), "--batch", "4", "--layers", "1",
		"--rank", strconv.Itoa(rank), "--world-size", strconv.Itoa(world), "--progress", x.progressFile(rank), "--done", x.done,
	}
	cmd := exec.CommandContext(ctx, "python3", args...)
	cmd.Env = append(os.Environ(), "PYTHONDONTWRITEBYTECODE=1")
	return cmd
}

func (x *extractor) progressFile(rank int) string {
	return filepath.Join(x.dir, fmt.Sprintf("progress_%d.json", rank))
}

// run lets one rank finish and returns its exit code.
func (x *extractor) run(rank, world int) int {
	x.t.Helper()
	cmd := x.command(rank, world)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	err := cmd.Run()
	var ended *exec.ExitError
	if err != nil && !errors.As(err, &ended) {
		x.t.Fatal(err)
	}
	if strings.Contains(out.String(), "Traceback") {
		x.t.Fatalf("the extractor failed: %s", out.String())
	}
	return cmd.ProcessState.ExitCode()
}

// files are the names and contents of what was written.
func (x *extractor) files() map[string]string {
	x.t.Helper()
	out := map[string]string{}
	entries, err := os.ReadDir(filepath.Join(x.dir, "out"))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		x.t.Fatal(err)
	}
	for _, e := range entries {
		raw, err := os.ReadFile(filepath.Join(x.dir, "out", e.Name()))
		if err != nil {
			continue // renamed at this moment
		}
		out[e.Name()] = string(raw)
	}
	return out
}

type progress struct {
	Processed, Skipped, Failed, Total, Written int
	Phase                                      string
	TooLong                                    []int `json:"too_long"`
	NotFinite                                  []int `json:"not_finite"`
}

func (x *extractor) progress(rank int) progress {
	x.t.Helper()
	var p progress
	raw, err := os.ReadFile(x.progressFile(rank))
	if err == nil {
		err = json.Unmarshal(raw, &p)
	}
	if err != nil {
		x.t.Fatal(err)
	}
	return p
}

// whole is what an undisturbed run writes.
func whole(t *testing.T) map[string]string {
	t.Helper()
	x := newExtractor(t)
	if code := x.run(0, 1); code != 0 {
		t.Fatalf("exit code %d", code)
	}
	return x.files()
}

func same(t *testing.T, got, want map[string]string) {
	t.Helper()
	for name, content := range want {
		if got[name] != content {
			t.Errorf("%s is missing or differs", name)
		}
	}
	for name := range got {
		if _, ok := want[name]; !ok {
			t.Errorf("%s should not be there", name)
		}
	}
}

func TestAll(t *testing.T) {
	t.Parallel()
	x := newExtractor(t)
	if code := x.run(0, 1); code != 0 {
		t.Fatalf("exit code %d", code)
	}
	p := x.progress(0)
	if p.Processed != count-1 || p.Skipped != 2 || p.Failed != 1 || p.Total != count+2 || p.Phase != "done" || !slices.Equal(p.NotFinite, []int{notOK}) || !slices.Equal(p.TooLong, []int{count, count + 1}) {
		t.Errorf("progress = %+v", p)
	}
	got := x.files()
	if len(got) != count-1 || got[fmt.Sprintf("hs_%d.safetensors", notOK)] != "" {
		t.Errorf("%d files", len(got))
	}
	if x.run(0, 1); x.progress(0).Written != 0 {
		t.Errorf("a second run wrote %d files anew", x.progress(0).Written)
	}
}

// Whoever computes a sample, alone or after a restart, computes the same bytes.
func TestRanksAndRestarts(t *testing.T) {
	t.Parallel()
	want := whole(t)
	x := newExtractor(t)
	for rank := range 3 {
		if code := x.run(rank, 3); code != 0 {
			t.Fatalf("exit code %d", code)
		}
	}
	same(t, x.files(), want)
	// What was stored and removed is not computed again.
	x.done = filepath.Join(x.dir, "done.txt")
	if err := os.WriteFile(x.done, []byte("0\n1\n2\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"hs_0.safetensors", "hs_2.safetensors", "hs_9.safetensors"} {
		if err := os.Remove(filepath.Join(x.dir, "out", name)); err != nil {
			t.Fatal(err)
		}
	}
	x.run(0, 1)
	got := x.files()
	if got["hs_0.safetensors"] != "" || got["hs_9.safetensors"] != want["hs_9.safetensors"] || x.progress(0).Written != 1 {
		t.Errorf("after a done-set: hs_0 %d bytes, %+v", len(got["hs_0.safetensors"]), x.progress(0))
	}
}

func TestStopped(t *testing.T) {
	t.Parallel()
	want := whole(t)
	for name, sig := range map[string]syscall.Signal{"SIGTERM": syscall.SIGTERM, "SIGINT": syscall.SIGINT, "SIGKILL": syscall.SIGKILL} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			x := newExtractor(t)
			cmd := x.command(0, 1)
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			for len(x.files()) < 8 {
				time.Sleep(time.Millisecond)
			}
			if err := cmd.Process.Signal(sig); err != nil {
				t.Fatal(err)
			}
			_ = cmd.Wait()
			if sig != syscall.SIGKILL {
				if code := cmd.ProcessState.ExitCode(); code != 128+int(sig) {
					t.Errorf("exit code %d", code)
				}
				if p := x.progress(0); p.Phase != "stopped" || p.Written != len(x.files()) || p.Processed >= count-1 {
					t.Errorf("after the stop: %+v, %d files", p, len(x.files()))
				}
				for file := range x.files() {
					if strings.HasPrefix(file, ".") {
						t.Errorf("%s was left behind", file)
					}
				}
			}
			if code := x.run(0, 1); code != 0 {
				t.Fatalf("exit code %d of the next run", code)
			}
			same(t, x.files(), want)
		})
	}
}

// Every format has the same rows and gives the same files; what needs pyarrow
// is tried where it is installed.
func TestFormats(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("python3"); err != nil {
		t.Skip("python3 is not installed")
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	out, err := exec.CommandContext(ctx, "python3", "-B", "-W", "ignore", "samples_test.py").CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if strings.Contains(string(out), "skipped 'pyarrow is not installed") {
		t.Skip("pyarrow is not installed: only jsonl, and the message about it, were tried")
	}
}
