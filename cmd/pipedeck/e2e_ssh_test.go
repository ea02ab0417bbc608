package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"pipedeck/pipeline"
	"pipedeck/remote/agent/wire"
	"pipedeck/remote/ssh/sshtest"
	"pipedeck/s3/s3test"
)

// TestE2ESSH runs the real binary against real sshd processes.
func TestE2ESSH(t *testing.T) {
	if testing.Short() {
		t.Skip("end to end: minutes")
	}
	bin := buildStatic(t, "")
	t.Run("upgrade", func(t *testing.T) { testUpgrade(t, bin) })
	t.Run("first contact", func(t *testing.T) { testFirstContact(t, bin) })
	t.Run("no deploy", func(t *testing.T) { testNoDeploy(t, bin) })
	t.Run("no workdir", func(t *testing.T) { testNoWorkdir(t, bin) })
	t.Run("cuts", func(t *testing.T) { testCuts(t, bin) })
	t.Run("link", func(t *testing.T) { testLinkDown(t, bin) })
	t.Run("credentials that end", func(t *testing.T) { testCredentialsEnd(t, bin) })
	t.Run("beside logs", func(t *testing.T) { testBesideLogs(t, bin) })
	t.Run("fleet console", func(t *testing.T) { testFleetConsole(t, bin) })
	t.Run("sync", func(t *testing.T) { testSync(t, bin) })
	t.Run("matrix", func(t *testing.T) { testMatrix(t, bin) })
}

// buildStatic builds what a node gets; ver is its version, the source's if empty.
func buildStatic(t *testing.T, ver string, tags ...string) string {
	t.Helper()
	bin := filepath.Join(t.TempDir(), "pipedeck")
	flags := "-s -w"
	if ver != "" {
		flags += " -X main.version=" + ver
	}
	cmd := exec.CommandContext(t.Context(), "go", "build", "-trimpath", "-tags", strings.Join(tags, ","), "-ldflags", flags, "-o", bin, ".")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("cannot build: %v\n%s", err, out)
	}
	return bin
}

const (
	farKey    = "AKIAFORWARDED000"
	farSecret = "canary-secret-that-was-forwarded"
)

// farDeck is a deck on a node of its own, as an operator's laptop sees it.
type farDeck struct {
	*program
	node   *sshtest.Server
	laptop *sshtest.Laptop
	store  *s3test.Server
	puts   *puts // in front of store
	work   string
	secret string // of this deck alone: other tests of the machine have theirs
}

func newFarDeck(t *testing.T, bin string, o sshtest.Options) *farDeck {
	t.Helper()
	d := &farDeck{node: sshtest.Start(t, o), store: s3test.New(s3test.Options{Keys: []string{farKey}})}
	t.Cleanup(d.store.Close)
	d.puts = countPuts(t, d.store, o.Network)
	d.laptop = sshtest.NewLaptop(t, d.node)
	d.secret = farSecret + "-" + filepath.Base(d.node.Dir)
	d.program = newProgram(t, bin, "AWS_ACCESS_KEY_ID="+farKey, "AWS_SECRET_ACCESS_KEY="+d.secret)
	d.env = append(d.env, "HOME="+d.laptop.Home)
	d.work = filepath.Join(d.dir, "w")
	if err := os.Mkdir(d.work, 0o755); err != nil {
		t.Fatal(err)
	}
	d.write(t, "pipedeck.yaml", fmt.Sprintf(farYAML, d.work, d.node.Dest(), d.puts.url, farFiles*2))
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("agent.log:\n%s", wire.LastLines(wire.State{Dir: filepath.Join(d.work, ".pipedeck")}.Log(), 40))
		}
	})
	return d
}

// farFiles is how many files each of the two ranks writes.
const farFiles = 5

const farYAML = `version: 1
deck: far
run: r1
workdir: %q
nodes: [{name: train1, ssh: %q}]
store: {bucket: bucket, endpoint: %q, region: us-east-1, path_style: true}
stages:
  extract:
    total: %d
    workers:
      count: 2
      command: [/bin/sh, -c, 'mkdir -p out; for i in 0 1 2 3 4; do echo "sample {rank}$i" >out/.tmp-{rank}; mv out/.tmp-{rank} out/s_{rank}$i.txt; done; echo "rank {rank} wrote its files"; exec sleep 600']
      stop: {signal: SIGTERM, grace: 5s}
    outputs:
      o: {dir: out, match: "*.txt", format: any, settle: 1s, id: 's_(\d+)\.', key: "o/{path}"}
    done_set: {file: done.txt, form: lines}
`

