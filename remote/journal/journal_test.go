package journal_test

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"pipedeck/pipeline"
	"pipedeck/remote/journal"
)

func open(t *testing.T, path string) *journal.Journal {
	t.Helper()
	j, err := journal.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { j.Close() })
	return j
}

func add(t *testing.T, j *journal.Journal, text string) {
	t.Helper()
	err := j.Append(pipeline.JournalRecord{
		At: time.Now(), Kind: "intent", Action: "a-1", Step: 2, By: "op@host", Text: text,
		Data: struct {
			Z int
			A map[string]any
		}{1 << 60, map[string]any{"<html>": "\u2028\n"}},
	})
	if err != nil {
		t.Fatal(err)
	}
}

func texts(t *testing.T, j *journal.Journal, limit int) []string {
	t.Helper()
	recs, err := j.Read(limit)
	if err != nil {
		t.Fatal(err)
	}
	out := []string{}
	for _, r := range recs {
		out = append(out, fmt.Sprintf("%d %s", r.Seq, r.Text))
	}
	return out
}

func verify(t *testing.T, path string, want int) {
	t.Helper()
	if n, err := journal.Verify(path); err != nil || n != want {
		t.Fatalf("Verify = %d, %v, want %d", n, err, want)
	}
}

func TestAppendReadReopen(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "journal.jsonl")
	j := open(t, path)
	if got := texts(t, j, 0); len(got) != 0 {
		t.Fatalf("a new journal has %q", got)
	}
	for i := range 3 {
		add(t, j, fmt.Sprint("r", i))
	}
	j.Close()
	j = open(t, path)
	add(t, j, strings.Repeat("long", 50_000)) // longer than a block
	add(t, j, "last")
	verify(t, path, 5)
	if got := texts(t, j, 3); len(got) != 3 || got[0] != "3 r2" || got[2] != "5 last" {
		t.Errorf("newest 3 = %.40q", got)
	}
	for _, limit := range []int{0, 5, 99} {
		if got := texts(t, j, limit); len(got) != 5 || got[0] != "1 r0" {
			t.Errorf("Read(%d) = %.40q", limit, got)
		}
	}
}

// A crash can leave any prefix of the last record.
func TestTornAtEveryByte(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path := filepath.Join(dir, "journal.jsonl")
	j := open(t, path)
	add(t, j, "first")
	before, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	add(t, j, "second")
	all, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for cut := range all {
		path := filepath.Join(dir, "cut.jsonl")
		if err := os.WriteFile(path, all[:cut], 0o600); err != nil {
			t.Fatal(err)
		}
		j := open(t, path)
		add(t, j, "after")
		recs, err := j.Read(0)
		if err != nil {
			t.Fatal(err)
		}
		verify(t, path, len(recs))
		kept, torn := whole(before, cut)
		if len(recs) != kept+1+min(torn, 1) || recs[len(recs)-1].Text != "after" {
			t.Fatalf("cut at %d: %d records, %d whole ones before, %d torn bytes", cut, len(recs), kept, torn)
		}
		if torn > 0 {
			r := recs[len(recs)-2]
			if r.Kind != "agent" || !strings.Contains(r.Text, fmt.Sprintf(": %d bytes", torn)) || r.Data == nil {
				t.Fatalf("cut at %d: torn bytes are recorded as %+v", cut, r)
			}
		}
		j.Close()
	}
}

// whole says how many records survive a cut, and how many bytes are torn.
func whole(first []byte, cut int) (kept, torn int) {
	if cut < len(first) {
		return 0, cut
	}
	return 1, cut - len(first)
}

// A crash while the torn end is being replaced leaves bytes of both.
func TestTornWhileMending(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path := filepath.Join(dir, "journal.jsonl")
	j := open(t, path)
	add(t, j, "first")
	j.Close()
	base, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for name, tail := range map[string]string{
		"zeros":           strings.Repeat("\x00", 4096),
		"zeros and lines": strings.Repeat("\x00", 100) + "\n",
		"bad hash":        strings.Replace(string(base), "first", "forged", 1),
		"half a mend":     `{"seq":2,"at":"2026-` + strings.Repeat("\x00", 500),
	} {
		if err := os.WriteFile(path, append(bytes.Clone(base), tail...), 0o600); err != nil {
			t.Fatal(err)
		}
		j := open(t, path)
		if got := texts(t, j, 0); len(got) != 2 || got[0] != "1 first" {
			t.Errorf("%s: %q", name, got)
		}
		verify(t, path, 2)
		j.Close()
	}
}

func TestVerifyFindsChanges(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path := filepath.Join(dir, "journal.jsonl")
	j := open(t, path)
	for i := range 4 {
		add(t, j, fmt.Sprint("r", i))
	}
	all, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	lines := bytes.SplitAfter(all, []byte("\n"))
	for name, c := range map[string]struct {
		lines [][]byte
		good  int
	}{
		"changed":   {[][]byte{lines[0], bytes.Replace(lines[1], []byte("r1"), []byte("rX"), 1), lines[2]}, 1},
		"left out":  {[][]byte{lines[0], lines[2], lines[3]}, 1},
		"swapped":   {[][]byte{lines[1], lines[0]}, 0},
		"torn":      {[][]byte{lines[0], lines[1][:20]}, 1},
		"no record": {[][]byte{lines[0], lines[1], []byte("hello\n")}, 2},
	} {
		other := filepath.Join(dir, "other.jsonl")
		if err := os.WriteFile(other, bytes.Join(c.lines, nil), 0o600); err != nil {
			t.Fatal(err)
		}
		if n, err := journal.Verify(other); err == nil || n != c.good {
			t.Errorf("%s: Verify = %d, %v, want %d good and an error", name, n, err, c.good)
		}
	}
}

func TestDamageIsRefused(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "journal.jsonl")
	if err := os.WriteFile(path, []byte("no\njournal\nat all\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := journal.Open(path); err == nil {
		t.Error("a file that is no journal was opened, and would have been cut")
	}
}

func TestConcurrentAppends(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "journal.jsonl")
	j := open(t, path)
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			for range 5 {
				if err := j.Append(pipeline.JournalRecord{Kind: "sent", Text: strconv.Itoa(i)}); err != nil {
					t.Error(err)
				}
				if _, err := j.Read(2); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	verify(t, path, 40)
}
