package main

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"github.com/mattn/go-isatty"
	"github.com/spf13/cobra"

	"pipedeck/pipeline"
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
	keys, err := a.view.check(a.env)
	if err != nil {
		return err
	}
	if !a.view.plain && (!isTerminal(a.in) || !isTerminal(a.out)) {
		return a.snapshot(ctx, "")
	}
	specs, err := a.chosen()
	if err != nil {
		return err
	}
	watch, stop := context.WithCancel(ctx)
	defer stop()
	views, err := a.openNodes(watch, specs)
	if err != nil {
		return err
	}
	nodes := make([]tui.Node, len(views))
	for i, n := range views {
		nodes[i] = n.view()
	}
	a.frugal()
	err = a.openConsole(ctx, keys, nodes)
	if errors.Is(err, tui.ErrDumbTerminal) {
		return a.snapshot(ctx, "")
	}
	return err
}

// frugal makes this process one that mostly sleeps. It wakes often for very
// little: with one processor no second thread is woken to look for work too, and
// with a larger heap garbage is collected about once a minute.
func (a *app) frugal() {
	if a.env("GOMAXPROCS") == "" {
		runtime.GOMAXPROCS(1)
	}
	if a.env("GOGC") == "" && a.env("GOMEMLIMIT") == "" {
		debug.SetGCPercent(400)
		debug.SetMemoryLimit(frugalHeap)
	}
}

// frugalHeap is how much memory the console may take before it collects garbage
// as often as it has to.
const frugalHeap = 64 << 20

// openConsole runs the console on the nodes of a deck. A lost link is dialled
// again for ever; closing the console stops nothing.
func (a *app) openConsole(ctx context.Context, keys tui.KeyMap, nodes []tui.Node) error {
	if a.view.plain {
		return tui.Plain(ctx, nodes, a.out, time.Now)
	}
	return tui.Run(ctx, tui.Options{
		Nodes: nodes, In: inFile(a.in), Out: outFile(a.out), Now: time.Now, Environ: a.env, By: operator(),
		Color: a.view.color, Sync: a.view.sync, Theme: tui.Theme(a.view.theme), ASCII: a.view.ascii, ReadOnly: a.view.readOnly, Keys: keys,
	})
}

// viewFlags say how the console looks and what its keys may do.
type viewFlags struct {
	readOnly, ascii, plain   bool
	color, sync, theme, keys string
}

// choices are the values that each flag with a choice takes.
func (v *viewFlags) choices() []choice {
	return []choice{
		{"color", &v.color, []string{"auto", "always", "16", "256", "never"}},
		{"sync", &v.sync, []string{"auto", "on", "off"}},
		{"theme", &v.theme, []string{"auto", "dark", "light", "mono"}},
	}
}

type choice struct {
	flag   string
	value  *string
	values []string
}

// viewFlags gives a command that opens the console its flags.
func (a *app) viewFlags(c *cobra.Command) {
	f, v := c.Flags(), &a.view
	f.BoolVar(&v.readOnly, "read-only", false, "no actions, and no key that allows them")
	f.BoolVar(&v.plain, "plain", false, "one line for each change, no screen: for screen readers and logs")
	f.BoolVar(&v.ascii, "ascii", false, "no block characters in charts")
	f.StringVar(&v.color, "color", "auto", "auto, always, 16, 256 or never; auto obeys NO_COLOR")
	f.StringVar(&v.theme, "theme", "auto", "auto, dark, light or mono")
	f.StringVar(&v.sync, "sync", "auto", "synchronised output: auto (on over SSH), on or off")
	f.StringVar(&v.keys, "keys", "", "key file (default ~/.config/pipedeck/keys, if there is one)")
	for _, ch := range v.choices() {
		_ = c.RegisterFlagCompletionFunc(ch.flag, cobra.FixedCompletions(ch.values, cobra.ShellCompDirectiveNoFileComp)) // only fails for a flag that does not exist
	}
}

// check refuses a wrong value and reads the key file, before anything starts.
func (v *viewFlags) check(env func(string) string) (tui.KeyMap, error) {
	for _, ch := range v.choices() {
		if *ch.value != "" && !slices.Contains(ch.values, *ch.value) {
			return nil, pipeline.Problemf(pipeline.ProblemUsage, "it is one of "+strings.Join(ch.values, ", "), "cannot use --%s %q", ch.flag, *ch.value)
		}
	}
	file := v.keys
	if file == "" {
		dir := env("XDG_CONFIG_HOME")
		if dir == "" && env("HOME") != "" {
			dir = filepath.Join(env("HOME"), ".config")
		}
		if dir == "" {
			return nil, nil
		}
		file = filepath.Join(dir, "pipedeck", "keys")
	}
	text, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) && v.keys == "" {
		return nil, nil
	}
	if err != nil {
		return nil, pipeline.Problemf(pipeline.ProblemUsage, "", "cannot read key file %q: %w", file, cause(err))
	}
	return tui.ParseKeys(file, string(text))
}

func inFile(r io.Reader) *os.File {
	f, _ := r.(*os.File) // only called when it is a terminal
	return f
}

func outFile(w io.Writer) *os.File {
	f, _ := w.(*os.File) // only called when it is a terminal
	return f
}