// await polls the snapshot until it is as wanted.
func (d *farDeck) await(t *testing.T, what string, ok func(pipeline.NodeSnapshot) bool) pipeline.NodeSnapshot {
	t.Helper()
	return d.awaitFor(t, patience, what, ok)
}

func (d *farDeck) awaitFor(t *testing.T, limit time.Duration, what string, ok func(pipeline.NodeSnapshot) bool) pipeline.NodeSnapshot {
	t.Helper()
	var last pipeline.Snapshot
	for begin := time.Now(); time.Since(begin) < limit; time.Sleep(100 * time.Millisecond) {
		if last = d.snapshot(t); ok(last.Nodes[0]) {
			return last.Nodes[0]
		}
	}
	raw, _ := json.MarshalIndent(last, "", " ")
	t.Fatalf("not seen: %s\n%s", what, raw)
	return last.Nodes[0]
}

func verified(n pipeline.NodeSnapshot) int64 {
	v := n.Stages[0].Outputs[0].VerifiedFiles
	if v == nil {
		return -1
	}
	return *v
}

func testFirstContact(t *testing.T, bin string) {
	d := newFarDeck(t, bin, sshtest.Options{})
	_, errs, code := d.run(t, "start", "extract")
	if code != exitOK {
		t.Fatalf("start ends with %d: %s", code, errs)
	}
	for _, want := range []string{"installing pipedeck", "uploading pipedeck", "agent " + version + " runs on train1", "2 of 2 workers are alive"} {
		if !strings.Contains(errs, want) {
			t.Errorf("no %q in:\n%s", want, errs)
		}
	}
	n := d.await(t, "all files proven", func(n pipeline.NodeSnapshot) bool { return verified(n) == farFiles*2 })
	if n.Link.Via == nil || *n.Link.Via != "ssh "+d.node.Dest() {
		t.Errorf("via %v", n.Link.Via)
	}
	if _, ok := d.store.Object("r1/o/s_00.txt"); !ok {
		t.Errorf("not in the store: %q", d.store.Keys())
	}
	if out := d.must(t, "logs", "extract/1"); !strings.Contains(out, "rank 1 wrote its files") {
		t.Errorf("the log: %s", out)
	}
	if out, errs, _ := d.run(t, "--json"); strings.Contains(out+errs, d.secret) || strings.Contains(errs, "installing") {
		t.Errorf("the second contact says %s", errs)
	}
	d.noSecret(t)
	d.keeperRemembers(t)
	d.undeploys(t)
}

// noSecret looks for the forwarded secret in files, environments and arguments.
func (d *farDeck) noSecret(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	out, _ := exec.CommandContext(ctx, "grep", "-rlaF", "--devices=skip", d.secret, d.work, d.node.Home, d.node.Dir).Output() // nothing found is code 1
	if len(out) > 0 {
		t.Errorf("the secret is in %s", out)
	}
	for _, pattern := range []string{"/proc/[0-9]*/environ", "/proc/[0-9]*/cmdline"} {
		names, _ := filepath.Glob(pattern) // the pattern is well formed
		for _, name := range names {
			raw, err := os.ReadFile(name)
			// The laptop's own commands have it in their environment.
			if err == nil && strings.Contains(string(raw), d.secret) && !strings.Contains(string(raw), "HOME="+d.laptop.Home) {
				t.Errorf("the secret is in %s", name)
			}
		}
	}
}

// keeperRemembers kills the agent and looks whether the next one can upload
// before any console was there.
func (d *farDeck) keeperRemembers(t *testing.T) {
	t.Helper()
	h := d.hello(t)
	if h.Credentials == nil || h.Credentials.ID == "" {
		t.Fatalf("nothing was forwarded: %+v", h)
	}
	if err := syscall.Kill(h.PID, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(d.work, "out", "s_99.txt"), []byte("late"), 0o644); err != nil {
		t.Fatal(err)
	}
	for begin := time.Now(); ; time.Sleep(50 * time.Millisecond) {
		if _, ok := d.store.Object("r1/o/s_99.txt"); ok {
			break
		}
		if time.Since(begin) > patience {
			t.Fatal("the next agent uploads nothing")
		}
	}
	if next := d.hello(t); next.PID == h.PID || next.KeeperPID != h.KeeperPID {
		t.Errorf("agent %d of keeper %d came after %d of %d", next.PID, next.KeeperPID, h.PID, h.KeeperPID)
	}
}

