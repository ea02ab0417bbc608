package pipeline

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// maxMarks is how many combining marks may follow one character; more of them
// would draw over the lines above and below.
const maxMarks = 4

// Clean makes text from workers, servers and file names safe to show in one
// line of a terminal. Control characters become their pictures (one ␛ for a
// whole escape sequence), a tab becomes a space, and what is invisible,
// reorders text or is no valid UTF-8 becomes U+FFFD. Cleaning twice changes
// nothing more.
func Clean(s string) string {
	if isPlain(s) {
		return s
	}
	var b strings.Builder
	b.Grow(len(s))
	marks := 0
	for i := 0; i < len(s); {
		r, n := utf8.DecodeRuneInString(s[i:])
		if r == 0x1b || r == 0x9b || r == 0x9d {
			n = sequenceLen(s[i:], r, n)
			b.WriteRune('␛')
			i, marks = i+n, 0
			continue
		}
		i += n
		if unicode.In(r, unicode.Mn, unicode.Me) {
			if marks++; marks > maxMarks {
				continue
			}
		} else {
			marks = 0
		}
		b.WriteRune(visible(r))
	}
	return b.String()
}

func isPlain(s string) bool {
	for i := range len(s) {
		if s[i] < 0x20 || s[i] > 0x7e {
			return false
		}
	}
	return true
}

// visible returns what to show for one character.
func visible(r rune) rune {
	switch {
	case r == '\t':
		return ' '
	case r < 0x20:
		return 0x2400 + r
	case r == 0x7f:
		return '␡'
	case r >= 0xfe00 && r <= 0xfe0f, r >= 0xe0100 && r <= 0xe01ef:
		return utf8.RuneError // variation selectors change a width after the fact
	case unicode.In(r, unicode.Cc, unicode.Cf, unicode.Cs, unicode.Zl, unicode.Zp):
		return utf8.RuneError
	}
	return r
}

// sequenceLen returns the length of the escape sequence at the start of s,
// whose first character (ESC, CSI or OSC) has n bytes. A sequence without an
// end is only its introducer, so that it hides no text.
func sequenceLen(s string, first rune, n int) int {
	kind, at := first, n
	if first == 0x1b {
		if len(s) == 1 {
			return 1
		}
		at = 2
		switch s[1] {
		case '[':
			kind = 0x9b
		case ']', 'P', 'X', '^', '_':
			kind = 0x9d
		default:
			if s[1] >= 0x20 && s[1] < 0x7f {
				return 2
			}
			return 1
		}
	}
	if kind == 0x9b {
		return controlLen(s, at)
	}
	return stringLen(s, at)
}

// controlLen is for CSI: parameters, intermediates, one final byte.
func controlLen(s string, at int) int {
	for i := at; i < len(s); i++ {
		switch {
		case s[i] >= 0x40 && s[i] <= 0x7e:
			return i + 1
		case s[i] < 0x20 || s[i] > 0x3f:
			return at
		}
	}
	return at
}

// stringLen is for OSC and its kin: up to BEL or ST.
func stringLen(s string, at int) int {
	for i := at; i < len(s); i++ {
		switch {
		case s[i] == 0x07:
			return i + 1
		case s[i] == 0x1b && i+1 < len(s) && s[i+1] == '\\':
			return i + 2
		case s[i] == '\n':
			return at
		}
	}
	return at
}

// shorten cuts text to at most limit bytes at a character boundary.
func shorten(s string, limit int) string {
	if len(s) <= limit {
		return s
	}
	cut := limit - len("…")
	for cut > 0 && !utf8.RuneStart(s[cut]) {
		cut--
	}
	return s[:cut] + "…"
}
