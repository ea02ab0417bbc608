package proc

import (
	"context"
	"fmt"
	"testing"

	"pipedeck/pipeline"
)

// BenchmarkObserve looks at 8 running workers, as the agent does twice a
// second; every 2 s a look reads all processes of the machine, which
// BenchmarkScan measures.
func BenchmarkObserve(b *testing.B) {
	d := deck{root: b.TempDir()}
	h := d.host()
	for rank := range 8 {
		l := d.launch(fmt.Sprintf("w-%d-1", rank), "exec sleep 600")
		l.Rank = rank
		if err := h.Start(context.Background(), l); err != nil {
			b.Fatal(err)
		}
		b.Cleanup(func() { _, _ = h.Signal(context.Background(), l.ID, "SIGKILL", pipeline.ToSet) })
	}
	for b.Loop() {
		if _, err := h.Observe(context.Background()); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkScan reads all processes once.
func BenchmarkScan(b *testing.B) {
	f := procFS{root: "/proc"}
	n := 0
	for b.Loop() {
		all, err := f.all()
		if err != nil {
			b.Fatal(err)
		}
		n = len(all)
	}
	b.ReportMetric(float64(b.Elapsed().Microseconds())/float64(b.N*n), "µs/process")
}
