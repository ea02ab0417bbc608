package pipeline

import (
	"strconv"
	"testing"
)

func TestEventsFoldRepeats(t *testing.T) {
	t.Parallel()
	var r eventRing
	for i := range 3 {
		r.add(Event{At: at(float64(2 * i)), Level: Warn, Source: "s3", Text: "slow down"})
		r.add(Event{At: at(float64(2*i + 1)), Level: Info, Source: "ops", Text: strconv.Itoa(i)})
	}
	r.add(Event{At: at(7), Level: Error, Source: "s3", Text: "slow down"})
	got := r.after(0)
	if len(got) != 5 || got[2].Text != "slow down" || got[2].Count != 3 || !got[2].At.Equal(at(4)) {
		t.Fatalf("%+v", got)
	}
	if got[4].Count != 1 || got[4].Level != Error {
		t.Fatalf("another level is another event: %+v", got[4])
	}
	// A follower that had seen the first one is told of the higher count.
	if next := r.after(1); len(next) != 5 || next[0].Seq != 2 {
		t.Fatalf("%+v", next)
	}
	r.add(Event{At: at(3600), Level: Error, Source: "s3", Text: "slow down"})
	if n := r.newest(1)[0]; n.Count != 1 {
		t.Fatalf("an hour later is another event: %+v", n)
	}
}

func TestEventsAreBoundedAndOrdered(t *testing.T) {
	t.Parallel()
	var r eventRing
	for i := range maxEvents + 500 {
		r.add(Event{At: at(float64(i)), Text: strconv.Itoa(i)})
	}
	all := r.after(0)
	if len(all) != maxEvents || all[0].Seq != 501 || all[len(all)-1].Seq != int64(maxEvents+500) {
		t.Fatalf("%d events from %d", len(all), all[0].Seq)
	}
	if got := r.after(r.seq); got == nil || len(got) != 0 {
		t.Fatalf("after the newest: %v", got)
	}
	if got := r.after(r.seq + 1000); len(got) != maxEvents {
		t.Fatalf("a number of another agent gives %d", len(got))
	}
	if got := r.newest(50); len(got) != 50 || got[49].Seq != r.seq {
		t.Fatalf("newest: %d", len(got))
	}
}

func TestEventTextIsCleaned(t *testing.T) {
	t.Parallel()
	var r eventRing
	r.add(Event{At: dawn, Source: "w\x00", Text: "\x1b[2Jgone"})
	if e := r.after(0)[0]; e.Text != "␛gone" || e.Source != "w␀" || e.Level != Info {
		t.Fatalf("%+v", e)
	}
}
