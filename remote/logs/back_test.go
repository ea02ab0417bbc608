package logs_test

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"pipedeck/pipeline"
	"pipedeck/remote/logs"
)

// Reading back from the end gives, page by page, exactly what was written,
// through rotated files, each page whole lines.
func TestBackwardsGivesEverything(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		dir, path := newLog(t)
		r := logs.New(dir)
		var want strings.Builder
		for i := range rapid.IntRange(0, 40).Draw(rt, "lines") {
			text := fmt.Sprintf("%d %s\n", i, strings.Repeat("x", rapid.IntRange(0, 60).Draw(rt, "length")))
			write(t, path, text)
			want.WriteString(text)
			if i < 30 && i%10 == 9 && rapid.Bool().Draw(rt, "rotate") {
				rotate(t, path, 5)
			}
		}
		limit := rapid.IntRange(70, 300).Draw(rt, "limit")
		var got []byte
		for place := pipeline.LogEnd; ; {
			c := read(t, r, path, pipeline.LogRequest{Before: place, Limit: limit})
			if len(c.Data) > limit || len(c.Data) > 0 && c.Data[len(c.Data)-1] != '\n' {
				rt.Fatalf("a page of %d bytes: %q", len(c.Data), c.Data)
			}
			got = append(bytes.Clone(c.Data), got...)
			if c.First {
				break
			}
			if c.Start == place {
				rt.Fatalf("no way back from %q", place)
			}
			place = c.Start
		}
		if string(got) != want.String() {
			rt.Errorf("got %q, want %q", got, want.String())
		}
		c := read(t, r, path, pipeline.LogRequest{Cursor: pipeline.LogStart, Limit: 1 << 20})
		if string(c.Data) != want.String() || want.Len() > 0 && !c.First || !c.EOF {
			rt.Errorf("from the start: %q, first %v, eof %v", c.Data, c.First, c.EOF)
		}
	})
}

func TestBackwardsFromTheMiddle(t *testing.T) {
	t.Parallel()
	dir, path := newLog(t)
	r := logs.New(dir)
	if c := read(t, r, path, pipeline.LogRequest{Before: pipeline.LogEnd}); !c.First || len(c.Data) != 0 {
		t.Errorf("no log: %+v", c)
	}
	write(t, path, "one\ntwo\nthree")
	c := read(t, r, path, pipeline.LogRequest{Before: pipeline.LogEnd, Limit: 7})
	if string(c.Data) != "three" || c.First {
		t.Errorf("got %q, first %v", c.Data, c.First)
	}
	// What follows the place is read on from there.
	write(t, path, "!\n")
	if next := read(t, r, path, pipeline.LogRequest{Cursor: c.Cursor}); string(next.Data) != "!\n" {
		t.Errorf("after it: %q", next.Data)
	}
	if c = read(t, r, path, pipeline.LogRequest{Before: c.Start, Limit: 100}); string(c.Data) != "one\ntwo\n" || !c.First {
		t.Errorf("before it: %q, first %v", c.Data, c.First)
	}
	// A line longer than the limit is cut, not lost.
	long, path := newLog(t)
	write(t, path, strings.Repeat("y", 500)+"\n")
	if c := read(t, logs.New(long), path, pipeline.LogRequest{Before: pipeline.LogEnd, Limit: 100}); len(c.Data) != 100 || c.First {
		t.Errorf("a long line: %d bytes, first %v", len(c.Data), c.First)
	}
}
