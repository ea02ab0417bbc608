package tui

import "strings"

// helpView is the key table, made for the place it was opened from. Keys that
// do nothing now say why.
type helpView struct {
	lines  []helpLine
	filter string
	top    int
}

type helpLine struct{ keys, where, help, reason string }

func newHelp(m *model, where scope) *helpView {
	v := &helpView{}
	add := func(match func(scope) bool) {
		for _, k := range m.ui.table() {
			if match(k.scope) {
				keys := make([]string, len(k.keys))
				for i, s := range k.keys {
					keys[i] = showKey(s)
				}
				v.lines = append(v.lines, helpLine{strings.Join(keys, " "), string(k.scope), k.help, k.reason(m)})
			}
		}
	}
	add(func(s scope) bool { return s == where })
	add(func(s scope) bool { return s == anywhere && s != where })
	add(func(s scope) bool { return s != anywhere && s != where })
	return v
}

func (v *helpView) scope() scope { return inHelp }

func (v *helpView) scroll(_ *ui, m move, page int) []effect {
	v.top = m.offset(v.top, 1<<16, page)
	return nil
}

func (v *helpView) draw(_ board, _ *ui, sz size) []line {
	title := " Keys"
	if v.filter != "" {
		title += " /" + v.filter
	}
	var out []line
	for _, h := range v.lines {
		text := strings.ToLower(h.keys + " " + h.where + " " + h.help + " " + h.reason)
		if v.filter != "" && !strings.Contains(text, strings.ToLower(v.filter)) {
			continue
		}
		l := line{txt(bold, left(h.keys, 16)), txt(dim, left(h.where, 13)), txt(plain, h.help)}
		if h.reason != "" {
			l = line{txt(dim, left(h.keys, 16)), txt(dim, left(h.where, 13)), txt(dim, h.help+"  (now: "+h.reason+")")}
		}
		out = append(out, l)
	}
	if len(out) == 0 {
		out = []line{rowOf(dim, "  no key matches /"+v.filter)}
	}
	return append([]line{rowOf(ident, left(clean(title), sz.w))}, window(out, &v.top, sz.h-1)...)
}

// filterHelp opens the filter field of the help view.
func filterHelp(m *model) []effect {
	v, ok := m.ui.top().(*helpView)
	if !ok {
		return nil
	}
	m.ui.prompt = &prompt{
		label: "filter keys: ", text: v.filter,
		live:  func(_ *model, text string) { v.filter, v.top = text, 0 },
		done:  func(_ *model, text string) []effect { v.filter = text; return nil },
		abort: func(*model) { v.filter = "" },
	}
	return nil
}
