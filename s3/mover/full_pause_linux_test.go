package mover_test

import (
	"testing"

	"pipedeck/s3/s3test"
)

// Uploads that are paused when the disk fills up are what makes room again: to
// let them go on must be possible on a disk without a free byte.
func TestUploadsGoOnOnAFullDisk(t *testing.T) {
	t.Parallel()
	w := newWorld(t, s3test.Options{}, oneOutput)
	w.hurry = hurry
	smallDisk(t, w.path("."), "64M")
	w.start("extract")
	w.await("the bucket is known", func() bool { return is(w.reading().LocalFiles, 0) && w.reading().VerifiedFiles != nil })
	if err := w.m.Pause(t.Context(), true); err != nil {
		t.Fatal(err)
	}
	files := w.fill(100_000)
	w.stuff(".")
	for range 100 { // the ledger's log grows by each
		if err := w.m.Pause(t.Context(), true); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.m.Pause(t.Context(), false); err != nil {
		t.Fatal(err)
	}
	w.await("all whole files are moved", func() bool { return is(w.reading().DeletedLocalFiles, int64(files)) })
	w.stop()
}
