package proc

import (
	"bytes"
	"context"
	"os"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"pipedeck/pipeline"
)

// escapeVar marks what an escape artist starts, for a judge of the test's own.
const escapeVar = "ESCAPE_ARTIST"

// artist is a worker that does not go by itself. Its script makes the file
// "ready" when it is what it says; names in files are what the environment
// does not mark.
type artist struct {
	script string // of sh
	python string
	files  []string // that hold the pids of more processes
	says   string   // in the verdict while it lives
	root   bool     // needs root
}

const deaf = "import signal, time\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\n"

var artists = map[string]artist{
	"ignores SIGTERM": {
		script: "trap '' TERM; touch ready; while :; do sleep 0.1; done",
		says:   "leader still alive: pid LEADER (sh) of USER",
	},
	"children in sessions of their own": {
		script: "setsid sh -c 'trap \"\" TERM; echo $$ > a; while :; do sleep 0.1; done' & while ! test -s a; do sleep 0.01; done; touch ready; wait",
		files:  []string{"a"},
		says:   "pid FILE:a (sh) of USER, found by",
	},
	"double fork": {
		script: "(setsid sh -c 'trap \"\" TERM; echo $$ > a; while :; do sleep 0.1; done' &); while ! test -s a; do sleep 0.01; done; touch ready; exec sleep 600",
		files:  []string{"a"},
		says:   "pid FILE:a (sh) of USER, found by",
	},
	"double fork without its environment": {
		script: "(env -i setsid sh -c 'echo $$ > a; exec /bin/sleep 600' &); while ! test -s a; do sleep 0.01; done; touch ready; exec sleep 600",
		files:  []string{"a"},
		says:   "pid FILE:a (sleep) of USER, found by",
	},
	// About 200 forks a second; each child leaves, is deaf and lives for a while.
	"forks in a loop": {
		python: deaf + `
import os
n = 0
while True:
    if os.fork() == 0:
        os.setsid()
        if os.fork(): os._exit(0)
        time.sleep(0.3)
        os._exit(0)
    time.sleep(0.01)
    n += 1
    if n == 20: open("ready", "w")
    try:
        while os.waitpid(-1, os.WNOHANG)[0]: pass
    except ChildProcessError: pass
`,
		says: "leader still alive: pid LEADER",
	},
	"zombie leader with a thread": {
		python: deaf + `
import ctypes, threading
def work():
    while b"Z" not in open("/proc/self/stat", "rb").read().rsplit(b")", 1)[1][:3]: time.sleep(0.01)
    open("ready", "w")
    time.sleep(600)
threading.Thread(target=work).start()
ctypes.CDLL(None).syscall(60 if ctypes.sizeof(ctypes.c_void_p) == 8 and __import__("platform").machine() == "x86_64" else 93, 0)
`,
		says: "zombie with 1 living thread: pid LEADER",
	},
	// Whoever has called vfork waits, deaf to SIGTERM, for its child to exec.
	"D state": {
		python: deaf + `
import ctypes, os, platform, signal
clone, vfork = (56 if platform.machine() == "x86_64" else 220), 0x4000
if ctypes.CDLL(None).syscall(clone, vfork | signal.SIGCHLD, 0, 0, 0, 0) == 0:
    while b"D" not in open("/proc/%d/stat" % os.getppid(), "rb").read().rsplit(b")", 1)[1][:3]: time.sleep(0.01)
    open("ready", "w")
    time.sleep(600)
`,
		says: "D state: pid LEADER",
	},
	"another user": {
		python: deaf + `
import os
if os.fork() == 0:
    os.setsid()
    open("a", "w").write(str(os.getpid()))
    ready = open("ready", "w")
    os.setuid(65534)
    ready.write("x")
    ready.close()
    time.sleep(600)
os.waitpid(-1, 0)
`,
		files: []string{"a"},
		says:  "another user's process: pid FILE:a (python3) of NOBODY",
		root:  true,
	},
}

// Every artist is named while it lives, ends at last, and at no moment is it
// called gone before it is.
func TestEscapeArtists(t *testing.T) {
	t.Parallel()
	for name, a := range artists {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if a.root && os.Geteuid() != 0 {
				t.Skip("needs root")
			}
			perform(t, a)
		})
	}
}

func perform(t *testing.T, a artist) {
	d := newDeck(t)
	h := d.up(t)
	l := d.launch("w-0-1", a.script)
	if a.python != "" {
		l.Argv = []string{"python3", "-c", a.python}
	}
	l.Env = []string{escapeVar + "=" + d.root}
	start(t, h, l)
	awaitFileExists(t, filepath.Join(d.root, "ready"))
	leader := seen(t, h).PID
	verdict, checks := judge(t, h, "w-0-1")
	if want := a.saying(t, d, h, leader); verdict != pipeline.ActionFailed || !strings.Contains(said(checks), want) {
		t.Errorf("while it lives: %s: %s\nwant %q", verdict, said(checks), want)
	}
	for _, s := range []struct {
		sig string
		to  pipeline.Scope
	}{{"SIGTERM", pipeline.ToLeader}, {"SIGTERM", pipeline.ToSet}} {
		if _, err := h.Signal(context.Background(), "w-0-1", s.sig, s.to); err != nil {
			t.Errorf("%s to the %s: %v", s.sig, s.to, err)
		}
		a.honest(t, d, h)
	}
	await(t, "the stop to be verified", func() bool {
		_, _ = h.Signal(context.Background(), "w-0-1", "SIGKILL", pipeline.ToSet)
		return a.honest(t, d, h) == pipeline.Verified
	})
	if got := seen(t, h); got.State == pipeline.ProcRunning || got.Stragglers != 0 {
		t.Errorf("after the stop: %+v", got)
	}
}

