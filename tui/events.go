package tui

import (
	"fmt"
	"strings"

	"pipedeck/pipeline"
)

func eventsTitle(_ board, u *ui) string {
	title := "Events"
	if u.filter != "" {
		title += "   /" + u.filter
	}
	if u.back > 0 {
		title += fmt.Sprintf("   paused, %d newer, G = newest", u.back)
	}
	return title
}

// shownEvents are the events that pass the filter, oldest first.
func shownEvents(u *ui) []pipeline.Event {
	if u.filter == "" {
		return u.events.list
	}
	var out []pipeline.Event
	for _, e := range u.events.list {
		if strings.Contains(strings.ToLower(string(e.Level)+" "+e.Source+" "+e.Text), strings.ToLower(u.filter)) {
			out = append(out, e)
		}
	}
	return out
}

// eventsPane draws the newest events, the newest first.
func eventsPane(u *ui, sz size) []line {
	list := shownEvents(u)
	var out []line
	for i := len(list) - 1 - u.back; i >= 0 && len(out) < sz.h; i-- {
		out = append(out, eventLine(list[i]))
	}
	if len(out) == 0 && sz.h > 0 {
		text := "none yet"
		if u.filter != "" {
			text = "none match /" + u.filter
		}
		out = append(out, rowOf(dim, "  "+text))
	}
	return out
}

func eventLine(e pipeline.Event) line {
	l := map[pipeline.Level]look{pipeline.Warn: warn, pipeline.Error: bad}[e.Level]
	text := e.Text
	if e.Count > 1 {
		text += fmt.Sprintf("  x%d", e.Count)
	}
	if e.Action != "" {
		text += "  #" + e.Action
	}
	return line{
		txt(dim, utc(e.At)+" "), txt(l, left(strings.ToUpper(clean(string(e.Level))), 6)),
		txt(plain, left(clean(e.Source), 11)+" "), txt(plain, text),
	}
}
