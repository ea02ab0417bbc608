package tui

import (
	"fmt"
	"strings"

	"pipedeck/pipeline"
)

// The smallest screen that gets the full layout, and the smallest one on
// which a plan can be confirmed: below, its counts would be hidden.
const (
	floorW, floorH     = 40, 10
	confirmW, confirmH = 60, 20
)

// render draws one frame. It is total: any snapshot, any state, any size.
func render(in input, u *ui, sz size) string {
	if sz.w < 1 || sz.h < 1 {
		return ""
	}
	now := u.now
	if !u.frozen.since.IsZero() {
		in, now = u.frozen.in, u.frozen.since
	}
	b := newBoard(in, now, u.node(in.snap))
	b.arrange(u)
	if sz.w < floorW || sz.h < floorH {
		return paint([]line{tiny(in, b, u, sz.w)}, sz, u.shown())
	}
	body := size{sz.w, sz.h - 1}
	var lines []line
	if v := u.top(); v != nil {
		lines = v.draw(b, u, body)
	} else if u.inFleet(in.snap) {
		lines = drawFleet(in, boards(in, now), u, body)
	} else {
		lines = drawBoard(b, u, body)
	}
	if len(lines) > body.h {
		lines = lines[:body.h]
	}
	for len(lines) < body.h {
		lines = append(lines, nil)
	}
	return paint(append(lines, footer(u, sz.w)), sz, u.shown())
}

// tiny is all that a screen below the floor shows.
func tiny(in input, b board, u *ui, w int) line {
	switch {
	case !u.inFleet(in.snap):
		return statusLine(b, w)
	case w < 4:
		return rowOf(plain, worstMark(board{snap: in.snap, have: true}))
	}
	return fleetHeader(in, boards(in, b.now), u, w)
}

// statusLine is one node in a line.
func statusLine(b board, w int) line {
	if w < 4 {
		return rowOf(plain, worstMark(b))
	}
	parts := []part{{span: txt(bold, deckName(b)), drop: 3}, {span: linkSpan(b, false)}}
	if b.have {
		word, _, look := worst(b)
		parts = append(parts, part{span: txt(look, word), drop: 1})
		for _, p := range progress(b) {
			parts = append(parts, part{span: txt(plain, p.percent), drop: 2})
		}
		t := b.totals()
		parts = append(parts,
			part{span: txt(plain, "q"+old(b.stale, count(t.waiting))), drop: 4},
			part{span: txt(plain, "not proven "+old(b.stale, opt(t.notProven, count))), drop: 5})
	}
	parts = append(parts, part{span: txt(dim, fmt.Sprintf("(need %dx%d)", floorW, floorH)), drop: 6})
	return bar(w, parts)
}

// worstMark is all that fits on almost no screen.
func worstMark(b board) string {
	switch {
	case !b.have || b.stale || b.snap.Health == pipeline.Stale:
		return doubtful.mark()
	case b.snap.Health == pipeline.Failed:
		return broken.mark()
	case b.snap.Health == pipeline.Degraded:
		return alarming.mark()
	}
	return "."
}

// drawBoard lays the panes out: header, alarms and progress on top, workers,
// then S3 and events below or beside each other.
func drawBoard(b board, u *ui, sz size) []line {
	top := []line{header(b, u, sz.w)}
	top = append(top, b.above(u, sz)...)
	if !b.have {
		return append(top, waiting(b, sz.w)...)
	}
	top, p := aboveWorkers(b, u, sz, top)
	if p.workers > 0 {
		top = append(top, workersPane(b, u, size{sz.w, p.workers})...)
	}
	if p.wide {
		return append(top, lowerWide(b, u, size{sz.w, sz.h - len(top)})...)
	}
	return append(top, lowerPanes(b, u, sz.w, p)...)
}

// above is what stands between the header and the progress: the nodes, if
// there are several, and alarms.
func (b board) above(u *ui, sz size) []line {
	out := alarms(b, sz)
	if len(b.snap.Nodes) > 1 {
		out = append([]line{tabs(boards(b.in, b.now), u, sz.w)}, out...)
	}
	return out
}

// aboveWorkers appends to the header what is above the workers' rows.
func aboveWorkers(b board, u *ui, sz size, top []line) ([]line, layout) {
	var p layout
	if sz.w >= wideW && sz.h >= wideH && !u.zoom {
		p = wideLayout(b, size{sz.w, sz.h - len(top)})
	} else {
		p = planLayout(b, u, size{sz.w, sz.h - len(top)})
	}
	for _, s := range progress(b)[:p.progress] {
		top = append(top, s.line(b, sz.w))
	}
	if p.blank {
		top = append(top, nil)
	}
	if p.workers > 0 {
		top = append(top, p.title(paneWorkers, u, sz.w, workersTitle(b, u, sz.w))...)
	}
	return top, p
}

// workersPlace says which rows of the workers pane are where on the screen:
// the first one is on line first.
func workersPlace(b board, u *ui, sz size) (first int, rows []row) {
	if !b.have {
		return 0, nil
	}
	top, p := aboveWorkers(b, u, sz, append([]line{nil}, b.above(u, sz)...))
	if p.workers < 1 {
		return 0, nil
	}
	rows, _ = foldRows(b.rows, u.selected, p.workers-1)
	return len(top) + 1, rows
}

