package tui

import (
	"fmt"
	"strings"
	"time"

	"pipedeck/pipeline"
)

// logView shows a worker's log: it follows the end, and pages in what is
// scrolled to. All of it is never loaded.
type logView struct {
	worker string
	gen    int
	text   logText
	seq    int    // of the newest request to follow; older answers do not count
	live   string // where following reads on
	at     int    // index of the last line shown
	h      int    // lines that were shown last
	follow bool
	newer  int64 // lines that came while it was scrolled back
	wrap   bool
	times  bool
	search logSearch
	asked  logPart // the page that is on its way, "" if none is
	err    string
	loaded bool
}

// logPart says which part of a log a request is for.
type logPart string

const (
	partNone   logPart = ""
	partEnd    logPart = "end"
	partStart  logPart = "start"
	partFollow logPart = "follow"
	partOlder  logPart = "older"
	partNewer  logPart = "newer"
	partSearch logPart = "search"
)

func newLogView(worker string, gen int) *logView {
	return &logView{worker: worker, gen: gen, follow: true, h: 1}
}

func (v *logView) scope() scope { return inLog }

// ask makes the request for a part.
func (v *logView) ask(p logPart) effect {
	req := pipeline.LogRequest{Worker: v.worker, Limit: logPageSize}
	switch p {
	case partEnd:
		req.Before = pipeline.LogEnd
	case partStart:
		req.Cursor, req.Lines = pipeline.LogStart, true
	case partFollow:
		req.Cursor, req.Wait = v.live, waitLimit
		v.seq++
	case partOlder:
		req.Before = v.text.pages[0].start
	case partNewer:
		req.Cursor, req.Lines = v.text.pages[len(v.text.pages)-1].end, true
	case partSearch:
		req.Limit = searchPage
		if v.search.dir < 0 {
			req.Before = v.search.place
		} else {
			req.Cursor, req.Lines = v.search.place, true
		}
	case partNone:
	}
	if p != partFollow {
		v.asked = p
	}
	return logEffect{req: req, gen: v.gen, part: p, seq: v.seq}
}

// logged takes an answer to a log request and asks for more while the view is
// open.
func (m *model) logged(msg logMsg) []effect {
	for _, v := range m.ui.views {
		if l, ok := v.(*logView); ok && l.gen == msg.gen {
			return l.take(m, msg)
		}
	}
	return nil
}

func (v *logView) take(m *model, msg logMsg) []effect {
	if msg.part == partFollow && msg.seq != v.seq || msg.part != partFollow && msg.part != v.asked {
		return nil // it was overtaken
	}
	if msg.part != partFollow {
		v.asked = partNone
	}
	if msg.err != nil {
		v.err = problemText(msg.err)
		if msg.part == partSearch || msg.part == partOlder || msg.part == partNewer {
			return nil
		}
		return []effect{v.ask(msg.part)}
	}
	v.err, v.loaded = "", true
	switch msg.part {
	case partEnd:
		v.text.reset(msg.chunk, true)
		v.live, v.newer, v.at, v.follow = msg.chunk.Cursor, 0, v.text.last(), true
		return append(v.more(), v.ask(partFollow))
	case partStart:
		v.text.reset(msg.chunk, false)
		v.at = min(v.text.last(), v.h-1)
	case partFollow:
		v.followed(m, msg.chunk)
		return []effect{v.ask(partFollow)}
	case partOlder:
		n := v.text.older(msg.chunk)
		v.at, v.search.hit = v.at+n, v.search.hit+n
	case partNewer:
		return v.caughtUp(msg.chunk)
	case partSearch:
		return v.searched(m, msg.chunk)
	case partNone:
	}
	return v.more()
}

// followed takes what was written since the last look.
func (v *logView) followed(m *model, c pipeline.LogChunk) {
	v.live = c.Cursor
	if !v.text.live {
		v.newer += int64(strings.Count(string(c.Data), "\n"))
		return
	}
	before := v.text.count()
	dropped := v.text.newer(c, m.ui.now)
	v.at, v.search.hit = max(0, v.at-dropped), v.search.hit-dropped
	if v.follow {
		v.at, v.newer = v.text.last(), 0
		return
	}
	v.newer += int64(max(0, v.text.count()+dropped-before))
}

// caughtUp takes the page after the last one. At the newest byte the view is
// live again.
func (v *logView) caughtUp(c pipeline.LogChunk) []effect {
	v.at = max(0, v.at-v.text.newer(c, time.Time{}))
	if !c.EOF {
		return v.more()
	}
	v.text.live, v.live = true, c.Cursor
	return []effect{v.ask(partFollow)}
}

