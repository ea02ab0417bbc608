package main

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// testDemo is what the README promises of a headless demo.
func testDemo(t *testing.T, bin string) {
	t.Helper()
	p := newProgram(t, bin)
	out, errs, code := p.run(t, "demo", "--headless", "--for", "15s")
	if code != exitOK {
		t.Fatalf("the demo ends with %d: %s", code, errs)
	}
	o := stageOf(parseSnapshot(t, out, errs)).Outputs[0]
	if o.VerifiedFiles == nil || *o.VerifiedFiles == 0 || *o.LocalFiles != 0 {
		t.Errorf("verified %v, local %v", o.VerifiedFiles, o.LocalFiles)
	}
	t.Logf("%d files verified", *o.VerifiedFiles)
	p.demoGone(t)
}

// demoGone says whether a process or folder of a demo below the program's
// temporary folder is left.
func (p *program) demoGone(t *testing.T) {
	t.Helper()
	if left := p.demoLeft(t); left != "" {
		t.Errorf("left over: %s", left)
	}
}

func (p *program) demoLeft(t *testing.T) string {
	t.Helper()
	folders, err := filepath.Glob(filepath.Join(p.dir, "pipedeck-demo-*"))
	if err != nil {
		t.Fatal(err)
	}
	return strings.Join(append(folders, processesOf(t, filepath.Join(p.dir, "pipedeck-demo-"))...), "\n")
}

// testDemoSignalled ends a demo with each signal that ends it.
func testDemoSignalled(t *testing.T, bin string) {
	t.Helper()
	for _, sig := range []syscall.Signal{syscall.SIGTERM, syscall.SIGHUP, syscall.SIGINT} {
		p := newProgram(t, bin)
		ctx, cancel := context.WithTimeout(context.Background(), 5*patience)
		cmd := p.command(ctx, "demo", "--headless", "--for", "10m")
		var errs bytes.Buffer
		cmd.Stderr = &errs
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		eventually(t, "the demo's workers write", func() bool {
			notes, _ := filepath.Glob(filepath.Join(p.dir, "pipedeck-demo-*", "work", "written-*"))
			return len(notes) > 0
		})
		if err := cmd.Process.Signal(sig); err != nil {
			t.Fatal(err)
		}
		took := milliseconds(func() { _ = cmd.Wait() }) // the exit code is read below
		cancel()
		t.Logf("%v: gone after %.0f ms, code %d", sig, took, cmd.ProcessState.ExitCode())
		if code := cmd.ProcessState.ExitCode(); code != exitOK {
			t.Errorf("%v: the demo ends with %d: %s", sig, code, errs.String())
		}
		p.demoGone(t)
	}
}

// testDemoOutlivesShell starts a demo from a shell that ends at once, as
// scripts do: the demo stays, since only `go run` is a parent to follow.
func testDemoOutlivesShell(t *testing.T, bin string) {
	t.Helper()
	p := newProgram(t, bin)
	out := filepath.Join(p.dir, "demo.json")
	shell := newProgram(t, "/bin/sh")
	shell.dir, shell.env = p.dir, p.env
	shell.must(t, "-c", bin+" demo --headless --for 6s >demo.json 2>demo.err &")
	eventually(t, "the demo ends with its snapshot", func() bool {
		raw, err := os.ReadFile(out)
		return err == nil && bytes.HasSuffix(raw, []byte("}\n"))
	})
	raw, err := os.ReadFile(out)
	if err != nil {
		t.Fatal(err)
	}
	parseSnapshot(t, string(raw), "")
	deadline := time.Now().Add(patience)
	for p.demoLeft(t) != "" && time.Now().Before(deadline) {
		time.Sleep(50 * time.Millisecond)
	}
	p.demoGone(t)
}
