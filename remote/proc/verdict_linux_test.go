package proc

import (
	"strings"
	"testing"
	"time"

	"pipedeck/pipeline"
)

// judge looks twice, as a stop does, and judges.
func judge(t *testing.T, h *Host, id string) (pipeline.Verdict, []pipeline.Check) {
	t.Helper()
	return judgeMeanwhile(t, h, id, func() {})
}

// judgeMeanwhile does something between the looks.
func judgeMeanwhile(t *testing.T, h *Host, id string, between func()) (pipeline.Verdict, []pipeline.Check) {
	t.Helper()
	ev := pipeline.LaunchEvidence{ID: id, Worker: "w/0", First: inspect(t, h, id)}
	between()
	ev.Second = inspect(t, h, id)
	return pipeline.JudgeStop(pipeline.StopEvidence{Launches: []pipeline.LaunchEvidence{ev}, Now: time.Now()})
}

func said(checks []pipeline.Check) string {
	var out []string
	for _, c := range checks {
		out = append(out, c.Name+": "+c.Observed)
	}
	return strings.Join(out, "; ")
}
