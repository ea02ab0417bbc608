package pipeline

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"
)

func compileSchema(tb testing.TB, raw []byte) *jsonschema.Schema {
	tb.Helper()
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(raw))
	if err != nil {
		tb.Fatal(err)
	}
	c := jsonschema.NewCompiler()
	c.AssertFormat()
	if err := c.AddResource("s.json", doc); err != nil {
		tb.Fatal(err)
	}
	sch, err := c.Compile("s.json")
	if err != nil {
		tb.Fatal(err)
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
	raw, err := json.Marshal(Unseen("d", "r", "n", Link{State: LinkLost, Reason: new("no route")}, dawn))
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
