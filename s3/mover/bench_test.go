package mover_test

import (
	"testing"
	"time"

	"pipedeck/s3/s3test"
)

// benchmarkMove moves n files of 1.2 MB, 100 at the same time.
func benchmarkMove(b *testing.B, world func() *world, requests func(*world) int) {
	b.Helper()
	const n, size = 500, 1_200_000
	for b.Loop() {
		b.StopTimer()
		w := world()
		w.spec.Store.MaxParallel, w.spec.Store.MaxMemory = 100, 512_000_000
		w.writeSamples(0, n, size)
		b.StartTimer()
		w.start("extract")
		for !w.moved(n)() {
			time.Sleep(5 * time.Millisecond)
		}
		b.StopTimer()
		w.stop()
		b.ReportMetric(float64(requests(w))/n, "requests/file")
		b.StartTimer()
	}
	b.ReportMetric(float64(n*b.N)/b.Elapsed().Seconds(), "files/s")
}

func BenchmarkMove(b *testing.B) {
	benchmarkMove(b, func() *world { return newWorld(b, s3test.Options{}, oneOutput) },
		func(w *world) int { return w.server.TotalRequests() })
}

func BenchmarkMoveVersitygw(b *testing.B) {
	g := s3test.Versitygw(b)
	benchmarkMove(b, func() *world {
		w := worldAt(b, b.TempDir(), g.Endpoint, g.Bucket, oneOutput)
		w.access, w.secret = g.AccessKey, g.SecretKey
		return w
	}, func(*world) int {
		counts, err := g.Requests()
		if err != nil {
			b.Fatal(err)
		}
		sum := 0
		for _, n := range counts {
			sum += n
		}
		return sum
	})
}
