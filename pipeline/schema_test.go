package pipeline

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"pgregory.net/rapid"
)

func compileSchema(t testing.TB, raw []byte) *jsonschema.Schema {
	t.Helper()
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(raw))
	if err != nil {
		t.Fatal(err)
	}
	c := jsonschema.NewCompiler()
	c.AssertFormat()
	if err := c.AddResource("s.json", doc); err != nil {
		t.Fatal(err)
	}
	sch, err := c.Compile("s.json")
	if err != nil {
		t.Fatal(err)
	}
	return sch
}

// complain validates JSON against a schema and the rule on null numbers; it
// returns what is wrong, or "".
func complain(sch *jsonschema.Schema, raw []byte) string {
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(raw))
	if err != nil {
		return err.Error()
	}
	if err := sch.Validate(doc); err != nil {
		return err.Error()
	}
	return ""
}

// numbers are the keys whose values are numbers, or null.
var numbers = []string{
	"age_seconds", "cpu_percent", "mem_used_bytes", "mem_total_bytes", "load1", "util_percent", "power_watts", "temp_celsius",
	"mem_bytes", "done", "skipped", "failed_samples", "total", "samples_per_second", "eta_seconds", "gpu", "pid", "exit_code",
	"gpu_mem_bytes", "local_files", "local_bytes", "verified_files", "verified_bytes", "deleted_local_files", "failed_files",
	"quarantined_files", "files_per_second", "bytes_per_second", "produced_bytes_per_second", "oldest_seconds",
	"used_bytes", "free_bytes", "total_bytes", "full_in_seconds", "recompute_seconds",
}

// unexplained lists the null numbers of a document without a reason beside
// them, and null lists.
func unexplained(path string, v any) []string {
	var out []string
	switch x := v.(type) {
	case []any:
		for i, e := range x {
			out = append(out, unexplained(fmt.Sprintf("%s[%d]", path, i), e)...)
		}
	case map[string]any:
		explained := false
		for k, e := range x {
			if (k == "reason" || strings.HasSuffix(k, "_reason")) && e != nil {
				explained = true
			}
		}
		for k, e := range x {
			if e == nil && slices.Contains(numbers, k) && !explained {
				out = append(out, path+"."+k)
			}
			out = append(out, unexplained(path+"."+k, e)...)
		}
		for _, pair := range [][2]string{{"samples_per_second", "rate_reason"}, {"eta_seconds", "eta_reason"}, {"done", "done_reason"}, {"full_in_seconds", "full_reason"}, {"exit_code", "exit_reason"}} {
			n, ok := x[pair[0]]
			reason, has := x[pair[1]]
			if ok && has && n == nil && reason == nil {
				out = append(out, path+"."+pair[0]+" without "+pair[1])
			}
		}
	}
	return out
}

func TestDesignExampleMatchesSchema(t *testing.T) {
	t.Parallel()
	raw, err := os.ReadFile("testdata/design-snapshot.json")
	if err != nil {
		t.Fatal(err)
	}
	sch := compileSchema(t, SnapshotSchema)
	if bad := complain(sch, raw); bad != "" {
		t.Fatal(bad)
	}
	// The types carry every key of the example.
	var s Snapshot
	if err := json.Unmarshal(raw, &s); err != nil {
		t.Fatal(err)
	}
	back, err := json.Marshal(s)
	if err != nil {
		t.Fatal(err)
	}
	var was, is any
	if err := json.Unmarshal(raw, &was); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(back, &is); err != nil {
		t.Fatal(err)
	}
	if miss := missing("", was, is); len(miss) > 0 {
		t.Fatalf("lost on the way through the types: %v", miss)
	}
}

// missing lists what is in a and not the same in b.
func missing(path string, a, b any) []string {
	switch x := a.(type) {
	case map[string]any:
		y, ok := b.(map[string]any)
		if !ok {
			return []string{path}
		}
		var out []string
		for k, v := range x {
			out = append(out, missing(path+"."+k, v, y[k])...)
		}
		return out
	case []any:
		y, ok := b.([]any)
		if !ok || len(x) != len(y) {
			return []string{path}
		}
		var out []string
		for i := range x {
			out = append(out, missing(fmt.Sprintf("%s[%d]", path, i), x[i], y[i])...)
		}
		return out
	}
	if a != b {
		return []string{fmt.Sprintf("%s: %v is %v", path, a, b)}
	}
	return nil
}

