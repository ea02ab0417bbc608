package tui

import (
	"slices"
	"strings"
	"sync/atomic"
	"time"

	tea "charm.land/bubbletea/v2"

	"pipedeck/pipeline"
)

// model is the one Bubble Tea model: it routes messages to the parts.
type model struct {
	do     doer
	now    func() time.Time
	by     string
	size   size
	in     input
	ui     ui
	crash  *CrashError
	behind func() bool // the terminal has not taken the last frames yet
	last   string      // the last frame, shown again while it is behind or nothing is new
	fresh  bool        // last shows what is
	held   atomic.Bool // a frame was held back
	logGen int
	past   []string // lines of the palette
	// actions are the newest ones that were heard of, by node.
	actions map[string]string

	searches []string // in logs
}

var _ tea.Model = (*model)(nil)

func newModel(do doer, now func() time.Time, u ui) *model {
	u.history, u.events, u.focus, u.now = newHistory(), &eventRing{}, paneWorkers, now()
	return &model{do: do, now: now, ui: u, behind: func() bool { return false }, actions: map[string]string{}}
}

// Init asks for the first look at the Source.
func (m *model) Init() tea.Cmd {
	return m.do.safe(func() tea.Msg { return m.do.look() })
}

// Update takes one message.
func (m *model) Update(msg tea.Msg) (next tea.Model, cmd tea.Cmd) {
	defer func() {
		if v := recover(); v != nil {
			m.crash = newCrash(v)
			next, cmd = m, tea.Quit
		}
	}()
	m.ui.now, m.fresh = m.now(), false
	switch msg := msg.(type) {
	case tea.WindowSizeMsg:
		m.size = size{msg.Width, msg.Height}
	case tea.KeyPressMsg:
		return m, m.ask(m.press(keyName(msg), msg.Text))
	case tea.PasteMsg:
		m.paste(msg.Content)
	case inputMsg:
		fx := m.take(input(msg))
		return m, tea.Batch(m.ask(fx), m.do.poll())
	case tea.MouseWheelMsg:
		return m, m.ask(m.wheel(msg.Mouse()))
	case tea.MouseClickMsg:
		m.click(msg.Mouse())
	case tea.BackgroundColorMsg:
		m.ui.dark = new(msg.IsDark())
	case crashMsg:
		m.crash = msg.crash
		return m, tea.Quit
	case fromMsg:
		return m, m.do.cmd(msg.node, m.answered(msg.node, msg.msg))
	}
	return m, nil
}

// ask carries out what is asked of the node on the screen.
func (m *model) ask(fx []effect) tea.Cmd { return m.do.cmd(m.node(), fx) }

// answered takes what a node answered; what it asks for is asked of the same.
func (m *model) answered(node string, msg any) []effect {
	switch msg := msg.(type) {
	case planMsg:
		return m.planned(node, msg)
	case appliedMsg:
		return m.applied(node, msg)
	case planFilesMsg:
		m.filesListed(msg)
	case strangersMsg:
		m.strangersListed(msg)
	case actionMsg:
		return m.followed(msg)
	case logMsg:
		return m.logged(msg)
	case retriedMsg:
		return m.retried(msg.err)
	case failuresMsg:
		m.failuresListed(msg)
	case describedMsg:
		m.described(msg)
	}
	return nil
}

// View draws the screen from memory. While the terminal is slow to take what
// it was sent, the last frame stands: nothing piles up.
func (m *model) View() tea.View {
	m.held.Store(true)
	if !m.behind() || m.last == "" {
		m.held.Store(false)
		if !m.fresh {
			m.last, m.fresh = m.frame(), true
		}
	}
	v := tea.NewView(m.last)
	v.AltScreen = true
	if m.ui.mouse {
		v.MouseMode = tea.MouseModeCellMotion
	}
	return v
}

func (m *model) frame() (s string) {
	defer func() {
		if v := recover(); v != nil && m.crash == nil {
			m.crash = newCrash(v)
			s = "the console crashed: press a key"
		}
	}()
	if m.size.w == 0 {
		return "starting"
	}
	return render(m.in, &m.ui, m.size)
}

// take brings in what the Source says now.
func (m *model) take(in input) []effect {
	m.in = in
	m.expire()
	ring, looked := m.ui.events, m.ui.eventLookedAt()
	for _, n := range in.snap.Nodes {
		p := m.ui.pastOf(n.Name)
		nb := newBoard(in, m.ui.now, n.Name)
		p.history.add(nb)
		if nb.have {
			p.events.add(n)
		}
		if n.Action != nil {
			name := n.Name
			if len(in.snap.Nodes) < 2 {
				name = ""
			}
			m.actions[name] = n.Action.ID
		}
	}
	m.ui.reselectNode(in)
	m.ui.recall(in.snap)
	if m.ui.events == ring {
		m.ui.hold(looked)
	}
	b := newBoard(in, m.ui.now, m.node())
	b.arrange(&m.ui)
	m.ui.reselect(b.rows)
	var fx []effect
	for _, v := range m.ui.views {
		if w, ok := v.(watcher); ok {
			fx = append(fx, w.watch(m, b)...)
		}
	}
	return fx
}

// reselect keeps the chosen row by its identity. When it is gone, because a
// worker came to an empty GPU or left it, what is on that GPU now is chosen.
func (u *ui) reselect(rows []row) {
	at := slices.IndexFunc(rows, func(r row) bool { return r.key == u.selected })
	if at < 0 {
		at = slices.IndexFunc(rows, func(r row) bool { return r.gpu != nil && r.gpu.Index == u.selectedGPU })
	}
	if len(rows) > 0 {
		u.choose(rows[max(0, at)])
	}
}

func (u *ui) choose(r row) {
	u.selected = r.key
	if r.gpu != nil {
		u.selectedGPU = r.gpu.Index
	}
}

// watcher is a view that acts on the passing of time or on news.
type watcher interface {
	watch(m *model, b board) []effect
}

// board is what the panes show now.
func (m *model) board() board {
	b := newBoard(m.in, m.ui.now, m.node())
	if !m.ui.frozen.since.IsZero() {
		b = newBoard(m.ui.frozen.in, m.ui.frozen.since, m.node())
	}
	b.arrange(&m.ui)
	return b
}

// farewell says what goes on without the console.
func (m *model) farewell() string {
	var out strings.Builder
	for _, n := range m.in.snap.Nodes {
		if a := n.Action; a != nil && a.EndedAt == nil {
			where := ""
			if len(m.in.snap.Nodes) > 1 {
				where = " of " + n.Name
			}
			out.WriteString(clean(string(a.Verb)+" "+a.Target+" ("+a.ID+") goes on in the agent"+where) + "\n")
		}
	}
	return out.String()
}

// linked says why nothing can be asked of the agent now; "" if it can.
func (m *model) linked() string {
	link := m.in.link
	if len(m.in.snap.Nodes) > 1 {
		link = newBoard(m.in, m.ui.now, m.node()).link
	}
	if s := link.State; s == pipeline.LinkLive || s == pipeline.LinkSlow {
		return ""
	}
	return "no live link to the agent"
}

// unlocked says why actions are not available now; "" if they are.
func (m *model) unlocked() string {
	switch {
	case m.ui.lock.pinned:
		return "read-only (--read-only)"
	case m.ui.lock.on:
		return "locked, L unlocks"
	}
	return m.linked()
}
