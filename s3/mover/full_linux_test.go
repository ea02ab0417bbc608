package mover_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"pipedeck/s3/s3test"
)

// smallDisk mounts a tmpfs of size bytes at dir.
func smallDisk(t *testing.T, dir string, size string) {
	t.Helper()
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount("pipedeck-test", dir, "tmpfs", 0, "size="+size); err != nil {
		t.Skipf("cannot mount a tmpfs of %s: %v", size, err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
}

// fill writes samples of size bytes until the disk is full, to the last byte,
// and returns how many are whole.
func (w *world) fill(size int) (whole int) {
	w.t.Helper()
	for i := 0; ; i++ {
		data := tensors(uint64(i), size)
		if err := os.MkdirAll(w.path("out"), 0o755); err != nil {
			w.t.Fatal(err)
		}
		err := os.WriteFile(w.path(sample(i)), data, 0o644)
		if errors.Is(err, syscall.ENOSPC) {
			return whole
		}
		if err != nil {
			w.t.Fatal(err)
		}
		w.record(sample(i), data)
		whole++
	}
}

// TestAFullOutputDiskDrains fills a tmpfs that is the output directory, or
// holds everything, state directory and ledger included, while the store is
// down, and lets it come back.
func TestAFullOutputDiskDrains(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ name, mount string }{
		{"output directory", "out"},
		{"state directory", ".pipedeck"},
		{"both", "."},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(t, s3test.Options{}, oneOutput)
			w.hurry = hurry
			smallDisk(t, w.path(c.mount), "64M")
			w.start("extract")
			w.await("the bucket is known", func() bool { return is(w.reading().LocalFiles, 0) && w.reading().VerifiedFiles != nil })
			down := w.server.Inject(s3test.Rule{Op: s3test.OpPut, Key: "pre/r1/hs/*", Kind: s3test.Broken})
			files := 200
			if c.mount == ".pipedeck" {
				w.writeSamples(0, files, 100_000)
			} else {
				files = w.fill(100_000)
			}
			w.stuff(c.mount)
			w.await("uploads are tried in vain", func() bool { return down.Struck() > 3 })
			w.server.Clear()
			if c.mount == ".pipedeck" {
				w.await("most are moved", func() bool { return w.reading().VerifiedFiles != nil && *w.reading().VerifiedFiles > 0 })
			}
			w.await("all whole files are moved", func() bool {
				r := w.reading()
				return is(r.VerifiedFiles, int64(files)) && is(r.DeletedLocalFiles, int64(files))
			})
			if c.mount == "." {
				w.await("the reserve is taken again", func() bool {
					info, err := os.Stat(filepath.Join(w.spec.StateDir, "reserve"))
					return err == nil && info.Size() > 0 && !strings.Contains(w.reading().StateReason, "full")
				})
			}
			w.stop()
			if c.mount == "out" {
				if _, err := os.Lstat(w.path("out/.pipedeck-aside")); !os.IsNotExist(err) {
					t.Errorf("the aside folder is left in the output directory: %v", err)
				}
			}
		})
	}
}

// stuff takes the last bytes of a disk with a file that is nobody's.
func (w *world) stuff(mount string) {
	w.t.Helper()
	f, err := os.Create(filepath.Join(w.path(mount), "last-bytes"))
	if err != nil && !errors.Is(err, syscall.ENOSPC) {
		w.t.Fatal(err)
	}
	if err != nil {
		return
	}
	for size := 1 << 20; size > 0; {
		if _, err := f.Write(make([]byte, size)); err != nil {
			size /= 16
		}
	}
	if err := f.Close(); err != nil {
		w.t.Fatal(err)
	}
}
