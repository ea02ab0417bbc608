package tui

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/charmbracelet/x/ansi"
	"github.com/charmbracelet/x/vt"
	"github.com/creack/pty"
)

// childScene makes the test binary run the console itself: it is the program
// that the tests below drive over a pseudo-terminal.
const childScene = "PIPEDECK_TUI_CHILD"

// childSilent keeps the child from printing at its end: on a terminal that
// does not read, that would block.
const childSilent = "PIPEDECK_TUI_SILENT"

// childNoisy makes the child write to stderr while the console is open.
const childNoisy = "PIPEDECK_TUI_NOISY"

func TestMain(m *testing.M) {
	name := os.Getenv(childScene)
	if name == "" {
		os.Exit(m.Run())
	}
	os.Exit(runChild(name))
}

func runChild(name string) int {
	s, ok := scenes()[strings.TrimPrefix(name, "crash:")]
	if !ok {
		return 64
	}
	var src Source = newFakeSource(s.in)
	if strings.HasPrefix(name, "crash:") {
		src = crashingSource{src}
	} else {
		go play(src.(*fakeSource))
	}
	if os.Getenv(childNoisy) != "" {
		// As a library or a child process would, behind the console's back.
		time.AfterFunc(300*time.Millisecond, func() { _, _ = os.Stderr.WriteString("noise on stderr\n") })
	}
	err := Run(context.Background(), Options{Nodes: nodesOf(src, demoDeck()), Now: time.Now, By: "test@here"})
	var crash *CrashError
	switch {
	case errors.As(err, &crash):
		fmt.Fprintln(os.Stderr, crash.Error())
		return 2
	case errors.Is(err, ErrDumbTerminal):
		fmt.Println("text instead")
		return 0
	case err != nil:
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	if os.Getenv(childSilent) == "" {
		fmt.Println("left")
	}
	return 0
}

// crashingSource panics on the second look.
type crashingSource struct{ Source }

func (crashingSource) Changed() <-chan struct{} { panic("boom in the source") }

// terminal is a child on a pseudo-terminal with a screen that shows its output.
type terminal struct {
	t      *testing.T
	cmd    *exec.Cmd
	tty    *os.File
	screen *vt.SafeEmulator
	ended  chan struct{} // all output was read
	mu     sync.Mutex
	raw    bytes.Buffer
	hold   sync.Mutex // locked while the terminal does not read
}

func start(t *testing.T, scene string, sz size, env ...string) *terminal {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0])
	cmd.Env = append(os.Environ(), append([]string{childScene + "=" + scene, "TERM=xterm-256color", "NO_COLOR=", "SSH_TTY="}, env...)...)
	tty, err := pty.StartWithSize(cmd, &pty.Winsize{Rows: uint16(sz.h), Cols: uint16(sz.w)})
	if err != nil {
		t.Fatal(err)
	}
	c := &terminal{t: t, cmd: cmd, tty: tty, screen: vt.NewSafeEmulator(sz.w, sz.h), ended: make(chan struct{})}
	go c.read()
	go func() { _, _ = io.Copy(tty, c.screen) }() // the terminal's own answers
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = tty.Close()
	})
	return c
}

func (c *terminal) read() {
	defer close(c.ended)
	buf := make([]byte, 32<<10)
	for {
		c.hold.Lock()
		c.hold.Unlock() //nolint:staticcheck // only waits while a test holds it
		n, err := c.tty.Read(buf)
		c.mu.Lock()
		c.raw.Write(buf[:n])
		c.mu.Unlock()
		_, _ = c.screen.Write(buf[:n])
		if err != nil {
			return
		}
	}
}

func (c *terminal) output() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.raw.String()
}

// shows waits until the screen contains a text.
func (c *terminal) shows(want string) {
	c.t.Helper()
	c.until("the screen shows "+want, func() bool { return strings.Contains(c.text(), want) })
}

func (c *terminal) until(what string, ok func() bool) {
	c.t.Helper()
	deadline := time.Now().Add(time.Minute)
	for !ok() {
		if time.Now().After(deadline) {
			c.t.Fatalf("never: %s\n%s", what, c.text())
		}
		time.Sleep(10 * time.Millisecond)
	}
}

