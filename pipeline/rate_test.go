package pipeline

import (
	"math"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

func TestRates(t *testing.T) {
	t.Parallel()
	type sample struct {
		t float64
		v int64
	}
	steady := func(from, to float64, per int64) (out []sample) {
		for x := from; x <= to; x++ {
			out = append(out, sample{x, int64(x-from) * per})
		}
		return out
	}
	after := func(a []sample, b ...sample) []sample { return append(a, b...) }
	for _, tc := range []struct {
		name        string
		in          []sample
		now         float64
		short, long float64 // negative: null
		why         string
	}{
		{name: "nothing", short: -1, long: -1, why: "two samples"},
		{name: "one sample", in: steady(0, 0, 1), short: -1, long: -1, why: "two samples"},
		{name: "two samples", in: steady(0, 1, 5), now: 1, short: 5, long: 5},
		{name: "standing still", in: steady(0, 60, 0), now: 60, short: 0, long: 0},
		{name: "steady", in: steady(0, 200, 24), now: 200, short: 24, long: 24},
		{name: "count set back", in: after(steady(0, 9, 10), sample{10, 0}, sample{20, 110}), now: 20, short: 10, long: 10},
		{name: "clock set back", in: after(steady(0, 60, 10), sample{-3600, 600}, sample{-3590, 700}), now: -3590, short: 10, long: 10},
		{name: "clock set forward", in: after(steady(0, 60, 10), sample{7200, 610}), now: 7200, short: -1, long: -1, why: "two samples"},
		{name: "late reading is left out", in: after(steady(0, 10, 10), sample{9.5, 95}), now: 10, short: 10, long: 10},
		{name: "no news", in: steady(0, 60, 10), now: 80, short: -1, long: -1, why: "stale: last read 20 s ago"},
		{name: "a gap is averaged", in: after(steady(0, 10, 10), sample{110, 1100}), now: 110, short: 10, long: 10},
	} {
		var c counter
		for _, s := range tc.in {
			c.observe(at(s.t), s.v)
		}
		for i, f := range []func(time.Time) (*float64, string){c.short, c.long} {
			want := []float64{tc.short, tc.long}[i]
			got, why := f(at(tc.now))
			switch {
			case want < 0 && (got != nil || !strings.Contains(why, tc.why)):
				t.Errorf("%s: window %d: %v %q", tc.name, i, got, why)
			case want >= 0 && (got == nil || math.Abs(*got-want) > 1e-9):
				t.Errorf("%s: window %d: %v, want %v", tc.name, i, got, want)
			}
		}
	}
}

func TestShortRateReactsAndLongRateIsCalm(t *testing.T) {
	t.Parallel()
	var c counter
	n := int64(0)
	for i := range 300 {
		n += 10
		if i > 260 {
			n += 10
		}
		c.observe(at(float64(i)), n)
	}
	short, _ := c.short(at(299))
	long, _ := c.long(at(299))
	if *short < 19 || *long > 12 {
		t.Fatalf("short %v long %v", *short, *long)
	}
}

func TestSlowProducerIsNotZeroBetweenItems(t *testing.T) {
	t.Parallel()
	var c counter
	for i := range 300 {
		c.observe(at(float64(i)), int64(i/45))
	}
	if r, _ := c.short(at(299)); *r < 0.015 || *r > 0.03 {
		t.Fatalf("one item in 45 s: %v", *r)
	}
	for i := 300; i < 600; i++ {
		c.observe(at(float64(i)), 6)
	}
	if r, _ := c.short(at(599)); *r != 0 {
		t.Fatalf("long after the last item: %v", *r)
	}
}

func TestRateIsNeverNonsense(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		var c counter
		now := dawn
		for range rapid.IntRange(0, 200).Draw(t, "n") {
			now = now.Add(time.Duration(rapid.SampledFrom([]int{1, 10, 500, 1000, 3000, 400000, -500, -90000}).Draw(t, "ms")) * time.Millisecond)
			v := rapid.SampledFrom([]int64{0, 1, 5, 1000, math.MaxInt64, -1}).Draw(t, "v")
			if rapid.Bool().Draw(t, "rebase") {
				c.rebase(now, v)
			} else {
				c.observe(now, v)
			}
			if rapid.IntRange(0, 20).Draw(t, "restart") == 0 {
				c.restart()
			}
		}
		if len(c.points) > 400 {
			t.Fatalf("%d samples kept", len(c.points))
		}
		for _, f := range []func(time.Time) (*float64, string){c.short, c.long} {
			r, why := f(now)
			if (r == nil) == (why == "") {
				t.Fatalf("rate %v, reason %q", r, why)
			}
			if r != nil && (*r < 0 || math.IsNaN(*r) || math.IsInf(*r, 0)) {
				t.Fatalf("rate %v", *r)
			}
		}
	})
}

func TestDiskTrend(t *testing.T) {
	t.Parallel()
	const gb, total = 1e9, int64(1000e9)
	for _, tc := range []struct {
		name  string
		free  func(t float64) float64 // in GB
		until float64
		full  float64 // seconds; negative: null
		why   string
	}{
		{"one look", func(float64) float64 { return 100 }, 0, -1, "too little history"},
		{"half a minute", func(float64) float64 { return 100 }, 30, -1, "too little history"},
		{"flat", func(float64) float64 { return 100 }, 600, -1, "not filling"},
		{"emptying", func(t float64) float64 { return 100 + t/10 }, 600, -1, "not filling"},
		{"slowly", func(t float64) float64 { return 500 - t/1e5 }, 600, -1, "filling slower than 1 %/day"},
		{"steadily", func(t float64) float64 { return 500 - t/10 }, 600, 4400, ""},
		{"saw", func(t float64) float64 { return 500 - t/10 + math.Mod(t, 20)/10 }, 600, 4400, ""},
		{"suddenly", func(t float64) float64 { return 100 - max(0, t-780)/2 }, 900, 80, ""},
	} {
		var tr trend
		for s := 0.0; s <= tc.until; s += 5 {
			tr.observe(at(s), int64(tc.free(s)*gb))
		}
		got, why := tr.full(at(tc.until), int64(tc.free(tc.until)*gb), total)
		switch {
		case tc.full < 0 && (got != nil || why != tc.why):
			t.Errorf("%s: %v %q, want %q", tc.name, got, why, tc.why)
		case tc.full >= 0 && (got == nil || math.Abs(*got-tc.full) > tc.full/10):
			t.Errorf("%s: %v %q, want %v", tc.name, got, why, tc.full)
		}
	}
}

func TestDiskTrendForgetsAfterAClockStep(t *testing.T) {
	t.Parallel()
	var tr trend
	for s := 0.0; s <= 300; s += 5 {
		tr.observe(at(s), int64(1e12-s*1e9))
	}
	tr.observe(at(-5000), 5e11)
	if got, why := tr.full(at(-5000), 5e11, 1e12); got != nil || why != "too little history" {
		t.Fatalf("%v %q", got, why)
	}
}
