package logs_test

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"pipedeck/pipeline"
	"pipedeck/remote/logs"
)

func newLog(t interface{ TempDir() string }) (dir, path string) {
	dir = t.TempDir()
	return dir, filepath.Join(dir, "extract-0.log")
}

func write(tb testing.TB, path, text string) {
	tb.Helper()
	f, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o640)
	if err != nil {
		tb.Fatal(err)
	}
	defer f.Close()
	if _, err := f.WriteString(text); err != nil {
		tb.Fatal(err)
	}
}

func read(tb testing.TB, r *logs.Reader, path string, req pipeline.LogRequest) pipeline.LogChunk {
	tb.Helper()
	c, err := r.Read(context.Background(), path, req)
	if err != nil {
		tb.Fatal(err)
	}
	return c
}

func rotate(tb testing.TB, path string, keep int) {
	tb.Helper()
	if cut, err := logs.Rotate(path, 1, keep); err != nil || !cut {
		tb.Fatalf("Rotate = %v, %v", cut, err)
	}
}

func TestTail(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", 200_000)
	for name, c := range map[string]struct {
		text string
		tail int
		want string
	}{
		"none":          {"a\nb\n", 0, ""},
		"one":           {"a\nb\n", 1, "b\n"},
		"partial":       {"a\nb\nc", 2, "b\nc"},
		"all":           {"a\nb\n", 9, "a\nb\n"},
		"exactly":       {"a\nb\n", 2, "a\nb\n"},
		"beginning":     {"a\nb\n", -1, "a\nb\n"},
		"empty":         {"", 5, ""},
		"empty lines":   {"a\n\n\n", 2, "\n\n"},
		"over blocks":   {"a\n" + long + "\nb\n", 2, long + "\nb\n"},
		"only newlines": {"\n\n", 1, "\n"},
	} {
		dir, path := newLog(t)
		write(t, path, c.text)
		got := read(t, logs.New(dir), path, pipeline.LogRequest{Tail: c.tail})
		if string(got.Data) != c.want || !got.EOF || got.Gap != 0 {
			t.Errorf("%s: %.20q (%d bytes), EOF %v, gap %d", name, got.Data, len(got.Data), got.EOF, got.Gap)
		}
	}
}

func TestTailOfHugeLineIsBounded(t *testing.T) {
	t.Parallel()
	dir, path := newLog(t)
	write(t, path, strings.Repeat("x", 20<<20))
	got := read(t, logs.New(dir), path, pipeline.LogRequest{Tail: 1, Limit: 1 << 30})
	if len(got.Data) == 0 || len(got.Data) > 4<<20 {
		t.Errorf("%d bytes", len(got.Data))
	}
}

func TestFollowThroughRotations(t *testing.T) {
	t.Parallel()
	dir, path := newLog(t)
	r := logs.New(dir)
	write(t, path, "one\n")
	c := read(t, r, path, pipeline.LogRequest{Tail: 1})
	write(t, path, "two\n")
	rotate(t, path, 3)
	write(t, path, "three\n")
	rotate(t, path, 3)
	write(t, path, "four\n")
	c = read(t, r, path, pipeline.LogRequest{Cursor: c.Cursor})
	if string(c.Data) != "two\nthree\nfour\n" || !c.EOF || c.Gap != 0 {
		t.Errorf("followed %q, EOF %v, gap %d", c.Data, c.EOF, c.Gap)
	}
	if n, err := logs.Written(path); n != 19 || err != nil {
		t.Errorf("Written = %d, %v", n, err)
	}
	// Right after a rotation the tail is in the generation before.
	rotate(t, path, 3)
	if c = read(t, r, path, pipeline.LogRequest{Tail: 1}); string(c.Data) != "four\n" {
		t.Errorf("tail after rotation %q", c.Data)
	}
}

func TestGapWhenTooSlow(t *testing.T) {
	t.Parallel()
	dir, path := newLog(t)
	r := logs.New(dir)
	write(t, path, "one\n")
	c := read(t, r, path, pipeline.LogRequest{Tail: 1})
	for i := range 5 {
		write(t, path, fmt.Sprintf("r%d\n", i))
		rotate(t, path, 2)
	}
	c = read(t, r, path, pipeline.LogRequest{Cursor: c.Cursor})
	if string(c.Data) != "r3\nr4\n" || c.Gap != -1 {
		t.Errorf("read %q, gap %d", c.Data, c.Gap)
	}
	if got, err := filepath.Glob(path + ".*"); len(got) != 3 || err != nil { // two generations and the position
		t.Errorf("files kept: %q", got)
	}
}