func TestSchemaIsStrict(t *testing.T) {
	t.Parallel()
	raw, err := os.ReadFile("testdata/design-snapshot.json")
	if err != nil {
		t.Fatal(err)
	}
	sch := compileSchema(t, SnapshotSchema)
	for _, tc := range [][2]string{
		{`"health":"degraded"`, `"health":"bad"`},
		{`"state":"live"`, `"state":"alive"`},
		{`"done":412806`, `"done":"412806"`},
		{`"done":412806,`, ``},
		{`"gpus":[`, `"gpus":null,"x":[`},
		{`"restarts":0`, `"restarts":null`},
		{`"pid":4711,"state"`, `"pid":0,"state"`},
		{`"eta_reason":null`, `"eta_reason":7`},
		{`"schema":1`, `"schema":2`},
		{`"at":"2026-11-30T10:00:00Z"`, `"at":"yesterday"`},
	} {
		changed := strings.Replace(string(raw), tc[0], tc[1], 1)
		if changed == string(raw) {
			t.Fatalf("%s is not in the example", tc[0])
		}
		if complain(sch, []byte(changed)) == "" {
			t.Errorf("the schema takes %s", tc[1])
		}
	}
}

func TestUnseenMatchesSchema(t *testing.T) {
	t.Parallel()
	raw, err := json.Marshal(Unseen("d", "r", "n", Link{State: LinkLost, Reason: ptr("no route")}, dawn))
	if err != nil {
		t.Fatal(err)
	}
	if bad := complain(compileSchema(t, SnapshotSchema), raw); bad != "" {
		t.Fatal(bad)
	}
	var doc any
	if err := json.Unmarshal(raw, &doc); err != nil {
		t.Fatal(err)
	}
	if bad := unexplained("", doc); len(bad) > 0 {
		t.Fatal(bad)
	}
}

func TestCoverageReportMatchesSchema(t *testing.T) {
	t.Parallel()
	sch := compileSchema(t, CoverageSchema)
	raw, err := json.Marshal(CoverageReport{Schema: 1, Deck: "d", Run: "r", Outputs: []OutputCoverage{{
		Name: "a/b", CoverageCounts: CoverageCounts{At: dawn, Local: 1, Missing: 1}, IDs: &CoverageIDs{Stored: []string{}, Unproven: []string{"1"}},
	}}})
	if err != nil {
		t.Fatal(err)
	}
	if bad := complain(sch, raw); bad != "" {
		t.Fatal(bad)
	}
}

// Any readings in any order, however odd, make a Snapshot that keeps the
// contract.
func TestFoldIsTotal(t *testing.T) {
	t.Parallel()
	sch := compileSchema(t, SnapshotSchema)
	rapid.Check(t, func(t *rapid.T) {
		w := NewWorld(extractSpec(), "local", AgentInfo{})
		clock := dawn
		for range rapid.IntRange(0, 60).Draw(t, "steps") {
			clock = clock.Add(time.Duration(rapid.SampledFrom([]float64{0.3, 0.5, 1, 1, 2, 7, 70, 4000, -1, -4000}).Draw(t, "dt") * float64(time.Second)))
			r := drawReading(t, clock)
			w.Fold(r)
			if rapid.IntRange(0, 9).Draw(t, "twice") == 0 {
				w.Fold(r)
			}
		}
		now := clock.Add(time.Duration(rapid.IntRange(-10, 30).Draw(t, "late")) * time.Second)
		checkSnapshot(t, sch, w, now)
	})
}

func checkSnapshot(t *rapid.T, sch *jsonschema.Schema, w *World, now time.Time) {
	s := w.Snapshot(now)
	raw, err := json.Marshal(s)
	if err != nil {
		t.Fatal(err)
	}
	again, _ := json.Marshal(w.Snapshot(now))
	if !bytes.Equal(raw, again) {
		t.Fatal("two snapshots of one moment differ")
	}
	stale, err := json.Marshal(WithLink(s, "local", Link{State: LinkStale, AgeSeconds: ptr(7.0)}))
	if err != nil {
		t.Fatal(err)
	}
	kept, _ := json.Marshal(s)
	if !bytes.Equal(raw, kept) {
		t.Fatal("WithLink changed the snapshot it was given")
	}
	for _, doc := range [][]byte{raw, stale} {
		if bad := complain(sch, doc); bad != "" {
			t.Fatalf("%s\n%s", bad, doc)
		}
		var v any
		if err := json.Unmarshal(doc, &v); err != nil {
			t.Fatal(err)
		}
		if bad := unexplained("", v); len(bad) > 0 {
			t.Fatalf("no reason for %v in\n%s", bad, doc)
		}
	}
	if len(s.Nodes[0].Events) > shownEvents || len(w.EventsAfter(0)) > maxEvents {
		t.Fatal("too many events")
	}
	for _, st := range s.Nodes[0].Stages {
		if st.ETASeconds != nil && (*st.ETASeconds < 0 || math.IsNaN(*st.ETASeconds) || math.IsInf(*st.ETASeconds, 0)) {
			t.Fatalf("eta %v", *st.ETASeconds)
		}
		if (st.ETASeconds == nil) == (st.ETAReason == nil) {
			t.Fatalf("eta %v with reason %v", st.ETASeconds, st.ETAReason)
		}
	}
	if (s.Health == Healthy) != (len(s.HealthReasons) == 0) {
		t.Fatalf("health %s with %v", s.Health, s.HealthReasons)
	}
}

