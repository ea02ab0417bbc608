package tui

import (
	"fmt"
	"slices"
	"strings"

	"pipedeck/pipeline"
)

func eventsTitle(_ board, u *ui) string {
	title := "Events"
	if f := u.filters[paneEvents]; f != "" {
		title += "   /" + f
	}
	if u.back > 0 {
		title += fmt.Sprintf("   paused, %d newer, G = newest", u.back)
	}
	return title
}

// shownEvents are the events that pass the filter, oldest first.
func shownEvents(u *ui) []pipeline.Event {
	f := u.filters[paneEvents]
	if f == "" {
		return u.events.list
	}
	var out []pipeline.Event
	for _, e := range u.events.list {
		if contains(f, string(e.Level), e.Source, e.Text, e.Action) {
			out = append(out, e)
		}
	}
	return out
}

// chosenEvent is the event on top of the pane; scrolling chooses another.
func (u *ui) chosenEvent() *pipeline.Event {
	list := shownEvents(u)
	if i := len(list) - 1 - u.back; i >= 0 {
		return &list[i]
	}
	return nil
}

// eventLookedAt is the chosen event where the pane is paused at it, else nil.
func (u *ui) eventLookedAt() *pipeline.Event {
	e := u.chosenEvent()
	if e == nil || u.back == 0 {
		return nil
	}
	return new(*e)
}

// hold keeps the chosen event on top of the pane while newer ones come: what is
// paused must not move under the eyes. One that is gone, since a repeat of it
// took its place, leaves its place in time.
func (u *ui) hold(e *pipeline.Event) {
	if e == nil {
		return
	}
	list := shownEvents(u)
	at := -1
	for i, o := range slices.Backward(list) {
		if o.At.Equal(e.At) && sameEvent(o, *e) {
			at = i
			break
		}
		if at < 0 && !o.At.After(e.At) {
			at = i
		}
	}
	u.back = max(0, len(list)-1-max(0, at))
}

// eventsPane draws the newest events, the newest first.
func eventsPane(u *ui, sz size) []line {
	list := shownEvents(u)
	var out []line
	for i := len(list) - 1 - u.back; i >= 0 && len(out) < sz.h; i-- {
		l := eventLine(list[i], 11)
		if len(out) == 0 && u.focus == paneEvents {
			l = l.fit(sz.w)
			for j := range l {
				l[j].look = chosen
			}
		}
		out = append(out, l)
	}
	if len(out) == 0 && sz.h > 0 {
		text := "none yet"
		if f := u.filters[paneEvents]; f != "" {
			text = "none match /" + f
		}
		out = append(out, rowOf(dim, "  "+text))
	}
	return out
}

func eventLine(e pipeline.Event, source int) line {
	l := map[pipeline.Level]look{pipeline.Warn: warn, pipeline.Error: bad}[e.Level]
	return line{
		txt(dim, utc(e.At)+" "), txt(l, left(strings.ToUpper(clean(string(e.Level))), 6)),
		txt(plain, left(clean(e.Source), source)+" "), txt(plain, eventText(e)),
	}
}
