package pipeline

import (
	"encoding/json"
	"testing"
)

// A Snapshot is asked for at 2 Hz by several consoles, and made after every
// look at the processes.
func BenchmarkSnapshot(b *testing.B) {
	bn := newBench()
	bn.start(0, 8)
	bn.run(1, 400, 8, func(t float64, _ int) int64 { return int64(t) })
	b.ReportAllocs()
	for b.Loop() {
		if _, err := json.Marshal(bn.w.Snapshot(at(400))); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkFoldLaunches(b *testing.B) {
	bn := newBench()
	bn.start(0, 8)
	bn.run(1, 400, 8, func(t float64, _ int) int64 { return int64(t) })
	t := 400.0
	b.ReportAllocs()
	for b.Loop() {
		t += 0.5
		bn.look(t)
	}
}
