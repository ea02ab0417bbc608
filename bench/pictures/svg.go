package main

import (
	"fmt"
	"html"
	"image/color"
	"strings"

	uv "github.com/charmbracelet/ultraviolet"
	"github.com/charmbracelet/x/ansi"

	"pipedeck/bench/term"
)

// The size of a cell and of the font in it, in pixels.
const (
	cellW, cellH = 8.4, 17.0
	fontSize     = 14
	margin       = 10.0
)

const (
	foreground = "#d0d0d0"
	background = "#101418"
)

// palette is the 16 standard colours on a dark background.
var palette = [16]string{
	"#303030", "#d75f5f", "#5faf5f", "#d7af5f", "#5f87d7", "#af5faf", "#5fafaf", "#bcbcbc",
	"#767676", "#ff6b6b", "#7ddc7d", "#f5d76e", "#7aa7ff", "#d78fd7", "#6fd7d7", "#ffffff",
}

// stretch is cells of one style.
type stretch struct {
	x, n  int
	style uv.Style
	text  strings.Builder
}

// svg draws the screen: each stretch of one style is one text, stretched to
// its cells so that every font lines up.
func svg(t *term.Terminal, w, h int) []byte {
	var b strings.Builder
	width, height := float64(w)*cellW+2*margin, float64(h)*cellH+2*margin
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" width="%.0f" height="%.0f" viewBox="0 0 %.0f %.0f" font-family="DejaVu Sans Mono, Menlo, Consolas, monospace" font-size="%d">`+"\n",
		width, height, width, height, fontSize)
	fmt.Fprintf(&b, `<rect width="100%%" height="100%%" rx="6" fill="%s"/>`+"\n", background)
	for y := range h {
		for _, s := range stretches(t, y, w) {
			s.draw(&b, y)
		}
	}
	b.WriteString("</svg>\n")
	return []byte(b.String())
}

func stretches(t *term.Terminal, y, w int) []*stretch {
	var out []*stretch
	for x := range w {
		content, style := " ", uv.Style{}
		if c := t.Cell(x, y); c != nil {
			style = c.Style
			if c.Content != "" {
				content = c.Content
			}
		}
		if n := len(out); n == 0 || !out[n-1].style.Equal(&style) {
			out = append(out, &stretch{x: x, style: style})
		}
		last := out[len(out)-1]
		last.text.WriteString(content)
		last.n++
	}
	return out
}

func (s *stretch) draw(b *strings.Builder, y int) {
	fg, bg := hex(s.style.Fg, foreground), hex(s.style.Bg, "")
	if s.style.Attrs&uv.AttrReverse != 0 {
		if bg == "" {
			bg = background
		}
		fg, bg = bg, fg
	}
	left, top := margin+float64(s.x)*cellW, margin+float64(y)*cellH
	if bg != "" {
		fmt.Fprintf(b, `<rect x="%.1f" y="%.1f" width="%.1f" height="%.1f" fill="%s"/>`+"\n", left, top, float64(s.n)*cellW, cellH, bg)
	}
	text := s.text.String()
	trimmed := strings.TrimRight(text, " ")
	lead := len(trimmed) - len(strings.TrimLeft(trimmed, " "))
	if trimmed = strings.TrimLeft(trimmed, " "); trimmed == "" {
		return
	}
	more := ""
	if s.style.Attrs&uv.AttrBold != 0 {
		more += ` font-weight="bold"`
	}
	if s.style.Attrs&uv.AttrFaint != 0 {
		more += ` opacity="0.6"`
	}
	n := ansi.StringWidth(trimmed)
	fmt.Fprintf(b, `<text x="%.1f" y="%.1f" textLength="%.1f" lengthAdjust="spacingAndGlyphs" fill="%s" xml:space="preserve"%s>%s</text>`+"\n",
		left+float64(lead)*cellW, top+cellH*0.76, float64(n)*cellW, fg, more, html.EscapeString(trimmed))
}

// hex is a colour for SVG; none is otherwise.
func hex(c color.Color, otherwise string) string {
	switch c := c.(type) {
	case nil:
		return otherwise
	case ansi.BasicColor:
		return palette[int(c)%16]
	case ansi.IndexedColor:
		if c < 16 {
			return palette[c]
		}
	}
	r, g, b, _ := c.RGBA()
	return fmt.Sprintf("#%02x%02x%02x", r>>8, g>>8, b>>8)
}
