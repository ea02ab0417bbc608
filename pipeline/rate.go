package pipeline

import (
	"fmt"
	"math"
	"slices"
	"time"
)

// Two windows: the short one is what the display shows, so that a change is
// seen within half a minute; the long one is what an ETA rests on, so that it
// does not jump with every batch.
const (
	shortWindow = 30 * time.Second
	longWindow  = 5 * time.Minute
	// rateStale is how old the newest sample may be; readings come every second.
	rateStale = 15 * time.Second
	// etaSpan is the least history for an ETA.
	etaSpan = 5 * time.Second
	// sampleEvery bounds how many samples a window keeps.
	sampleEvery = time.Second
	// reorder is how far a reading may lie before the newest one without being
	// taken for a clock that was set back: sources run side by side.
	reorder = 2 * time.Second
)

const (
	reasonTwoSamples = "needs two samples"
	reasonStale      = "stale"
)

// counter turns readings of a count into rates. The count may be set back (a
// script that starts again); the clock may step; readings may stop and go on.
type counter struct {
	points []point
	value  int64
	at     time.Time
}

// point is the sum of all increments up to a moment.
type point struct {
	at  time.Time
	sum float64
}

// observe takes one reading. A count that fell starts a new stretch and adds
// nothing: what it would add may have been counted before.
func (c *counter) observe(at time.Time, v int64) {
	if v < 0 || at.IsZero() {
		return
	}
	if len(c.points) == 0 {
		c.points, c.value, c.at = []point{{at: at}}, v, at
		return
	}
	back := c.at.Sub(at)
	if back > 0 && back < reorder {
		return
	}
	sum := c.points[len(c.points)-1].sum
	if v > c.value {
		sum += float64(v - c.value)
	}
	c.value, c.at = v, at
	if back >= reorder {
		c.points = []point{{at: at, sum: sum}}
		return
	}
	n := len(c.points)
	if n >= 2 && at.Sub(c.points[n-2].at) < sampleEvery {
		c.points[n-1] = point{at: at, sum: sum}
		return
	}
	c.points = append(c.points, point{at: at, sum: sum})
	c.prune(at)
}

func (c *counter) prune(at time.Time) {
	old := 0
	for old < len(c.points)-1 && at.Sub(c.points[old].at) > longWindow {
		old++
	}
	if old > 0 {
		c.points = slices.Delete(c.points, 0, old)
	}
}

// restart forgets all but the newest sample: what came before (loading a
// model) says nothing about the speed from now on.
func (c *counter) restart() {
	if n := len(c.points); n > 2 {
		c.points = slices.Delete(c.points, 0, n-2)
	}
}

// rebase takes a reading that counts other things than the one before: the
// difference between the two is no increment.
func (c *counter) rebase(at time.Time, v int64) {
	c.value = max(0, v)
	c.observe(at, v)
}

// usable says why there is no rate at all, or "".
func (c *counter) usable(now time.Time) string {
	switch n := len(c.points); {
	case n > 0 && now.Sub(c.at) > rateStale:
		return fmt.Sprintf("%s: last read %s ago", reasonStale, humanTime(now.Sub(c.at)))
	case n < 2:
		return reasonTwoSamples
	}
	return ""
}

// short is the rate to show, per second. A producer slower than the window is
// averaged over the long one, until its silence is longer than three of its
// own intervals: then zero is a real zero.
func (c *counter) short(now time.Time) (*float64, string) {
	if why := c.usable(now); why != "" {
		return nil, why
	}
	last := c.points[len(c.points)-1]
	first := c.points[0]
	for _, p := range c.points {
		if last.at.Sub(p.at) <= shortWindow {
			break
		}
		first = p
	}
	recent, all := last.sum-first.sum, last.sum-c.points[0].sum
	if recent < 3 && all > 0 {
		interval := last.at.Sub(c.points[0].at).Seconds() / all
		if c.silence().Seconds() <= math.Max(shortWindow.Seconds(), 3*interval) {
			return c.long(now)
		}
		return new(0.0), ""
	}
	return slope(first, last)
}

