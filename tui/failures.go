package tui

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"pipedeck/pipeline"
)

// failuresView lists the files that did not make it, and below them the
// warnings and errors among the events.
type failuresView struct {
	list    []pipeline.Failure
	err     string
	loaded  bool
	asked   time.Time
	chosen  string // identity of the chosen file
	filter  string
	h, skip int // lines shown, and the first of them
}

// failuresEvery is how often an open list is asked for again.
const failuresEvery = 2 * time.Second

func (v *failuresView) scope() scope { return inFailures }

func openFailures(m *model) []effect {
	v := &failuresView{h: 1}
	m.ui.open(v)
	return v.watch(m, m.board())
}

func (v *failuresView) watch(m *model, _ board) []effect {
	if m.linked() != "" || m.ui.now.Sub(v.asked) < failuresEvery {
		return nil
	}
	v.asked = m.ui.now
	return []effect{failuresEffect{}}
}

func (m *model) failuresListed(msg failuresMsg) {
	for _, o := range m.ui.views {
		v, ok := o.(*failuresView)
		if !ok {
			continue
		}
		v.err = ""
		if msg.err != nil {
			v.err = problemText(msg.err)
			continue
		}
		v.list, v.loaded = msg.list, true
	}
}

func failureKey(f pipeline.Failure) string { return f.Output + "\x00" + f.Path }

// shown are the files that pass the filter.
func (v *failuresView) shown() []pipeline.Failure {
	var out []pipeline.Failure
	for _, f := range v.list {
		if contains(v.filter, f.Output, f.Path, string(f.Kind), f.Reason) {
			out = append(out, f)
		}
	}
	return out
}

func (v *failuresView) index(list []pipeline.Failure) int {
	return max(0, slices.IndexFunc(list, func(f pipeline.Failure) bool { return failureKey(f) == v.chosen }))
}

func (v *failuresView) scroll(_ *ui, m move, page int) []effect {
	if list := v.shown(); len(list) > 0 {
		v.chosen = failureKey(list[m.offset(v.index(list), len(list)-1, page)])
	}
	return nil
}

func (v *failuresView) draw(b board, u *ui, sz size) []line {
	list := v.shown()
	title := bar(sz.w, []part{
		{span: txt(ident, " Failed and quarantined files ")},
		{span: txt(plain, v.tally(b, list))},
		{span: txt(accent, v.filterText()), drop: 1},
	})
	out := []line{title}
	if v.err != "" {
		out = append(out, rowOf(bad, cut(clean(v.err), sz.w)))
	}
	out = append(out, v.troubles(b)...)
	events := min(12, max(3, sz.h/3))
	out = append(out, v.table(b, list, size{sz.w, max(2, sz.h-len(out)-events-2)})...)
	out = append(out, nil, rowOf(bold, "Warnings and errors, newest first"))
	for _, e := range slices.Backward(u.events.list) {
		if e.Level == pipeline.Warn || e.Level == pipeline.Error {
			out = append(out, eventLine(e, 11))
		}
	}
	return out
}

func (v *failuresView) filterText() string {
	if v.filter == "" {
		return ""
	}
	return "/" + v.filter
}

// tally says how many there are, also those that the answer left out.
func (v *failuresView) tally(b board, list []pipeline.Failure) string {
	if !v.loaded {
		return "asking the agent"
	}
	text := count(int64(len(list)))
	t := b.totals()
	if all := deref(t.failed) + deref(t.quarantined); len(v.list) >= pipeline.MaxFailures && all > int64(len(v.list)) {
		text += " of " + count(all) + ", the oldest first"
	}
	return text
}

// troubles are the outputs that as a whole do not go on.
func (v *failuresView) troubles(b board) []line {
	var out []line
	for _, o := range b.outputs {
		if w := outputWeight(o.State); w >= alarming {
			out = append(out, line{txt(w.look(), w.mark()+" "+o.name+" "+string(o.State)), txt(plain, "  "+deref(o.StateReason))})
		}
	}
	return out
}

