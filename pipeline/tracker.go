package pipeline

import "time"

// maxStep caps what one pair of readings adds to a duration, so that a gap in
// observation or a clock that steps never looks like an hour of silence.
const maxStep = 10 * time.Second

// step is the observed time between two readings.
func step(from, to time.Time) time.Duration {
	if from.IsZero() {
		return 0
	}
	return min(max(0, to.Sub(from)), maxStep)
}

// tracker follows one output counter of one worker through its launches:
// whether the present launch has produced, and how long it has stood still.
type tracker struct {
	have     bool
	absent   bool // the source was looked at and not there, in this launch
	adopted  bool // the launch is older than this agent
	byFiles  bool // newest is the time of an output, which proves that it was made
	produced bool
	value    int64
	base     int64 // the value when the present launch began
	still    time.Duration
	at       time.Time
	last     time.Time // when the counter last moved
}

// launched begins a new launch. adopted: it was found running.
func (t *tracker) launched(adopted bool) {
	t.base = t.value
	t.produced, t.absent, t.still = false, false, 0
	t.adopted = adopted
	t.last = time.Time{}
}

// missing notes that the source has no value.
func (t *tracker) missing(at time.Time) {
	t.absent = true
	t.at = at
}

// observe takes a value. newest is the time of the newest output or of the
// source itself, zero if not known; started is when the launch began.
func (t *tracker) observe(at time.Time, v int64, newest, started time.Time) {
	if v < 0 {
		return
	}
	t.still += step(t.at, at)
	t.at = at
	fresh := !newest.IsZero() && !started.IsZero() && newest.After(started)
	if !t.have {
		t.first(v, newest, fresh)
		return
	}
	if v == t.value {
		return
	}
	if v < t.base {
		t.base = v
	}
	t.value, t.still, t.last = v, 0, at
	t.produced = v > t.base
}

// rebase takes a value that counts other things than the one before.
func (t *tracker) rebase(at time.Time, v int64) {
	if t.have && v >= 0 {
		t.base += v - t.value
		t.value = v
	}
	t.observe(at, v, time.Time{}, time.Time{})
}

// first takes the first value ever. Where it came from is not known, so it
// counts as this launch's only if the source appeared during it.
func (t *tracker) first(v int64, newest time.Time, fresh bool) {
	t.have, t.value, t.still = true, v, 0
	t.base = v
	if t.absent && !t.adopted {
		t.base = 0
	}
	t.produced = v > t.base || ((t.adopted || t.byFiles) && fresh && v > 0)
	if t.produced && fresh {
		t.last = newest
	}
}