// long is the rate that an ETA rests on, per second.
func (c *counter) long(now time.Time) (*float64, string) {
	if why := c.usable(now); why != "" {
		return nil, why
	}
	return slope(c.points[0], c.points[len(c.points)-1])
}

// span is how much history the long rate has.
func (c *counter) span() time.Duration {
	if len(c.points) < 2 {
		return 0
	}
	return c.points[len(c.points)-1].at.Sub(c.points[0].at)
}

// silence is how long the count has stood still, as far as the window knows.
func (c *counter) silence() time.Duration {
	last := c.points[len(c.points)-1]
	for i, p := range slices.Backward(c.points) {
		if p.sum < last.sum {
			return last.at.Sub(c.points[i+1].at)
		}
	}
	return last.at.Sub(c.points[0].at)
}

func slope(a, b point) (*float64, string) {
	dt := b.at.Sub(a.at).Seconds()
	if dt <= 0 {
		return nil, reasonTwoSamples
	}
	return finite(new((b.sum - a.sum) / dt)), ""
}

// Disks fill slowly and free space saws up and down with every removal, so the
// trend is a line fitted through a quarter of an hour; a short one catches a
// disk that began to fill fast.
const (
	diskWindow      = 15 * time.Minute
	diskShortWindow = 2 * time.Minute
	diskSampleEvery = 5 * time.Second
	diskLeast       = time.Minute
	soonFull        = time.Hour
)

// trend is the history of a filesystem's free space.
type trend struct{ points []point }

func (t *trend) observe(at time.Time, free int64) {
	n := len(t.points)
	switch {
	case at.IsZero() || free < 0:
		return
	case n > 0 && at.Before(t.points[n-1].at):
		t.points = nil
	case n > 0 && at.Sub(t.points[n-1].at) > diskWindow:
		t.points = nil
	case n > 0 && at.Sub(t.points[n-1].at) < diskSampleEvery:
		return
	}
	t.points = append(t.points, point{at: at, sum: float64(free)})
	old := 0
	for at.Sub(t.points[old].at) > diskWindow {
		old++
	}
	t.points = slices.Delete(t.points, 0, old)
}

// full is the time until the filesystem is full, in seconds, or why it is not
// known.
func (t *trend) full(now time.Time, free, total int64) (*float64, string) {
	n := len(t.points)
	switch {
	case n == 0:
		return nil, "too little history"
	case now.Sub(t.points[n-1].at) > diskLeast:
		return nil, reasonStale
	case t.points[n-1].at.Sub(t.points[0].at) < diskLeast:
		return nil, "too little history"
	}
	perSecond := fillRate(t.points)
	from := slices.IndexFunc(t.points, func(p point) bool { return t.points[n-1].at.Sub(p.at) <= diskShortWindow })
	if fast := fillRate(t.points[from:]); fast > perSecond && n-from > 5 && float64(free)/fast < soonFull.Seconds() {
		perSecond = fast
	}
	switch {
	case perSecond <= 0:
		return nil, "not filling"
	case perSecond*86400 < 0.01*float64(total):
		return nil, "filling slower than 1 %/day"
	}
	if s := finite(new(math.Round(float64(free) / perSecond))); s != nil {
		return s, ""
	}
	return nil, "not filling"
}

// fillRate is minus the slope of the least-squares line, in bytes per second.
func fillRate(ps []point) float64 {
	if len(ps) < 2 {
		return 0
	}
	var mx, my float64
	for _, p := range ps {
		mx += p.at.Sub(ps[0].at).Seconds()
		my += p.sum
	}
	mx, my = mx/float64(len(ps)), my/float64(len(ps))
	var cov, dev float64
	for _, p := range ps {
		dx := p.at.Sub(ps[0].at).Seconds() - mx
		cov += dx * (p.sum - my)
		dev += dx * dx
	}
	if dev == 0 {
		return 0
	}
	return -cov / dev
}
