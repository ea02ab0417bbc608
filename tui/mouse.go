package tui

import tea "charm.land/bubbletea/v2"

func toggleMouse(m *model) []effect {
	m.ui.mouse = !m.ui.mouse
	text := "mouse off: the terminal selects text again"
	if m.ui.mouse {
		text = "mouse on: wheel scrolls, click chooses; m gives it back to the terminal"
	}
	m.ui.say(plain, text)
	return nil
}

// wheelLines is how far one notch of the wheel scrolls.
const wheelLines = 3

func (m *model) wheel(e tea.Mouse) []effect {
	mv := moveDown
	if e.Button == tea.MouseWheelUp {
		mv = moveUp
	}
	if e.Button != tea.MouseWheelUp && e.Button != tea.MouseWheelDown || m.ui.prompt != nil {
		return nil
	}
	var fx []effect
	for range wheelLines {
		fx = append(fx, m.scroll(mv)...)
	}
	return fx
}

// click chooses the row of the workers pane that was clicked. It never does
// more: no action is a click away.
func (m *model) click(e tea.Mouse) {
	if e.Button != tea.MouseLeft || m.ui.top() != nil || m.ui.prompt != nil || m.size.w < floorW || m.size.h < floorH || m.ui.inFleet(m.in.snap) {
		return
	}
	b := m.board()
	first, rows := workersPlace(b, &m.ui, size{m.size.w, m.size.h - 1})
	if i := e.Y - first; i >= 0 && i < len(rows) {
		m.ui.focus = paneWorkers
		m.ui.choose(rows[i])
	}
}