func (c *terminal) keys(s string) {
	c.t.Helper()
	if _, err := c.tty.WriteString(s); err != nil {
		c.t.Fatal(err)
	}
}

// exits waits for the end of the child and returns its exit code and how long
// it took.
func (c *terminal) exits() (int, time.Duration) {
	c.t.Helper()
	began := time.Now()
	done := make(chan struct{})
	go func() { _ = c.cmd.Wait(); close(done) }()
	select {
	case <-done:
	case <-time.After(15 * time.Second):
		c.t.Fatal("the console does not end")
	}
	took := time.Since(began)
	select {
	case <-c.ended:
	case <-time.After(5 * time.Second):
	}
	return c.cmd.ProcessState.ExitCode(), took
}

// restored says whether what switches the alternate screen off and the cursor
// on came after what did the opposite.
func (c *terminal) restored() {
	c.t.Helper()
	out := c.output()
	for _, pair := range [][2]string{
		{ansi.SetModeAltScreenSaveCursor, ansi.ResetModeAltScreenSaveCursor},
		{ansi.ResetModeTextCursorEnable, ansi.SetModeTextCursorEnable},
	} {
		if strings.LastIndex(out, pair[1]) <= strings.LastIndex(out, pair[0]) {
			c.t.Errorf("%q does not come after %q", pair[1], pair[0])
		}
	}
}

func TestQuitRestoresTheTerminal(t *testing.T) {
	t.Parallel()
	c := start(t, "eight", size{80, 24})
	c.shows("extract/7")
	c.keys("q")
	if code, _ := c.exits(); code != 0 {
		t.Errorf("exit code %d", code)
	}
	c.restored()
	if !strings.HasSuffix(strings.TrimSpace(c.output()), "left") {
		t.Errorf("something came after the end: %q", c.output()[max(0, len(c.output())-200):])
	}
}

// What goes on without the console is said after the screen is left.
func TestQuitSaysWhatGoesOn(t *testing.T) {
	t.Parallel()
	c := start(t, "paused", size{80, 24})
	c.shows("ACTION restart extract/2")
	c.keys("q")
	c.exits()
	if !strings.Contains(c.output(), "restart extract/2 (a-13) goes on in the agent\r\n") {
		t.Error("the running action is not named at the end")
	}
}

func TestResizeStormLeavesTheRightScreen(t *testing.T) {
	t.Parallel()
	c := start(t, "sixteen", size{80, 24})
	c.shows("extract/")
	for i := range 200 {
		sz := []size{{80, 24}, {40, 10}, {120, 40}, {7, 3}, {200, 60}}[i%5]
		if err := pty.Setsize(c.tty, &pty.Winsize{Rows: uint16(sz.h), Cols: uint16(sz.w)}); err != nil {
			t.Fatal(err)
		}
	}
	c.screen.Resize(100, 30)
	if err := pty.Setsize(c.tty, &pty.Winsize{Rows: 30, Cols: 100}); err != nil {
		t.Fatal(err)
	}
	c.until("the screen has each part once, in its place", func() bool {
		lines := strings.Split(strings.ReplaceAll(c.text(), "\r", ""), "\n")
		return len(lines) == 30 && strings.Contains(lines[0], "DEGRADED") && strings.HasPrefix(lines[29], "? help") &&
			strings.Count(c.text(), "SAMPLES/S") == 1 && strings.Count(c.text(), "extract/6 ") >= 1
	})
	c.keys("q")
	c.exits()
}

func TestSignalsEndItWithinASecond(t *testing.T) {
	t.Parallel()
	for _, sig := range []syscall.Signal{syscall.SIGHUP, syscall.SIGTERM, syscall.SIGINT} {
		t.Run(sig.String(), func(t *testing.T) {
			t.Parallel()
			c := start(t, "healthy", size{80, 24})
			c.shows("extract/3")
			if err := c.cmd.Process.Signal(sig); err != nil {
				t.Fatal(err)
			}
			code, took := c.exits()
			if code != 0 || took > 5*time.Second { // the aim is 1 s; the rest is for a loaded machine
				t.Errorf("exit code %d after %v", code, took)
			}
			c.restored()
		})
	}
}