func TestForeignTruncation(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		copied bool
		want   string
		gap    int64
	}{
		"logrotate copytruncate": {true, "two\nnew\n", 0},
		"emptied by hand":        {false, "new\n", -1},
	} {
		dir, path := newLog(t)
		r := logs.New(dir)
		write(t, path, "a rather long line one\n")
		chunk := read(t, r, path, pipeline.LogRequest{Tail: 1})
		write(t, path, "two\n")
		if c.copied {
			write(t, path+".1", "a rather long line one\ntwo\n")
		}
		if err := os.Truncate(path, 0); err != nil {
			t.Fatal(err)
		}
		write(t, path, "new\n")
		chunk = read(t, r, path, pipeline.LogRequest{Cursor: chunk.Cursor})
		if string(chunk.Data) != c.want || chunk.Gap != c.gap {
			t.Errorf("%s: %q, gap %d", name, chunk.Data, chunk.Gap)
		}
	}
}

func TestForeignRename(t *testing.T) {
	t.Parallel()
	dir, path := newLog(t)
	r := logs.New(dir)
	write(t, path, "one\n")
	c := read(t, r, path, pipeline.LogRequest{Tail: 1})
	write(t, path, "two\n")
	if err := os.Rename(path, path+".1"); err != nil {
		t.Fatal(err)
	}
	write(t, path, "three, and longer than before\n")
	c = read(t, r, path, pipeline.LogRequest{Cursor: c.Cursor})
	if string(c.Data) != "two\nthree, and longer than before\n" || c.Gap != 0 {
		t.Errorf("read %q, gap %d", c.Data, c.Gap)
	}
}

func TestLimitPages(t *testing.T) {
	t.Parallel()
	dir, path := newLog(t)
	r := logs.New(dir)
	write(t, path, "0123456789")
	rotate(t, path, 3)
	write(t, path, "abcdefghij")
	c := pipeline.LogChunk{Cursor: "0:0:0"}
	var got []byte
	for range 20 {
		c = read(t, r, path, pipeline.LogRequest{Cursor: c.Cursor, Limit: 3})
		if len(c.Data) > 3 {
			t.Fatalf("%d bytes over the limit of 3", len(c.Data))
		}
		got = append(got, c.Data...)
		if c.EOF {
			break
		}
	}
	if string(got) != "0123456789abcdefghij" || !c.EOF {
		t.Errorf("pages make %q, EOF %v", got, c.EOF)
	}
}

func TestWaitForGrowth(t *testing.T) {
	t.Parallel()
	dir, path := newLog(t)
	r := logs.New(dir)
	// It does not even exist yet.
	go func() {
		time.Sleep(50 * time.Millisecond)
		_ = os.WriteFile(path, []byte("first\n"), 0o640)
	}()
	c := read(t, r, path, pipeline.LogRequest{Tail: 10, Wait: 20 * time.Second})
	if string(c.Data) != "first\n" {
		t.Errorf("read %q", c.Data)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := r.Read(ctx, path, pipeline.LogRequest{Cursor: c.Cursor, Wait: time.Hour}); err == nil {
		t.Error("a canceled wait is no error")
	}
	if c = read(t, r, path, pipeline.LogRequest{Cursor: c.Cursor}); len(c.Data) != 0 || !c.EOF {
		t.Errorf("read %q", c.Data)
	}
}

func TestStaysInside(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	dir := filepath.Join(root, "logs")
	if err := os.MkdirAll(filepath.Join(dir, "folder"), 0o750); err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(root, "secret"), "secret")
	for link, to := range map[string]string{"out": "../secret", "abs": filepath.Join(root, "secret"), "up": ".."} {
		if err := os.Symlink(to, filepath.Join(dir, link)); err != nil {
			t.Fatal(err)
		}
	}
	for _, path := range []string{
		filepath.Join(root, "secret"), dir + "/../secret", filepath.Join(dir, "out"), filepath.Join(dir, "abs"),
		filepath.Join(dir, "up/secret"), dir, "/etc/passwd", "logs", filepath.Join(dir, "folder"),
	} {
		c, err := logs.New(dir).Read(context.Background(), path, pipeline.LogRequest{Tail: 5})
		if err == nil {
			t.Errorf("read %q from %q", c.Data, path)
		}
	}
	for _, cur := range []string{"x", "1:2", "-1:0:0", "0:0:-5", "1:2:3:4"} {
		if _, err := logs.New(dir).Read(context.Background(), filepath.Join(dir, "l"), pipeline.LogRequest{Cursor: cur}); err == nil {
			t.Errorf("cursor %q was taken", cur)
		}
	}
}

