package tui

import (
	"strings"
)

// look names what a piece of text means; the theme says how that is drawn.
// Every meaning is also in the words: a look never carries it alone.
type look uint8

const (
	plain look = iota
	dim
	bold
	good
	warn
	bad
	accent
	chosen // the selected row
	ident  // deck and node: reverse, so that nobody acts on the wrong one
	looks  // how many there are
)

// Theme chooses the colours for a light or a dark background.
type Theme string

// Values of Theme. Auto uses only colours that read on both.
const (
	ThemeAuto  Theme = "auto"
	ThemeDark  Theme = "dark"
	ThemeLight Theme = "light"
	ThemeMono  Theme = "mono"
)

// next returns the theme after t, for the key that walks through them.
func (t Theme) next() Theme {
	switch t {
	case ThemeAuto:
		return ThemeDark
	case ThemeDark:
		return ThemeLight
	case ThemeLight:
		return ThemeMono
	case ThemeMono:
	}
	return ThemeAuto
}

// shown is the theme to draw with: auto takes what the terminal said of its
// background, and until it does, colours that read on both.
func (u *ui) shown() Theme {
	switch {
	case u.theme != ThemeAuto || u.dark == nil:
		return u.theme
	case *u.dark:
		return ThemeDark
	}
	return ThemeLight
}

// codes returns the SGR parameters of each look: the 16 standard colours on
// the terminal's own background.
func (t Theme) codes() [looks]string {
	c := [looks]string{dim: "2", bold: "1", chosen: "7", ident: "1;7"}
	switch t {
	case ThemeMono:
		c[warn], c[bad], c[accent] = "1", "1", "1"
	case ThemeDark:
		c[good], c[warn], c[bad], c[accent] = "92", "93", "1;91", "96"
	case ThemeLight:
		c[good], c[warn], c[bad], c[accent] = "32", "1;35", "1;31", "34"
	case ThemeAuto:
		c[good], c[warn], c[bad], c[accent] = "32", "33", "1;31", "36"
	}
	return c
}

// paint turns lines into the text of a frame, at most size.h lines of at most
// size.w cells.
func paint(lines []line, sz size, t Theme) string {
	codes := t.codes()
	var b strings.Builder
	b.Grow(sz.w * sz.h * 2)
	for i, l := range lines {
		if i >= sz.h {
			break
		}
		if i > 0 {
			b.WriteByte('\n')
		}
		paintLine(&b, l.fit(sz.w), codes)
	}
	return b.String()
}

func paintLine(b *strings.Builder, l line, codes [looks]string) {
	for i, s := range l {
		code := codes[s.look]
		if code == "" {
			if i == len(l)-1 {
				s.text = strings.TrimRight(s.text, " ")
			}
			b.WriteString(s.text)
			continue
		}
		b.WriteString("\x1b[" + code + "m" + s.text + "\x1b[m")
	}
}

// size is a screen in cells.
type size struct{ w, h int }
