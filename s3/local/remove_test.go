package local

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

type take func(r *Remover, root, rel string, want Identity) (Outcome, error)

func bothWays(t *testing.T, test func(t *testing.T, dir string, do take, left string)) {
	t.Helper()
	eachFilesystem(t, func(t *testing.T, dir string) {
		t.Run("remove", func(t *testing.T) { test(t, filepath.Join(dir, "r"), (*Remover).Remove, "(none)") })
		t.Run("placeholder", func(t *testing.T) { test(t, filepath.Join(dir, "p"), (*Remover).Placeholder, "") })
	})
}

func TestRemoveUnlinksTheFileThatWasHashed(t *testing.T) {
	t.Parallel()
	bothWays(t, func(t *testing.T, dir string, do take, left string) {
		root, r := newTree(t, dir)
		for _, rel := range []string{"a", "d/e/f", "new\nline", "bad\xff\xfe", "sp ace/\x01'\"*", strings.Repeat("n", 255)} {
			id := put(t, root, rel, "content of "+rel)
			out, err := do(r, root, rel, id)
			must(t, err)
			if out.Status != StatusRemoved || content(t, filepath.Join(root, rel)) != left {
				t.Errorf("%q: %+v, left %q", rel, out, content(t, filepath.Join(root, rel)))
			}
		}
		if files := aside(t, r); len(files) != 0 {
			t.Errorf("left aside: %+v", files)
		}
		must(t, r.Tidy())
		if _, err := os.Stat(r.Aside); !os.IsNotExist(err) {
			t.Errorf("the aside folder is left: %v", err)
		}
	})
}

func TestPlaceholderLooksLikeItsFile(t *testing.T) {
	t.Parallel()
	root, r := newTree(t, t.TempDir())
	put(t, root, "a", "1234")
	must(t, os.Chmod(filepath.Join(root, "a"), 0o640))
	id := idOf(t, root, "a")
	if out, err := r.Placeholder(root, "a", id); err != nil || out.Status != StatusRemoved {
		t.Fatal(out, err)
	}
	st, err := os.Stat(filepath.Join(root, "a"))
	must(t, err)
	got := idOf(t, root, "a")
	if !IsPlaceholder(got) || st.Mode().Perm() != 0o640 || got.MTimeNS != id.MTimeNS {
		t.Errorf("mode %v, %+v", st.Mode(), got)
	}
	if out, err := r.Placeholder(root, "a", got); err != nil || out.Status != StatusDenied {
		t.Errorf("a placeholder for a placeholder: %+v %v", out, err)
	}
}