// A rotation that died between its steps is resolved by the file's size.
func TestRotationCutShort(t *testing.T) {
	t.Parallel()
	dir, path := newLog(t)
	write(t, path, "0123456789")
	write(t, path+".pos", `{"gen":0,"start":0,"cut":10}`)
	c := read(t, logs.New(dir), path, pipeline.LogRequest{Cursor: "0:0:4"})
	if string(c.Data) != "456789" || c.Gap != 0 {
		t.Errorf("before the truncation: %q, gap %d", c.Data, c.Gap)
	}
	write(t, path+".0", "0123456789")
	if err := os.Truncate(path, 0); err != nil {
		t.Fatal(err)
	}
	write(t, path, "ab")
	c = read(t, logs.New(dir), path, pipeline.LogRequest{Cursor: "0:0:4"})
	if string(c.Data) != "456789ab" || c.Gap != 0 {
		t.Errorf("after the truncation: %q, gap %d", c.Data, c.Gap)
	}
	if n, err := logs.Written(path); n != 12 || err != nil {
		t.Errorf("Written = %d, %v", n, err)
	}
	rotate(t, path, 3)
	if n, err := logs.Written(path); n != 12 || err != nil {
		t.Errorf("Written after the next rotation = %d, %v", n, err)
	}
}

func TestRotateLeavesSmallAndMissing(t *testing.T) {
	t.Parallel()
	_, path := newLog(t)
	if cut, err := logs.Rotate(path, 10, 1); cut || err != nil {
		t.Errorf("a missing log: %v, %v", cut, err)
	}
	write(t, path, "123456789")
	if cut, err := logs.Rotate(path, 10, 1); cut || err != nil {
		t.Errorf("a small log: %v, %v", cut, err)
	}
	if n, err := logs.Written(path + "-none"); n != 0 || err != nil {
		t.Errorf("Written of a missing log = %d, %v", n, err)
	}
}

// A reader that keeps up sees every byte once, however writes, rotations and
// reads follow each other.
func TestFollowerMissesNothing(t *testing.T) {
	t.Parallel()
	base := t.TempDir()
	n := 0
	rapid.Check(t, func(rt *rapid.T) {
		n++
		dir := filepath.Join(base, strconv.Itoa(n))
		if err := os.Mkdir(dir, 0o750); err != nil {
			rt.Fatal(err)
		}
		path := filepath.Join(dir, "l.log")
		r := logs.New(dir)
		cursor := "0:0:0"
		var wrote, got bytes.Buffer
		unread := 0 // rotations since the last complete read
		drain := func() {
			for eof := false; !eof; {
				c := read(t, r, path, pipeline.LogRequest{Cursor: cursor, Limit: rapid.IntRange(1, 50).Draw(rt, "limit")})
				if c.Gap != 0 {
					rt.Fatalf("gap %d", c.Gap)
				}
				got.Write(c.Data)
				cursor, eof = c.Cursor, c.EOF
			}
			unread = 0
		}
		for range rapid.IntRange(1, 15).Draw(rt, "steps") {
			switch rapid.IntRange(0, 2).Draw(rt, "step") {
			case 0:
				text := rapid.StringMatching(`[a-c\n]{1,40}`).Draw(rt, "text")
				wrote.WriteString(text)
				write(t, path, text)
			case 1:
				if unread < 3 {
					cut, err := logs.Rotate(path, 1, 3)
					if err != nil {
						rt.Fatal(err)
					}
					if cut {
						unread++
					}
				}
			case 2:
				drain()
			}
		}
		drain()
		if !bytes.Equal(wrote.Bytes(), got.Bytes()) {
			rt.Fatalf("wrote %q, followed %q", wrote.Bytes(), got.Bytes())
		}
	})
}
