package tui

import (
	"math"
	"slices"
	"time"

	"pipedeck/pipeline"
)

// historyStep is how often charts advance. Scrolling charts are what costs
// bandwidth on a slow link, so they move every few seconds only.
const historyStep = 4 * time.Second

// historyKeep is how many values a series keeps: ten minutes.
const historyKeep = 150

// Names of the series that are not a worker's.
const (
	seriesRate  = "\x00rate"
	seriesQueue = "\x00queue"
	seriesBytes = "\x00bytes"
)

// history is the recent past of some figures, for charts. Time without data
// is NaN, which is drawn as a gap.
type history struct {
	bucket int64 // number of the step that is being filled
	begun  bool
	now    map[string]float64 // values of that step
	series map[string][]float64
}

func newHistory() *history {
	return &history{now: map[string]float64{}, series: map[string][]float64{}}
}

// advance closes the steps that have ended by now.
func (h *history) advance(now time.Time) {
	bucket := now.UnixNano() / int64(historyStep)
	if !h.begun {
		h.bucket, h.begun = bucket, true
		return
	}
	steps := bucket - h.bucket
	if steps <= 0 {
		return
	}
	h.bucket = bucket
	for name := range h.now {
		if _, ok := h.series[name]; !ok {
			h.series[name] = nil
		}
	}
	for name, s := range h.series {
		v, ok := h.now[name]
		if !ok {
			v = math.NaN()
		}
		s = append(s, v)
		for range min(steps-1, historyKeep) {
			s = append(s, math.NaN())
		}
		h.series[name] = s[max(0, len(s)-historyKeep):]
	}
	clear(h.now)
}

// add takes the figures of a board into the current step. A stale board adds
// nothing: its figures are not of now.
func (h *history) add(b board) {
	h.advance(b.now)
	if !b.have || b.stale {
		return
	}
	var rate *float64
	for _, s := range b.node.Stages {
		for _, w := range s.Workers {
			h.put(w.ID, w.SamplesPerSecond)
		}
		if active(s.State) && s.SamplesPerSecond != nil {
			total := deref(rate) + *s.SamplesPerSecond
			rate = &total
		}
	}
	t := b.totals()
	queue := float64(t.waiting)
	h.put(seriesRate, rate)
	h.put(seriesQueue, &queue)
	h.put(seriesBytes, t.bytes)
}

func (h *history) put(name string, v *float64) {
	if v != nil {
		h.now[name] = *v
	}
}

// eventRing keeps the newest events of the agent, in order, once each.
type eventRing struct {
	instance string
	list     []pipeline.Event
}

// eventKeep is how many events stay in memory.
const eventKeep = 2000

// add merges the events of a snapshot. A new agent process counts from the
// beginning again.
func (r *eventRing) add(n pipeline.NodeSnapshot) {
	if n.Agent != nil && n.Agent.Instance != r.instance {
		r.instance = n.Agent.Instance
		for i := range r.list {
			r.list[i].Seq = -1
		}
	}
	for _, e := range n.Events {
		r.put(e)
	}
	r.list = r.list[max(0, len(r.list)-eventKeep):]
}

func (r *eventRing) put(e pipeline.Event) {
	for i := len(r.list) - 1; i >= 0; i-- {
		if r.list[i].Seq == e.Seq {
			r.list[i] = e
			return
		}
		if r.list[i].Seq < e.Seq {
			break
		}
	}
	if e.Count > 1 { // the agent has folded earlier ones into it, under a new number
		for i, o := range slices.Backward(r.list) {
			if o.Seq >= 0 && o.Count < e.Count && sameEvent(o, e) {
				r.list = slices.Delete(r.list, i, i+1)
				break
			}
		}
	}
	r.list = append(r.list, e)
}

func sameEvent(a, b pipeline.Event) bool {
	return a.Text == b.Text && a.Source == b.Source && a.Level == b.Level && a.Action == b.Action
}
