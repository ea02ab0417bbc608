package main

import (
	"bytes"
	"context"
	"io"
	"time"

	"pipedeck/pipeline"
)

// logPrinter writes a worker's log line by line, cleaned: a worker's text must
// not move the operator's cursor.
type logPrinter struct {
	out  io.Writer
	raw  bool
	part []byte // of a line that is not complete yet
}

// maxPart is the longest line that is held back to be cleaned as a whole.
const maxPart = 64 << 10

// logWait is how long one question for new log bytes may take.
const logWait = 10 * time.Second

// copy prints a log to its end, or follows it until ctx ends.
func (p *logPrinter) copy(ctx context.Context, d pipeline.Deck, req pipeline.LogRequest, follow bool) error {
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
		if chunk.EOF && !follow {
			return p.flush()
		}
		req.Cursor = chunk.Cursor
		if follow {
			req.Wait = logWait
		}
	}
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
