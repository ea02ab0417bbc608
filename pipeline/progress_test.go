package pipeline

import (
	"strings"
	"testing"

	"pgregory.net/rapid"

	"pipedeck/pipeline/spec"
)

func show(n *int64) any {
	if n == nil {
		return nil
	}
	return *n
}

func TestParseStatus(t *testing.T) {
	t.Parallel()
	keys := spec.Progress{JSON: "p", Done: "processed", Total: "stats.total", Skipped: "stats.skip.long", Failed: "failed"}
	for _, tc := range []struct {
		name, in                     string
		done, total, skipped, failed any
		err                          string
	}{
		{"all", `{"processed": 7, "stats": {"total": 10, "skip": {"long": 2}}, "failed": 1}`, int64(7), int64(10), int64(2), int64(1), ""},
		{"strings", `{"processed": " 1,234 ", "stats": {"total": "1e6"}}`, int64(1234), int64(1000000), nil, nil, ""},
		{"fraction", `{"processed": 3.9}`, int64(3), nil, nil, nil, ""},
		{"key with a dot", `{"processed": 1, "stats.total": 5}`, int64(1), int64(5), nil, nil, ""},
		{"null total", `{"processed": 1, "stats": {"total": null}}`, int64(1), nil, nil, nil, ""},
		{"no done", `{"x": 1}`, nil, nil, nil, nil, `no key "processed"`},
		{"null done", `{"processed": null}`, nil, nil, nil, nil, `no key "processed"`},
		{"negative", `{"processed": -1}`, nil, nil, nil, nil, "is no count"},
		{"huge", `{"processed": 1e300}`, nil, nil, nil, nil, "is no count"},
		{"a list", `[1]`, nil, nil, nil, nil, `no key "processed"`},
		{"a flag", `{"processed": true}`, nil, nil, nil, nil, "is no number"},
		{"half written", `{"processed": 1`, nil, nil, nil, nil, "cannot read the status file"},
		{"empty", ``, nil, nil, nil, nil, "cannot read the status file"},
	} {
		d, to, s, f, err := ParseStatus([]byte(tc.in), keys)
		if tc.err != "" {
			if err == nil || !strings.Contains(err.Error(), tc.err) {
				t.Errorf("%s: error %v, want %q", tc.name, err, tc.err)
			}
			continue
		}
		if err != nil || show(d) != tc.done || show(to) != tc.total || show(s) != tc.skipped || show(f) != tc.failed {
			t.Errorf("%s: %v %v %v %v, %v", tc.name, show(d), show(to), show(s), show(f), err)
		}
	}
}

func TestLineCounter(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]int64{
		"": 0, "a": 0, "a\n": 1, "a\nb": 1, "a\r\n\r\n \nb\n": 2, "\n\n": 0, "{}\n{}\n{": 2,
	} {
		var c LineCounter
		for i := range len(in) {
			c.Add([]byte(in[i : i+1]))
		}
		if c.Lines() != want {
			t.Errorf("%q: %d lines, want %d", in, c.Lines(), want)
		}
	}
}

func TestLogScanner(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		expr, in    string
		done, total any
	}{
		{`step (?P<done>\d+)/(?P<total>\d+)`, "step 1/10\nstep 2/10\n", int64(2), int64(10)},
		{`step (?P<done>\d+)/(?P<total>\d+)`, "step 1/10\nstep 2/1", int64(1), int64(10)},
		{`step (?P<done>\d+)/(?P<total>\d+)`, " 10% step 1/10\r 20% step 2/10\r", int64(2), int64(10)},
		{`done=(?P<done>[\d,]+)`, "x done=1,000 y done=1,001 z\n", int64(1001), nil},
		{`done=(?P<done>\d+)`, "nothing\n", nil, nil},
		{`done=(?P<done>\w+)`, "done=many\n", nil, nil},
		{`done=(?P<done>\d+)`, strings.Repeat("x", maxLogLine+1) + " done=1\ndone=2\n", int64(2), nil},
	} {
		for _, size := range []int{1, 3, 1 << 20} {
			s, err := NewLogScanner(tc.expr)
			if err != nil {
				t.Fatal(err)
			}
			for in := tc.in; in != ""; {
				n := min(size, len(in))
				s.Add([]byte(in[:n]))
				in = in[n:]
			}
			if d, to := s.Last(); show(d) != tc.done || show(to) != tc.total {
				t.Errorf("%q in chunks of %d: %v of %v", shorten(tc.in, 60), size, show(d), show(to))
			}
		}
	}
	for _, bad := range []string{`(`, `step (\d+)`} {
		if _, err := NewLogScanner(bad); err == nil {
			t.Errorf("%q was taken", bad)
		}
	}
}

// However a log is cut into chunks, the same is found in it.
func TestLogScannerChunks(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		log := strings.Join(rapid.SliceOf(rapid.SampledFrom([]string{"step 1/9", "step 12/90", "\r", "\n", "x", " "})).Draw(t, "log"), "")
		whole, _ := NewLogScanner(`step (?P<done>\d+)/(?P<total>\d+)`)
		whole.Add([]byte(log))
		parts, _ := NewLogScanner(`step (?P<done>\d+)/(?P<total>\d+)`)
		for rest := []byte(log); len(rest) > 0; {
			n := rapid.IntRange(1, len(rest)).Draw(t, "n")
			parts.Add(rest[:n])
			rest = rest[n:]
		}
		a, b := whole.Last()
		c, d := parts.Last()
		if show(a) != show(c) || show(b) != show(d) {
			t.Fatalf("%v/%v against %v/%v", show(a), show(b), show(c), show(d))
		}
	})
}

func TestSumMetric(t *testing.T) {
	t.Parallel()
	text := `# HELP gen_tokens_total x
# TYPE gen_tokens_total counter
gen_tokens_total{model="a}b\"",rank="0"} 10 1700000000
gen_tokens_total{rank="1"}	2.5e1
gen_tokens_total_created 99
plain 7
nan NaN
`
	for _, tc := range []struct {
		metric string
		want   float64
		bad    bool
	}{{"gen_tokens_total", 35, false}, {"plain", 7, false}, {"gen_tokens", 0, true}, {"nan", 0, true}, {"HELP", 0, true}} {
		got, err := SumMetric([]byte(text), tc.metric)
		if (err != nil) != tc.bad || got != tc.want {
			t.Errorf("%s: %v, %v", tc.metric, got, err)
		}
	}
}

func FuzzProgress(f *testing.F) {
	f.Add([]byte(`{"processed":1}`))
	f.Add([]byte("m{a=\"b\"} 1\n"))
	f.Add([]byte("step 1/2\r"))
	f.Fuzz(func(t *testing.T, raw []byte) {
		d, _, _, _, err := ParseStatus(raw, spec.Progress{Done: "processed"})
		if err == nil && (d == nil || *d < 0) {
			t.Fatalf("done %v without an error", show(d))
		}
		if _, err := SumMetric(raw, "m"); err != nil && err.Error() == "" {
			t.Fatal("an error without words")
		}
		s, _ := NewLogScanner(`step (?P<done>\d+)/(?P<total>\d+)`)
		s.Add(raw)
		if d, _ := s.Last(); d != nil && *d < 0 {
			t.Fatalf("done %d", *d)
		}
	})
}
