package ledger_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"pipedeck/s3/ledger"
)

func bound() ledger.Binding {
	return ledger.Binding{Endpoint: "http://x", Bucket: "b", Prefix: "p", Run: "r1", Deck: "d"}
}

func openAt(tb testing.TB, path string) *ledger.Ledger {
	tb.Helper()
	l, err := ledger.Open(context.Background(), path, bound())
	if err != nil {
		tb.Fatal(err)
	}
	return l
}

func TestRowsSurviveReopening(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "odd #?% name", "ledger.db")
	l := openAt(t, path)
	if !l.Fresh() {
		t.Error("a new ledger says that it is not fresh")
	}
	agent := l.Agent()
	put := ledger.Copy{Size: 7, MD5: [16]byte{1, 2}, CRC32C: 1 << 31, ETag: "e", Dev: 1 << 63, Ino: 9, MTimeNS: -1, CTimeNS: 5, Born: 6}
	want := ledger.Row{Output: "a/b", Key: "x/\xff\n", Sample: "12", Phase: ledger.SentNew, Put: &put}
	if err := l.Save(want); err != nil {
		t.Fatal(err)
	}
	stored := ledger.Row{Output: "a/b", Key: "y", Sample: "13", Stored: &put}
	if err := l.SaveManifest("m1", []ledger.Row{stored}); err != nil {
		t.Fatal(err)
	}
	if err := l.SetMeta("active.a", "1"); err != nil {
		t.Fatal(err)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}

	l = openAt(t, path)
	defer func() { _ = l.Close() }()
	if l.Fresh() || l.Agent() != agent {
		t.Errorf("reopened: fresh %v, agent %q, want %q", l.Fresh(), l.Agent(), agent)
	}
	got, ok, err := l.Row(t.Context(), "a/b", want.Key)
	if err != nil || !ok || got.Phase != want.Phase || *got.Put != put || got.Stored != nil || got.Sample != "12" {
		t.Errorf("row = %+v, %v, %v", got, ok, err)
	}
	counts, err := l.Counts(t.Context())
	if err != nil || counts["a/b"] != (ledger.Count{Files: 1, Bytes: 7, IDs: 1}) {
		t.Errorf("counts = %v, %v", counts, err)
	}
	metas, err := l.Metas(t.Context(), "active.")
	if err != nil || metas["a"] != "1" {
		t.Errorf("metas = %v, %v", metas, err)
	}
}

func TestForeignLedgerIsRefused(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "ledger.db")
	l := openAt(t, path)
	if err := errors.Join(l.Save(ledger.Row{Output: "a/b", Key: "k", Stored: &ledger.Copy{Size: 7}}), l.Close()); err != nil {
		t.Fatal(err)
	}
	other := bound()
	other.Bucket = "elsewhere"
	_, err := ledger.Open(t.Context(), path, other)
	if err == nil || !strings.Contains(err.Error(), `bucket "b"`) {
		t.Errorf("err = %v, want a refusal that names bucket b", err)
	}
}

