package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"pipedeck/pipeline"
	"pipedeck/remote/ssh/sshtest"
)

// testNoDeploy looks at a node on which nothing may be installed.
func testNoDeploy(t *testing.T, bin string) {
	home, err := os.MkdirTemp("", "pd-home-") //nolint:usetesting // sshd reads its path unquoted
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(home) }) // a failure leaves a folder in TMPDIR
	writeSMI(t, home)
	d := newFarDeck(t, bin, sshtest.Options{Home: home, Env: []string{"PATH=" + home}})
	out, errs, code := d.run(t, "--no-deploy", "--json")
	if code != exitUnknown {
		t.Fatalf("%d %s", code, errs)
	}
	n := parseSnapshot(t, out, errs).Nodes[0]
	if n.Agent != nil || n.Link.Via == nil || !strings.HasSuffix(*n.Link.Via, ", without an agent") {
		t.Errorf("%+v %+v", n.Agent, n.Link)
	}
	if len(n.Stages) != 1 || n.Stages[0].State != pipeline.StageUnknown || n.Stages[0].Done != nil {
		t.Errorf("of the stages is told: %+v", n.Stages)
	}
	if len(n.GPUs) != 1 || n.GPUs[0].UUID != "GPU-aa" || n.GPUSource.Reason == nil || len(n.Disks) == 0 || n.Disks[0].FreeBytes == nil {
		t.Errorf("%+v %+v %+v", n.GPUs, n.GPUSource, n.Disks)
	}
	if _, errs, code := d.run(t, "--no-deploy", "start", "extract"); code != exitUnknown || !strings.Contains(errs, "nothing may be installed") {
		t.Errorf("start ends with %d: %s", code, errs)
	}
	if left, err := os.ReadDir(home); err != nil || len(left) != 1 {
		t.Errorf("left behind: %v %v", left, err)
	}
}

// writeSMI puts an nvidia-smi that tells of one GPU into a folder.
func writeSMI(t *testing.T, dir string) {
	t.Helper()
	const smi = `#!/bin/sh
case "$*" in *query-gpu*) echo "0, GPU-aa, 28234, 143771, 97, 512.40, 61, NVIDIA H200" ;; esac
`
	if err := os.WriteFile(filepath.Join(dir, "nvidia-smi"), []byte(smi), 0o755); err != nil {
		t.Fatal(err)
	}
}

// watched is what a console saw that stayed open.
type watched struct {
	quit   func() // kills it, and returns when it is gone
	mu     sync.Mutex
	states map[pipeline.LinkState]int
	went   []pipeline.LinkState // without repeats
	at     time.Time            // of last
	last   pipeline.Snapshot
	lines  int
}

// watch leaves a `--json --watch` open until the test ends.
func (d *farDeck) watch(t *testing.T) *watched {
	t.Helper()
	w := &watched{states: map[pipeline.LinkState]int{}}
	ctx, cancel := context.WithCancel(context.Background())
	cmd := d.command(ctx, "--json", "--watch", "200ms")
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		lines := bufio.NewScanner(out)
		lines.Buffer(nil, 16<<20)
		for lines.Scan() {
			var s pipeline.Snapshot
			if json.Unmarshal(lines.Bytes(), &s) != nil || len(s.Nodes) == 0 {
				continue
			}
			w.mu.Lock()
			state := s.Nodes[0].Link.State
			w.states[state]++
			if len(w.went) == 0 || w.went[len(w.went)-1] != state {
				w.went = append(w.went, state)
			}
			w.last, w.at, w.lines = s, time.Now(), w.lines+1
			w.mu.Unlock()
		}
		_ = cmd.Wait() // it is killed
	}()
	w.quit = func() { cancel(); <-done }
	t.Cleanup(w.quit)
	return w
}

