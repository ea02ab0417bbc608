package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// window is a tmux window with the demo's console in it.
type window struct {
	t *testing.T
	*terminal
	p *program
}

func openDemo(t *testing.T, bin string, flags string) *window {
	t.Helper()
	w := &window{t: t, p: newProgram(t, bin)}
	w.terminal = &terminal{tmux: needTool(t, "tmux"), socket: filepath.Join(w.p.dir, "tmux")}
	command := fmt.Sprintf("TMPDIR=%s HOME=%s %s demo %s; echo $? >%s", w.p.dir, w.p.dir, bin, flags, filepath.Join(w.p.dir, "code"))
	w.do(t, "new-session", "-d", "-x", "120", "-y", "40", "sh", "-c", command)
	t.Cleanup(func() {
		_ = exec.CommandContext(context.Background(), w.tmux, "-S", w.socket, "kill-server").Run()
		eventually(t, "the demo is gone", func() bool { return w.p.demoLeft(t) == "" })
	})
	w.shows("extract/3", "verified in S3", "first output since") // with events to move through
	return w
}

func (w *window) screen() string { return w.do(w.t, "capture-pane", "-p") }

// shows waits until every text is on the screen, be it over two lines.
func (w *window) shows(texts ...string) {
	w.t.Helper()
	var screen string
	defer func() {
		if w.t.Failed() {
			w.t.Log(screen)
		}
	}()
	eventually(w.t, fmt.Sprintf("the screen shows %q", texts), func() bool {
		screen = w.screen()
		unwrapped := oneLine(screen)
		for _, text := range texts {
			if !strings.Contains(screen, text) && !strings.Contains(unwrapped, oneLine(text)) {
				return false
			}
		}
		return true
	})
}

func oneLine(text string) string { return strings.Join(strings.Fields(text), " ") }

func (w *window) hides(text string) {
	w.t.Helper()
	eventually(w.t, fmt.Sprintf("%q is not on the screen any more", text), func() bool { return !strings.Contains(w.screen(), text) })
}

// press sends keys by tmux's names and then waits for texts; for none where the
// keys may end the console.
func (w *window) press(keys string, texts ...string) {
	w.t.Helper()
	w.do(w.t, append([]string{"send-keys"}, strings.Fields(keys)...)...)
	if len(texts) > 0 {
		w.shows(texts...)
	}
}

func (w *window) ends() string {
	w.t.Helper()
	var code []byte
	eventually(w.t, "the console ends", func() bool {
		code, _ = os.ReadFile(filepath.Join(w.p.dir, "code"))
		return len(code) > 0
	})
	return strings.TrimSpace(string(code))
}

// keysShow are keys by tmux's names, and what is on the screen after them.
type keysShow struct {
	keys  string
	shows []string
}

