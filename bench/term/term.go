// Package term runs programs on a pseudo-terminal with a screen that can be
// read: for measurements and pictures of the console.
package term

import (
	"fmt"
	"image/color"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync/atomic"
	"time"

	uv "github.com/charmbracelet/ultraviolet"
	"github.com/charmbracelet/x/ansi"
	"github.com/charmbracelet/x/vt"
	"github.com/creack/pty"
)

// Terminal is a program on a pseudo-terminal of a fixed size.
type Terminal struct {
	Cmd    *exec.Cmd
	tty    *os.File
	screen *vt.SafeEmulator
	bytes  atomic.Int64
	ended  chan struct{}
}

// Open starts cmd on a terminal of w by h cells.
func Open(cmd *exec.Cmd, w, h int) (*Terminal, error) {
	tty, err := pty.StartWithSize(cmd, &pty.Winsize{Rows: uint16(h), Cols: uint16(w)})
	if err != nil {
		return nil, fmt.Errorf("cannot start %q: %w", cmd.Path, err)
	}
	t := &Terminal{Cmd: cmd, tty: tty, screen: vt.NewSafeEmulator(w, h), ended: make(chan struct{})}
	t.screen.SetForegroundColor(color.Gray{0xd0})
	t.screen.SetBackgroundColor(color.Gray{0x10})
	go t.read()
	go func() { _, _ = io.Copy(tty, t.screen) }() // the terminal's own answers
	return t, nil
}

// Recorded is a screen that was kept as text with its colours, as tmux's
// capture-pane -e prints it; there is no program behind it.
func Recorded(screen string, w, h int) *Terminal {
	t := &Terminal{screen: vt.NewSafeEmulator(w, h)}
	t.screen.SetForegroundColor(color.Gray{0xd0})
	t.screen.SetBackgroundColor(color.Gray{0x10})
	_, _ = t.screen.Write([]byte(strings.ReplaceAll(strings.TrimSuffix(screen, "\n"), "\n", "\r\n")))
	return t
}

func (t *Terminal) read() {
	defer close(t.ended)
	buf := make([]byte, 64<<10)
	for {
		n, err := t.tty.Read(buf)
		_, _ = t.screen.Write(buf[:n])
		t.bytes.Add(int64(n))
		if err != nil {
			return
		}
	}
}

// Bytes is how much the program has written so far.
func (t *Terminal) Bytes() int64 { return t.bytes.Load() }

// Text is the screen as text.
func (t *Terminal) Text() string { return ansi.Strip(t.screen.Render()) }

// Cell is one cell of the screen; it may be nil.
func (t *Terminal) Cell(x, y int) *uv.Cell { return t.screen.CellAt(x, y) }

// Type sends keys as a terminal does.
func (t *Terminal) Type(keys string) error {
	_, err := t.tty.WriteString(keys)
	return err
}

// Await waits until the screen satisfies ok, at most limit, and returns how
// long that took.
func (t *Terminal) Await(what string, limit time.Duration, ok func(screen string) bool) (time.Duration, error) {
	began := time.Now()
	for seen := int64(-1); ; time.Sleep(500 * time.Microsecond) {
		n := t.Bytes()
		// Looking at the screen costs CPU that the program may need.
		if n != seen && ok(t.Text()) {
			return time.Since(began), nil
		}
		seen = n
		if time.Since(began) > limit {
			return limit, fmt.Errorf("the screen never shows %s:\n%s", what, t.Text())
		}
	}
}

// AwaitText waits for a text on the screen.
func (t *Terminal) AwaitText(text string, limit time.Duration) (time.Duration, error) {
	return t.Await(fmt.Sprintf("%q", text), limit, func(s string) bool { return strings.Contains(s, text) })
}

// Close ends the program: by a key, else by force.
func (t *Terminal) Close(key string) {
	_ = t.Type(key)
	select {
	case <-t.ended:
	case <-time.After(10 * time.Second):
		_ = t.Cmd.Process.Kill()
	}
	_ = t.Cmd.Wait()
	_ = t.tty.Close()
}