// A terminal that stops reading stops neither the console's keys nor its end,
// and when it reads again the screen is right.
func TestStalledTerminal(t *testing.T) {
	t.Parallel()
	c := start(t, "eight", size{120, 40})
	c.shows("extract/7")
	c.hold.Lock()
	for range 60 { // each key redraws; far more than the terminal's buffer takes
		c.keys("\x0c?")
		time.Sleep(5 * time.Millisecond)
	}
	c.keys("q")
	c.hold.Unlock()
	c.until("it answers or ends", func() bool {
		return strings.Contains(c.text(), "extract/7") || strings.Contains(c.output(), "left")
	})
}

func TestStalledTerminalEndsOnSignal(t *testing.T) {
	t.Parallel()
	c := start(t, "eight", size{200, 60}, childSilent+"=1")
	c.shows("extract/7")
	c.hold.Lock()
	defer c.hold.Unlock()
	for range 100 { // each draws the screen anew: more than the terminal takes
		c.keys("\x0c")
		time.Sleep(10 * time.Millisecond)
	}
	if err := c.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() { _ = c.cmd.Wait(); close(done) }()
	select {
	case <-done:
	case <-time.After(10 * time.Second):
		t.Fatal("a stalled terminal keeps the console alive")
	}
}

func TestPanicRestoresTheTerminalFirst(t *testing.T) {
	t.Parallel()
	c := start(t, "crash:healthy", size{80, 24})
	code, _ := c.exits()
	if code != 2 {
		t.Errorf("exit code %d, want 2", code)
	}
	c.restored()
	out := c.output()
	if i := strings.LastIndex(out, "the console crashed: boom"); i < strings.LastIndex(out, ansi.ResetModeAltScreenSaveCursor) {
		t.Errorf("the panic was not printed after the screen was left: %q", out)
	}
}

func TestDumbTerminalGetsNoScreen(t *testing.T) {
	t.Parallel()
	c := start(t, "healthy", size{80, 24}, "TERM=dumb")
	if code, _ := c.exits(); code != 0 {
		t.Errorf("exit code %d", code)
	}
	if out := c.output(); strings.Contains(out, "\x1b") || !strings.Contains(out, "text instead") {
		t.Errorf("a dumb terminal got %q", out)
	}
}

func TestColours(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		env    string
		colour bool
	}{{"X=1", true}, {"NO_COLOR=yes", false}, {"NO_COLOR=1", false}} {
		c := start(t, "crashed", size{80, 24}, tc.env)
		c.shows("EXIT 137")
		c.keys("q")
		c.exits()
		if got := strings.Contains(c.output(), "\x1b[33m"); got != tc.colour {
			t.Errorf("%s: colours %v", tc.env, got)
		}
	}
}

func TestSyncOverSSH(t *testing.T) {
	t.Parallel()
	c := start(t, "healthy", size{80, 24}, "SSH_TTY=/dev/pts/9")
	c.shows("extract/3")
	c.until("frames are synchronised", func() bool { return strings.Contains(c.output(), ansi.SetModeSynchronizedOutput) })
	c.keys("q")
	c.exits()
	c.restored()
}

// text is the screen as text. Render holds the emulator's lock; String does
// not.
func (c *terminal) text() string { return ansi.Strip(c.screen.Render()) }

// What others write to stderr does not reach the screen, and is not lost.
func TestStderrStaysOffTheScreen(t *testing.T) {
	t.Parallel()
	c := start(t, "eight", size{80, 24}, childNoisy+"=1")
	c.shows("extract/7")
	began := time.Now()
	c.until("the noise was made", func() bool { return time.Since(began) > 600*time.Millisecond })
	if strings.Contains(c.output(), "noise") {
		t.Error("stderr reached the screen")
	}
	c.keys("q")
	c.exits()
	c.restored()
	if out := c.output(); strings.LastIndex(out, "noise on stderr") < strings.LastIndex(out, ansi.ResetModeAltScreenSaveCursor) {
		t.Errorf("stderr was not repeated after the screen was left: %q", out[max(0, len(out)-300):])
	}
}
