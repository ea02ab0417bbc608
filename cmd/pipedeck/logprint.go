package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"slices"
	"strconv"
	"time"

	"pipedeck/pipeline"
)

// logPrinter writes a worker's log line by line, cleaned: a worker's text must
// not move the operator's cursor.
type logPrinter struct {
	out  io.Writer
	say  func(format string, args ...any)
	raw  bool
	part []byte // of a line that is not complete yet
}

// maxPart is the longest line that is held back to be cleaned as a whole.
const maxPart = 64 << 10

// logWait is how long one question for new log bytes may take. After one that
// brought none, the worker may have ended.
const logWait = 5 * time.Second

// copy prints a log to its end, or follows it until ctx or the worker ends.
func (p *logPrinter) copy(ctx context.Context, d pipeline.Deck, req pipeline.LogRequest, follow bool) error {
	watch := lifeWatch{worker: req.Worker}
	for {
		chunk, err := d.Log(ctx, req)
		if ctx.Err() != nil {
			return p.flush() // interrupted: what was followed is still a result
		}
		if err != nil {
			return err
		}
		if err := p.print(chunk.Data); err != nil {
			return err
		}
		if chunk.EOF && (!follow || watch.over) {
			return p.flush()
		}
		req.Cursor = chunk.Cursor
		if follow {
			if req.Wait, err = p.next(ctx, d, &watch, chunk); err != nil {
				return err
			}
		}
	}
}

// next looks at the life of a followed worker where its log has come to its end,
// and returns how long to wait for more: not at all once the worker is over,
// since what it wrote last may have come meanwhile.
func (p *logPrinter) next(ctx context.Context, d pipeline.Deck, l *lifeWatch, c pipeline.LogChunk) (time.Duration, error) {
	if c.EOF && (!l.looked || len(c.Data) == 0) {
		l.looked = true
		if err := p.tell(ctx, d, l); err != nil && ctx.Err() == nil { // interrupted, the next question ends it
			return 0, err
		}
	}
	if l.over {
		return 0, nil
	}
	return logWait, nil
}

// lifeWatch is what is known of the life of a worker whose log is followed.
type lifeWatch struct {
	worker string
	looked bool
	said   string
	over   bool
}

// tell says on the side what became of a worker whose log has come to its end,
// once. A log that never goes on must not look like one that is quiet.
func (p *logPrinter) tell(ctx context.Context, d pipeline.Deck, l *lifeWatch) error {
	s, err := d.Snapshot(ctx)
	if err != nil {
		return err
	}
	w, stage := workerOf(s, l.worker)
	if w == nil {
		return nil
	}
	l.over = w.Over(stage)
	about := ""
	if l.over || w.PID == nil {
		about = fmt.Sprint(w.State, w.Restarts, l.over) // reasons may count seconds
	}
	if about != "" && about != l.said {
		p.say("%s", lifeText(*w, l.over))
	}
	l.said = about
	return nil
}

func workerOf(s pipeline.Snapshot, id string) (*pipeline.WorkerSnapshot, pipeline.StageState) {
	for _, n := range s.Nodes {
		for _, st := range n.Stages {
			if i := slices.IndexFunc(st.Workers, func(w pipeline.WorkerSnapshot) bool { return w.ID == id }); i >= 0 {
				return &st.Workers[i], st.State
			}
		}
	}
	return nil, ""
}

// lifeText is what there is to say of a worker without a process.
func lifeText(w pipeline.WorkerSnapshot, over bool) string {
	what := string(w.State)
	if w.ExitCode != nil {
		what += ", exit code " + strconv.Itoa(*w.ExitCode)
	} else if w.State != pipeline.WorkerInit && w.State != pipeline.WorkerUnknown {
		what += ", exit code unknown"
	}
	what += because(w.StateReason)
	if over {
		return "worker " + w.ID + " has ended: " + what
	}
	return "worker " + w.ID + " has no process to see: " + what + "; going on, since it may be started again"
}

func (p *logPrinter) print(data []byte) error {
	if p.raw {
		_, err := p.out.Write(data)
		return err
	}
	p.part = append(p.part, data...)
	for {
		i := bytes.IndexByte(p.part, '\n')
		if i < 0 && len(p.part) <= maxPart {
			return nil
		}
		if i < 0 {
			i = len(p.part) - 1
		}
		if err := p.line(p.part[:i]); err != nil {
			return err
		}
		p.part = p.part[i+1:]
	}
}

// line writes one line; of a progress bar's carriage returns the last text
// counts.
func (p *logPrinter) line(b []byte) error {
	b = bytes.TrimRight(b, "\r")
	if i := bytes.LastIndexByte(b, '\r'); i >= 0 {
		b = b[i+1:]
	}
	_, err := io.WriteString(p.out, pipeline.Clean(string(b))+"\n")
	return err
}

func (p *logPrinter) flush() error {
	if len(p.part) == 0 {
		return nil
	}
	err := p.line(p.part)
	p.part = nil
	return err
}