// TestRemoveLeavesWhatIsNotProven lets the world move before the removal or at
// one of its points, and wants the content that was there to be there still.
func TestRemoveLeavesWhatIsNotProven(t *testing.T) {
	t.Parallel()
	edit := func(path string, flags int, data string) func(t *testing.T) {
		return func(t *testing.T) {
			t.Helper()
			f, err := os.OpenFile(path, flags, 0o644)
			must(t, err)
			_, err = f.WriteString(data)
			must(t, err)
			must(t, f.Close())
		}
	}
	cases := []struct {
		name, point string
		act         func(t *testing.T, path string)
		want        Status
		left        string
	}{
		{"appended", "", func(t *testing.T, p string) { edit(p, os.O_WRONLY|os.O_APPEND, "more")(t) }, StatusChanged, "contentmore"},
		{"appended late", PointNamed, func(t *testing.T, p string) { edit(p, os.O_WRONLY|os.O_APPEND, "more")(t) }, StatusChanged, "contentmore"},
		{"same size and mtime", "", func(t *testing.T, p string) {
			st, err := os.Stat(p)
			must(t, err)
			edit(p, os.O_WRONLY, "CONTENT")(t)
			must(t, os.Chtimes(p, time.Now(), st.ModTime()))
		}, StatusChanged, "CONTENT"},
		{"replaced", "", func(t *testing.T, p string) {
			must(t, os.WriteFile(p+".new", []byte("content"), 0o644))
			must(t, os.Rename(p+".new", p))
		}, StatusChanged, "content"},
		{"replaced late", PointNamed, func(t *testing.T, p string) {
			must(t, os.WriteFile(p+".new", []byte("CONTENT"), 0o644))
			must(t, os.Rename(p+".new", p))
		}, StatusChanged, "CONTENT"},
		{"gone", "", func(t *testing.T, p string) { must(t, os.Remove(p)) }, StatusVanished, "(none)"},
		{"gone late", PointNamed, func(t *testing.T, p string) { must(t, os.Remove(p)) }, StatusVanished, "(none)"},
		{"hard link", "", func(t *testing.T, p string) { must(t, os.Link(p, p+".2")) }, StatusChanged, "content"},
		{"hard link late", PointNamed, func(t *testing.T, p string) { must(t, os.Link(p, p+".2")) }, StatusDenied, "content"},
		{"open", "", func(t *testing.T, p string) { holdOpen(t, p) }, StatusOpen, "content"},
		{"open late", PointNamed, func(t *testing.T, p string) { holdOpen(t, p) }, StatusOpen, "content"},
		{"mapped", "", mapForWriting, StatusOpen, "content"},
		{"symlink", "", func(t *testing.T, p string) {
			must(t, os.Rename(p, p+".2"))
			must(t, os.Symlink(p+".2", p))
		}, StatusDenied, "content"},
		{"fifo", "", func(t *testing.T, p string) {
			must(t, os.Rename(p, p+".2"))
			must(t, unix.Mkfifo(p, 0o600))
		}, StatusDenied, "(none to read)"},
		{"directory", "", func(t *testing.T, p string) {
			must(t, os.Remove(p))
			must(t, os.Mkdir(p, 0o700))
		}, StatusDenied, "(none to read)"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			bothWays(t, func(t *testing.T, dir string, do take, _ string) {
				root, r := newTree(t, dir)
				path := filepath.Join(root, "d/a")
				id := put(t, root, "d/a", "content")
				if c.point == "" {
					c.act(t, path)
				} else {
					r.Hook = once(c.point, func() { c.act(t, path) })
				}
				out, err := do(r, root, "d/a", id)
				must(t, err)
				if out.Status != c.want {
					t.Fatalf("%+v, want %s", out, c.want)
				}
				if c.left == "(none to read)" {
					return
				}
				if got := content(t, path); got != c.left {
					t.Errorf("left %q, want %q", got, c.left)
				}
				if files := aside(t, r); len(files) != 0 {
					t.Errorf("left aside: %+v", files)
				}
			})
		})
	}
}

func once(point string, act func()) func(string) {
	done := false
	return func(p string) {
		if p == point && !done {
			done = true
			act()
		}
	}
}

func holdOpen(t *testing.T, path string) {
	t.Helper()
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	must(t, err)
	t.Cleanup(func() { _ = f.Close() })
}

