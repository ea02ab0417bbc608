package tui

import (
	"strings"
	"testing"

	"pipedeck/pipeline"
)

// What NVML tells of a GPU's troubles is in its worker's detail; a well GPU
// takes no line for it.
func TestTroublesOfAGPU(t *testing.T) {
	t.Parallel()
	text := func(g pipeline.GPUSnapshot) string {
		var b strings.Builder
		for _, l := range gpuFields(board{}, g) {
			for _, s := range l {
				b.WriteString(s.text)
			}
			b.WriteByte('\n')
		}
		return b.String()
	}
	g := gpu(0)
	bare := text(g)
	g.More = &pipeline.GPUMore{Throttle: []string{}, ECCUncorrected: new(int64(0)), RemappedRows: &pipeline.GPURemap{Correctable: 1}, XIDs: []pipeline.GPUXID{}}
	if got := text(g); got != bare {
		t.Errorf("a well GPU:\n%s", got)
	}
	g.More = &pipeline.GPUMore{
		Throttle: []string{"software power cap"}, ECCUncorrected: new(int64(2)), RemappedRows: &pipeline.GPURemap{Pending: true}, XIDs: []pipeline.GPUXID{{At: t0(), Code: 79}},
		MIG: []pipeline.MIGInstance{{UUID: "MIG-1", GPUInstance: 5, Name: "1g.18gb\x1b[2J"}},
	}
	got := text(g)
	for _, want := range []string{"software power cap", "2 that could not be corrected", "at the next reset", "XID 79 at 14:02:31Z", "5  1g.18gb", "MIG-1  - of -"} {
		if !strings.Contains(got, want) {
			t.Errorf("no %q in\n%s", want, got)
		}
	}
	if strings.Contains(got, "\x1b") {
		t.Errorf("a control sequence got through: %q", got)
	}
}
