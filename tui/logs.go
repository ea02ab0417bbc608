package tui

import (
	"bytes"
	"fmt"
	"strings"

	"github.com/charmbracelet/x/ansi"

	"pipedeck/pipeline"
)

// Bounds of the log view: what it asks for first, what it keeps, and how long
// a line may be.
const (
	logTail    = 2000
	logKeep    = 10_000
	logLineMax = 4096
)

// logView shows a worker's log and follows it. Only the end is ever loaded.
type logView struct {
	worker string
	gen    int
	cursor string
	lines  []string // complete lines, cleaned
	part   []byte   // the line that has no end yet
	at     int      // index of the last line shown
	follow bool
	newer  int // lines that came while it was scrolled back
	wrap   bool
	find   string
	err    string
	loaded bool
}

func newLogView(worker string, gen int) *logView {
	return &logView{worker: worker, gen: gen, follow: true}
}

func (v *logView) scope() scope { return inLog }

// read asks for the first part, later for what comes after the cursor.
func (v *logView) read() effect {
	req := pipeline.LogRequest{Worker: v.worker, Cursor: v.cursor}
	if v.cursor == "" {
		req.Tail = logTail
	} else {
		req.Wait = waitLimit
	}
	return logEffect{req: req, gen: v.gen}
}

// logged takes an answer to a log request and asks for more while the view is
// open.
func (m *model) logged(msg logMsg) []effect {
	for _, v := range m.ui.views {
		if l, ok := v.(*logView); ok && l.gen == msg.gen {
			l.take(msg)
			return []effect{l.read()}
		}
	}
	return nil
}

func (v *logView) take(msg logMsg) {
	if msg.err != nil {
		v.err = problemText(msg.err)
		return
	}
	v.err, v.loaded = "", true
	if msg.chunk.Cursor != "" {
		v.cursor = msg.chunk.Cursor
	}
	v.append(msg.chunk.Data)
}

func (v *logView) append(data []byte) {
	data = append(v.part, data...)
	before := len(v.lines)
	for {
		i := bytes.IndexByte(data, '\n')
		if i < 0 {
			break
		}
		v.lines = append(v.lines, logLine(data[:i]))
		data = data[i+1:]
	}
	v.part = bytes.Clone(data[max(0, len(data)-16*logLineMax):])
	added := len(v.lines) - before
	if extra := len(v.lines) - logKeep; extra > 0 {
		v.lines = append([]string(nil), v.lines[extra:]...)
		v.at = max(0, v.at-extra)
	}
	if v.follow {
		v.at, v.newer = v.last(), 0
	} else {
		v.newer += added
	}
}

// logLine makes one raw line safe to show. Of a line that was overwritten
// with carriage returns (a progress bar) the last version counts.
func logLine(raw []byte) string {
	raw = bytes.TrimRight(raw, "\r")
	if i := bytes.LastIndexByte(raw, '\r'); i >= 0 {
		raw = raw[i+1:]
	}
	s := string(raw[:min(len(raw), logLineMax)])
	return clean(ansi.Strip(strings.ReplaceAll(s, "\t", "    ")))
}

// last is the index of the last line, the unfinished one included.
func (v *logView) last() int { return max(0, v.count()-1) }

func (v *logView) count() int {
	if len(v.part) > 0 {
		return len(v.lines) + 1
	}
	return len(v.lines)
}

func (v *logView) text(i int) string {
	if i < len(v.lines) {
		return v.lines[i]
	}
	return logLine(v.part)
}

func (v *logView) scroll(_ *ui, m move, page int) {
	if m == moveTop {
		v.at = min(v.last(), page)
	} else {
		v.at = m.offset(v.at, v.last(), page)
	}
	v.follow = v.at == v.last()
	if v.follow {
		v.newer = 0
	}
}

func (v *logView) draw(b board, _ *ui, sz size) []line {
	var body []line
	h := sz.h - 1
	for i := min(v.at, v.last()); i >= 0 && len(body) < h && v.count() > 0; i-- {
		body = append(v.rows(i, sz.w), body...)
	}
	body = body[max(0, len(body)-h):]
	if v.count() == 0 {
		text := "reading the log"
		if v.loaded {
			text = "the log is empty"
		}
		body = []line{rowOf(dim, "  "+text)}
	}
	return append([]line{v.title(b, sz.w)}, body...)
}

func (v *logView) rows(i, w int) []line {
	s := v.text(i)
	l := plain
	if v.find != "" && strings.Contains(strings.ToLower(s), strings.ToLower(v.find)) {
		l = chosen
	}
	if !v.wrap {
		return []line{rowOf(l, cut(s, w))}
	}
	var out []line
	for _, part := range wrap(s, w) {
		out = append(out, rowOf(l, part))
	}
	return out
}

func (v *logView) title(b board, w int) line {
	state := "following"
	if !v.follow {
		state = fmt.Sprintf("paused, %s new, G = newest", count(int64(v.newer)))
	}
	parts := []part{
		{span: txt(ident, " log of "+v.worker+" ")},
		{span: txt(plain, state)},
	}
	if v.find != "" {
		parts = append(parts, part{span: txt(accent, "/"+v.find), drop: 2})
	}
	if v.err != "" {
		parts = append(parts, part{span: txt(bad, v.err), drop: 1})
	}
	parts = append(parts, part{span: linkSpan(b, true), drop: 3, right: true})
	return bar(w, parts)
}

// onLog runs f on the open log view.
func onLog(f func(m *model, v *logView)) func(*model) []effect {
	return func(m *model) []effect {
		if v, ok := m.ui.top().(*logView); ok {
			f(m, v)
		}
		return nil
	}
}

func toggleFollow(m *model) []effect {
	return onLog(func(_ *model, v *logView) {
		v.follow = !v.follow
		if v.follow {
			v.at, v.newer = v.last(), 0
		}
	})(m)
}

func toggleWrap(m *model) []effect {
	return onLog(func(_ *model, v *logView) { v.wrap = !v.wrap })(m)
}

func askSearch(m *model) []effect {
	return onLog(func(m *model, v *logView) {
		m.ui.prompt = &prompt{
			label: "search: ", text: "",
			done: func(m *model, text string) []effect {
				v.find = text
				v.seek(m, -1, v.at)
				return nil
			},
		}
	})(m)
}

func nextMatch(dir int) func(*model) []effect {
	return onLog(func(m *model, v *logView) { v.seek(m, dir, v.at+dir) })
}

// seek moves to the next line that contains the search text, from line from
// on, downwards for dir 1 and upwards for -1.
func (v *logView) seek(m *model, dir, from int) {
	if v.find == "" {
		return
	}
	want := strings.ToLower(v.find)
	for i := from; i >= 0 && i < v.count(); i += dir {
		if strings.Contains(strings.ToLower(v.text(i)), want) {
			v.at, v.follow = i, i == v.last()
			return
		}
	}
	m.ui.say(plain, "no match for "+v.find)
}
