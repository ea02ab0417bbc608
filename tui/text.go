package tui

import (
	"strings"
	"unicode/utf8"

	"github.com/charmbracelet/x/ansi"

	"pipedeck/pipeline"
)

// span is a run of text with one look. Text from outside enters a span only
// through txt, which makes it safe to print.
type span struct {
	text string
	look look
}

// line is one row of the screen.
type line []span

// txt makes a span of any text, cleaned of everything that could move the
// cursor or reorder what is beside it.
func txt(l look, s string) span { return span{text: clean(s), look: l} }

// row makes a line of one span.
func rowOf(l look, s string) line { return line{txt(l, s)} }

// clean makes text from outside safe to show: a log line or a file name must
// not draw outside its cell.
func clean(s string) string { return pipeline.Clean(s) }

func isPlain(s string) bool {
	for i := range len(s) {
		if s[i] < ' ' || s[i] >= utf8.RuneSelf || s[i] == 0x7f {
			return false
		}
	}
	return true
}

// width is the number of cells s takes, counted as the renderer counts.
func width(s string) int {
	if isPlain(s) {
		return len(s)
	}
	return ansi.StringWidthWc(s)
}

// cut shortens s to at most w cells; a cut text ends in '>' so that it never
// passes for a whole one.
func cut(s string, w int) string {
	switch {
	case w <= 0:
		return ""
	case width(s) <= w:
		return s
	case w == 1:
		return ">"
	}
	return ansi.TruncateWc(s, w, ">")
}

// left pads or cuts s to exactly w cells, flush left.
func left(s string, w int) string {
	s = cut(s, w)
	return s + strings.Repeat(" ", max(0, w-width(s)))
}

// right pads or cuts s to exactly w cells, flush right.
func right(s string, w int) string {
	s = cut(s, w)
	return strings.Repeat(" ", max(0, w-width(s))) + s
}

// width is the number of cells of the whole line.
func (l line) width() int {
	n := 0
	for _, s := range l {
		n += width(s.text)
	}
	return n
}

// fit cuts or pads the line to exactly w cells.
func (l line) fit(w int) line {
	out := make(line, 0, len(l)+1)
	for _, s := range l {
		n := width(s.text)
		if n > w {
			s.text = cut(s.text, w)
			n = width(s.text)
			out, w = append(out, s), w-n
			break
		}
		out, w = append(out, s), w-n
	}
	if w > 0 {
		out = append(out, span{text: strings.Repeat(" ", w)})
	}
	return out
}

// part is one element of a one-line bar. Higher drop goes first when space is
// short; drop 0 stays.
type part struct {
	span
	drop  int
	right bool
}

// bar lays parts out in w cells: the left ones from the left, the right ones
// flush right, two spaces between. Parts go by their drop order until the
// rest fits.
func bar(w int, parts []part) line {
	parts = dropParts(parts, w)
	var sides [2]line
	for _, p := range parts {
		side := &sides[btoi(p.right)]
		if len(*side) > 0 {
			*side = append(*side, span{text: "  "})
		}
		*side = append(*side, p.span)
	}
	l, r := sides[0], sides[1]
	gap := w - l.width() - r.width()
	if gap < 0 {
		return append(l.fit(max(0, w-r.width())), r...).fit(w)
	}
	return append(append(l, span{text: strings.Repeat(" ", gap)}), r...)
}

func dropParts(parts []part, w int) []part {
	for barWidth(parts) > w {
		worst := -1
		for i, p := range parts {
			if p.drop > 0 && (worst < 0 || p.drop >= parts[worst].drop) {
				worst = i
			}
		}
		if worst < 0 {
			return parts
		}
		parts = append(append([]part{}, parts[:worst]...), parts[worst+1:]...)
	}
	return parts
}

func barWidth(parts []part) int {
	n := 0
	for i, p := range parts {
		if i > 0 {
			n += 2
		}
		n += width(p.text)
	}
	return n
}

// beside puts two columns of lines next to each other, gap cells between.
func beside(l []line, lw, gap int, r []line, rw int) []line {
	out := make([]line, max(len(l), len(r)))
	for i := range out {
		var a, b line
		if i < len(l) {
			a = l[i]
		}
		if i < len(r) {
			b = r[i]
		}
		out[i] = append(append(a.fit(lw), span{text: strings.Repeat(" ", gap)}), b.fit(rw)...)
	}
	return out
}
