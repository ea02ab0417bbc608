package pipeline

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"
)

// Snapshots of a real run (testdata/gpu) hold to the schema, and each worker's
// memory and process are on its own GPU.
func TestCapturedSnapshots(t *testing.T) {
	t.Parallel()
	sch := compileSchema(t, SnapshotSchema)
	names, err := filepath.Glob(filepath.Join("..", "testdata", "gpu", "s*-*.json")) // snapshot-NAME, session-NN-NAME
	if err != nil || len(names) < 4 {
		t.Fatalf("%v, captured snapshots %q", err, names)
	}
	for _, name := range names {
		raw, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		if why := complain(sch, raw); why != "" {
			t.Errorf("%s: %s", name, why)
		}
		var doc any
		var s Snapshot
		if err := json.Unmarshal(raw, &doc); err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal(raw, &s); err != nil {
			t.Fatal(err)
		}
		if bad := unexplained(name, doc); len(bad) > 0 {
			t.Errorf("null without a reason: %q", bad)
		}
		n := s.Nodes[0]
		if n.GPUSource.Kind != "nvml" || n.GPUSource.Reason != nil {
			t.Errorf("%s: source %+v", name, n.GPUSource)
		}
		for _, w := range n.Stages[0].Workers {
			if w.PID == nil || w.GPUUUID == nil {
				continue
			}
			for _, p := range FindGPU(n.GPUs, *w.GPUUUID).Processes {
				if p.PID == *w.PID && (p.Worker == nil || *p.Worker != w.ID || *p.MemBytes != *w.GPUMemBytes) {
					t.Errorf("%s: %s and the process on its GPU differ: %+v", name, w.ID, p)
				}
			}
		}
	}
}
