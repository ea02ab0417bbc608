package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"syscall"
	"testing"

	"pipedeck/pipeline"
)

const watchYAML = `version: 1
deck: e2e
run: r1
workdir: %q
store: {bucket: bucket, endpoint: "http://127.0.0.1:9", region: us-east-1, path_style: true, credentials: node}
stages:
  extract:
    workers: {count: 1, command: [sleep, "1000"]}
    outputs:
      hs: {dir: out, match: "*.safetensors", format: safetensors, key: "hs/{path}"}
`

// testWatch watches a deck whose agent goes away: lines go on, stale, and the
// exit code says so at the end.
func testWatch(t *testing.T, bin string) {
	t.Helper()
	p := newProgram(t, bin, "AWS_ACCESS_KEY_ID=a", "AWS_SECRET_ACCESS_KEY=b")
	p.write(t, "pipedeck.yaml", fmt.Sprintf(watchYAML, p.dir))
	ctx, cancel := context.WithTimeout(context.Background(), 3*patience)
	defer cancel()
	cmd := p.command(ctx, "snapshot", "--json", "--watch", "200ms")
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(out)
	lines.Buffer(nil, 1<<20)
	live, stale := 0, 0
	for stale < 3 && lines.Scan() {
		switch s := parseSnapshot(t, lines.Text(), ""); {
		case s.Health == pipeline.Stale:
			stale++
		case stale > 0:
			t.Errorf("%s after it was stale", s.Health)
		default:
			if live++; live == 3 {
				p.must(t, "agent", "stop")
			}
		}
	}
	if err := cmd.Process.Signal(syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	for lines.Scan() {
		continue // what was on its way
	}
	var ended *exec.ExitError
	if err := cmd.Wait(); !errors.As(err, &ended) || ended.ExitCode() != exitUnknown {
		t.Errorf("the watch ends with %v after %d live and %d stale lines", err, live, stale)
	}
	if live < 3 || stale < 3 {
		t.Errorf("%d live and %d stale lines", live, stale)
	}
	if _, _, code := p.run(t, "agent", "status"); code != exitUnknown {
		t.Error("the watch started an agent again")
	}
}
