package pipeline

import (
	"slices"
	"time"
)

const (
	maxEvents     = 2000
	shownEvents   = 50
	foldBack      = 16 // how far back an identical event is looked for
	foldWithin    = 10 * time.Minute
	maxEventBytes = 1000
)

// eventRing keeps the newest events, in the order of Seq.
type eventRing struct {
	seq  int64
	list []Event
}

// add appends an event, its texts cleaned. An identical recent one is folded
// into it, which gets a new Seq, so that followers see the higher count.
func (r *eventRing) add(e Event) {
	e.Source = shorten(Clean(e.Source), maxEventBytes)
	e.Text = shorten(Clean(e.Text), maxEventBytes)
	e.Action = shorten(Clean(e.Action), maxEventBytes)
	if e.Level != Warn && e.Level != Error {
		e.Level = Info
	}
	e.At = wireTime(e.At)
	e.Count = 1
	if i := r.twin(e); i >= 0 {
		e.Count += r.list[i].Count
		r.list = slices.Delete(r.list, i, i+1)
	}
	r.seq++
	e.Seq = r.seq
	if len(r.list) >= maxEvents {
		r.list = slices.Delete(r.list, 0, len(r.list)-maxEvents+1)
	}
	r.list = append(r.list, e)
}

func (r *eventRing) twin(e Event) int {
	for i := len(r.list) - 1; i >= max(0, len(r.list)-foldBack); i-- {
		o := r.list[i]
		if o.Text == e.Text && o.Source == e.Source && o.Level == e.Level &&
			o.Action == e.Action && e.At.Sub(o.At).Abs() < foldWithin {
			return i
		}
	}
	return -1
}

// after returns the events with a higher Seq, oldest first. A seq that was
// never given here is of an earlier agent: then all are new.
func (r *eventRing) after(seq int64) []Event {
	if seq > r.seq {
		seq = 0
	}
	i, _ := slices.BinarySearchFunc(r.list, seq+1, func(e Event, s int64) int { return int(e.Seq - s) })
	return append([]Event{}, r.list[i:]...)
}

func (r *eventRing) newest(n int) []Event {
	return append([]Event{}, r.list[max(0, len(r.list)-n):]...)
}
