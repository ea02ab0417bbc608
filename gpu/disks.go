package gpu

import (
	"context"
	"sync"
	"time"

	"pipedeck/pipeline"
)

// diskDeadline bounds one statfs: a dead network filesystem never answers.
const diskDeadline = 2 * time.Second

// disks asks filesystems, each in its own goroutine. One that has not come
// back is not asked again until it does.
type disks struct {
	mu  *sync.Mutex
	out map[string]bool // paths whose call is still out
	// ask is statfs; tests put one that hangs in its place.
	ask func(path string) (diskStat, error)
}

// diskStat is what a filesystem says of itself.
type diskStat struct {
	device            uint64
	used, free, total int64
	kind              string
}

func newDisks() disks {
	return disks{mu: &sync.Mutex{}, out: map[string]bool{}, ask: statDisk}
}

func (d disks) read(ctx context.Context, now func() time.Time, paths []string) []pipeline.DiskReading {
	var readings []pipeline.DiskReading
	seen := map[uint64]bool{}
	for _, path := range paths {
		st, reason := d.one(ctx, path)
		r := pipeline.DiskReading{At: now(), Path: path, Reason: reason}
		if reason == "" {
			if seen[st.device] {
				continue
			}
			seen[st.device] = true
			r.UsedBytes, r.FreeBytes, r.TotalBytes, r.Filesystem = &st.used, &st.free, &st.total, st.kind
		}
		readings = append(readings, r)
	}
	return readings
}

func (d disks) one(ctx context.Context, path string) (diskStat, string) {
	d.mu.Lock()
	waiting := d.out[path]
	d.out[path] = true
	d.mu.Unlock()
	if waiting {
		return diskStat{}, "the filesystem does not answer"
	}
	type answer struct {
		st  diskStat
		err error
	}
	got := make(chan answer, 1)
	go func() {
		st, err := d.ask(path)
		d.mu.Lock()
		delete(d.out, path)
		d.mu.Unlock()
		got <- answer{st, err}
	}()
	timer := time.NewTimer(diskDeadline)
	defer timer.Stop()
	select {
	case a := <-got:
		if a.err != nil {
			return a.st, a.err.Error()
		}
		return a.st, ""
	case <-ctx.Done():
	case <-timer.C:
	}
	return diskStat{}, "the filesystem did not answer in time"
}
