package journal_test

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"pipedeck/pipeline"
	"pipedeck/remote/internal/smalldisk"
)

// On a full disk the journal goes on from what it reserved and says so; when
// that is used up it stays whole, and goes on when there is room again.
func TestFullDisk(t *testing.T) {
	t.Parallel()
	dir := smalldisk.Mount(t, 4<<20)
	path := filepath.Join(dir, "journal.jsonl")
	j := open(t, path)
	add(t, j, "first")
	if room, err := j.Room(); room <= 0 || err != nil {
		t.Fatalf("room is %d, %v", room, err)
	}
	filler := smalldisk.Fill(t, dir)
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
	if err := os.Remove(filler); err != nil {
		t.Fatal(err)
	}
	add(t, j, "room again")
	verify(t, path, n+1)
	if room, err := j.Room(); room <= 0 || err != nil {
		t.Errorf("with room again it has %d, %v", room, err)
	}
	t.Logf("%d records on a full disk", n-1)
}