// undeploys removes the installed programs and nothing else.
func (d *farDeck) undeploys(t *testing.T) {
	t.Helper()
	if _, errs, code := d.run(t, "agent", "undeploy"); code != exitRefused || !strings.Contains(errs, "extract/0") {
		t.Errorf("with living workers: %d %s", code, errs)
	}
	d.must(t, "stop", "extract", "--confirm", "far")
	_, errs, code := d.run(t, "agent", "undeploy")
	if code != exitOK || !strings.Contains(errs, "removed ") {
		t.Fatalf("%d %s", code, errs)
	}
	if left, err := filepath.Glob(filepath.Join(d.node.Home, ".local/share/*")); err != nil || len(left) > 0 {
		t.Errorf("left: %q %v", left, err)
	}
	if _, err := os.Stat(filepath.Join(d.work, ".pipedeck", "journal.jsonl")); err != nil {
		t.Errorf("the deck's state is gone: %v", err)
	}
	if _, errs, code := d.run(t, "stop", "extract"); code != exitOK || !strings.Contains(errs, "nothing to do") || strings.Contains(errs, "installing") {
		t.Errorf("stop after undeploy ends with %d: %s", code, errs)
	}
	var act pipeline.Action
	out, errs, code := d.run(t, "stop", "extract", "--json")
	if err := json.Unmarshal([]byte(out), &act); err != nil || code != exitOK || act.Result != pipeline.Verified || len(act.Steps) != 0 || act.Reason == nil {
		t.Errorf("stop --json after undeploy ends with %d (%v): %s%s", code, err, out, errs)
	}
	if _, errs, code := d.run(t, "kill", "extracts"); code != exitUsage || !strings.Contains(errs, `no stage "extracts"`) {
		t.Errorf("kill of no stage after undeploy ends with %d: %s", code, errs)
	}
	if _, _, code := d.run(t, "agent", "stop"); code != exitOK {
		t.Errorf("agent stop after undeploy ends with %d", code)
	}
	if _, _, code := d.run(t, "agent", "status"); code != exitUnknown {
		t.Errorf("status after undeploy ends with %d", code)
	}
	if left, err := filepath.Glob(filepath.Join(d.node.Home, ".local/share/*")); err != nil || len(left) > 0 {
		t.Errorf("installed to find out: %q %v", left, err)
	}
}

func (d *farDeck) hello(t *testing.T) wire.Hello {
	t.Helper()
	var h wire.Hello
	if err := json.Unmarshal([]byte(d.must(t, "agent", "status", "--json")), &h); err != nil {
		t.Fatal(err)
	}
	return h
}

// testUpgrade replaces the agent under living workers, and fails to.
func testUpgrade(t *testing.T, bin string) {
	d := newFarDeck(t, bin, sshtest.Options{})
	d.must(t, "start", "extract")
	workers := func() string {
		var pids []string
		for _, l := range recordedLaunches(filepath.Join(d.work, ".pipedeck")) {
			if !l.Worker.alive() || !l.Shim.alive() {
				t.Errorf("a worker ended: %+v", l)
			}
			pids = append(pids, fmt.Sprintf("%+v", l))
		}
		return strings.Join(pids, " ")
	}
	before, first := workers(), d.hello(t)
	same := func(when string) {
		t.Helper()
		if now := workers(); now != before {
			t.Errorf("%s the workers are %s, before %s", when, now, before)
		}
	}
	deploy := func(with string, code int, args []string, says ...string) wire.Hello {
		t.Helper()
		d.bin = with
		_, errs, got := d.run(t, append([]string{"agent", "deploy"}, args...)...)
		if got != code {
			t.Fatalf("deploy %q ends with %d: %s", args, got, errs)
		}
		for _, want := range says {
			if !strings.Contains(errs, want) {
				t.Errorf("no %q in %s", want, errs)
			}
		}
		same("after " + errs)
		return d.hello(t)
	}
	newer := buildStatic(t, "0.2.0")
	h := deploy(newer, exitOK, nil, "agent 0.2.0 took the place of "+version)
	if h.Version != "0.2.0" || h.Instance == first.Instance || h.Credentials == nil || h.Credentials.ID == "" {
		t.Errorf("%+v", h)
	}
	if again := deploy(bin, exitRefused, nil, "cannot upgrade the agent: it is 0.2.0"); again.Instance != h.Instance {
		t.Error("a refused upgrade restarted the agent")
	}
	if _, errs, _ := d.run(t, "--json"); !strings.Contains(errs, "is version 0.2.0, this is "+version) {
		t.Errorf("an older console says %s", errs)
	}
	broken := buildStatic(t, "0.3.0", "pipedeck_broken")
	if back := deploy(broken, exitFailed, nil, "cannot upgrade the agent", "the old one (0.2.0) serves again"); back.Version != "0.2.0" || back.SHA256 != h.SHA256 {
		t.Errorf("after a failed upgrade %+v answers", back)
	}
	if h = deploy(bin, exitOK, []string{"--downgrade"}, "agent "+version+" took the place of 0.2.0"); h.Version != version {
		t.Errorf("%+v", h)
	}
	d.must(t, "stop", "extract", "--confirm", "far")
}

