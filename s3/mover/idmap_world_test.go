package mover_test

import (
	"slices"
	"testing"

	"pipedeck/s3/s3test"
)

// What is stored where in the range of ids is told from what the mover did,
// and after a restart from the ledger.
func TestReadingTellsWhereIDsAre(t *testing.T) {
	t.Parallel()
	w := newWorld(t, s3test.Options{}, oneOutput)
	w.writeSamples(0, 10, 100)
	w.writeSamples(200, 203, 100)
	w.start()
	w.await("the files here are in the map", func() bool {
		s := w.reading().IDs
		return s != nil && s.Reason == "" && slices.Equal(s.Local, []int64{10, 0, 0, 3})
	})
	w.stop()
	w.start("extract")
	stored := func() bool {
		s := w.reading().IDs
		return s.Reason == "" && slices.Equal(s.Stored, []int64{10, 0, 0, 3}) && slices.Equal(s.Local, []int64{0, 0, 0, 0})
	}
	w.await("all are stored in the map", stored)
	w.await("all are moved", w.moved(13))
	w.stop()
	w.start("extract")
	w.await("all are stored in the map again", stored)
}