// A slip in the bucket's name, under which nothing was ever stored, binds nobody.
func TestALedgerWithoutAnythingStoredFollowsTheSpec(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "ledger.db")
	l := openAt(t, path)
	tried := ledger.Row{Output: "a/b", Key: "k", Put: &ledger.Copy{Size: 7}, Phase: 1}
	if err := errors.Join(l.Save(tried), l.SetMeta("known", "1"), l.SetMeta(ledger.MetaPaused, "1"), l.Close()); err != nil {
		t.Fatal(err)
	}
	other := bound()
	other.Bucket, other.Endpoint = "elsewhere", "http://other"
	for range 2 {
		l, err := ledger.Open(t.Context(), path, other)
		if err != nil {
			t.Fatal(err)
		}
		metas, err := l.Metas(t.Context(), "")
		if err != nil || metas["known"] != "" || metas[ledger.MetaPaused] != "1" {
			t.Errorf("metas = %v, %v", metas, err)
		}
		if _, ok, err := l.Row(t.Context(), "a/b", "k"); ok || err != nil {
			t.Errorf("what was tried elsewhere is remembered: %v", err)
		}
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// TestEachRunHasItsLedger switches forth and back, once with an interruption
// at its worst moment.
func TestEachRunHasItsLedger(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path := filepath.Join(dir, "ledger.db")
	first, second := bound(), bound()
	second.Run = "r2"
	l := openAt(t, path)
	row := ledger.Row{Output: "a/b", Key: "k", Stored: &ledger.Copy{Size: 7}}
	if err := errors.Join(l.Save(row), l.SetMeta(ledger.MetaPaused, "1"), l.Close()); err != nil {
		t.Fatal(err)
	}
	reopen := func(b ledger.Binding) *ledger.Ledger {
		t.Helper()
		l, err := ledger.Open(t.Context(), path, b)
		if err != nil {
			t.Fatal(err)
		}
		return l
	}
	l = reopen(second)
	_, known, err := l.Row(t.Context(), "a/b", "k")
	paused, perr := l.Meta(t.Context(), ledger.MetaPaused)
	if known || err != nil || perr != nil || paused != "1" || l.Before() != first.Run {
		t.Errorf("the new run knows the old one's row: %v, %v; paused %q, %v; before %q", known, err, paused, perr, l.Before())
	}
	if err := errors.Join(l.Hold([]ledger.Held{{Dev: 1, Ino: 2, Size: 3, MTimeNS: 4, Run: first.Run}}), l.Close()); err != nil {
		t.Fatal(err)
	}
	l = reopen(second)
	h, ok, err := l.Held(t.Context(), 1, 2)
	if l.Before() != "" || !ok || err != nil || h.Run != first.Run {
		t.Errorf("before %q; held %+v, %v, %v", l.Before(), h, ok, err)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	l = reopen(first)
	if _, known, err := l.Row(t.Context(), "a/b", "k"); !known || err != nil || l.Before() != "r2" {
		t.Errorf("the old run came back without its row: %v, %v, before %q", known, err, l.Before())
	}
	if h, ok, err := l.Held(t.Context(), 1, 2); !ok || err != nil || h.Run != first.Run {
		t.Errorf("held %+v, %v, %v", h, ok, err)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	// Killed between the two renames.
	if err := os.Rename(path, filepath.Join(dir, "ledger-"+first.Run+".db")); err != nil {
		t.Fatal(err)
	}
	l = reopen(first)
	defer func() { _ = l.Close() }()
	if _, known, err := l.Row(t.Context(), "a/b", "k"); !known || err != nil || l.Fresh() {
		t.Errorf("an interrupted switch lost the ledger: %v, %v", known, err)
	}
}

func TestBrokenLedgerIsMovedAside(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "ledger.db")
	if err := os.WriteFile(path, []byte(strings.Repeat("not a database ", 1000)), 0o600); err != nil {
		t.Fatal(err)
	}
	l := openAt(t, path)
	defer func() { _ = l.Close() }()
	if !l.Fresh() || l.MovedAside() == "" {
		t.Fatalf("fresh %v, aside %q", l.Fresh(), l.MovedAside())
	}
	if _, err := os.Stat(l.MovedAside()); err != nil {
		t.Error("the broken database is gone:", err)
	}
}

func TestWritesAfterCloseFail(t *testing.T) {
	t.Parallel()
	l := openAt(t, filepath.Join(t.TempDir(), "ledger.db"))
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if err := l.Save(ledger.Row{Output: "a/b", Key: "x"}); err == nil {
		t.Error("a write after Close succeeded")
	}
}

func BenchmarkSave(b *testing.B) {
	l := openAt(b, filepath.Join(b.TempDir(), "ledger.db"))
	defer func() { _ = l.Close() }()
	i := 0
	for b.Loop() {
		i++
		err := l.SaveLater(ledger.Row{
			Output: "a/b", Key: fmt.Sprintf("hs_%07d.safetensors", i), Sample: strconv.Itoa(i),
			Stored: &ledger.Copy{Size: 1, ETag: strings.Repeat("e", 32), Ino: uint64(i)},
		})
		if err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkOpenMillion(b *testing.B) {
	path := filepath.Join(b.TempDir(), "ledger.db")
	l := openAt(b, path)
	for i := 0; i < 1_000_000; i += 1000 {
		rows := make([]ledger.Row, 0, 1000)
		for n := i; n < i+1000; n++ {
			rows = append(rows, ledger.Row{
				Output: "a/b", Key: fmt.Sprintf("hidden_states/hs_%07d.safetensors", n),
				Sample: strconv.Itoa(n), Stored: &ledger.Copy{Size: 1, ETag: strings.Repeat("e", 32), Ino: uint64(n)},
			})
		}
		if err := l.SaveManifest(fmt.Sprint("m", i), rows); err != nil {
			b.Fatal(err)
		}
	}
	if err := l.Close(); err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		l := openAt(b, path)
		if _, err := l.Counts(b.Context()); err != nil {
			b.Fatal(err)
		}
		if err := l.Close(); err != nil {
			b.Fatal(err)
		}
	}
}

// TestOthersCannotRead: not the database, nor what SQLite puts beside it; also
// where an older version made it.
func TestOthersCannotRead(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "ledger.db")
	for range 2 {
		l, err := ledger.Open(t.Context(), path, bound())
		if err != nil {
			t.Fatal(err)
		}
		if err := l.SetMeta("a", "b"); err != nil {
			t.Fatal(err)
		}
		for _, suffix := range []string{"", "-wal", "-shm"} {
			if info, err := os.Stat(path + suffix); err != nil || info.Mode().Perm() != 0o600 {
				t.Errorf("%s: %v, %v", path+suffix, info, err)
			}
		}
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(path, 0o644); err != nil {
			t.Fatal(err)
		}
	}
}