// hide makes programs unusable in the server's namespace.
const hide = `for p in python3 curl wget gzip sftp scp; do for d in /usr/local/bin /usr/bin /bin; do if [ -e $d/$p ]; then mount --bind /dev/null "$(readlink -f $d/$p)"; fi; done; done
if [ -e /usr/lib/openssh/sftp-server ]; then mount --bind /dev/null /usr/lib/openssh/sftp-server; fi`

// noexec lets programs run in /var/lib only.
const noexec = `mount -t tmpfs -o noexec tmpfs "$1/home"; mount -t tmpfs -o noexec tmpfs /dev/shm
mount --bind /tmp /tmp; mount -o remount,bind,noexec /tmp; mount -t tmpfs tmpfs /var/lib`

func testMatrix(t *testing.T, bin string) {
	noisy := func(rc, text string) func(*testing.T, *sshtest.Server) {
		return func(t *testing.T, s *sshtest.Server) {
			t.Helper()
			file := filepath.Join(s.Home, rc)
			if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
				t.Fatal(err)
			}
		}
	}
	const stdio = ", through dial-stdio (forwarding refused)"
	for _, tc := range []struct {
		name    string
		options sshtest.Options
		before  func(*testing.T, *sshtest.Server)
		via     string
	}{
		{name: "MaxSessions 1", options: sshtest.Options{Lines: []string{"MaxSessions 1"}}},
		{name: "AllowStreamLocalForwarding no", options: sshtest.Options{Lines: []string{"AllowStreamLocalForwarding no"}}, via: stdio},
		{name: "AllowTcpForwarding no", options: sshtest.Options{Lines: []string{"AllowTcpForwarding no"}}, via: stdio},
		{name: "DisableForwarding and MaxSessions 1", options: sshtest.Options{Lines: []string{"DisableForwarding yes", "MaxSessions 1"}}, via: stdio},
		{
			name: "fish", options: sshtest.Options{Shell: "/usr/bin/fish", Lines: []string{"AllowStreamLocalForwarding no"}}, via: stdio,
			before: noisy(".config/fish/config.fish", "echo Welcome\necho -n no newline\n"),
		},
		{
			name: "csh", options: sshtest.Options{Shell: "/bin/csh", Lines: []string{"AllowStreamLocalForwarding no"}}, via: stdio,
			before: noisy(".cshrc", "echo Welcome\necho -n no newline\n"),
		},
		{name: "noexec tmp and home", options: sshtest.Options{Prepare: noexec}},
		{name: "read-only home", options: sshtest.Options{Prepare: `mount -t tmpfs -o ro tmpfs "$1/home"; mount -t tmpfs tmpfs /var/lib`}},
		{name: "empty PATH", options: sshtest.Options{Env: []string{"PATH="}}},
		{name: "no python, curl, gzip or sftp-server", options: sshtest.Options{Prepare: hide}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			if tc.options.Shell != "" {
				needTool(t, tc.options.Shell)
			}
			d := newFarDeck(t, bin, tc.options)
			if tc.before != nil {
				tc.before(t, d.node)
			}
			_, errs, code := d.run(t, "start", "extract")
			if code != exitOK {
				t.Fatalf("start ends with %d: %s", code, errs)
			}
			via := ""
			n := d.await(t, "an uploaded file", func(n pipeline.NodeSnapshot) bool { return verified(n) > 0 })
			if n.Link.Via != nil {
				via = *n.Link.Via
			}
			if via != "ssh "+d.node.Dest()+tc.via {
				t.Errorf("via %q", via)
			}
			if out := d.must(t, "logs", "extract/0"); !strings.Contains(out, "rank 0 wrote its files") {
				t.Errorf("the log: %s", out)
			}
			d.must(t, "stop", "extract", "--confirm", "far")
			if _, errs, code := d.run(t, "agent", "deploy"); code != exitOK || !strings.Contains(errs, "runs on train1 already") {
				t.Errorf("deploy again ends with %d: %s", code, errs)
			}
			if _, errs, code := d.run(t, "agent", "undeploy"); code != exitOK || !strings.Contains(errs, "removed ") {
				t.Errorf("undeploy ends with %d: %s", code, errs)
			}
		})
	}
}