// sees waits until the open console shows the node as wanted.
func (w *watched) sees(t *testing.T, when string, ok func(pipeline.NodeSnapshot) bool) {
	t.Helper()
	for begin := time.Now(); time.Since(begin) < 2*patience; time.Sleep(50 * time.Millisecond) {
		w.mu.Lock()
		found := w.lines > 0 && ok(w.last.Nodes[0])
		w.mu.Unlock()
		if found {
			return
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	t.Fatalf("%s: the console never showed it; it showed %v", when, w.states)
}

func (w *watched) newest() (pipeline.Snapshot, time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.last, w.at
}

func (w *watched) order() []pipeline.LinkState {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.went)
}

func live(n pipeline.NodeSnapshot) bool {
	return n.Link.State == pipeline.LinkLive || n.Link.State == pipeline.LinkSlow
}

const cutYAML = `version: 1
deck: far
run: r1
workdir: %q
nodes: [{name: train1, ssh: %q}]
store: {bucket: bucket, endpoint: %q, region: us-east-1, path_style: true}
stages:
  extract:
    total: %d
    workers:
      count: 4
      command: [/bin/sh, -c, 'mkdir -p out; i=0; while [ $i -lt %d ]; do echo "sample {rank} $i" >out/.tmp-{rank}; mv out/.tmp-{rank} out/s_{rank}_$i.txt; i=$((i+1)); sleep 0.2; done; exec sleep 3600']
      stop: {signal: SIGTERM, grace: 5s}
    outputs:
      o: {dir: out, match: "*.txt", format: any, settle: 1s, id: 's_(\d+_\d+)\.', key: "o/{path}"}
`

// testCuts does to the link and the agent what happens to them, under a console
// that stays open. The workers never notice and nothing is lost.
func testCuts(t *testing.T, bin string) {
	files, frozen, limit := 60, 7*time.Second, patience
	if full() {
		files, frozen, limit = 1250, 2*time.Minute, 10*time.Minute
	}
	d := newFarDeck(t, bin, sshtest.Options{})
	d.write(t, "pipedeck.yaml", fmt.Sprintf(cutYAML, d.work, d.node.Dest(), d.puts.url, files*4, files))
	d.must(t, "start", "extract")
	before := fmt.Sprintf("%+v", recordedLaunches(filepath.Join(d.work, ".pipedeck")))
	closed := d.watch(t)
	closed.sees(t, "the first console", live)
	closed.quit()
	w := d.watch(t)
	w.sees(t, "at first", live)

	d.node.KillSessions()
	d.must(t, "agent", "status")
	w.sees(t, "after sshd's processes were killed", live)

	d.node.Signal(syscall.SIGSTOP)
	w.sees(t, "while sshd is frozen", func(n pipeline.NodeSnapshot) bool {
		return n.Link.State == pipeline.LinkStale || n.Link.State == pipeline.LinkLost
	})
	time.Sleep(frozen)
	d.node.Signal(syscall.SIGCONT)
	w.sees(t, "after sshd goes on", live)

	for range 2 {
		h := d.hello(t)
		if err := syscall.Kill(h.PID, syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		d.awaitHello(t, h.Instance)
		w.sees(t, "after the agent was killed", live)
	}
	d.bin = buildStatic(t, "0.2.0")
	d.must(t, "agent", "deploy")
	w.sees(t, "after the upgrade", func(n pipeline.NodeSnapshot) bool {
		return live(n) && n.Agent != nil && n.Agent.Version == "0.2.0"
	})
	d.awaitFor(t, limit, "all files proven", func(n pipeline.NodeSnapshot) bool { return verified(n) == int64(files*4) })
	if now := fmt.Sprintf("%+v", recordedLaunches(filepath.Join(d.work, ".pipedeck"))); now != before {
		t.Errorf("the workers are %s, were %s", now, before)
	}
	d.allOnce(t, files)
	d.must(t, "stop", "extract", "--confirm", "far")
	w.mu.Lock()
	defer w.mu.Unlock()
	t.Logf("%d files of 4 ranks, each once, by the same workers; the open console showed %v in %d lines", files*4, w.states, w.lines)
}

// allOnce says whether every file of four ranks is in the store as it was
// written, by one PUT that was accepted.
func (d *farDeck) allOnce(t *testing.T, files int) {
	t.Helper()
	for rank := range 4 {
		for i := range files {
			key := fmt.Sprintf("r1/o/s_%d_%d.txt", rank, i)
			if got, ok := d.store.Object(key); !ok || string(got) != fmt.Sprintf("sample %d %d\n", rank, i) {
				t.Errorf("%s is %q, %v", key, got, ok)
			}
		}
	}
	if twice := d.store.Overwrites(); len(twice) > 0 {
		t.Errorf("uploaded over an object: %+v", twice)
	}
	tried, twice := d.puts.of("/r1/o/")
	if len(twice) > 0 {
		t.Errorf("uploaded twice: %q", twice)
	}
	t.Logf("%d PUTs of %d files", tried, files*4)
}

// awaitHello waits for an agent after the one of this instance.
func (d *farDeck) awaitHello(t *testing.T, instance string) {
	t.Helper()
	for begin := time.Now(); time.Since(begin) < patience; time.Sleep(100 * time.Millisecond) {
		out, _, code := d.run(t, "agent", "status", "--json")
		if code == exitOK && !strings.Contains(out, instance) {
			return
		}
	}
	t.Fatal("no other agent comes")
}

// testSync starts a worker whose code comes from the laptop, and a changed one
// again, on a node that allows one session and forwards nothing.
func testSync(t *testing.T, bin string) {
	d := newFarDeck(t, bin, sshtest.Options{Lines: []string{"MaxSessions 1", "DisableForwarding yes"}})
	text := fmt.Sprintf(cutYAML, d.work, d.node.Dest(), d.puts.url, 4, 1)
	text = strings.Replace(text, "stages:\n", "sync: [{from: code, to: src}]\nstages:\n", 1)
	text = strings.Replace(text, "mkdir -p out;", "mkdir -p out; src/lib/hello;", 1)
	d.write(t, "pipedeck.yaml", text)
	for _, dir := range []string{"code/lib", "code/.git"} {
		if err := os.MkdirAll(filepath.Join(d.dir, dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	code := func(name, text string, mode os.FileMode) {
		t.Helper()
		file := filepath.Join(d.dir, "code", name)
		if err := os.WriteFile(file, []byte(text), mode); err != nil {
			t.Fatal(err)
		}
	}
	code("lib/hello", "#!/bin/sh\necho hello one\n", 0o755)
	code("config", "", 0o644)
	code(".git/secret", "no code", 0o644)
	pushes := func(args []string, says ...string) {
		t.Helper()
		_, errs, code := d.run(t, args...)
		if code != exitOK {
			t.Fatalf("%q ends with %d: %s", args, code, errs)
		}
		for _, want := range says {
			if !strings.Contains(errs, want) {
				t.Errorf("no %q in %s", want, errs)
			}
		}
	}
	pushes([]string{"start", "extract"}, "sync: new: src/lib/hello", "sync: new: src/config", "pushed 2 of 2")
	if out := d.must(t, "logs", "extract/0"); !strings.Contains(out, "hello one") {
		t.Errorf("the log: %s", out)
	}
	code("lib/hello", "#!/bin/sh\necho hello two\n", 0o755)
	pushes([]string{"restart", "extract", "--confirm", "far"}, "sync: changed: src/lib/hello", "pushed 1 of 2")
	if out := d.must(t, "logs", "extract/0"); !strings.Contains(out, "hello two") {
		t.Errorf("the log: %s", out)
	}
	pushes([]string{"start", "extract"}, "sync: 2 files are the same")
	d.plansCode(t, code)
	if left, err := filepath.Glob(filepath.Join(d.work, "src", ".*")); err != nil || len(left) > 0 {
		t.Errorf("left: %q %v", left, err)
	}
	d.must(t, "stop", "extract", "--confirm", "far")
}

// plansCode plans a restart with code that changes after it, and one that is
// applied; then it looks where the hash of the code is kept.
func (d *farDeck) plansCode(t *testing.T, code func(name, text string, mode os.FileMode)) {
	t.Helper()
	plan := func() pipeline.Plan {
		t.Helper()
		var p pipeline.Plan
		if err := json.Unmarshal([]byte(d.must(t, "plan", "restart", "extract", "--json")), &p); err != nil {
			t.Fatal(err)
		}
		return p
	}
	there := func(want string) {
		t.Helper()
		if raw, err := os.ReadFile(filepath.Join(d.work, "src/lib/hello")); err != nil || !strings.Contains(string(raw), want) {
			t.Errorf("the node has %q, %v", raw, err)
		}
	}
	code("lib/hello", "#!/bin/sh\necho hello three\n", 0o755)
	stale := plan()
	c := stale.Intent.Code
	if c == nil || c.Files != 2 || len(c.Push) != 1 || c.Push[0].To != "src/lib/hello" || c.Push[0].New {
		t.Fatalf("the plan has the code %+v", c)
	}
	if notes := strings.Join(stale.Notes, "\n"); !strings.Contains(notes, "1 of 2 files") || !strings.Contains(notes, "extract/0 and 3 more run with ") {
		t.Errorf("the plan says %q", notes)
	}
	there("hello two") // a plan changes nothing
	code("lib/hello", "#!/bin/sh\necho hello four\n", 0o755)
	_, errs, exit := d.run(t, "apply", stale.ID, "--confirm", "far")
	if exit != exitRefused || !strings.Contains(errs, "src/lib/hello") || !strings.Contains(errs, c.Hash[:12]) || !strings.Contains(errs, "nothing was pushed") {
		t.Errorf("apply with other files ends with %d: %s", exit, errs)
	}
	there("hello two")
	p := plan()
	if _, errs, exit := d.run(t, "apply", p.ID, "--confirm", "no"); exit != exitRefused || strings.Contains(errs, "pushed") {
		t.Errorf("apply without confirmation ends with %d: %s", exit, errs)
	}
	there("hello two")
	if _, errs, exit := d.run(t, "apply", p.ID, "--confirm", "far"); exit != exitOK || !strings.Contains(errs, "pushed 1 of 2") {
		t.Fatalf("apply ends with %d: %s", exit, errs)
	}
	there("hello four")
	hash := p.Intent.Code.Hash
	for _, w := range d.snapshot(t).Nodes[0].Stages[0].Workers {
		if w.Code == nil || *w.Code != hash {
			t.Errorf("%s runs with %v, not %s", w.ID, w.Code, hash)
		}
	}
	if raw, ok := d.store.Object("r1/.pipedeck/extract.json"); !ok || !strings.Contains(string(raw), hash) {
		t.Errorf("the record in the bucket: %s", raw)
	}
	if out := d.must(t, "history", "--json"); !strings.Contains(out, "restart extract, code "+hash) || !strings.Contains(out, "2 files are as planned (code "+hash) {
		t.Errorf("the journal: %s", out)
	}
}

// testCredentialsEnd forwards credentials that end in ten minutes to a stage
// that runs, then ones that last.
func testCredentialsEnd(t *testing.T, bin string) {
	d := newFarDeck(t, bin, sshtest.Options{})
	d.env = append(d.env, "AWS_ACCESS_KEY_ID=", "AWS_SECRET_ACCESS_KEY=")
	config := filepath.Join(d.laptop.Home, ".aws", "config")
	lasting := func(left time.Duration) {
		t.Helper()
		answer := fmt.Sprintf(`{"Version":1,"AccessKeyId":%q,"SecretAccessKey":%q,"SessionToken":"t%d","Expiration":%q}`,
			farKey, farSecret, left, time.Now().Add(left).UTC().Format(time.RFC3339))
		for name, text := range map[string]string{config: "[default]\ncredential_process = /bin/cat " + config + ".json\n", config + ".json": answer} {
			if err := os.MkdirAll(filepath.Dir(name), 0o700); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	health := func(want bool) {
		t.Helper()
		var last pipeline.Snapshot
		for begin := time.Now(); time.Since(begin) < patience; time.Sleep(100 * time.Millisecond) {
			last = d.snapshot(t)
			if strings.Contains(strings.Join(last.HealthReasons, "\n"), "the forwarded credentials end in ") == want && last.Nodes[0].Store != nil {
				return
			}
		}
		t.Fatalf("a warning is not %v: %q %+v", want, last.HealthReasons, last.Nodes[0].Store)
	}
	lasting(10 * time.Minute)
	d.must(t, "start", "extract")
	health(true)
	lasting(24 * time.Hour)
	health(false)
	d.must(t, "stop", "extract", "--confirm", "far")
}
