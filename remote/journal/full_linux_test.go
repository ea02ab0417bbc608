package journal_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"pipedeck/pipeline"
)

// On a full disk the journal goes on from what it reserved and says so; when
// that is used up it stays whole, and goes on when there is room again.
func TestFullDisk(t *testing.T) {
	t.Parallel()
	dir := smallDisk(t, 4<<20)
	path := filepath.Join(dir, "journal.jsonl")
	j := open(t, path)
	add(t, j, "first")
	if room, err := j.Room(); room <= 0 || err != nil {
		t.Fatalf("room is %d, %v", room, err)
	}
	fill(t, filepath.Join(dir, "filler"))
	n := 1
	var err error
	for ; err == nil && n < 100_000; n++ {
		err = j.Append(pipeline.JournalRecord{Kind: "step", Text: "on a full disk"})
	}
	n-- // the last one failed
	if !errors.Is(err, unix.ENOSPC) || n < 1000 {
		t.Fatalf("after %d records: %v", n, err)
	}
	if _, full := j.Room(); !errors.Is(full, unix.ENOSPC) {
		t.Errorf("it does not say that the disk is full: %v", full)
	}
	verify(t, path, n)
	j.Close()
	j = open(t, path) // an agent that starts there
	verify(t, path, n)
	if err := os.Remove(filepath.Join(dir, "filler")); err != nil {
		t.Fatal(err)
	}
	add(t, j, "room again")
	verify(t, path, n+1)
	if room, err := j.Room(); room <= 0 || err != nil {
		t.Errorf("with room again it has %d, %v", room, err)
	}
	t.Logf("%d records on a full disk", n-1)
}

// smallDisk mounts a filesystem in memory for the length of a test.
func smallDisk(t *testing.T, size int) string {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("only root can mount a small disk")
	}
	dir := t.TempDir()
	if err := unix.Mount("none", dir, "tmpfs", 0, fmt.Sprintf("size=%d", size)); err != nil {
		t.Skipf("cannot mount a small disk: %v", err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	return dir
}

// fill writes a file until the disk has not a byte left.
func fill(t *testing.T, path string) {
	t.Helper()
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for err == nil {
		_, err = f.Write(make([]byte, 4096))
	}
	if !errors.Is(err, unix.ENOSPC) {
		t.Fatal(err)
	}
}
