package tui

import (
	"context"
	"errors"
	"io"
	"os"
	"os/signal"
	"strings"
	"sync"
	"syscall"
	"time"

	tea "charm.land/bubbletea/v2"
	"github.com/charmbracelet/colorprofile"
	"github.com/charmbracelet/x/ansi"
	"github.com/charmbracelet/x/term"
)

// Options are what a console needs. Zero values are usable where it says so.
type Options struct {
	Nodes   []Node // those of the deck, in the spec's order
	Now     func() time.Time
	In, Out *os.File                 // nil: standard input and output
	Environ func(name string) string // nil: the process's environment
	By      string                   // user@host of the operator, for the journal

	Color    string // auto (also empty), always, 16, 256 or never
	Sync     string // synchronised output: auto (also empty), on or off
	Theme    Theme  // empty: auto
	ASCII    bool   // no block characters
	ReadOnly bool   // no actions, and no key to unlock them
	Keys     KeyMap // the operator's own keys; nil: those of the table
}

// ErrDumbTerminal says that there is no terminal to draw on: input or output
// is none, or TERM is dumb or unset. Print the snapshot as text instead.
var ErrDumbTerminal = errors.New("cannot open the console: no terminal that can be drawn on")

// framesPerSecond is how often the renderer looks for a new frame. Each look
// costs a wakeup, also of an idle console; a key may wait for one, and has to be
// on the screen within 50 ms.
const framesPerSecond = 28

// exitLimit is how long the end may take after a signal; the terminal is
// restored within it.
const exitLimit = 900 * time.Millisecond

// Run shows the console until the operator leaves, ctx ends or the terminal
// is gone; none of these is an error. It restores the terminal before it
// returns. It fails with ErrDumbTerminal, or with a *CrashError after a panic.
func Run(ctx context.Context, o Options) error {
	o = o.withDefaults()
	env := environ(o.Environ)
	if !term.IsTerminal(o.In.Fd()) || !term.IsTerminal(o.Out.Fd()) || env("TERM") == "dumb" || env("TERM") == "" {
		return ErrDumbTerminal
	}
	before, err := term.GetState(o.In.Fd())
	if err != nil {
		return errors.Join(ErrDumbTerminal, err)
	}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	running, kill := context.WithCancel(context.WithoutCancel(ctx))
	defer kill()
	s := &session{stop: stop, kill: kill}
	s.out = newOutput(o.Out, s.guard, s.drained)
	m := newModel(doer{ctx: ctx, nodes: o.Nodes, changed: changes(ctx, o.Nodes, s.guard), out: s, now: o.Now}, o.Now,
		ui{theme: o.Theme, ascii: o.ASCII, lock: lock{on: o.ReadOnly, pinned: o.ReadOnly}, keymap: o.Keys})
	m.by, m.behind = o.By, s.out.behind
	s.held = func() bool { return m.held.Swap(false) }
	told := divertStderr()
	defer told.restore()
	s.program = tea.NewProgram(atStart{m, env.sync(o.Sync), env.asksBackground(o)}, tea.WithContext(running), tea.WithInput(o.In), tea.WithOutput(s.out),
		tea.WithEnvironment(env.list()), tea.WithColorProfile(env.profile(o.Color)), tea.WithFPS(framesPerSecond), tea.WithoutSignalHandler(),
		tea.WithFilter(syncFilter(o.Sync)))
	err = s.run(ctx)
	farewell := ""
	if !errors.Is(err, errLeftBehind) {
		farewell = m.farewell()
	}
	s.restore(o.In, before, farewell)
	return s.result(m, err)
}

func (o Options) withDefaults() Options {
	if o.In == nil {
		o.In = os.Stdin
	}
	if o.Out == nil {
		o.Out = os.Stdout
	}
	if o.Environ == nil {
		o.Environ = os.Getenv
	}
	if o.Theme == "" {
		o.Theme = ThemeAuto
	}
	return o
}

// session is one run of the program on a terminal.
type session struct {
	program *tea.Program
	out     *output
	held    func() bool        // whether a frame was held back since the last call
	stop    context.CancelFunc // ends the work behind the screen, then the program
	kill    context.CancelFunc // ends the program without waiting for its input

	mu    sync.Mutex
	crash *CrashError
}

// run runs the program. A signal or the end of ctx ends it: asked first, then
// killed, in the end left behind.
func (s *session) run(ctx context.Context) error {
	signals := make(chan os.Signal, 4)
	signal.Notify(signals, syscall.SIGHUP, syscall.SIGTERM, syscall.SIGINT)
	defer signal.Stop(signals)
	ended := make(chan error, 1)
	go s.guard(func() {
		_, err := s.program.Run()
		ended <- err
	})
	select {
	case err := <-ended:
		return err
	case <-signals:
	case <-ctx.Done():
	}
	s.stop()
	go s.guard(s.program.Quit)
	for _, hard := range []func(){s.kill, func() {}} {
		select {
		case err := <-ended:
			return err
		case <-time.After(exitLimit / 4):
			hard()
		}
	}
	return errLeftBehind
}

// errLeftBehind says that the program did not end in time.
var errLeftBehind = errors.New("the console did not end in time")

