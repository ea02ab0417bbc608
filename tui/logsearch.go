package tui

import (
	"bytes"
	"strings"

	"pipedeck/pipeline"
)

// searchPage is how much of a log one request of a search reads, in bytes.
const searchPage = 2 << 20

// logSearch is a search through a whole log: first what is in memory, then the
// file page by page.
type logSearch struct {
	text  string
	dir   int // -1 towards the beginning, 1 towards the end
	hit   int // index of the line found last, -1 none
	place string
	read  int64 // bytes of the file looked through
}

func (s logSearch) matches(line string) bool {
	return s.text != "" && strings.Contains(strings.ToLower(line), strings.ToLower(s.text))
}

func (s logSearch) status(busy bool) string {
	if s.text == "" {
		return ""
	}
	if busy {
		return "/" + s.text + "  searching, " + bytesText(s.read)
	}
	return "/" + s.text
}

func askSearch(m *model) []effect {
	return onLog(func(m *model, v *logView) []effect {
		m.ui.prompt = &prompt{
			label: "search: ", past: m.searches,
			done: func(m *model, text string) []effect {
				v.search = logSearch{text: text, hit: v.at + 1}
				if text == "" {
					return nil
				}
				m.searches = append(m.searches, text)
				return v.seek(m, -1)
			},
		}
		return nil
	})(m)
}

func nextMatch(dir int) func(*model) []effect {
	return onLog(func(m *model, v *logView) []effect { return v.seek(m, dir) })
}

// seek moves to the next line that contains the search text, if need be with
// the help of the file.
func (v *logView) seek(m *model, dir int) []effect {
	if v.search.text == "" {
		return nil
	}
	v.search.dir = dir
	for i := v.search.hit + dir; i >= 0 && i < v.text.count(); i += dir {
		if v.search.matches(v.text.line(i).text) {
			return v.found(i)
		}
	}
	if dir < 0 && v.text.first || dir > 0 && v.text.live || len(v.text.pages) == 0 {
		v.noMatch(m)
		return nil
	}
	v.search.place, v.search.read = v.text.pages[0].start, 0
	if dir > 0 {
		v.search.place = v.text.pages[len(v.text.pages)-1].end
	}
	return []effect{v.ask(partSearch)}
}

func (v *logView) noMatch(m *model) {
	where := "above"
	if v.search.dir > 0 {
		where = "below"
	}
	m.ui.say(plain, "no match for "+v.search.text+" "+where)
}

// found shows a line with some lines below it.
func (v *logView) found(i int) []effect {
	v.search.hit = i
	v.at = min(v.text.last(), max(i+v.h/2, v.h-1))
	v.follow = v.text.live && v.at == v.text.last()
	return v.more()
}

// searched looks through one page of the file. A page with a match is shown;
// else the search goes on with the next one.
func (v *logView) searched(m *model, c pipeline.LogChunk) []effect {
	v.search.read += int64(len(c.Data))
	end := c.First
	if v.search.dir < 0 {
		v.search.place = c.Start
	} else {
		c.Start, v.search.place, end = v.search.place, c.Cursor, c.EOF
	}
	if bytes.Contains(bytes.ToLower(c.Data), bytes.ToLower([]byte(v.search.text))) {
		old, at, hit := v.text, v.at, v.search.hit
		v.text.reset(c, false)
		v.search.hit = v.text.count()
		if v.search.dir > 0 {
			v.search.hit = -1
		}
		for i := v.search.hit + v.search.dir; i >= 0 && i < v.text.count(); i += v.search.dir {
			if v.search.matches(v.text.line(i).text) {
				v.follow = false
				return v.found(i)
			}
		}
		v.text, v.at, v.search.hit = old, at, hit // it was in what is not shown, such as control sequences
	}
	if end {
		v.noMatch(m)
		return nil
	}
	return []effect{v.ask(partSearch)}
}
