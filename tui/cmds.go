package tui

import (
	"context"
	"fmt"
	"runtime/debug"
	"time"

	tea "charm.land/bubbletea/v2"

	"pipedeck/pipeline"
)

// Source is the connection to an agent, as the console sees it. Its methods
// answer from memory.
type Source interface {
	// Current returns the newest snapshot and the state of the link. ok says
	// whether a snapshot ever arrived; retryIn is the time to the next try
	// while the link is down, 0 when none is waited for.
	Current() (snap pipeline.Snapshot, link pipeline.Link, ok bool, retryIn time.Duration)
	// Changed receives a value after something new came in.
	Changed() <-chan struct{}
	// Retry ends the wait before the next try.
	Retry()
}

// Messages that come back from outside.
type (
	inputMsg input
	planMsg  struct {
		effect planEffect
		plan   pipeline.Plan
		err    error
	}
	appliedMsg struct {
		effect applyEffect
		action pipeline.Action
		err    error
	}
	actionMsg struct {
		id     string
		action pipeline.Action
		err    error
	}
	planFilesMsg struct {
		plan   string
		offset int
		files  pipeline.PlanFiles
		err    error
	}
	logMsg struct {
		gen, seq int
		part     logPart
		chunk    pipeline.LogChunk
		err      error
	}
	strangersMsg struct {
		list []pipeline.Stranger
		err  error
	}
	retriedMsg  struct{ err error }
	failuresMsg struct {
		list []pipeline.Failure
		err  error
	}
	describedMsg struct {
		worker string
		detail pipeline.WorkerDetail
		err    error
	}
	crashMsg struct{ crash *CrashError }
)

// How often the console looks at the Source: the screen changes at most about
// twice a second, and its ages at least once.
const (
	pollLeast = 450 * time.Millisecond
	pollMost  = time.Second
)

// Deadlines of one request. Waiting ones add their wait.
const (
	askLimit   = 30 * time.Second
	waitLimit  = 2 * time.Second
	pauseAfter = time.Second // between tries after an error
	pauseLog   = 200 * time.Millisecond
)

// doer carries effects out. It is the only part of the console that calls the
// Source and the Deck.
type doer struct {
	ctx    context.Context
	source Source
	deck   pipeline.Deck
	out    suspender
}

// suspender stops the program until it is continued.
type suspender interface{ suspend() tea.Cmd }

// cmd turns effects into one command.
func (d doer) cmd(effects []effect) tea.Cmd {
	cmds := make([]tea.Cmd, 0, len(effects))
	for _, e := range effects {
		cmds = append(cmds, d.one(e))
	}
	return tea.Batch(cmds...)
}

func (d doer) one(e effect) tea.Cmd {
	switch e := e.(type) {
	case quitEffect:
		return tea.Quit
	case suspendEffect:
		return d.out.suspend()
	case redrawEffect:
		return tea.ClearScreen
	case copyEffect:
		return tea.SetClipboard(e.text)
	case retryLinkEffect:
		return d.safe(func() tea.Msg { d.source.Retry(); return nil })
	case planEffect:
		return d.ask(askLimit, func(ctx context.Context) tea.Msg {
			p, err := d.deck.Plan(ctx, e.intent)
			return planMsg{e, p, err}
		})
	case applyEffect:
		return d.ask(askLimit, func(ctx context.Context) tea.Msg {
			a, err := d.deck.Apply(ctx, e.req)
			return appliedMsg{e, a, err}
		})
	case followEffect:
		return d.ask(waitLimit+askLimit, func(ctx context.Context) tea.Msg { return d.follow(ctx, e) })
	case planFilesEffect:
		return d.ask(askLimit, func(ctx context.Context) tea.Msg {
			f, err := d.deck.PlanFiles(ctx, e.plan, e.offset, e.limit)
			return planFilesMsg{e.plan, e.offset, f, err}
		})
	case resolveEffect:
		return d.ask(askLimit, func(ctx context.Context) tea.Msg {
			a, err := d.deck.Resolve(ctx, e.req)
			return appliedMsg{action: a, err: err}
		})
	case strangersEffect:
		return d.ask(askLimit, func(ctx context.Context) tea.Msg {
			list, err := d.deck.Strangers(ctx, nil)
			return strangersMsg{list, err}
		})
	case logEffect:
		return d.ask(waitLimit+askLimit, func(ctx context.Context) tea.Msg { return d.readLog(ctx, e) })
	case failuresEffect:
		return d.ask(askLimit, func(ctx context.Context) tea.Msg {
			list, err := d.deck.Failures(ctx)
			return failuresMsg{list, err}
		})
	case describeEffect:
		return d.ask(askLimit, func(ctx context.Context) tea.Msg {
			w, err := d.deck.Describe(ctx, e.worker)
			return describedMsg{e.worker, w, err}
		})
	case retryFilesEffect:
		return d.ask(askLimit, func(ctx context.Context) tea.Msg { return retriedMsg{d.deck.Retry(ctx)} })
	}
	return nil
}

func (d doer) follow(ctx context.Context, e followEffect) tea.Msg {
	if e.ended {
		pause(ctx, pauseAfter)
	}
	a, err := d.deck.Action(ctx, e.action, waitLimit)
	if err != nil {
		pause(ctx, pauseAfter)
	}
	return actionMsg{e.action, a, err}
}

func (d doer) readLog(ctx context.Context, e logEffect) tea.Msg {
	if e.part == partFollow {
		pause(ctx, pauseLog)
	}
	c, err := d.deck.Log(ctx, e.req)
	if err != nil {
		pause(ctx, pauseAfter)
	}
	return logMsg{gen: e.gen, seq: e.seq, part: e.part, chunk: c, err: err}
}

// poll waits for news from the Source, not too often and not too long.
func (d doer) poll() tea.Cmd {
	return d.safe(func() tea.Msg {
		if d.ctx.Err() != nil {
			return nil
		}
		pause(d.ctx, pollLeast)
		t := time.NewTimer(pollMost - pollLeast)
		defer t.Stop()
		select {
		case <-d.source.Changed():
		case <-t.C:
		case <-d.ctx.Done():
		}
		return d.look()
	})
}

func (d doer) look() inputMsg {
	snap, link, ok, retryIn := d.source.Current()
	return inputMsg{snap: snap, link: link, ok: ok, retryIn: retryIn}
}

func (d doer) ask(limit time.Duration, f func(context.Context) tea.Msg) tea.Cmd {
	return d.safe(func() tea.Msg {
		ctx, cancel := context.WithTimeout(d.ctx, limit)
		defer cancel()
		return f(ctx)
	})
}

// safe runs f so that a panic in it reaches the model as a message: the
// terminal is restored first and the panic printed after.
func (d doer) safe(f func() tea.Msg) tea.Cmd {
	return func() (msg tea.Msg) {
		defer func() {
			if v := recover(); v != nil {
				msg = crashMsg{newCrash(v)}
			}
		}()
		return f()
	}
}

func pause(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}

// CrashError is a panic in the console. Stack is the goroutine's.
type CrashError struct {
	Value string
	Stack string
}

func newCrash(v any) *CrashError {
	return &CrashError{Value: fmt.Sprint(v), Stack: string(debug.Stack())}
}

// Error returns the panic's value in one line.
func (e *CrashError) Error() string { return "the console crashed: " + e.Value }