func lowerPanes(b board, u *ui, w int, p layout) []line {
	events := eventsTitle(b, u)
	if p.beside {
		lw := max(storeWide, w*47/100)
		rw := w - lw - 2
		l := append(p.title(paneStore, u, lw, storeTitle(b, u)), storePane(b, u, size{lw, p.store})...)
		r := append(p.title(paneEvents, u, rw, events), eventsPane(u, size{rw, p.events})...)
		return beside(l, lw, 2, r, rw)
	}
	var out []line
	if p.store > 0 {
		out = append(p.title(paneStore, u, w, storeTitle(b, u)), storePane(b, u, size{w, p.store})...)
	}
	if p.events > 0 {
		out = append(out, p.title(paneEvents, u, w, events)...)
		out = append(out, eventsPane(u, size{w, p.events})...)
	}
	return out
}

// layout says how many lines each part of the board gets.
type layout struct {
	progress int
	blank    bool
	titles   bool
	beside   bool // S3 and events side by side
	wide     bool // the detail of the chosen row and charts below the workers
	workers  int  // with the column titles
	store    int
	events   int
}

// title returns the title line of a pane: in upper case between double rules
// when it has the focus.
func (p layout) title(id paneID, u *ui, w int, text string) []line {
	if !p.titles {
		return nil
	}
	text = fmt.Sprintf("%d %s", id, clean(text))
	rule, l := "-", dim
	if u.focus == id {
		name, rest, _ := strings.Cut(text, "   ") // only the name goes to upper case
		text, rule, l = strings.TrimSpace(strings.ToUpper(name)+"   "+rest), "=", accent
	}
	text = strings.Repeat(rule, 2) + " " + text + " "
	return []line{{txt(l, cut(text, w)+strings.Repeat(rule, max(0, w-width(text))))}}
}

// storeWide is the least width of the S3 pane beside the events.
const storeWide = 54

// planLayout divides the height below the header. As it shrinks, blank lines
// go first, then events down to one, then titles and healthy worker rows; the
// S3 line and failing workers stay.
func planLayout(b board, u *ui, sz size) layout {
	if u.zoom {
		return zoomed(u, sz)
	}
	p := layout{progress: min(len(progress(b)), 1+max(0, sz.h-22)/4), titles: sz.h >= 15, store: 1, events: 1}
	need := 1 + len(b.rows)
	urgent := 1 + failing(b.rows)
	if sz.h < 9 && urgent > sz.h-3 {
		p.progress, p.events = 0, 0
	}
	titles := 0
	if p.titles {
		titles = 3
		if p.beside = sz.w >= 2*storeWide+2; p.beside {
			titles = 2
		}
	}
	if p.beside {
		p.store = min(storeLines, max(4, sz.h-p.progress-titles-need))
		p.workers = min(need, sz.h-p.progress-titles-p.store)
		rest := sz.h - p.progress - titles - p.workers
		p.blank = rest > storeLines+4
		p.store = rest - btoi(p.blank)
		p.events = p.store
		return p
	}
	if sz.h >= 13 {
		p.store = 2
	}
	p.workers = min(need, sz.h-p.progress-titles-p.store-p.events)
	if p.workers < urgent && p.titles {
		p.titles, p.store = false, 1
		p.workers = min(need, sz.h-p.progress-p.store-p.events)
		titles = 0
	}
	rest := sz.h - p.progress - titles - p.workers - p.store - p.events
	if rest > storeLines+4 {
		p.store += min(storeLines-2, rest-8)
		rest = sz.h - p.progress - titles - p.workers - p.store - p.events
	}
	p.blank = rest >= 4
	p.events += rest - btoi(p.blank)
	return p
}

func zoomed(u *ui, sz size) layout {
	p := layout{titles: true}
	switch u.focus {
	case paneStore:
		p.store = sz.h - 1
	case paneEvents:
		p.events = sz.h - 1
	case paneWorkers:
		p.workers = sz.h - 1
	}
	return p
}

func btoi(b bool) int {
	if b {
		return 1
	}
	return 0
}

func failing(rows []row) int {
	n := 0
	for _, r := range rows {
		if r.weight > doubtful {
			n++
		}
	}
	return n
}

// waiting fills the screen while no snapshot has arrived.
func waiting(b board, w int) []line {
	text := "waiting for the first data from the agent"
	switch b.link.State {
	case pipeline.LinkAuth:
		text = "the login was refused"
	case pipeline.LinkVersion:
		text = "the agent speaks another version"
	case pipeline.LinkLost, pipeline.LinkStale:
		text = "the agent does not answer"
	case pipeline.LinkConnecting, pipeline.LinkLive, pipeline.LinkSlow:
	}
	out := []line{nil, rowOf(bold, "  "+text)}
	if r := deref(b.link.Reason); r != "" {
		for _, s := range wrap(r, w-2) {
			out = append(out, rowOf(plain, "  "+s))
		}
	}
	if b.retryIn > 0 {
		out = append(out, nil, rowOf(plain, "  next try in "+lasting(b.retryIn.Seconds())+", r = now, q = leave"))
	}
	return out
}

// wrap breaks cleaned text into lines of at most w cells.
func wrap(s string, w int) []string {
	s = clean(s)
	var out []string
	for w > 0 && width(s) > w {
		head := strings.TrimSuffix(cut(s, w), ">")
		if i := strings.LastIndexByte(head, ' '); i > w/2 {
			head = head[:i+1]
		}
		if head == "" {
			break
		}
		out = append(out, strings.TrimRight(head, " "))
		s = s[len(head):]
	}
	return append(out, s)
}
