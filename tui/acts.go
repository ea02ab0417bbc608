package tui

import (
	"strings"
	"time"

	"pipedeck/pipeline"
)

func nextPane(d int) func(*model) []effect {
	return func(m *model) []effect {
		m.ui.focus = paneID((int(m.ui.focus)-1+d+3)%3 + 1)
		return nil
	}
}

func toPane(id paneID) func(*model) []effect {
	return func(m *model) []effect { m.ui.focus = id; return nil }
}

func zoom(m *model) []effect {
	m.ui.zoom = !m.ui.zoom
	return nil
}

// scroll moves what is on top: the view, or on the board the focused pane.
func (m *model) scroll(mv move) []effect {
	page := max(1, m.size.h-4)
	if s, ok := m.ui.top().(scroller); ok {
		return s.scroll(&m.ui, mv, page)
	}
	if m.ui.top() == nil {
		m.scrollPane(mv, page/2)
	}
	return nil
}

func (m *model) scrollPane(mv move, page int) {
	if m.ui.inFleet(m.in.snap) {
		m.scrollFleet(mv, page)
		return
	}
	if m.ui.focus == paneEvents {
		m.scrollEvents(mv, page)
		return
	}
	rows := m.board().rows
	if len(rows) == 0 {
		return
	}
	at := 0
	for i, r := range rows {
		if r.key == m.ui.selected {
			at = i
		}
	}
	m.ui.choose(rows[mv.offset(at, len(rows)-1, page)])
}

// scrollEvents moves through the events; the newest is on top, so down goes
// back in time and "end" returns to the newest.
func (m *model) scrollEvents(mv move, page int) {
	last := max(0, len(shownEvents(&m.ui))-1)
	if mv == moveEnd {
		mv = moveTop // the newest
	}
	m.ui.back = mv.offset(m.ui.back, last, page)
}

// chosen returns the selected row of the workers pane.
func (m *model) chosen() (row, bool) {
	for _, r := range m.board().rows {
		if r.key == m.ui.selected {
			return r, true
		}
	}
	return row{}, false
}

func hasDetail(m *model) string {
	if m.ui.inFleet(m.in.snap) {
		return ""
	}
	if m.ui.focus == paneEvents {
		if m.ui.chosenEvent() == nil {
			return "no event is chosen"
		}
		return ""
	}
	if _, ok := m.chosen(); !ok {
		return "no row is chosen"
	}
	return ""
}

func hasWorker(m *model) string {
	if why := oneNode(m); why != "" {
		return why
	}
	if r, ok := m.chosen(); !ok || r.worker == nil {
		return "no worker is chosen"
	}
	return ""
}

func openLog(m *model) []effect {
	r, _ := m.chosen()
	return m.showLog(r.worker.ID)
}

func (m *model) showLog(worker string) []effect {
	m.logGen++
	v := newLogView(worker, m.logGen)
	m.ui.open(v)
	return []effect{v.ask(partEnd)}
}

func openHelp(m *model) []effect {
	if _, ok := m.ui.top().(*helpView); ok {
		m.ui.close()
		return nil
	}
	where := onBoard
	if v := m.ui.top(); v != nil {
		where = v.scope()
	}
	m.ui.open(newHelp(m, where))
	return nil
}

// askFilter asks for the filter of the focused pane. Each pane has its own.
func askFilter(m *model) []effect {
	pane := m.ui.focus
	set := func(m *model, text string) {
		m.ui.filters[pane] = text
		if pane == paneEvents {
			m.ui.back = 0
		}
		m.ui.reselect(m.board().rows)
	}
	m.ui.prompt = &prompt{
		label: "filter " + pane.name() + ": ", text: m.ui.filters[pane],
		live:  set,
		done:  func(m *model, text string) []effect { set(m, text); return nil },
		abort: func(m *model) { set(m, "") },
	}
	return nil
}

// copyMost bounds what is copied, in bytes: terminals drop longer texts.
const copyMost = 74_000