func mapForWriting(t *testing.T, path string) {
	t.Helper()
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	must(t, err)
	mem, err := unix.Mmap(int(f.Fd()), 0, 4, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	must(t, err)
	must(t, f.Close())
	t.Cleanup(func() { _ = unix.Munmap(mem) })
}

func TestRetakenNameLeavesTheFileAside(t *testing.T) {
	t.Parallel()
	bothWays(t, func(t *testing.T, dir string, do take, _ string) {
		root, r := newTree(t, dir)
		path := filepath.Join(root, "a")
		id := put(t, root, "a", "first")
		moved, err := os.Open(path)
		must(t, err)
		defer moved.Close()
		r.Hook = once(PointRenamed, func() {
			appendThrough(t, moved, "more")
			must(t, os.WriteFile(path+".tmp", []byte("second"), 0o644))
			must(t, os.Rename(path+".tmp", path))
		})
		out, err := do(r, root, "a", id)
		must(t, err)
		if out.Status != StatusKept || content(t, out.Aside) != "firstmore" || content(t, path) != "second" {
			t.Fatalf("%+v, at its place %q", out, content(t, path))
		}
		files := aside(t, r)
		if len(files) != 1 || files[0].Path != out.Aside || files[0].Root != root || files[0].Rel != "a" {
			t.Fatalf("aside: %+v", files)
		}
		if back, err := Restore(files[0]); err != nil || back.Status != StatusKept {
			t.Errorf("restored over another file: %+v %v", back, err)
		}
		// A second file of the name finds a slot of its own.
		if again, err := do(r, root, "a", idOf(t, root, "a")); err != nil || again.Status != StatusRemoved {
			t.Errorf("second removal: %+v %v", again, err)
		}
		_ = os.Remove(path)
		if back, err := Restore(files[0]); err != nil || back.Status != StatusRestored || content(t, path) != "firstmore" {
			t.Errorf("%+v %v %q", back, err, content(t, path))
		}
	})
}

// appendThrough writes to the file that f has open, whatever its name is now.
func appendThrough(t *testing.T, f *os.File, data string) {
	t.Helper()
	fd, err := unix.Open("/proc/self/fd/"+strconv.Itoa(int(f.Fd())), unix.O_WRONLY|unix.O_APPEND, 0)
	must(t, err)
	_, err = unix.Write(fd, []byte(data))
	must(t, err)
	must(t, unix.Close(fd))
}

func TestFileGoesBackIntoARemovedDirectory(t *testing.T) {
	t.Parallel()
	root, r := newTree(t, t.TempDir())
	id := put(t, root, "d/e/a", "content")
	r.Hook = once(PointRenamed, func() {
		holdOpen(t, filepath.Join(r.Aside, rootID(root), "f0", "d/e/a"))
		must(t, os.RemoveAll(filepath.Join(root, "d")))
	})
	out, err := r.Remove(root, "d/e/a", id)
	must(t, err)
	if out.Status != StatusOpen || content(t, filepath.Join(root, "d/e/a")) != "content" {
		t.Errorf("%+v", out)
	}
}

func TestRemoveRefusesBadNames(t *testing.T) {
	t.Parallel()
	root, r := newTree(t, t.TempDir())
	must(t, os.WriteFile(filepath.Join(root, "..", "x"), []byte("x"), 0o644))
	for _, rel := range []string{"", ".", "..", "../x", "/etc/passwd", "a//b", "a/../x", "a/", "a\x00b", ".pipedeck/ledger.db"} {
		if out, err := r.Remove(root, rel, Identity{}); err == nil {
			t.Errorf("%q: %+v", rel, out)
		}
	}
	must(t, os.Symlink(filepath.Dir(root), filepath.Join(root, "up")))
	if out, _ := r.Remove(root, "up/x", Identity{}); out.Status != StatusDenied {
		t.Errorf("through a link: %+v", out)
	}
}

func TestManyRemovalsAtOnce(t *testing.T) {
	t.Parallel()
	root, r := newTree(t, t.TempDir())
	var all sync.WaitGroup
	for n := range 8 {
		all.Go(func() {
			for i := range 20 {
				rel := "d" + strconv.Itoa(i%3) + "/" + strconv.Itoa(n) + "-" + strconv.Itoa(i)
				out, err := r.Remove(root, rel, put(t, root, rel, rel))
				if err != nil || out.Status != StatusRemoved {
					t.Errorf("%s: %+v %v", rel, out, err)
				}
				if i%5 == 0 {
					if err := r.Tidy(); err != nil {
						t.Error(err)
					}
				}
			}
		})
	}
	all.Wait()
	for rel, kind := range scanned(t, root, nil) {
		if kind != KindDir {
			t.Errorf("left %s", rel)
		}
	}
}

func TestRemoveEmptyDir(t *testing.T) {
	t.Parallel()
	root, _ := newTree(t, t.TempDir())
	put(t, root, "step-1/sub/keep", "x")
	must(t, os.MkdirAll(filepath.Join(root, "step-2/a/b"), 0o755))
	if gone, err := RemoveEmptyDir(root, "step-1"); gone || err != nil {
		t.Error("removed a directory with a file", gone, err)
	}
	if gone, err := RemoveEmptyDir(root, "step-2"); !gone || err != nil {
		t.Error(gone, err)
	}
	if got := content(t, filepath.Join(root, "step-1/sub/keep")); got != "x" {
		t.Error(got)
	}
}
