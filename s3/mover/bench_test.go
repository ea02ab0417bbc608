package mover_test

import (
	"testing"
	"time"

	"pipedeck/s3/s3test"
)

func BenchmarkMove(b *testing.B) {
	const n, size = 500, 1_200_000
	for b.Loop() {
		b.StopTimer()
		w := newWorld(b, s3test.Options{}, oneOutput)
		w.spec.Store.MaxParallel, w.spec.Store.MaxMemory = 100, 512_000_000
		w.writeSamples(0, n, size)
		time.Sleep(100 * time.Millisecond)
		b.StartTimer()
		w.start("extract")
		for !w.moved(n)() {
			time.Sleep(5 * time.Millisecond)
		}
		b.StopTimer()
		w.stop()
		b.ReportMetric(float64(w.server.TotalRequests())/n, "requests/file")
		b.StartTimer()
	}
	b.ReportMetric(float64(n*b.N)/b.Elapsed().Seconds(), "files/s")
}
