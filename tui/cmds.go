package tui

import (
	"context"
	"fmt"
	"runtime/debug"
	"slices"
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
	ctx     context.Context
	nodes   []Node
	changed func() <-chan struct{}
	out     suspender
	now     func() time.Time
}

// node is the one of that name, else the first.
func (d doer) node(name string) Node {
	return d.nodes[max(0, slices.IndexFunc(d.nodes, func(n Node) bool { return n.Name == name }))]
}

// suspender stops the program until it is continued.
type suspender interface{ suspend() tea.Cmd }

// cmd turns effects on a node into one command.
func (d doer) cmd(node string, effects []effect) tea.Cmd {
	cmds := make([]tea.Cmd, 0, len(effects))
	for _, e := range effects {
		cmds = append(cmds, d.one(node, e))
	}
	return tea.Batch(cmds...)
}

func (d doer) one(node string, e effect) tea.Cmd {
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
		return d.safe(func() tea.Msg {
			for _, n := range d.nodes {
				n.Source.Retry()
			}
			return nil
		})
	}
	return d.asking(node, e)
}

// asking carries out an effect that is a question to the agent of a node.
func (d doer) asking(node string, e effect) tea.Cmd {
	ask := func(limit time.Duration, f func(context.Context, pipeline.Deck) any) tea.Cmd {
		return d.ask(limit, func(ctx context.Context) tea.Msg { return fromMsg{node, f(ctx, d.node(node).Deck())} })
	}
	switch e := e.(type) {
	case planEffect:
		return ask(askLimit, func(ctx context.Context, deck pipeline.Deck) any {
			p, err := deck.Plan(ctx, e.intent)
			return planMsg{e, p, err}
		})
	case applyEffect:
		return ask(askLimit, func(ctx context.Context, deck pipeline.Deck) any {
			a, err := deck.Apply(ctx, e.req)
			return appliedMsg{e, a, err}
		})
	case followEffect:
		return ask(waitLimit+askLimit, func(ctx context.Context, deck pipeline.Deck) any { return follow(ctx, deck, e) })
	case planFilesEffect:
		return ask(askLimit, func(ctx context.Context, deck pipeline.Deck) any {
			f, err := deck.PlanFiles(ctx, e.plan, e.offset, e.limit)
			return planFilesMsg{e.plan, e.offset, f, err}
		})
	case resolveEffect:
		return ask(askLimit, func(ctx context.Context, deck pipeline.Deck) any {
			a, err := deck.Resolve(ctx, e.req)
			return appliedMsg{action: a, err: err}
		})
	case strangersEffect:
		return ask(askLimit, func(ctx context.Context, deck pipeline.Deck) any {
			list, err := deck.Strangers(ctx, nil)
			return strangersMsg{list, err}
		})
	case logEffect:
		return ask(waitLimit+askLimit, func(ctx context.Context, deck pipeline.Deck) any { return readLog(ctx, deck, e) })
	case failuresEffect:
		return ask(askLimit, func(ctx context.Context, deck pipeline.Deck) any {
			list, err := deck.Failures(ctx)
			return failuresMsg{list, err}
		})
	case describeEffect:
		return ask(askLimit, func(ctx context.Context, deck pipeline.Deck) any {
			w, err := deck.Describe(ctx, e.worker)
			return describedMsg{e.worker, w, err}
		})
	case retryFilesEffect:
		return ask(askLimit, func(ctx context.Context, deck pipeline.Deck) any { return retriedMsg{deck.Retry(ctx)} })
	}
	return nil
}

func follow(ctx context.Context, deck pipeline.Deck, e followEffect) any {
	if e.ended {
		pause(ctx, pauseAfter)
	}
	a, err := deck.Action(ctx, e.action, waitLimit)
	if err != nil {
		pause(ctx, pauseAfter)
	}
	return actionMsg{e.action, a, err}
}

func readLog(ctx context.Context, deck pipeline.Deck, e logEffect) any {
	if e.part == partFollow {
		pause(ctx, pauseLog)
	}
	c, err := deck.Log(ctx, e.req)
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
		began := d.now()
		t := time.NewTimer(pollMost)
		defer t.Stop()
		select {
		case <-d.changed():
		case <-t.C:
		case <-d.ctx.Done():
		}
		// News that comes at its usual pace is not waited after: each timer that
		// ends wakes the process.
		if early := pollLeast - d.now().Sub(began); early > 0 {
			pause(d.ctx, early)
		}
		return d.look()
	})
}

func (d doer) look() inputMsg { return inputMsg(lookAt(d.nodes, d.now())) }

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
