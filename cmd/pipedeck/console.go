package main

import (
	"context"
	"errors"
	"io"
	"os"
	"time"

	"github.com/mattn/go-isatty"

	"pipedeck/pipeline"
	"pipedeck/remote/client"
	"pipedeck/tui"
)

// consoleEvery is how often the console asks for a snapshot: the display
// shows numbers at 2 Hz.
const consoleEvery = 500 * time.Millisecond

// isTerminal says whether a stream is a terminal.
func isTerminal(stream any) bool {
	f, ok := stream.(*os.File)
	return ok && isatty.IsTerminal(f.Fd())
}

// console opens the console on a terminal; elsewhere it prints the snapshot.
func (a *app) console(ctx context.Context) error {
	if !isTerminal(a.in) || !isTerminal(a.out) {
		return a.snapshot(ctx, "")
	}
	return a.withDeck(ctx, func(s specFile, c *client.Client) error {
		err := a.openConsole(ctx, c, func(ctx context.Context) (pipeline.Deck, error) { return a.connect(ctx, s) })
		if errors.Is(err, tui.ErrDumbTerminal) {
			return a.snapshot(ctx, "")
		}
		return err
	})
}

// openConsole runs the console on a deck. A lost link is dialled again for
// ever; closing the console stops nothing.
func (a *app) openConsole(ctx context.Context, first pipeline.Deck, dial func(context.Context) (pipeline.Deck, error)) error {
	w := client.NewWatcher(dial, consoleEvery, wallClock{})
	watch, stop := context.WithCancel(ctx)
	defer stop()
	go w.Run(watch)
	return tui.Run(ctx, tui.Options{
		Source: w, Deck: first, In: inFile(a.in), Out: outFile(a.out), Now: time.Now, Environ: a.env,
	})
}

func inFile(r io.Reader) *os.File {
	f, _ := r.(*os.File) // only called when it is a terminal
	return f
}

func outFile(w io.Writer) *os.File {
	f, _ := w.(*os.File) // only called when it is a terminal
	return f
}
