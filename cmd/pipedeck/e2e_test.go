package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"pipedeck/pipeline"
)

// TestE2E runs the real binary with real processes and a real S3 server.
// PIPEDECK_FULL=1 is the size of the issue instead of a quick one.
func TestE2E(t *testing.T) {
	if testing.Short() {
		t.Skip("end to end: minutes")
	}
	bin := filepath.Join(t.TempDir(), "pipedeck")
	out, err := exec.CommandContext(t.Context(), "go", "build", "-o", bin, ".").CombinedOutput()
	if err != nil {
		t.Fatalf("cannot build: %v\n%s", err, out)
	}
	for _, c := range []struct {
		name string
		test func(t *testing.T, bin string)
	}{
		{"move", testMove},
		{"large files", testLargeFiles},
		{"worker killed", testWorkerKilled},
		{"watch", testWatch},
		{"life", testLife},
		{"place", testPlace},
		{"incident 1", testIncident1},
		{"incident 2", func(t *testing.T, bin string) { t.Helper(); testIncident2(t, bin, false) }},
		{"incident 2 over SSH", func(t *testing.T, bin string) { t.Helper(); testIncident2(t, bin, true) }},
		{"demo", testDemo},
		{"demo signalled", testDemoSignalled},
		{"demo of a shell that ends", testDemoOutlivesShell},
		{"console", testConsole},
		{"foreign", testForeign},
		{"full disk", testFullDisk},
	} {
		t.Run(c.name, func(t *testing.T) { c.test(t, bin) })
	}
}

func full() bool { return os.Getenv("PIPEDECK_FULL") == "1" }

// program is a binary with the folder and environment that it runs in.
type program struct {
	bin, dir string
	env      []string
}

// newProgram has a clean environment: no setting of whoever runs the tests
// reaches it.
func newProgram(t *testing.T, bin string, env ...string) *program {
	t.Helper()
	// Sockets have short paths, and t.TempDir's are long.
	dir, err := os.MkdirTemp("", "pd-e2e-") //nolint:usetesting // see above
	if err != nil {
		t.Fatal(err)
	}
	p := &program{bin: bin, dir: dir, env: append([]string{"PATH=" + os.Getenv("PATH"), "HOME=" + os.Getenv("HOME"), "TMPDIR=" + dir, "TERM=dumb"}, env...)}
	t.Cleanup(func() {
		if err := cleanBelow(dir, "TMPDIR="+dir); err != nil {
			t.Error(err)
		}
	})
	return p
}

func (p *program) command(ctx context.Context, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, p.bin, args...)
	cmd.Dir, cmd.Env = p.dir, p.env
	return cmd
}

// run returns what a command printed and its exit code.
func (p *program) run(t *testing.T, args ...string) (stdout, stderr string, code int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 10*patience)
	defer cancel()
	var out, errs bytes.Buffer
	cmd := p.command(ctx, args...)
	cmd.Stdout, cmd.Stderr = &out, &errs
	err := cmd.Run()
	var ended *exec.ExitError
	if err != nil && !errors.As(err, &ended) {
		t.Fatalf("cannot run %q: %v", args, err)
	}
	return out.String(), errs.String(), cmd.ProcessState.ExitCode()
}

// must runs a command that has to end with 0.
func (p *program) must(t *testing.T, args ...string) string {
	t.Helper()
	out, errs, code := p.run(t, args...)
	if code != exitOK {
		t.Fatalf("%q ends with %d: %s%s", args, code, out, errs)
	}
	return out
}

// snapshot polls `--json` once.
func (p *program) snapshot(t *testing.T) pipeline.Snapshot {
	t.Helper()
	out, errs, _ := p.run(t, "--json")
	return parseSnapshot(t, out, errs)
}

func parseSnapshot(t *testing.T, out, errs string) pipeline.Snapshot {
	t.Helper()
	if err := validate(pipeline.SnapshotSchema, []byte(out)); err != nil {
		t.Fatalf("the snapshot does not validate: %v\n%s\n%s", err, out, errs)
	}
	var s pipeline.Snapshot
	if err := json.Unmarshal([]byte(out), &s); err != nil {
		t.Fatal(err)
	}
	return s
}

// stageOf is the one stage of the tests' decks.
func stageOf(s pipeline.Snapshot) pipeline.StageSnapshot { return s.Nodes[0].Stages[0] }

// writeFiles puts files into the program's folder.
func (p *program) write(t *testing.T, name, text string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(p.dir, name), []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

func needTool(t *testing.T, name string) string {
	t.Helper()
	path, err := exec.LookPath(name)
	if err != nil {
		t.Skipf("%s is not installed", name)
	}
	return path
}

// processesOf lists the living processes whose command line holds a text.
func processesOf(t *testing.T, text string) []string {
	t.Helper()
	dirs, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		t.Fatal(err)
	}
	var found []string
	for _, dir := range dirs {
		raw, err := os.ReadFile(filepath.Join(dir, "cmdline"))
		if err == nil && strings.Contains(string(raw), text) {
			found = append(found, filepath.Base(dir)+": "+strings.ReplaceAll(string(raw), "\x00", " "))
		}
	}
	return found
}

// milliseconds is how long f takes, for the log of a test.
func milliseconds(f func()) float64 {
	began := time.Now()
	f()
	return float64(time.Since(began).Microseconds()) / 1000
}