func everyKey() []keysShow {
	return []keysShow{
		{"Tab", []string{"== 2 S3 UPLOAD"}},
		{"BTab", []string{"== 1 WORKERS"}},
		{"2", []string{"== 2 S3 UPLOAD"}},
		{"3", []string{"== 3 EVENTS"}},
		{"j j", []string{"newer, G = newest"}},
		{"Enter", []string{"event of "}},
		{"q", []string{"== 3 EVENTS"}},
		{"G", []string{"== 3 EVENTS ="}},
		{"1", []string{"== 1 WORKERS"}},
		{"j", []string{">1   extract/1"}},
		{"k", []string{">0   extract/0"}},
		{"Down", []string{">1   extract/1"}},
		{"Up", []string{">0   extract/0"}},
		{"G", []string{">3   extract/3"}},
		{"g", []string{">0   extract/0"}},
		{"C-d", []string{">3   extract/3"}},
		{"C-u", []string{">0   extract/0"}},
		{"NPage", []string{">3   extract/3"}},
		{"PPage", []string{">0   extract/0"}},
		{"End", []string{">3"}},
		{"Home", []string{">0"}},
		{"s", []string{"by need"}},
		{"S", []string{"by need, reversed"}},
		{"s s s s s", []string{"sorted by GPU"}},
		{"S S", nil},
		{"/ e x t r a c t / 2 Enter", []string{"/extract/2  3 hidden"}},
		{"Escape", []string{"extract/1"}},
		{"+", []string{"== 1 WORKERS"}},
		{"-", []string{"-- 2 S3 upload"}},
		{"_", nil},
		{"_", []string{"-- 2 S3 upload"}},
		{"y", []string{"copied the row"}},
		{"Enter", []string{"How it was started", "sim-worker", "GPU slots"}},
		{"Escape", []string{"== 1 WORKERS"}},
		{"n", []string{"the deck has one node"}},
		{"N", nil},
		{": s t r Tab Enter", []string{"no workers of this deck", "none: nobody else"}},
		{"t", []string{"none: nobody else"}},
		{"q", []string{"== 1 WORKERS"}},
		{"l", []string{"log of extract/", "following"}},
		{"f", []string{"paused, "}},
		{"f", []string{"following"}},
		{"w", nil},
		{"t", nil},
		{"/ m o d e l Enter", []string{"/model", "loading the model"}},
		{"n", nil},
		{"N", nil},
		{"y", []string{"copied "}},
		{"G", []string{"following"}},
		{"q", []string{"== 1 WORKERS"}},
		{"e", []string{"Failed and quarantined files", "Warnings and errors"}},
		{"t", []string{"the agent tries failed files now"}},
		{"/ x Enter", []string{"/x"}},
		{"y", nil},
		{"Enter", nil},
		{"q", []string{"== 1 WORKERS"}},
		{"?", []string{"Keys", "next pane"}},
		{"/ z o o m Enter", []string{"zoom the pane"}},
		{"q", []string{"== 1 WORKERS"}},
		{": t h e Tab Enter", []string{"theme dark"}},
		{"T", []string{"theme light"}},
		{"!", []string{"Actions for demo", "wipe local files"}},
		{"q", []string{"== 1 WORKERS"}},
		{"r", nil},
		{"Space", []string{"FROZEN"}},
		{"Space", nil},
		{"m", []string{"mouse on"}},
		{"m", []string{"mouse off"}},
		{"L", []string{"READ-ONLY"}},
		{"p", []string{"p: locked, L unlocks"}},
		{"!", []string{"not available: locked"}},
		{"L", nil},
		{"Escape", []string{"read-write"}},
		{"p", []string{"pause uploads? y then Enter"}},
		{"y Enter", []string{"UPLOADS PAUSED"}},
		{"p", []string{"resume uploads?"}},
		{"y Enter", nil},
		{"C-l", []string{"== 1 WORKERS"}},
		{"! r", []string{"RESTART extract/", "type exactly:  y"}},
		{"q Enter Enter", []string{"RESTART extract/"}}, // text, and soon: neither leaves nor confirms
		{"Escape", []string{"nothing was done"}},
	}
}

// testConsoleKeys presses every key of the table in a live demo and sees that
// it does what help says.
func testConsoleKeys(t *testing.T, bin string) {
	t.Helper()
	w := openDemo(t, bin, "")
	for _, c := range everyKey() {
		t.Logf("%s", c.keys)
		w.press(c.keys, c.shows...)
		if t.Failed() {
			return
		}
	}
	w.hides("UPLOADS PAUSED")
	w.hides("FROZEN")
	w.do(t, "send-keys", "C-c")
	if code := w.ends(); code != "0" {
		t.Errorf("ctrl-c leaves with %s", code)
	}
}

