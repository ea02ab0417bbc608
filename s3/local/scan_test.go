package local

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func scanned(t *testing.T, root string, want func(string, bool) bool) map[string]Kind {
	t.Helper()
	got := map[string]Kind{}
	problems, err := Scan(context.Background(), root, want, func(e Entry) { got[e.Rel] = e.Kind })
	must(t, err)
	if len(problems) > 0 {
		t.Fatal(problems)
	}
	return got
}

func TestScan(t *testing.T) {
	t.Parallel()
	eachFilesystem(t, func(t *testing.T, dir string) {
		root := filepath.Join(dir, "out")
		for _, rel := range []string{"a", "d/b", "d/e/c\n\xff", "skip/x"} {
			put(t, root, rel, "x")
		}
		must(t, os.MkdirAll(filepath.Join(root, ".pipedeck/runs"), 0o755))
		must(t, os.MkdirAll(filepath.Join(root, "d/.pipedeck-aside/y"), 0o755))
		put(t, dir, "outside/z", "x")
		must(t, os.Symlink(filepath.Join(dir, "outside"), filepath.Join(root, "link")))
		must(t, unix.Mkfifo(filepath.Join(root, "fifo"), 0o600))
		got := scanned(t, root, func(rel string, dir bool) bool { return !dir || rel != "skip" })
		want := map[string]Kind{
			"a": KindRegular, "d": KindDir, "d/b": KindRegular, "d/e": KindDir, "d/e/c\n\xff": KindRegular,
			"link": KindSymlink, "fifo": KindOther,
		}
		if !maps.Equal(got, want) {
			t.Errorf("got %q", slices.Sorted(maps.Keys(got)))
		}
		var ids []Identity
		_, err := Scan(context.Background(), root, nil, func(e Entry) {
			if e.Rel == "a" {
				ids = append(ids, e.ID)
			}
		})
		must(t, err)
		if len(ids) != 1 || !ids[0].Same(idOf(t, root, "a")) {
			t.Errorf("identity of a scan and of an open file differ: %+v", ids)
		}
	})
}

func TestScanRootErrors(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	put(t, dir, "file", "x")
	must(t, os.Symlink(dir, filepath.Join(dir, "link")))
	for name, want := range map[string]error{"none": ErrNoDir, "file": ErrNoDir, "link": ErrSymlink} {
		_, err := Scan(context.Background(), filepath.Join(dir, name), nil, func(Entry) { t.Error("visited") })
		if !errors.Is(err, want) {
			t.Errorf("%s: %v", name, err)
		}
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := Scan(ctx, dir, nil, func(Entry) {}); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

func TestScanReportsWhatItMayNotRead(t *testing.T) {
	t.Parallel()
	if os.Getuid() == 0 {
		t.Skip("root may read everything")
	}
	root := t.TempDir()
	put(t, root, "closed/a", "x")
	put(t, root, "b", "x")
	must(t, os.Chmod(filepath.Join(root, "closed"), 0))
	t.Cleanup(func() { _ = os.Chmod(filepath.Join(root, "closed"), 0o700) })
	problems, err := Scan(context.Background(), root, nil, func(Entry) {})
	if err != nil || len(problems) != 1 || problems[0].Path != "closed" || !errors.Is(problems[0].Err, ErrDenied) {
		t.Errorf("%v %v", problems, err)
	}
}

func TestOpenErrors(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	put(t, root, "d/a", "x")
	must(t, os.Symlink("a", filepath.Join(root, "d/link")))
	must(t, os.Symlink("d", filepath.Join(root, "up")))
	must(t, unix.Mkfifo(filepath.Join(root, "fifo"), 0o600))
	for rel, want := range map[string]error{
		"none": ErrVanished, "d/none": ErrVanished, "d/a/b": ErrVanished, "d": ErrNotRegular, "fifo": ErrNotRegular,
		"d/link": ErrSymlink, "up/a": ErrSymlink, "../x": ErrBadName,
	} {
		f, err := Open(root, rel)
		if !errors.Is(err, want) {
			t.Errorf("%s: %v, want %v", rel, err, want)
		}
		if err == nil {
			_ = f.Close()
		} else if !strings.HasPrefix(err.Error(), "cannot ") {
			t.Errorf("%s: %v", rel, err)
		}
	}
	if _, err := Open(filepath.Join(root, "nodir"), "a"); !errors.Is(err, ErrNoDir) {
		t.Error(err)
	}
}

func TestWalkWithoutOpenat2(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	put(t, root, "d/e/a", "x")
	must(t, os.Symlink("d", filepath.Join(root, "up")))
	fd, err := openRoot(root)
	must(t, err)
	defer unix.Close(fd)
	for rel, want := range map[string]error{"d/e": nil, "d": nil, ".": nil, "up": unix.ELOOP, "up/e": unix.ELOOP, "x/y": unix.ENOENT} {
		for name, open := range map[string]func(int, string, int) (int, error){"walk": walkBeneath, "openat2": openBeneath} {
			got, err := open(fd, rel, dirFlags)
			if !errors.Is(err, want) {
				t.Errorf("%s %s: %v, want %v", name, rel, err, want)
			}
			if err == nil {
				_ = unix.Close(got)
			}
		}
	}
}

func TestSettledAndRacy(t *testing.T) {
	t.Parallel()
	now := time.Unix(1000, 0)
	ago := func(m, c time.Duration) Identity {
		return Identity{MTimeNS: now.Add(-m).UnixNano(), CTimeNS: now.Add(-c).UnixNano()}
	}
	for _, c := range []struct {
		id   Identity
		want bool
	}{
		{ago(10*time.Second, 10*time.Second), true},
		{ago(9*time.Second, 10*time.Second), false},
		{ago(time.Hour, time.Second), false},
		{ago(-time.Hour, time.Hour), false},
	} {
		if got := Settled(c.id, now, 10*time.Second); got != c.want {
			t.Errorf("%+v: %v", c.id, got)
		}
	}
	if !Racy(ago(time.Hour, 5*time.Millisecond), now) || Racy(ago(time.Hour, time.Second), now) {
		t.Error("racy")
	}
}

func BenchmarkScan(b *testing.B) {
	root := b.TempDir()
	for i := range 200_000 {
		dir := filepath.Join(root, fmt.Sprintf("%02d", i%50))
		if i < 50 {
			must(b, os.Mkdir(dir, 0o755))
		}
		must(b, os.WriteFile(filepath.Join(dir, fmt.Sprintf("sample-%07d.safetensors", i)), nil, 0o644))
	}
	b.ReportAllocs()
	for b.Loop() {
		n := 0
		_, err := Scan(context.Background(), root, nil, func(Entry) { n++ })
		must(b, err)
		if n != 200_050 {
			b.Fatal(n)
		}
	}
}