// guard runs f; a panic in it ends the program, which restores the terminal.
func (s *session) guard(f func()) {
	defer func() {
		if v := recover(); v != nil {
			s.mu.Lock()
			s.crash = newCrash(v)
			s.mu.Unlock()
			s.stop()
		}
	}()
	f()
}

// drained repaints after dropped writes, and lets the model draw again if it
// has held a frame back.
func (s *session) drained(lost bool) {
	if s.program == nil || !s.held() && !lost {
		return
	}
	msg := tea.Msg(nudgeMsg{})
	if lost {
		msg = tea.ClearScreen()
	}
	go s.guard(func() { s.program.Send(msg) })
}

// nudgeMsg has the model drawn again.
type nudgeMsg struct{}

// leaveScreen ends everything a console may have switched on. Sending it
// twice is harmless.
const leaveScreen = ansi.ResetModeSynchronizedOutput + ansi.ResetModeBracketedPaste + ansi.ResetModeAltScreenSaveCursor +
	ansi.ResetStyle + ansi.SetModeTextCursorEnable

// restore puts the terminal back as it was, also when the program could not,
// and leaves a last word on it.
func (s *session) restore(in *os.File, before *term.State, farewell string) {
	_, _ = io.WriteString(s.out, leaveScreen+farewell)
	s.out.finish(exitLimit / 2)
	_ = term.Restore(in.Fd(), before)
}

func (s *session) result(m *model, err error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.crash != nil:
		return s.crash
	case errors.Is(err, errLeftBehind):
		return nil // the model is still in use
	case m.crash != nil:
		return m.crash
	case errors.Is(err, tea.ErrProgramPanic):
		return &CrashError{Value: err.Error()}
	}
	return nil
}

// suspend stops the process group until it is continued, with the terminal
// as the shell expects it.
func (s *session) suspend() tea.Cmd {
	return tea.Sequence(tea.Exec(suspension{s.out}, nil), tea.ClearScreen)
}

type suspension struct{ out *output }

func (s suspension) Run() error {
	s.out.flush(exitLimit / 2)
	back := make(chan os.Signal, 1)
	signal.Notify(back, syscall.SIGCONT)
	defer signal.Stop(back)
	if err := syscall.Kill(0, syscall.SIGTSTP); err != nil {
		return err
	}
	<-back
	return nil
}

func (suspension) SetStdin(io.Reader)  {}
func (suspension) SetStdout(io.Writer) {}
func (suspension) SetStderr(io.Writer) {}

// atStart asks things of the terminal when the program starts. No answer is
// waited for.
type atStart struct {
	*model
	sync       bool
	background bool
}

// Init asks for the first look. It switches synchronised output on: over SSH
// the renderer never asks whether the terminal can hold a frame back until it
// is whole (mode 2026), and frames of several packets would flicker; terminals
// without it ignore it.
func (a atStart) Init() tea.Cmd {
	cmds := []tea.Cmd{a.model.Init()}
	if a.sync {
		cmds = append(cmds, func() tea.Msg {
			return tea.ModeReportMsg{Mode: ansi.ModeSynchronizedOutput, Value: ansi.ModeReset}
		})
	}
	if a.background {
		cmds = append(cmds, tea.RequestBackgroundColor)
	}
	return tea.Batch(cmds...)
}

// syncFilter drops what the terminal answers about synchronised output when
// the operator does not want it.
func syncFilter(mode string) func(tea.Model, tea.Msg) tea.Msg {
	return func(_ tea.Model, msg tea.Msg) tea.Msg {
		if r, ok := msg.(tea.ModeReportMsg); ok && mode == "off" && r.Mode == ansi.ModeSynchronizedOutput {
			return nil
		}
		return msg
	}
}

// environ looks up a variable of the environment.
type environ func(name string) string

// list is the part of the environment that the renderer looks at.
func (e environ) list() []string {
	var out []string
	for _, name := range []string{"TERM", "COLORTERM", "TERM_PROGRAM", "SSH_TTY", "WT_SESSION", "COLUMNS", "LINES"} {
		if v := e(name); v != "" {
			out = append(out, name+"="+v)
		}
	}
	return out
}

// profile is how many colours to use: none for NO_COLOR with any value, else
// the 16 standard ones, which every terminal maps to readable ones.
func (e environ) profile(color string) colorprofile.Profile {
	if color == "never" || color != "always" && color != "16" && color != "256" && e("NO_COLOR") != "" {
		return colorprofile.ASCII
	}
	return colorprofile.ANSI
}

// sync decides on synchronised output. Auto is on over SSH only: elsewhere
// the renderer asks the terminal itself.
func (e environ) sync(mode string) bool {
	switch mode {
	case "on":
		return true
	case "off":
		return false
	}
	t := e("TERM")
	return (e("SSH_TTY") != "" || e("SSH_CONNECTION") != "") && !strings.HasPrefix(t, "screen") && t != "linux"
}

// asksBackground says whether to ask the terminal for its background colour:
// only where the answer matters, and not where the question would be printed.
func (e environ) asksBackground(o Options) bool {
	t := e("TERM")
	return o.Theme == ThemeAuto && e.profile(o.Color) != colorprofile.ASCII && t != "linux" && !strings.HasPrefix(t, "vt")
}