func drawTime(t *rapid.T, clock time.Time) time.Time {
	return rapid.SampledFrom([]time.Time{
		clock, clock, clock, clock.Add(-time.Hour), clock.Add(time.Hour), {}, time.Date(12000, 1, 1, 0, 0, 0, 0, time.UTC), time.Date(-5, 1, 1, 0, 0, 0, 0, time.UTC),
	}).Draw(t, "at")
}

func drawCount(t *rapid.T) *int64 {
	return rapid.SampledFrom([]*int64{nil, ptr(int64(0)), ptr(int64(1)), ptr(int64(40)), ptr(int64(1000)), ptr(int64(-3)), ptr(int64(math.MaxInt64))}).Draw(t, "n")
}

func drawFloat(t *rapid.T) *float64 {
	return rapid.SampledFrom([]*float64{nil, ptr(0.0), ptr(17.5), ptr(-1.0), ptr(math.NaN()), ptr(math.Inf(1))}).Draw(t, "f")
}

func drawText(t *rapid.T) string {
	return rapid.SampledFrom([]string{"", "", "why", "\x1b[31mred\x00\xff", strings.Repeat("long ", 400)}).Draw(t, "text")
}

func drawStage(t *rapid.T) string {
	return rapid.SampledFrom([]string{"extract", "extract", "tokenize", "nobody"}).Draw(t, "stage")
}

func drawRank(t *rapid.T) int {
	return rapid.SampledFrom([]int{0, 1, 2, 3, -1, maxRanks, math.MaxInt}).Draw(t, "rank")
}

func drawReading(t *rapid.T, clock time.Time) Reading {
	switch rapid.IntRange(0, 9).Draw(t, "kind") {
	case 0, 1:
		return drawLaunches(t, clock)
	case 2, 3:
		return ProgressReading{
			At: drawTime(t, clock), Stage: drawStage(t), Rank: drawRank(t), Done: drawCount(t), Total: drawCount(t),
			Skipped: drawCount(t), Failed: drawCount(t), ChangedAt: drawTime(t, clock), Err: drawText(t),
		}
	case 4:
		return drawMover(t, clock)
	case 5:
		return drawWants(t, clock)
	case 6:
		return drawGPUs(t, clock)
	case 7:
		return MachineReading{At: drawTime(t, clock), CPUPercent: drawFloat(t), MemUsedBytes: drawCount(t), MemTotalBytes: drawCount(t), Load1: drawFloat(t), Reason: drawText(t)}
	case 8:
		r := DisksReading{At: drawTime(t, clock)}
		for range rapid.IntRange(0, 2).Draw(t, "disks") {
			r.Disks = append(r.Disks, DiskReading{At: drawTime(t, clock), Path: drawText(t), UsedBytes: drawCount(t), FreeBytes: drawCount(t), TotalBytes: drawCount(t), Reason: drawText(t)})
		}
		return r
	default:
		return rapid.SampledFrom([]Reading{
			ActionReading{At: clock}, ActionReading{At: clock, Action: &Action{ID: "a", Result: Running, BeganAt: clock, Steps: []StepResult{{N: 1}}}},
			NoticeReading{Event: Event{At: drawTime(t, clock), Level: "odd", Text: drawText(t)}},
		}).Draw(t, "other")
	}
}

func drawLaunches(t *rapid.T, clock time.Time) Reading {
	r := LaunchesReading{At: drawTime(t, clock), Err: rapid.SampledFrom([]string{"", "", "", "denied"}).Draw(t, "err")}
	for range rapid.IntRange(0, 4).Draw(t, "launches") {
		l := LaunchSeen{
			ID: rapid.SampledFrom([]string{"", "extract-0-1", "extract-0-2"}).Draw(t, "id"), Stage: drawStage(t), Rank: drawRank(t),
			State:  rapid.SampledFrom([]ProcState{ProcRunning, ProcRunning, ProcIntended, ProcExited, ProcNoExec, ProcLost, "odd"}).Draw(t, "state"),
			Reason: drawText(t), PID: rapid.IntRange(-1, 3).Draw(t, "pid"), StartedAt: drawTime(t, clock),
			ReadBytes: rapid.Int64().Draw(t, "read"), CPUSeconds: valueOrZero(drawFloat(t)), Log: drawText(t),
		}
		if rapid.Bool().Draw(t, "gpu") {
			l.GPUs = []GPURef{{Index: 0, UUID: "GPU-a"}}
		}
		if rapid.Bool().Draw(t, "exit") {
			l.Exit = &Exit{At: drawTime(t, clock), OOM: rapid.Bool().Draw(t, "oom"), Signal: drawText(t)}
			l.Exit.Code = rapid.SampledFrom([]*int{nil, ptr(0), ptr(1), ptr(137)}).Draw(t, "code")
		}
		r.Seen = append(r.Seen, l)
	}
	return r
}

