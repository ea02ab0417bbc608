package mover_test

import (
	"os"
	"strconv"
	"strings"
	"testing"

	"pipedeck/s3/s3test"
)

// rss is the resident memory of this process in bytes.
func rss(t *testing.T) int64 {
	t.Helper()
	data, err := os.ReadFile("/proc/self/status")
	if err != nil {
		t.Skip("needs /proc:", err)
	}
	for line := range strings.Lines(string(data)) {
		if rest, ok := strings.CutPrefix(line, "VmRSS:"); ok {
			kib, err := strconv.ParseInt(strings.Fields(rest)[0], 10, 64)
			if err != nil {
				t.Fatal(err)
			}
			return kib << 10
		}
	}
	t.Skip("no VmRSS")
	return 0
}

func TestMemoryStaysWithinTheBudget(t *testing.T) {
	if testing.Short() {
		t.Skip("moves 600 MB")
	}
	w := newWorld(t, s3test.Options{Dir: t.TempDir()}, oneOutput)
	w.spec.Store.MaxParallel, w.spec.Store.MaxMemory = 100, 64_000_000
	for i := range 12 {
		data := tensors(uint64(i), 50_000_000)
		w.write(sample(i), data)
		w.wrote[sample(i)] = nil
		delete(w.wrote, sample(i)) // the test's own copy would be what is measured
	}
	w.start("extract")
	before := rss(t)
	most := int64(0)
	w.await("all are moved", func() bool {
		most = max(most, rss(t))
		return w.moved(12)()
	})
	t.Logf("resident: %d MB before, %d MB at most", before>>20, most>>20)
	if most-before > 64_000_000+100<<20 {
		t.Errorf("%d MB more than before, max_memory is 64 MB", (most-before)>>20)
	}
}
