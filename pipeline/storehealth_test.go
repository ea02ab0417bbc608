package pipeline

import (
	"strings"
	"testing"
	"time"
)

func TestCredentialsThatEndBeforeTheETA(t *testing.T) {
	t.Parallel()
	given := func(seconds float64) *CredentialReading {
		return &CredentialReading{Given: true, EndsAt: new(at(seconds))}
	}
	for _, tc := range []struct {
		name  string
		creds *CredentialReading
		want  string // of the warning; "" none
		why   string // of a null in the snapshot
	}{
		{"of the node", nil, "", "the node uses its own"},
		{"none were given", &CredentialReading{}, "", "none were handed over"},
		{"without an end", &CredentialReading{Given: true}, "", "they do not end"},
		{"after the ETA", given(100_000), "", ""},
		{"before the ETA", given(340), "the forwarded credentials end in 40 s, before stage extract (", ""},
		{"ended", given(200), "the forwarded credentials have ended, before stage extract (", ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			b := newBench()
			b.start(0, 2)
			b.run(1, 300, 2, func(t float64, _ int) int64 { return int64(t / 10) })
			for range 3 { // it is told once
				b.w.Fold(MoverReading{At: at(300), Credentials: tc.creds})
				b.look(300)
			}
			s := b.w.Snapshot(at(300))
			if eta := s.Nodes[0].Stages[0].ETASeconds; eta == nil || *eta < 100 {
				t.Fatalf("the ETA is %v: %v", eta, s.Nodes[0].Stages[0].ETAReason)
			}
			got := strings.Join(s.HealthReasons, "\n")
			if tc.want == "" && strings.Contains(got, "credentials") || !strings.Contains(got, tc.want) {
				t.Errorf("health: %q", got)
			}
			if (tc.want != "") != (s.Health == Degraded) {
				t.Errorf("it is %s", s.Health)
			}
			told := 0
			for _, e := range b.w.EventsAfter(0) {
				if e.Source == "store" {
					told += e.Count
				}
			}
			if (tc.want != "") != (told == 1) {
				t.Errorf("told %d times", told)
			}
			st := s.Nodes[0].Store
			if tc.why != "" && (st.CredentialsReason == nil || *st.CredentialsReason != tc.why || st.CredentialsEndInSeconds != nil) ||
				tc.why == "" && st.CredentialsEndInSeconds == nil {
				t.Errorf("%+v", st)
			}
		})
	}
}

func TestAnEndIsNearWithoutAnETA(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name  string
		left  time.Duration
		state StageState
		queue int64
		want  bool
	}{
		{"runs", 10 * time.Minute, StageRunning, 0, true},
		{"runs, later", time.Hour, StageRunning, 0, false},
		{"done, with a queue", 10 * time.Minute, StageDone, 3, true},
		{"nothing to do", 10 * time.Minute, StageDone, 0, false},
	} {
		n := NodeSnapshot{Store: &StoreSnapshot{CredentialsEndInSeconds: new(tc.left.Seconds())}, Stages: []StageSnapshot{{
			Name: "extract", State: tc.state, Outputs: []OutputSnapshot{{Queue: Queue{WaitingFiles: tc.queue}}},
		}}}
		if got := credentialsWarning(n); (got != "") != tc.want {
			t.Errorf("%s: %q", tc.name, got)
		}
	}
}

func TestAStoreThatIsAwayIsToldWhileNothingRuns(t *testing.T) {
	t.Parallel()
	b := newBench()
	b.want(0)
	b.look(0)
	b.w.Fold(MoverReading{At: at(1), Problem: "cannot list: connection refused"})
	s := b.w.Snapshot(at(1))
	if s.Health != Degraded || !strings.Contains(strings.Join(s.HealthReasons, "\n"), "store: cannot list: connection refused") {
		t.Errorf("%s %q", s.Health, s.HealthReasons)
	}
	b.w.Fold(MoverReading{At: at(2)})
	if s := b.w.Snapshot(at(2)); s.Health != Healthy {
		t.Errorf("%s %q", s.Health, s.HealthReasons)
	}
}
