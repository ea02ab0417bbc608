package spec

import (
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

func TestExpand(t *testing.T) {
	t.Parallel()
	v := Vars{Rank: 2, World: 4, GPU: "1", Stage: "s", Run: "r1", ServiceAddresses: map[string]string{"a.b": "http://h:1"}}
	for tmpl, want := range map[string]string{
		"": "", "x": "x", "{rank}/{world}": "2/4", "a{gpu}b": "a1b", "{{rank}}": "{rank}", "${{HOME}}": "${HOME}",
		`{{"r": {rank}}}`: `{"r": 2}`, "{services.a.b.addresses}": "http://h:1", "{stage}-{run}": "s-r1",
	} {
		if got, err := Expand(tmpl, v); err != nil || got != want {
			t.Errorf("%q: got %q, %v", tmpl, got, err)
		}
	}
	for tmpl, want := range map[string]string{
		"{rnk}": "unknown template variable {rnk}", "{port}": "{port} has no value here", "{rank": `unbalanced "{"`,
		"rank}": `unbalanced "}"`, "{}": "names no template variable", "{services.x.addresses}": "has no value", "{a{b}": `unbalanced "{"`,
	} {
		if _, err := Expand(tmpl, v); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: got %v, want %q", tmpl, err, want)
		}
	}
}

func TestUnits(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]int64{
		"0": 0, "17": 17, "17B": 17, "1KB": 1000, "512MB": 512e6, "52GB": 52e9, "1TB": 1e12, "1KiB": 1024, "2 MiB": 2 << 20,
		"1.5GiB": 3 << 29, "2TiB": 2 << 40,
	} {
		if got, err := ParseSize(text); err != nil || got != want {
			t.Errorf("size %q: got %d, %v", text, got, err)
		}
	}
	for _, text := range []string{"", "-1", "1.5", "1.5B", "MB", "1M", "1mb", "1e9", "9223372036854775807MB", "99999999999999999999", "1MB/s", "1 2"} {
		if got, err := ParseSize(text); err == nil {
			t.Errorf("size %q: got %d", text, got)
		}
	}
	for text, want := range map[string]time.Duration{"120s": 2 * time.Minute, "1h30m": 90 * time.Minute, "0": 0, "500ms": time.Second / 2} {
		if got, err := ParseDuration(text); err != nil || got != want {
			t.Errorf("duration %q: got %v, %v", text, got, err)
		}
	}
	for _, text := range []string{"", "30", "-1s", "1d", "s", "99999999999h"} {
		if got, err := ParseDuration(text); err == nil {
			t.Errorf("duration %q: got %v", text, got)
		}
	}
}

func TestClosest(t *testing.T) {
	t.Parallel()
	for word, want := range map[string]string{
		"comand": "command", "commnad": "command", "Command": "command", "key_last": "keep_last", "xyz": "", "": "",
		strings.Repeat("command", 20): "",
	} {
		if got := closest(word, []string{"command", "keep_last", "dir"}); got != want {
			t.Errorf("%q: got %q, want %q", word, got, want)
		}
	}
}

func TestOverlap(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		a, b string
		want bool
	}{
		{"a/*.bin", "a/*.bin", true},
		{"a/*.bin", "b/*.bin", false},
		{"a/*.bin", "a/x*", true},
		{"a/*.bin", "a/*.txt", false},
		{"a/**", "a/b/c", true},
		{"**/*.bin", "a/b/*.bin", true},
		{"a/*", "a/b/c", false},
		{"a/**/z", "a/z", true},
		{"checkpoints/step_*/**", "checkpoints/drafter/**", false},
		{"[a-c]x", "[d-f]x", false},
		{"[a-c]x", "bx", true},
		{"[!a]x", "ax", false},
		{"{a,b/c}/*", "b/c/d", true},
		{"{a,b}", "{c,d}", false},
		{"out" + digits, "out3", true},
		{"out" + digits, "outx", false},
		{"out" + digits, "out", false},
		{"?", "ab", false},
		{"é*", "é", true},
		{`\*`, "a", false},
		{`\*`, "[*]", true},
		{"*a*b*", "*c*", true},
	} {
		if got := overlap(c.a, c.b); got != c.want {
			t.Errorf("%q and %q: got %v", c.a, c.b, got)
		}
		if got := overlap(c.b, c.a); got != c.want {
			t.Errorf("%q and %q: got %v", c.b, c.a, got)
		}
	}
}

// TestOverlapMissesNothing: globs that both match a path overlap.
func TestOverlapMissesNothing(t *testing.T) {
	t.Parallel()
	glob := rapid.StringMatching(`(a|b|\*|\*\*|\?|\[ab\]|\[\^a\]|\{a,b/a\}|ab|a\*)(/(a|b|\*|\*\*|\?|\{a,b\}|ba)){0,3}`)
	name := rapid.StringMatching(`[ab]{1,2}(/[ab]{1,2}){0,3}`)
	rapid.Check(t, func(t *rapid.T) {
		a, b, path := glob.Draw(t, "a"), glob.Draw(t, "b"), name.Draw(t, "path")
		if matches(a, path) && matches(b, path) && !overlap(a, b) {
			t.Fatalf("%q and %q both match %q", a, b, path)
		}
		if matches(a, path) && !overlap(a, quoteGlob(path)) {
			t.Fatalf("%q matches %q", a, path)
		}
		if matches(a, path) && !strings.HasPrefix(path+"/", literalPrefix(a)) {
			t.Fatalf("%q matches %q, which does not begin with %q", a, path, literalPrefix(a))
		}
	})
}