// honest judges, and fails the test if a stop is called verified while
// anything of it lives.
func (a artist) honest(t *testing.T, d deck, h *Host) pipeline.Verdict {
	t.Helper()
	verdict, checks := judge(t, h, "w-0-1")
	if left := a.alive(t, d); verdict == pipeline.Verified && len(left) > 0 {
		t.Fatalf("%v live, and the verdict is: %s", left, said(checks))
	}
	return verdict
}

// alive finds what lives without the help of the code under test.
func (a artist) alive(t *testing.T, d deck) []int {
	t.Helper()
	entries, err := os.ReadDir("/proc")
	if err != nil {
		t.Fatal(err)
	}
	known := map[int]bool{}
	for _, name := range a.files {
		known[awaitPID(t, filepath.Join(d.root, name))] = true
	}
	var out []int
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		env, _ := os.ReadFile(filepath.Join("/proc", e.Name(), "environ"))
		if !known[pid] && !bytes.Contains(env, []byte(escapeVar+"="+d.root+"\x00")) {
			continue
		}
		if n, err := (procFS{root: "/proc"}).liveThreads(pid); err == nil && n > 0 {
			out = append(out, pid)
		}
	}
	return out
}

// saying fills in the names of those who are expected in a verdict.
func (a artist) saying(t *testing.T, d deck, h *Host, leader int) string {
	t.Helper()
	nobody := "65534"
	if u, err := user.LookupId(nobody); err == nil {
		nobody = u.Username
	}
	out := strings.NewReplacer("LEADER", itoa(leader), "USER", h.owner(os.Getpid()), "NOBODY", nobody).Replace(a.says)
	for _, name := range a.files {
		out = strings.ReplaceAll(out, "FILE:"+name, awaitFile(t, filepath.Join(d.root, name)))
	}
	return out
}

// A worker that ends between the looks was not seen gone twice.
func TestWorkerDiesDuringTheCheck(t *testing.T) {
	t.Parallel()
	d := newDeck(t)
	h := d.up(t)
	start(t, h, d.launch("w-0-1", "exec sleep 600"))
	leader := seen(t, h).PID
	verdict, checks := judgeMeanwhile(t, h, "w-0-1", func() {
		_ = unix.Kill(leader, unix.SIGKILL)
		await(t, "its end", func() bool { return gone(leader) })
	})
	if verdict != pipeline.Unverified || !strings.Contains(said(checks), "empty only once; before, leader still alive: pid "+itoa(leader)) {
		t.Errorf("%s: %s", verdict, said(checks))
	}
	if verdict, checks := judge(t, h, "w-0-1"); verdict != pipeline.Verified || !strings.Contains(said(checks), "SIGKILL") {
		t.Errorf("then %s: %s", verdict, said(checks))
	}
}

// A zombie that its parent leaves lying about holds nothing: it is gone, and
// named.
func TestZombieOfAnAdoptedWorker(t *testing.T) {
	t.Parallel()
	d := newDeck(t)
	h := d.up(t)
	byHand(t, d.root, `exec python3 -c '
import os, time
pid = os.fork()
if pid: open("w", "w").write(str(pid))
time.sleep(600)'`)
	worker := awaitPID(t, filepath.Join(d.root, "w"))
	adopt(t, h, d.launch("w-0-1", ""), worker)
	if verdict, checks := judge(t, h, "w-0-1"); verdict != pipeline.ActionFailed {
		t.Errorf("while it lives: %s: %s", verdict, said(checks))
	}
	if _, err := h.Signal(context.Background(), "w-0-1", "SIGKILL", pipeline.ToSet); err != nil {
		t.Fatal(err)
	}
	await(t, "its end", func() bool { return gone(worker) })
	verdict, checks := judge(t, h, "w-0-1")
	if verdict != pipeline.Verified || !strings.Contains(said(checks), "zombies without threads: "+itoa(worker)+" (python3)") {
		t.Errorf("%s: %s", verdict, said(checks))
	}
	if got := seen(t, h); got.State != pipeline.ProcLost {
		t.Errorf("observed: %+v", got)
	}
}

// Each process of a chain of forks lives for milliseconds, so a look may find
// nobody. Its shim tells that somebody is left.
func TestNoVerdictOnAForkChain(t *testing.T) {
	t.Parallel()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	d := newDeck(t)
	h := d.up(t)
	l := d.launch("w-0-1", "")
	l.Argv = []string{exe, "fork-chain"}
	start(t, h, l)
	awaitState(t, h, pipeline.ProcExited)
	empty := 0
	for range 300 {
		l, err := h.find("w-0-1")
		if err != nil {
			t.Fatal(err)
		}
		set, err := h.inspect(l)
		if err != nil {
			t.Fatal(err)
		}
		if holds(set) {
			continue
		}
		empty++
		ev := pipeline.LaunchEvidence{ID: "w-0-1", Worker: "w/0", First: set, Second: set}
		if verdict, checks := pipeline.JudgeStop(pipeline.StopEvidence{Launches: []pipeline.LaunchEvidence{ev}}); verdict == pipeline.Verified {
			t.Fatalf("a chain of forks is called gone: %s", said(checks))
		}
	}
	t.Logf("%d of 300 looks found nobody", empty)
}
