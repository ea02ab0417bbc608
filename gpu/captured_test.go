package gpu

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"pipedeck/gpu/probe"
	"pipedeck/pipeline"
)

// captured reads a file of testdata/gpu: answers of a real H200's driver.
func captured(t *testing.T, name string) string {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join("..", "testdata", "gpu", name))
	if err != nil {
		t.Fatal(err)
	}
	return string(raw)
}

// near holds for a value that lies between two readings of the same second, as
// far as nvidia-smi rounds.
func near(smi, before, after, slack float64) bool {
	return smi >= min(before, after)-slack && smi <= max(before, after)+slack
}

// NVML read before and after nvidia-smi: the values are the same ones.
func TestCapturedValuesEqualNvidiaSMIs(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"h200-idle", "h200-load", "h200-x2-idle"} {
		var answers [2]probe.Answer
		if err := json.Unmarshal([]byte(captured(t, name+".nvml.json")), &answers); err != nil {
			t.Fatal(err)
		}
		lines := strings.Split(strings.TrimSpace(captured(t, name+".smi.csv")), "\n")
		if len(lines) != len(answers[0].GPUs) {
			t.Fatalf("%s: %d GPUs, nvidia-smi lists %d", name, len(answers[0].GPUs), len(lines))
		}
		for i, line := range lines {
			cells := strings.Split(line, ", ")
			a, b := answers[0].GPUs[i], answers[1].GPUs[i]
			if a.UUID != cells[0] || a.State != pipeline.GPUOK || a.StateReason != nil {
				t.Errorf("%s: GPU %d is %s %s", name, i, a.UUID, a.State)
			}
			mb := func(n *int64) float64 { return float64(*n) / mib }
			for k, v := range [][2]float64{
				{mb(a.MemUsedBytes), mb(b.MemUsedBytes)},
				{mb(a.More.MemReservedBytes), mb(b.More.MemReservedBytes)},
				{mb(a.MemTotalBytes), mb(b.MemTotalBytes)},
				{*a.UtilPercent, *b.UtilPercent},
				{*a.PowerWatts, *b.PowerWatts},
				{*a.More.PowerLimitWatts, *b.More.PowerLimitWatts},
				{*a.TempCelsius, *b.TempCelsius},
				{*a.More.SMClockMHz, *b.More.SMClockMHz},
				{*a.More.MemClockMHz, *b.More.MemClockMHz},
			} {
				smi, err := strconv.ParseFloat(cells[k+1], 64)
				if err != nil || !near(smi, v[0], v[1], 1) {
					t.Errorf("%s: GPU %d, column %d: nvidia-smi %q, NVML %v", name, i, k+1, cells[k+1], v)
				}
			}
		}
	}
}

// What the helper said on that machine, through the agent's end of the pipe.
func TestCapturedAnswers(t *testing.T) {
	t.Parallel()
	var answers [2]probe.Answer
	if err := json.Unmarshal([]byte(captured(t, "h200-load.nvml.json")), &answers); err != nil {
		t.Fatal(err)
	}
	h := newHelper(findHelper, time.Now, defaultLimits)
	r := h.reading(answers[1])
	if r.Kind != KindNVML || r.Reason != "" || len(r.GPUs) != 1 {
		t.Fatalf("reading = %+v", r)
	}
	g := r.GPUs[0]
	if g.Name != "NVIDIA H200" || len(g.Processes) != 1 || *g.Processes[0].MemBytes < 5e9 || g.More.Activity == nil || g.More.Activity.SMPercent < 10 || len(g.More.Missing) != 0 {
		t.Errorf("GPU = %+v, %+v", g, g.More)
	}
	if *g.MemUsedBytes < *g.Processes[0].MemBytes {
		t.Errorf("%d bytes in use, %d of them the process's", *g.MemUsedBytes, *g.Processes[0].MemBytes)
	}
}

func TestCapturedNvidiaSMI(t *testing.T) {
	t.Parallel()
	gpus, complaints := parseList(captured(t, "h200-L.txt"))
	if len(gpus) != 1 || len(complaints) != 0 || gpus[0].Name != "NVIDIA H200" {
		t.Errorf("list: %+v, %q", gpus, complaints)
	}
	apps, bad := parseApps(captured(t, "h200-apps.csv"))
	if bad != 0 || len(apps[gpus[0].UUID]) != 1 || *apps[gpus[0].UUID][0].MemBytes < 5e9 {
		t.Errorf("processes: %+v, %d bad", apps, bad)
	}
}
