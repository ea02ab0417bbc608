package local

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"pipedeck/pipeline"
)

// On a disk without a free byte a small file of the deck can be written, more
// than once, and the room is there again when the disk is.
func TestRoomOnAFullDisk(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := unix.Mount("pipedeck-test", dir, "tmpfs", 0, "size=16M"); err != nil {
		t.Skipf("cannot mount a tmpfs: %v", err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	room := RoomIn(dir)
	room.Hold()
	stuff := filepath.Join(dir, "stuff")
	fillDisk(t, stuff)
	list := make([]byte, 100_000)
	if err := (FS{}).WriteFile(filepath.Join(dir, "plans", "1"), list); !IsFull(err) {
		t.Fatalf("without room: %v", err)
	}
	fs := FS{Room: room}
	for _, name := range []string{"1", "2"} {
		if err := fs.WriteFile(filepath.Join(dir, "plans", name), list); err != nil {
			t.Fatalf("list %s: %v", name, err)
		}
		fillDisk(t, stuff+name) // whoever else writes takes all that is left over
	}
	err := fs.WriteFile(filepath.Join(dir, "plans", "3"), make([]byte, 10<<20))
	var p *pipeline.Problem
	if !IsFull(err) || !errors.As(err, &p) || p.Hint == "" {
		t.Errorf("more than the room: %v", err)
	}
	for _, name := range []string{"", "1", "2"} {
		must(t, os.Remove(stuff+name))
	}
	room.Hold()
	if info, err := os.Lstat(room.Path); err != nil || info.Size() != 16<<20/roomShare {
		t.Errorf("the room is not taken again: %v, %v", info, err)
	}
	must(t, fs.Remove(filepath.Join(dir, "plans", "1")))
	must(t, fs.Remove(filepath.Join(dir, "plans", "1")))
}

// fillDisk takes the last bytes of a disk.
func fillDisk(t *testing.T, path string) {
	t.Helper()
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	for size := 1 << 20; size > 0; {
		if _, err := f.Write(make([]byte, size)); err != nil {
			size /= 16
		}
	}
	must(t, f.Close())
}
