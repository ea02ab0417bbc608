package mover_test

import (
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
	hundreds := func(cells []int64) [3]int64 {
		var out [3]int64
		for i, n := range cells {
			out[min(2, i/100)] += n
		}
		return out
	}
	want, nothing := [3]int64{10, 0, 3}, [3]int64{}
	w.await("the files here are in the map", func() bool {
		s := w.reading().IDs
		return s != nil && s.Reason == "" && s.PerCell == 1 && hundreds(s.Local) == want
	})
	w.stop()
	w.start("extract")
	stored := func() bool {
		s := w.reading().IDs
		return s.Reason == "" && hundreds(s.Stored) == want && hundreds(s.Local) == nothing
	}
	w.await("all are stored in the map", stored)
	w.await("all are moved", w.moved(13))
	w.stop()
	w.start("extract")
	w.await("all are stored in the map again", stored)
}
