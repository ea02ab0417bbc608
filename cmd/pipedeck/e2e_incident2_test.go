package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"pipedeck/gpu"
	"pipedeck/pipeline"
	"pipedeck/remote/ssh/sshtest"
	"pipedeck/s3/s3test"
)

const pivotYAML = `version: 1
deck: wasted
run: r1
workdir: %q
nodes: [{name: node1%s}]
store: {bucket: %q, endpoint: %q, region: us-east-1, path_style: true, credentials: %s}
stages:
  extract:
    workers:
      per_gpu: 1
      command: [%q, %q, %q, "{rank}", %q]
      stop: {signal: SIGTERM, grace: 1s}
    scratch: [%q]
  generate:
    total: 40
    workers:
      per_gpu: 1
      command: [%q, %q, --rank, "{rank}", --world-size, "{world}", --out, out, --progress, "p{rank}.json", --done, done.txt, --total, "40", --size, "1000", --rate, "5"]
    outputs:
      texts: {dir: out, match: "*.safetensors", format: safetensors, id: 'hs_(\d+)\.', key: "t/{path}"}
    progress: {json: "p{rank}.json", done: processed}
    done_set: {file: done.txt, form: lines}
`

// wasted is the deck of the second incident.
type wasted struct {
	*program
	gpus, shards string
	server       *sshtest.Server // nil: on this machine
}

func newWasted(t *testing.T, bin string, far bool) *wasted {
	t.Helper()
	python := needTool(t, "python3")
	gateway := s3test.Versitygw(t)
	d := &wasted{program: newProgram(t, bin, "AWS_ACCESS_KEY_ID="+gateway.AccessKey, "AWS_SECRET_ACCESS_KEY="+gateway.SecretKey)}
	shm, err := os.MkdirTemp("/dev/shm", "pd-e2e-") //nolint:usetesting // a tmpfs is the point
	if err != nil {
		t.Skipf("no /dev/shm: %v", err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(shm) })
	d.gpus, d.shards = filepath.Join(d.dir, "gpus"), filepath.Join(shm, "shards")
	if err := os.MkdirAll(d.gpus, 0o777); err != nil {
		t.Fatal(err)
	}
	node, credentials := "", "node"
	if far {
		d.server = sshtest.Start(t, sshtest.Options{Lines: []string{"SetEnv " + simulateEnv + "=" + d.gpus}})
		d.env = append(d.env, "HOME="+sshtest.NewLaptop(t, d.server).Home)
		credentials = "forward"
		node = fmt.Sprintf(", ssh: %q", d.server.Dest())
	} else {
		d.env = append(d.env, simulateEnv+"="+d.gpus)
	}
	d.write(t, "pipedeck.yaml", fmt.Sprintf(pivotYAML, d.dir, node, gateway.Bucket, gateway.Endpoint, credentials,
		python, filepath.Join(workersDir(t), "stubborn.py"), d.gpus, d.shards, d.shards, python, filepath.Join(workersDir(t), "extract.py")))
	return d
}

// testIncident2 is the second incident again: workers that survive the first
// signal, somebody else's process on GPU 2, then a pivot.
func testIncident2(t *testing.T, bin string, far bool) {
	t.Helper()
	p := newWasted(t, bin, far)
	p.must(t, "start", "extract")
	held := p.stranger(t, p.gpus)
	holder := "pid " + strconv.Itoa(held.Process.Pid)
	if far {
		p.stopIsCut(t)
	}
	stop := p.stopped(t)
	for _, want := range []string{"GPU 2", holder, "nobody", "58.0 GB"} {
		if !strings.Contains(stop, want) {
			t.Errorf("the result does not name %q: %s", want, stop)
		}
	}
	for _, w := range stageOf(p.snapshot(t)).Workers {
		if w.PID != nil {
			t.Errorf("%s lives", w.ID)
		}
	}
	_, errs, code := p.run(t, "pivot", "generate", "--from", "extract", "--confirm", "generate")
	if code != exitFailed || !strings.Contains(errs, holder) {
		t.Errorf("a pivot onto a GPU that is held ends with %d: %s", code, errs)
	}
	if err := held.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = held.Wait()

	p.must(t, "pivot", "generate", "--from", "extract", "--confirm", "generate", "--wait")
	if left, _ := os.ReadDir(p.shards); len(left) > 0 {
		t.Errorf("%d shards are left in %s", len(left), p.shards)
	}
	eventually(t, "the second stage is done and stored", func() bool {
		st := p.snapshot(t).Nodes[0].Stages[1]
		return st.State == pipeline.StageDone && *st.Outputs[0].VerifiedFiles == 40
	})
	p.storyIsTold(t)
}

// stopIsCut asks for the stop and cuts the link in the middle of it: the
// command must not say that it is done.
func (d *wasted) stopIsCut(t *testing.T) {
	t.Helper()
	cmd := d.command(t.Context(), "stop", "extract", "--confirm", "wasted")
	var said bytes.Buffer
	pipe, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(pipe)
	cut := false
	for lines.Scan() {
		said.WriteString(lines.Text() + "\n")
		if !cut && strings.Contains(lines.Text(), "draining") {
			d.server.KillSessions()
			cut = true
		}
	}
	err = cmd.Wait()
	if !cut || err == nil {
		t.Errorf("the link was cut: %v; the stop ended with %v: %s", cut, err, said.String())
	}
}

// stopped is what came of the stop: of the one that was cut, from the journal;
// else of one that is asked for now.
func (d *wasted) stopped(t *testing.T) string {
	t.Helper()
	if d.server == nil {
		_, errs, code := d.run(t, "stop", "extract", "--confirm", "wasted")
		if code != exitFailed {
			t.Errorf("the stop ends with %d: %s", code, errs)
		}
		return errs
	}
	text := ""
	eventually(t, "the stop has ended in the agent", func() bool {
		for _, r := range d.history(t) {
			if r.Kind == "end" && strings.HasPrefix(r.Text, "failed") {
				text = r.Text
			}
		}
		return text != ""
	})
	return text
}

func (p *program) history(t *testing.T) []pipeline.JournalRecord {
	t.Helper()
	var h struct{ Records []pipeline.JournalRecord }
	if err := json.Unmarshal([]byte(p.must(t, "history", "--json")), &h); err != nil {
		t.Fatal(err)
	}
	return h.Records
}

// stranger is another user's process that holds GPU 2 once the worker there is
// gone.
func (p *program) stranger(t *testing.T, gpus string) *exec.Cmd {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "sleep", "600")
	if os.Getuid() == 0 {
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	} else {
		t.Skip("another user's process needs root")
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	// The worker writes its own figures once, at its start.
	eventually(t, "the worker on GPU 2 holds memory", func() bool {
		_, err := os.Stat(gpu.LoadFile(gpus, 2))
		return err == nil
	})
	if err := gpu.WriteLoad(gpus, 2, gpu.Load{PID: cmd.Process.Pid, MemBytes: 58_000_000_000}); err != nil {
		t.Fatal(err)
	}
	return cmd
}

// storyIsTold reads the one journal: the stop that was not done, the pivot that
// stopped, the pivot that was verified, each step with its evidence.
func (p *program) storyIsTold(t *testing.T) {
	t.Helper()
	var ends []string
	for _, r := range p.history(t) {
		if r.Kind == "end" {
			word, _, _ := strings.Cut(r.Text, ":")
			ends = append(ends, word)
		}
	}
	if got, want := strings.Join(ends, " "), "verified failed failed verified"; got != want {
		t.Errorf("the actions ended %q, want %q", got, want)
	}
}