// table draws the files with the chosen one in sight.
func (v *failuresView) table(b board, list []pipeline.Failure, sz size) []line {
	if len(list) == 0 {
		text := "  no failed or quarantined files"
		switch {
		case !v.loaded:
			text = ""
		case v.filter != "":
			text = "  none match /" + v.filter
		}
		return []line{rowOf(plain, text)}
	}
	v.h = sz.h - 1
	at := v.index(list)
	v.skip = max(0, min(max(min(v.skip, at), at-v.h+1), len(list)-v.h))
	pathW := min(48, max(16, sz.w*2/5))
	outW := 0
	for _, f := range list {
		outW = max(outW, min(26, width(clean(f.Output))))
	}
	if sz.w < 100 {
		outW = 0
	}
	out := []line{rowOf(dim, "  "+column2("OUTPUT", outW)+left("FILE", pathW)+" "+left("WHAT", 12)+left("SINCE", 7)+left("NEXT", 7)+"WHY")}
	for i := v.skip; i < min(len(list), v.skip+v.h); i++ {
		out = append(out, v.row(b, list[i], i == at, outW, pathW))
	}
	return out
}

func column2(s string, w int) string {
	if w == 0 {
		return ""
	}
	return left(clean(s), w) + " "
}

func (v *failuresView) row(b board, f pipeline.Failure, isChosen bool, outW, pathW int) line {
	since, next := none, none
	if !f.Since.IsZero() {
		since = lasting(b.since(f.Since))
	}
	if f.NextTry != nil {
		next = "now"
		if wait := f.NextTry.Sub(b.now).Seconds(); wait >= 1 {
			next = lasting(wait)
		}
	}
	l := bad
	if f.Kind == pipeline.FailureHeld {
		l = warn
	}
	out := line{
		txt(plain, "  "), txt(plain, column2(f.Output, outW)+tailCut(clean(f.Path), pathW)), txt(l, " "+left(string(f.Kind), 12)),
		txt(plain, left(since, 7)+left(next, 7)), txt(plain, f.Reason),
	}
	if isChosen {
		out[0] = txt(bold, " >")
		for i := range out {
			out[i].look = chosen
		}
	}
	return out
}

// tailCut keeps the end of a path, which tells files apart.
func tailCut(s string, w int) string {
	if width(s) <= w {
		return left(s, w)
	}
	r := []rune(s)
	for width("<"+string(r)) > w && len(r) > 0 {
		r = r[1:]
	}
	return left("<"+string(r), w)
}

func (m *model) chosenFailure() (pipeline.Failure, bool) {
	v, ok := m.ui.top().(*failuresView)
	if !ok {
		return pipeline.Failure{}, false
	}
	list := v.shown()
	if len(list) == 0 {
		return pipeline.Failure{}, false
	}
	return list[v.index(list)], true
}

func openFailure(m *model) []effect {
	if f, ok := m.chosenFailure(); ok {
		m.ui.open(&textView{title: f.Output + "  " + f.Path, text: cmp.Or(f.Reason, "no reason given")})
	}
	return nil
}

func copyFailure(m *model) []effect {
	f, ok := m.chosenFailure()
	if !ok {
		return nil
	}
	return m.copyText("the path", f.Path)
}

func filterFailures(m *model) []effect {
	v, ok := m.ui.top().(*failuresView)
	if !ok {
		return nil
	}
	m.ui.prompt = &prompt{
		label: "filter files: ", text: v.filter,
		live:  func(_ *model, text string) { v.filter = text },
		done:  func(_ *model, text string) []effect { v.filter = text; return nil },
		abort: func(*model) { v.filter = "" },
	}
	return nil
}

// contains says whether any of the texts holds the filter, whatever the case.
func contains(filter string, texts ...string) bool {
	return filter == "" || strings.Contains(strings.ToLower(strings.Join(texts, " ")), strings.ToLower(filter))
}

// textView shows a long text whole.
type textView struct {
	title, text string
	top         int
}

func (v *textView) scope() scope { return inView }

func (v *textView) scroll(_ *ui, m move, page int) []effect {
	v.top = m.offset(v.top, 1<<16, page)
	return nil
}

func (v *textView) draw(_ board, _ *ui, sz size) []line {
	var out []line
	for _, s := range wrap(v.text, sz.w-2) {
		out = append(out, rowOf(plain, " "+s))
	}
	return append([]line{rowOf(ident, left(" "+clean(v.title), sz.w)), nil}, window(out, &v.top, sz.h-2)...)
}

// eventText is what an event says, whole.
func eventText(e pipeline.Event) string {
	text := e.Text
	if e.Count > 1 {
		text += fmt.Sprintf("  x%d", e.Count)
	}
	if e.Action != "" {
		text += "  #" + e.Action
	}
	return text
}