// copyText hands text to the terminal's clipboard.
func (m *model) copyText(what, text string) []effect {
	note := "copied " + what + " (needs a terminal that takes OSC 52)"
	if len(text) > copyMost {
		text = text[:copyMost]
		note = "copied the first 74 kB of " + what
	}
	m.ui.say(plain, note)
	return []effect{copyEffect{text}}
}

// copyChosen copies what is chosen in the focused pane.
func copyChosen(m *model) []effect {
	if m.ui.focus == paneEvents {
		e := m.ui.chosenEvent()
		if e == nil {
			m.ui.say(warn, "no event is chosen")
			return nil
		}
		return m.copyText("the event", e.At.UTC().Format(time.RFC3339)+" "+string(e.Level)+" "+e.Source+" "+eventText(*e))
	}
	b := m.board()
	if m.ui.focus == paneStore {
		return m.copyText("the S3 figures", linesText(storePane(b, &m.ui, size{100, 40})))
	}
	r, ok := m.chosen()
	if !ok {
		m.ui.say(warn, "no row is chosen")
		return nil
	}
	text := linesText([]line{workerLine(cellInput{b: b, u: &m.ui, r: r, top: 1}, columns(24, sparkMin, 9))})
	return m.copyText("the row", strings.Join(strings.Fields(text), " "))
}

// linesText is what lines say, without their looks.
func linesText(lines []line) string {
	var out strings.Builder
	for _, l := range lines {
		for _, s := range l {
			out.WriteString(s.text)
		}
		out.WriteByte('\n')
	}
	return out.String()
}

func askUploads(m *model) []effect {
	verb := pipeline.VerbPause
	if m.board().node.UploadsPaused {
		verb = pipeline.VerbResume
	}
	m.askYes(string(verb)+" uploads?", func(*model) []effect {
		return []effect{planEffect{intent: pipeline.Intent{Verb: verb}, quiet: true}}
	})
	return nil
}

func retryLink(m *model) []effect {
	if m.linked() != "" {
		m.ui.say(plain, "trying the link now")
	}
	return []effect{retryLinkEffect{}}
}

func retryFiles(m *model) []effect {
	m.ui.say(plain, "asked the agent to try failed files now")
	return []effect{retryFilesEffect{}}
}

func (m *model) retried(err error) []effect {
	if err != nil {
		m.ui.say(bad, problemText(err))
		return nil
	}
	m.ui.say(plain, "the agent tries failed files now")
	return []effect{failuresEffect{}}
}

func freeze(m *model) []effect {
	if m.ui.frozen.since.IsZero() {
		m.ui.frozen = frozen{since: m.ui.now, in: m.in}
	} else {
		m.ui.frozen = frozen{}
	}
	return nil
}

func unpinned(m *model) string {
	if m.ui.lock.pinned {
		return "locked by --read-only"
	}
	return ""
}

func toggleLock(m *model) []effect {
	m.ui.lock.on = !m.ui.lock.on
	text := "unlocked: actions are available"
	if m.ui.lock.on {
		text = "locked: no actions until L"
	}
	m.ui.say(plain, text)
	return nil
}

func nextTheme(m *model) []effect {
	m.ui.theme = m.ui.theme.next()
	m.ui.say(plain, "theme "+string(m.ui.theme))
	return nil
}

func redraw(*model) []effect  { return []effect{redrawEffect{}} }
func suspend(*model) []effect { return []effect{suspendEffect{}} }
func leave(*model) []effect   { return []effect{quitEffect{}} }

func leaveOrBack(m *model) []effect {
	if m.ui.top() == nil {
		return leave(m)
	}
	m.ui.close()
	return nil
}

func goBack(m *model) []effect {
	if m.ui.top() != nil {
		m.ui.close()
		return nil
	}
	if m.ui.filters[m.ui.focus] == "" && !m.ui.zoom && m.ui.tab != "" {
		m.showTab("") // from a node to the fleet
	}
	m.ui.filters[m.ui.focus], m.ui.zoom, m.ui.back = "", false, 0
	m.ui.note = note{}
	return nil
}

// since is the time from t to the board's now, never negative.
func (b board) since(t time.Time) float64 { return max(0, b.now.Sub(t).Seconds()) }