// more asks for the page that scrolling comes near to.
func (v *logView) more() []effect {
	switch {
	case v.asked != partNone || len(v.text.pages) == 0:
		return nil
	case !v.text.first && v.at < 3*v.h:
		return []effect{v.ask(partOlder)}
	case !v.text.live && v.at > v.text.count()-3*v.h:
		return []effect{v.ask(partNewer)}
	}
	return nil
}

func (v *logView) scroll(_ *ui, m move, page int) []effect {
	switch {
	case m == moveEnd && !v.text.live:
		return []effect{v.ask(partEnd)}
	case m == moveTop && !v.text.first:
		v.follow = false
		return []effect{v.ask(partStart)}
	case m == moveTop:
		v.at = min(v.text.last(), v.h-1)
	default:
		v.at = max(m.offset(v.at, v.text.last(), page), min(v.text.last(), v.h-1))
	}
	v.follow = v.text.live && v.at == v.text.last()
	if v.follow {
		v.newer = 0
	}
	return v.more()
}

func (v *logView) draw(b board, _ *ui, sz size) []line {
	v.h = max(1, sz.h-1)
	if v.text.first && !v.wrap {
		v.at = max(v.at, min(v.text.last(), v.h-1)) // a taller window is filled
	}
	body := v.body(sz.w)
	if v.text.count() == 0 {
		text := "reading the log"
		if v.loaded {
			text = "the log is empty"
		}
		body = []line{rowOf(dim, "  "+text)}
	}
	return append([]line{v.title(b, sz.w)}, body...)
}

// body draws the lines that end at the chosen place.
func (v *logView) body(w int) []line {
	var body []line
	for i := min(v.at, v.text.last()); i >= 0 && len(body) < v.h && v.text.count() > 0; i-- {
		body = append(v.rows(i, w), body...)
	}
	return body[max(0, len(body)-v.h):]
}

// clockWidth is the column of times, with the blank after it.
const clockWidth = 9

func (v *logView) rows(i, w int) []line {
	l := v.text.line(i)
	look, clock := plain, ""
	if v.search.matches(l.text) {
		look = chosen
	}
	if v.times {
		clock, l.text = l.stamped()
		clock, w = left(clock, clockWidth), max(1, w-clockWidth)
	}
	texts := []string{cut(l.text, w)}
	if v.wrap {
		texts = wrap(l.text, w)
	}
	out := make([]line, 0, len(texts))
	for _, s := range texts {
		row := line{}
		if v.times {
			row = append(row, span{clock, dim})
			clock = strings.Repeat(" ", clockWidth)
		}
		out = append(out, append(row, txt(look, s)))
	}
	return out
}

func (v *logView) title(b board, w int) line {
	state := "following"
	if !v.follow {
		state = fmt.Sprintf("paused, %s new, G = newest", count(v.newer))
	}
	parts := []part{
		{span: txt(ident, " log of "+v.worker+" ")},
		{span: txt(plain, state)},
	}
	if s := v.search.status(v.asked == partSearch); s != "" {
		parts = append(parts, part{span: txt(accent, s), drop: 2})
	}
	if v.err != "" {
		parts = append(parts, part{span: txt(bad, cut(clean(v.err), max(20, w/2))), drop: 1})
	}
	parts = append(parts, part{span: linkSpan(b, true), drop: 3, right: true})
	return bar(w, parts)
}

// onLog runs f on the open log view.
func onLog(f func(m *model, v *logView) []effect) func(*model) []effect {
	return func(m *model) []effect {
		if v, ok := m.ui.top().(*logView); ok {
			return f(m, v)
		}
		return nil
	}
}

func toggleFollow(m *model) []effect {
	return onLog(func(m *model, v *logView) []effect {
		if v.follow {
			v.follow = false
			return nil
		}
		return v.scroll(&m.ui, moveEnd, 1)
	})(m)
}

func toggleWrap(m *model) []effect {
	return onLog(func(_ *model, v *logView) []effect { v.wrap = !v.wrap; return nil })(m)
}

func toggleTime(m *model) []effect {
	return onLog(func(_ *model, v *logView) []effect { v.times = !v.times; return nil })(m)
}

func copyLog(m *model) []effect {
	return onLog(func(m *model, v *logView) []effect {
		var out []string
		for i := max(0, min(v.at, v.text.last())-v.h+1); i <= v.at && i < v.text.count(); i++ {
			out = append(out, v.text.line(i).text)
		}
		return m.copyText(counted(int64(len(out)), "line", "lines"), strings.Join(out, "\n"))
	})(m)
}