func valueOrZero(f *float64) float64 {
	if f == nil {
		return 0
	}
	return *f
}

func drawMover(t *rapid.T, clock time.Time) Reading {
	r := MoverReading{At: drawTime(t, clock), Paused: rapid.Bool().Draw(t, "paused"), Events: []Event{{Text: drawText(t)}}}
	o := OutputReading{
		Stage: drawStage(t), Name: rapid.SampledFrom([]string{"hidden", "tokens", "x"}).Draw(t, "name"),
		State: rapid.SampledFrom([]OutputState{OutputIdle, OutputRunning, OutputBlocked, OutputPaused, "odd"}).Draw(t, "state"), StateReason: drawText(t), Reason: drawText(t),
		LocalFiles: drawCount(t), LocalBytes: drawCount(t), VerifiedFiles: drawCount(t), DeletedLocalFiles: drawCount(t), FailedFiles: drawCount(t),
		VerifiedTotalBytes: valueOrNought(drawCount(t)), VerifiedTotalFiles: valueOrNought(drawCount(t)), ProducedTotalBytes: valueOrNought(drawCount(t)),
		DoneIDs: drawCount(t), Queue: Queue{WaitingFiles: valueOrNought(drawCount(t)), OldestSeconds: drawFloat(t)},
	}
	if rapid.Bool().Draw(t, "ranks") {
		o.ByRank = map[int]RankFiles{drawRank(t): {Done: valueOrNought(drawCount(t)), NewestAt: drawTime(t, clock)}}
	}
	if rapid.Bool().Draw(t, "coverage") {
		o.Coverage = &CoverageCounts{At: drawTime(t, clock), Mismatched: 1}
	}
	r.Outputs = []OutputReading{o}
	if rapid.Bool().Draw(t, "artifacts") {
		r.Artifacts = &o
	}
	return r
}

func valueOrNought(n *int64) int64 {
	if n == nil {
		return 0
	}
	return *n
}

func drawWants(t *rapid.T, clock time.Time) Reading {
	want := StageWant{
		Want:  rapid.SampledFrom([]Want{WantNothing, WantRunning, WantRunning, WantStopped, "odd"}).Draw(t, "want"),
		World: rapid.SampledFrom([]int{0, 1, 4, -1}).Draw(t, "world"), Workers: map[int]WorkerWant{},
	}
	for range rapid.IntRange(0, 3).Draw(t, "workers") {
		want.Workers[drawRank(t)] = WorkerWant{
			Launch: rapid.SampledFrom([]string{"", "extract-0-1", "extract-0-2"}).Draw(t, "id"), Restarts: rapid.IntRange(-1, 4).Draw(t, "restarts"),
			Held: drawText(t), NextAt: drawTime(t, clock), Done: rapid.Bool().Draw(t, "done"), Stopping: rapid.Bool().Draw(t, "stopping"), StopSentAt: drawTime(t, clock),
		}
	}
	return WantsReading{At: drawTime(t, clock), Stages: map[string]StageWant{drawStage(t): want}}
}

func drawGPUs(t *rapid.T, clock time.Time) Reading {
	r := GPUReading{At: drawTime(t, clock), Kind: rapid.SampledFrom([]string{"", "none", "nvml", "simulated"}).Draw(t, "kind"), Reason: drawText(t)}
	for range rapid.IntRange(0, 2).Draw(t, "gpus") {
		g := GPUSnapshot{
			UUID: rapid.SampledFrom([]string{"GPU-a", "GPU-b"}).Draw(t, "uuid"), State: rapid.SampledFrom([]GPUState{GPUOK, GPULost, GPUUnknown, "odd"}).Draw(t, "state"),
			MemUsedBytes: drawCount(t), MemTotalBytes: drawCount(t), UtilPercent: drawFloat(t), PowerWatts: drawFloat(t), TempCelsius: drawFloat(t),
		}
		if rapid.Bool().Draw(t, "processes") {
			g.Processes = []GPUProcess{{PID: rapid.IntRange(0, 3).Draw(t, "pid"), MemBytes: drawCount(t)}}
		}
		r.GPUs = append(r.GPUs, g)
	}
	return r
}
