package mover_test

import (
	"os"
	"runtime/debug"
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
	g := s3test.Versitygw(t) // a process of its own, whose memory does not count
	w := worldAt(t, t.TempDir(), g.Endpoint, g.Bucket, oneOutput)
	w.access, w.secret = g.AccessKey, g.SecretKey
	const files, memory = 12, 64_000_000
	w.spec.Store.MaxParallel, w.spec.Store.MaxMemory = 100, memory
	for i := range files {
		w.write(sample(i), tensors(uint64(i), 50_000_000))
		delete(w.wrote, sample(i)) // the test's own copy would be what is measured
	}
	debug.FreeOSMemory()
	before, most := rss(t), int64(0)
	w.start("extract")
	w.await("all are moved", func() bool {
		most = max(most, rss(t))
		return w.moved(files)()
	})
	t.Logf("resident: %d MB before, %d MB at most", before>>20, most>>20)
	if more := most - before; more > memory+64<<20 {
		t.Errorf("%d MB more than before, max_memory is 64 MB", more>>20)
	}
}
