package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"pipedeck/pipeline"
)

// followed is a worker whose log is followed: at each question for news it may have
// become something else.
type followed struct {
	pipeline.Deck
	states []pipeline.WorkerSnapshot
	stage  pipeline.StageState
	asked  int // for the state
	last   string
	err    error
	end    func()
}

func (l *followed) Log(_ context.Context, req pipeline.LogRequest) (pipeline.LogChunk, error) {
	switch {
	case req.Cursor == "":
		return pipeline.LogChunk{Data: []byte("first\n"), Cursor: "1", EOF: true}, nil
	case l.asked == len(l.states) && l.last != "": // written just before the end
		c := pipeline.LogChunk{Data: []byte(l.last), Cursor: "2", EOF: true}
		l.last = ""
		return c, nil
	case l.asked == len(l.states) && l.end != nil:
		l.end()
	}
	return pipeline.LogChunk{Cursor: req.Cursor, EOF: true}, nil
}

func (l *followed) Snapshot(context.Context) (pipeline.Snapshot, error) {
	w := l.states[min(l.asked, len(l.states)-1)]
	l.asked = min(l.asked+1, len(l.states))
	w.ID = "a/1"
	return pipeline.Snapshot{Nodes: []pipeline.NodeSnapshot{{Stages: []pipeline.StageSnapshot{
		{Workers: []pipeline.WorkerSnapshot{{ID: "a/0", State: pipeline.WorkerDone}, w}, State: l.stage},
	}}}}, l.err
}

// Following a log ends with the worker, after its last line, and says how it
// ended; a worker that may be started again is followed on.
func TestFollowEndsWithTheWorker(t *testing.T) {
	t.Parallel()
	running := pipeline.WorkerSnapshot{State: pipeline.WorkerRunning, PID: new(7)}
	crashed := func(in int) pipeline.WorkerSnapshot {
		return pipeline.WorkerSnapshot{
			State: pipeline.WorkerExited, ExitCode: new(1), StateReason: new(fmt.Sprintf("ended with code 1, next start in %d s", in)),
		}
	}
	done := pipeline.WorkerSnapshot{State: pipeline.WorkerDone, ExitCode: new(0), StateReason: new("ended with code 0")}
	held := pipeline.WorkerSnapshot{State: pipeline.WorkerFailed, ExitCode: new(1), StateReason: new("held: ended with code 1 after 3 automatic restarts")}
	const waits = "worker a/1 has no process to see: exited, exit code 1 (ended with code 1, next start in 9 s); going on, since it may be started again\n"
	tests := map[string]struct {
		states []pipeline.WorkerSnapshot
		stage  pipeline.StageState
		said   string
		goesOn bool
	}{
		"ended before":    {[]pipeline.WorkerSnapshot{done}, pipeline.StageDone, "worker a/1 has ended: done, exit code 0 (ended with code 0)\n", false},
		"ends":            {[]pipeline.WorkerSnapshot{running, running, held}, pipeline.StageRunning, "worker a/1 has ended: failed, exit code 1 (held: ended with code 1 after 3 automatic restarts)\n", false},
		"comes back":      {[]pipeline.WorkerSnapshot{crashed(9), crashed(4), running}, pipeline.StageRunning, waits, true},
		"and then ends":   {[]pipeline.WorkerSnapshot{crashed(9), crashed(4), done}, pipeline.StageRunning, waits + "worker a/1 has ended: done, exit code 0 (ended with code 0)\n", false},
		"stage stopped":   {[]pipeline.WorkerSnapshot{{State: pipeline.WorkerLost}}, pipeline.StageStopped, "worker a/1 has ended: lost, exit code unknown\n", false},
		"nothing is seen": {[]pipeline.WorkerSnapshot{{State: pipeline.WorkerUnknown}}, pipeline.StageUnknown, "worker a/1 has no process to see: unknown; going on, since it may be started again\n", true},
		"runs":            {[]pipeline.WorkerSnapshot{running}, pipeline.StageRunning, "", true},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			l := &followed{states: tc.states, stage: tc.stage, last: "last\n"}
			went := false
			if tc.goesOn {
				l.end = func() { went = true; cancel() }
			}
			var out, said bytes.Buffer
			p := &logPrinter{out: &out, say: func(f string, args ...any) { fmt.Fprintf(&said, f+"\n", args...) }}
			if err := p.copy(ctx, l, pipeline.LogRequest{Worker: "a/1"}, true); err != nil {
				t.Fatal(err)
			}
			if out.String() != "first\nlast\n" || said.String() != tc.said || went != tc.goesOn {
				t.Errorf("out %q, went on %t, said:\n%s", out.String(), went, said.String())
			}
		})
	}
}

// A log that is not followed asks for no state, and an agent that cannot be
// asked ends the following.
func TestFollowTellsErrors(t *testing.T) {
	t.Parallel()
	gone := errors.New("gone")
	l := &followed{states: []pipeline.WorkerSnapshot{{}}, err: gone}
	p := &logPrinter{out: &strings.Builder{}}
	if err := p.copy(t.Context(), l, pipeline.LogRequest{Worker: "a/1"}, false); err != nil || l.asked > 0 {
		t.Errorf("not followed: %v, asked %d times", err, l.asked)
	}
	if err := p.copy(t.Context(), l, pipeline.LogRequest{Worker: "a/1"}, true); !errors.Is(err, gone) {
		t.Errorf("followed: %v", err)
	}
}
