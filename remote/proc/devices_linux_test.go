package proc

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"
)

func TestGPUsOf(t *testing.T) {
	t.Parallel()
	p := procFS{root: t.TempDir()}
	for minor, uuid := range []string{"GPU-a", "GPU-b", "GPU-????????"} {
		file := filepath.Join(p.root, "driver/nvidia/gpus", fmt.Sprintf("0000:0%d:00.0", 9-minor), "information")
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		text := fmt.Sprintf("Model: \t\t NVIDIA H200\nIRQ:   \t\t 95\nGPU UUID: \t %s\nBus Location: \t 0000:0%d:00.0\nDevice Minor: \t %d\n", uuid, minor, minor)
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for pid, links := range map[int][]string{
		10: {"/dev/null", "/dev/nvidiactl", "/dev/nvidia-uvm"},
		11: {"/dev/nvidiactl", "/dev/nvidia1", "/dev/nvidia1"},
		12: {"/dev/nvidia0", "/dev/nvidia1"},
		13: {"/dev/nvidia2"},
	} {
		dir := p.path(pid, "fd")
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		for i, to := range links {
			if err := os.Symlink(to, filepath.Join(dir, itoa(i))); err != nil {
				t.Fatal(err)
			}
		}
	}
	for name, c := range map[string]struct {
		pids  []int
		uuids []string
		mem   int64
	}{
		"no GPU open":            {[]int{10}, nil, 0},
		"one":                    {[]int{10, 11}, []string{"GPU-b"}, -1},
		"several open":           {[]int{11, 12}, nil, -1},
		"the driver is not sure": {[]int{13}, nil, -1},
		"ended":                  {[]int{99}, nil, 0},
	} {
		uuids, mem := p.gpusOf(c.pids)
		if !slices.Equal(uuids, c.uuids) || mem != c.mem {
			t.Errorf("%s: %q, %d, want %q, %d", name, uuids, mem, c.uuids, c.mem)
		}
	}
}
