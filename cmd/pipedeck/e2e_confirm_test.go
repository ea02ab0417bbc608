package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
)

// consoleOf opens the console of a deck that is not the demo.
func consoleOf(t *testing.T, p *program) *window {
	t.Helper()
	w := &window{t: t, p: p}
	w.terminal = &terminal{tmux: needTool(t, "tmux"), socket: filepath.Join(t.TempDir(), "s")} // an old server may still be on its way out
	command := fmt.Sprintf("cd %s && env %s TERM=xterm-256color %s 2>console.err; echo $? >code", p.dir, strings.Join(p.env, " "), p.bin)
	_ = os.Remove(filepath.Join(p.dir, "code"))
	w.do(t, "new-session", "-d", "-x", "80", "-y", "24", "sh", "-c", command)
	t.Cleanup(func() { _ = exec.CommandContext(context.Background(), w.tmux, "-S", w.socket, "kill-server").Run() })
	t.Cleanup(func() {
		if said, err := os.ReadFile(filepath.Join(p.dir, "console.err")); err == nil && len(said) > 0 && t.Failed() {
			t.Logf("the console says: %s", said)
		}
	})
	w.shows("LIVE")
	return w
}

// keysOf is a text as keys by tmux's names.
func keysOf(text string) string {
	var keys []string
	for _, r := range text {
		if r == ' ' {
			keys = append(keys, "Space")
		} else {
			keys = append(keys, string(r))
		}
	}
	return strings.Join(keys, " ")
}

// takesKeys waits until the plan on the screen takes keys, and types one.
func (w *window) takesKeys() {
	w.t.Helper()
	w.shows("To do it")
	eventually(w.t, "the plan takes keys", func() bool {
		w.do(w.t, "send-keys", "x")
		return strings.Contains(w.screen(), "> x")
	})
}

// confirm types a text into the plan on the screen; only the whole text acts.
func (w *window) confirm(text string) {
	w.t.Helper()
	w.takesKeys()
	w.press("Enter", "that is not the text")
	w.press("C-u " + keysOf(text) + " Enter")
}

// testConsoleActs restarts and stops by keyboard, on real processes and a real
// store, and leaves the console while an action runs: the next one shows it.
func testConsoleActs(t *testing.T, bin string) {
	t.Helper()
	m := &move{files: 4000, size: 20_000, ranks: 2, maxMemory: 64e6}
	m.prepare(t, bin, 25)
	m.must(t, "start", "extract")
	w := consoleOf(t, m.program)
	w.press(": "+keysOf("restart extract")+" Enter", "RESTART extract", "type exactly:  e2e")
	w.confirm("e2e")
	w.shows("RESTART extract   verified", "After the start")
	w.press("q", "LIVE")

	pid := 0
	eventually(t, "a worker lives", func() bool {
		p := stageOf(m.snapshot(t)).Workers[1].PID
		if p != nil {
			pid = *p
		}
		return p != nil
	})
	if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	w.press(": "+keysOf("stop extract")+" Enter", "STOP extract")
	w.confirm("e2e")
	w.shows("running", "goes on in the agent")
	w.do(t, "send-keys", "C-c")
	if code := w.ends(); code != "0" {
		t.Errorf("the console ends with %s", code)
	}
	w = consoleOf(t, m.program)
	w.shows("ACTION stop extract by ")
	w.press("a", "STOP extract", "1. stop workers", "running")
	if err := syscall.Kill(pid, syscall.SIGCONT); err != nil {
		t.Error(err)
	}
	w.shows("verified", "2 workers are gone")
	w.do(t, "send-keys", "C-c")
}

// testConsoleWipes deletes by keyboard what is nowhere else, and brings it
// back: only the number and the name, typed, do it.
func testConsoleWipes(t *testing.T, bin string) {
	t.Helper()
	m := &move{files: 4000, size: 20_000, ranks: 2, maxMemory: 64e6}
	m.prepare(t, bin, 25)
	m.must(t, "pause")
	m.must(t, "start", "extract")
	eventually(t, "files are on the disk", func() bool { return m.local(t) >= 50 })
	w := consoleOf(t, m.program)
	w.press(": "+keysOf("wipe extract/hs")+" Enter", "WIPE extract/hs", "WILL BE LOST", "proven in S3")
	w.takesKeys()
	w.press("BTab Enter", "files of wipe", "X not in S3", ".safetensors")
	w.press("q", "WIPE extract/hs")
	before := m.local(t)
	w.confirm("e2e")
	w.shows("that is not the text")
	if now := m.local(t); now < before {
		t.Fatalf("%d of %d files are left", now, before)
	}
	lost := strings.ReplaceAll(regexp.MustCompile(`WILL BE LOST +([0-9,]+)`).FindStringSubmatch(w.screen())[1], ",", "")
	w.press("C-u "+keysOf(lost+" e2e")+" Enter", "WIPE extract/hs   verified", "trash")
	if left := m.local(t); left >= before {
		t.Errorf("%d files are left of %d when %s were wiped", left, before, lost)
	}
	id := regexp.MustCompile(`a-[0-9a-f]+`).FindString(w.screen())
	w.press("q", "LIVE")
	w.press(": "+keysOf("undo "+id)+" Enter", "UNDO")
	if strings.Contains(w.screen(), "To do it") {
		w.confirm("e2e")
	}
	n, err := strconv.Atoi(lost)
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, "the files are back", func() bool { return m.local(t) >= n })
	w.do(t, "send-keys", "C-c")
}
