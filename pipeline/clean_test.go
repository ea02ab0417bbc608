package pipeline

import (
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"
)

func TestClean(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct{ in, want string }{
		{"plain text, 100 %", "plain text, 100 %"},
		{"déjà 学习 😀", "déjà 学习 😀"},
		{"a\tb\nc\rd", "a b␊c␍d"},
		{"\x1b[31mred\x1b[0m", "␛red␛"},
		{"\x1b]0;title\x07after", "␛after"},
		{"\x1b]8;;http://x\x1b\\link", "␛link"},
		{"\x1b]52;c;hidden without an end", "␛52;c;hidden without an end"},
		{"\x1bPq#0\x1b\\sixel", "␛sixel"},
		{"\x1b[2", "␛2"},
		{"\x1b[2\x00J", "␛2␀J"},
		{"\x1bc reset", "␛ reset"},
		{"\x1b", "␛"},
		{"\x1b\x1b[A", "␛␛"},
		{"\u009b31mred", "␛red"},
		{"bad \xff\xfe utf8", "bad \ufffd\ufffd utf8"},
		{"\x80\x9b", "\ufffd\ufffd"},
		{"evil\u202egnp.exe", "evil\ufffdgnp.exe"},
		{"zero\u200bwidth\ufeff", "zero\ufffdwidth\ufffd"},
		{"line\u2028sep", "line\ufffdsep"},
		{"del\x7f", "del␡"},
		{"z" + strings.Repeat("\u0301", 40), "z" + strings.Repeat("\u0301", maxMarks)},
	} {
		if got := Clean(tc.in); got != tc.want {
			t.Errorf("Clean(%q) = %q, want %q", tc.in, got, tc.want)
		}
	}
}

func FuzzClean(f *testing.F) {
	for _, s := range []string{"", "\x1b[31m", "\x1b]0;x\x07", "\x1b]x", "\u009b1m", "\xff", "a\u202eb", "\x1bP\x1b\\", "\t\n", "e\u0301"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		got := Clean(s)
		if !utf8.ValidString(got) {
			t.Fatalf("Clean(%q) = %q is not UTF-8", s, got)
		}
		for _, r := range got {
			if unicode.IsControl(r) || unicode.Is(unicode.Cf, r) {
				t.Fatalf("Clean(%q) = %q keeps %U", s, got, r)
			}
		}
		if again := Clean(got); again != got {
			t.Fatalf("Clean(%q) = %q, cleaned again %q", s, got, again)
		}
		if len(got) > 3*len(s) {
			t.Fatalf("Clean(%q) grew to %d bytes", s, len(got))
		}
		if cut := shorten(got, 10); len(cut) > 10 || !utf8.ValidString(cut) {
			t.Fatalf("shorten(%q) = %q", got, cut)
		}
	})
}
