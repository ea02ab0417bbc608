package tui

import (
	"bytes"
	"regexp"
	"strings"
	"time"

	"github.com/charmbracelet/x/ansi"

	"pipedeck/pipeline"
)

// Bounds of what a log view keeps in memory, and how long a line may be.
const (
	logPages    = 12
	logPageMax  = 4000 // lines that arrive before the next page begins
	logLineMax  = 4096
	logPageSize = 256 << 10
)

// logText is the part of a log that is in memory: pages of whole lines, in
// order. The rest of the file is only asked for when it is scrolled to.
type logText struct {
	pages []logPage
	lines []textLine
	part  []byte // the last line while it has no end; only at the live end
	first bool   // nothing precedes the first page
	live  bool   // the last page reaches to the newest byte
}

// logPage is where n of the lines lie in the file.
type logPage struct {
	start, end string
	n          int
}

// textLine is one line, safe to show. at is when it arrived while the view was
// open; zero: it was there before.
type textLine struct {
	text string
	at   time.Time
}

func (x *logText) reset(c pipeline.LogChunk, live bool) {
	*x = logText{first: c.First, live: live}
	x.lines, x.part = splitLog(nil, c.Data, time.Time{})
	if !live && len(x.part) > 0 {
		x.lines, x.part = append(x.lines, textLine{text: logLine(x.part)}), nil
	}
	x.pages = []logPage{{c.Start, c.Cursor, len(x.lines)}}
}

// older puts a page in front and returns how many lines that moves the others.
// The last pages go when there are too many.
func (x *logText) older(c pipeline.LogChunk) int {
	lines, part := splitLog(nil, c.Data, time.Time{})
	if len(part) > 0 {
		lines = append(lines, textLine{text: logLine(part)})
	}
	x.first = c.First
	x.lines = append(lines, x.lines...)
	x.pages = append([]logPage{{c.Start, c.Cursor, len(lines)}}, x.pages...)
	for len(x.pages) > logPages {
		last := x.pages[len(x.pages)-1]
		x.pages = x.pages[:len(x.pages)-1]
		x.lines, x.part, x.live = x.lines[:len(x.lines)-last.n], nil, false
	}
	return len(lines)
}

// newer appends what follows the last page and returns how many lines went at
// the front. What arrived at the live end at a known time carries that.
func (x *logText) newer(c pipeline.LogChunk, at time.Time) (dropped int) {
	whole := len(x.part) == 0
	lines, part := splitLog(x.part, c.Data, at)
	x.lines, x.part = append(x.lines, lines...), part
	// A page begins where a line does, so that it can be dropped as a whole.
	if last := &x.pages[len(x.pages)-1]; whole && last.n >= logPageMax {
		x.pages = append(x.pages, logPage{start: last.end, end: c.Cursor, n: len(lines)})
	} else {
		last.end, last.n = c.Cursor, last.n+len(lines)
	}
	for len(x.pages) > logPages {
		dropped += x.pages[0].n
		x.lines, x.pages, x.first = append([]textLine(nil), x.lines[x.pages[0].n:]...), x.pages[1:], false
	}
	return dropped
}

// splitLog appends what data completes to lines, and returns the rest.
func splitLog(part, data []byte, at time.Time) (lines []textLine, rest []byte) {
	data = append(part, data...)
	for {
		i := bytes.IndexByte(data, '\n')
		if i < 0 {
			break
		}
		lines = append(lines, textLine{logLine(data[:i]), at})
		data = data[i+1:]
	}
	return lines, bytes.Clone(data[max(0, len(data)-16*logLineMax):])
}

// logLine makes one raw line safe to show. Of a line that was overwritten
// with carriage returns (a progress bar) the last version counts.
func logLine(raw []byte) string {
	raw = bytes.TrimRight(raw, "\r")
	if i := bytes.LastIndexByte(raw, '\r'); i >= 0 {
		raw = raw[i+1:]
	}
	s := string(raw[:min(len(raw), logLineMax)])
	if isPlain(s) {
		return s
	}
	return clean(ansi.Strip(strings.ReplaceAll(s, "\t", "    ")))
}

// count is the number of lines, the unfinished one included.
func (x *logText) count() int {
	if len(x.part) > 0 {
		return len(x.lines) + 1
	}
	return len(x.lines)
}

// last is the index of the last line, 0 if there is none.
func (x *logText) last() int { return max(0, x.count()-1) }

func (x *logText) line(i int) textLine {
	if i < len(x.lines) {
		return x.lines[i]
	}
	return textLine{text: logLine(x.part)}
}

// stamp matches a time at the beginning of a line, as loggers write it.
var stamp = regexp.MustCompile(`^\[?(?:\d{4}[-/]\d\d[-/]\d\d[T ])?(\d\d:\d\d:\d\d)(?:[.,]\d+)?(?:Z|[+-]\d\d:?\d\d)?\]?[ :,-]*`)

// stamped splits a line into its time, its own or else that of its arrival,
// and the rest.
func (l textLine) stamped() (clock, text string) {
	if m := stamp.FindStringSubmatch(l.text); m != nil {
		return m[1], l.text[len(m[0]):]
	}
	if l.at.IsZero() {
		return "", l.text
	}
	return utc(l.at), l.text
}
