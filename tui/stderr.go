package tui

import (
	"io"
	"os"

	"github.com/charmbracelet/x/term"
)

// stderrMost is how much of what was written to stderr is shown at the end.
const stderrMost = 64 << 10

// diverted is the process's stderr while the console has the terminal: what
// libraries and child processes write there would draw over the screen.
type diverted struct {
	file  *os.File
	saved *os.File // the real stderr
}

// divertStderr sends stderr to a file, if it is a terminal at all. Should the
// program die without returning, the file is what is left to read.
func divertStderr() *diverted {
	if !term.IsTerminal(os.Stderr.Fd()) {
		return nil
	}
	file, err := os.CreateTemp("", "pipedeck-stderr-*.log")
	if err != nil {
		return nil // better a screen that is drawn over than no console
	}
	saved, err := redirect(file, os.Stderr)
	if err != nil {
		_ = file.Close()
		_ = os.Remove(file.Name())
		return nil
	}
	return &diverted{file: file, saved: saved}
}

// restore gives stderr back and repeats there what was held, at most 64 KiB.
func (d *diverted) restore() {
	if d == nil {
		return
	}
	if old, err := redirect(d.saved, os.Stderr); err == nil {
		_ = old.Close()
	}
	_ = d.saved.Close()
	if _, err := d.file.Seek(0, io.SeekStart); err == nil {
		_, _ = io.CopyN(os.Stderr, d.file, stderrMost)
	}
	_ = d.file.Close()
	_ = os.Remove(d.file.Name())
}