// testConsoleLives is a console through what terminals and agents do: a resize
// storm, a pane that stops reading, an agent that is killed.
func testConsoleLives(t *testing.T, bin string) {
	t.Helper()
	w := openDemo(t, bin, "")
	for i := range 200 {
		size := [][2]string{{"80", "24"}, {"40", "10"}, {"120", "40"}, {"20", "5"}, {"200", "60"}}[i%5]
		w.do(t, "resize-window", "-x", size[0], "-y", size[1])
	}
	w.do(t, "resize-window", "-x", "100", "-y", "30")
	eventually(t, "the screen is right after the resize storm", func() bool {
		lines := strings.Split(strings.TrimRight(w.screen(), "\n"), "\n")
		return len(lines) == 30 && strings.Contains(lines[0], "LIVE") && strings.HasPrefix(lines[29], "? help") && strings.Count(strings.Join(lines, "\n"), "SAMPLES/S") == 1
	})
	stall := 5 * time.Second
	if full() {
		stall = 30 * time.Second
	}
	w.do(t, "copy-mode")
	time.Sleep(stall) // this is what is tested: nobody reads for that long
	w.do(t, "send-keys", "-X", "cancel")
	w.shows("LIVE", "SAMPLES/S", "? help")

	testAgentKilled(w)
	w.do(t, "send-keys", "q")
	if code := w.ends(); code != "0" {
		t.Errorf("q leaves with %s", code)
	}
}

// testAgentKilled kills the agent and holds its keeper for a while, so that
// the agent stays away: the header says so within seconds, the last values
// stay, marked, and without a key the console is live again afterwards.
func testAgentKilled(w *window) {
	w.t.Helper()
	pid, keeper := w.process("serve"), w.process("keep")
	signal := func(pid int, sig syscall.Signal) {
		if err := syscall.Kill(pid, sig); err != nil {
			w.t.Fatal(err)
		}
	}
	signal(keeper, syscall.SIGSTOP)
	signal(pid, syscall.SIGKILL)
	began := time.Now()
	w.shows("last data", "~", "extract/3")
	if took := time.Since(began); took > 3*time.Second {
		w.t.Errorf("the header says after %v that the agent is gone", took)
	}
	w.hides("LIVE")
	w.t.Log(w.screen())
	signal(keeper, syscall.SIGCONT)
	w.shows("LIVE", "extract/3")
	w.hides("last data")
	if w.process("serve") == pid {
		w.t.Error("the agent was not killed")
	}
}

// process is the pid of the demo's agent or of its keeper.
func (w *window) process(name string) int {
	w.t.Helper()
	pid := 0
	eventually(w.t, "an agent "+name+" runs", func() bool {
		for _, p := range processesOf(w.t, filepath.Join(w.p.dir, "pipedeck-demo-")) {
			number, args, _ := strings.Cut(p, ": ")
			if n, err := strconv.Atoi(number); err == nil && strings.Contains(args, " agent "+name+" ") {
				pid = n
			}
		}
		return pid > 0
	})
	return pid
}

// testConsolePlain is the console as lines of text.
func testConsolePlain(t *testing.T, bin string) {
	t.Helper()
	p := newProgram(t, bin)
	out := p.must(t, "demo", "--plain", "--for", "12s")
	for _, want := range []string{"link: live", "extract/0: LOAD", "extract/0: RUN", "summary: "} {
		if !strings.Contains(out, want) {
			t.Errorf("not said: %q in\n%s", want, out)
		}
	}
	if strings.Contains(out, "\x1b") {
		t.Error("a control sequence")
	}
}

// TestE2EConsoleKeys drives the console of a live demo in tmux.
func TestE2EConsoleKeys(t *testing.T) {
	if testing.Short() {
		t.Skip("end to end: minutes")
	}
	bin := filepath.Join(t.TempDir(), "pipedeck")
	if out, err := exec.CommandContext(t.Context(), "go", "build", "-o", bin, ".").CombinedOutput(); err != nil {
		t.Fatalf("cannot build: %v\n%s", err, out)
	}
	t.Run("keys", func(t *testing.T) { testConsoleKeys(t, bin) })
	t.Run("lives", func(t *testing.T) { testConsoleLives(t, bin) })
	t.Run("acts", func(t *testing.T) { testConsoleActs(t, bin) })
	t.Run("wipes", func(t *testing.T) { testConsoleWipes(t, bin) })
	t.Run("settles first", func(t *testing.T) { testConsoleSettlesFirst(t, bin) })
	t.Run("adopts", func(t *testing.T) { testConsoleAdopts(t, bin) })
	t.Run("reaps", func(t *testing.T) { testConsoleReaps(t, bin) })
	t.Run("plain", func(t *testing.T) { testConsolePlain(t, bin) })
}
