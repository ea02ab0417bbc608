package tui

import (
	"time"

	"pipedeck/pipeline"
)

// input is what the Source said last.
type input struct {
	snap    pipeline.Snapshot
	link    pipeline.Link
	ok      bool
	retryIn time.Duration
	each    map[string]contact // of several nodes: by name
}

// contact is what is known of the link to one of several nodes, and how that
// node is by its own account.
type contact struct {
	ok      bool // a snapshot of it has arrived
	retryIn time.Duration
	at      time.Time
	health  pipeline.Health
	reasons []string
}

// paneID names a pane of the board; it is also its number on the keyboard.
type paneID int

const (
	paneWorkers paneID = 1
	paneStore   paneID = 2
	paneEvents  paneID = 3
)

func (p paneID) name() string { return [...]string{"", "workers", "outputs", "events"}[p] }

// ui is everything on the console's side that a frame depends on.
type ui struct {
	now         time.Time
	theme       Theme
	ascii       bool
	focus       paneID
	zoom        bool
	selected    string // key of the chosen row of the workers pane
	selectedGPU int    // the GPU it was on last
	lock        lock
	frozen      frozen
	note        note
	prompt      *prompt
	filters     [paneEvents + 1]string // by pane: shows only what contains it
	order       order                  // of the workers
	back        int                    // events scrolled back from the newest
	mouse       bool
	keymap      KeyMap
	dark        *bool // what the terminal said of its background; nil: nothing
	history     *history
	events      *eventRing
	views       []view // opened over the board, the last on top
	nodes
}

// nodes is the part of the state that only a deck of several nodes needs.
type nodes struct {
	tab     string          // the node that is shown; "" or unknown: the fleet
	fleetAt string          // the node chosen in the fleet
	pasts   map[string]past // by node
}

// lock keeps actions unavailable; a pinned one cannot be opened by a key.
type lock struct{ on, pinned bool }

// frozen is a display held still. Data goes on behind it.
type frozen struct {
	since time.Time // zero: not frozen
	in    input
}

// note is a short message in the footer. It is never the only place of an
// error.
type note struct {
	text  string
	look  look
	until time.Time
}

// view is a screen over the board.
type view interface {
	// draw returns at most sz.h lines. It makes no calls.
	draw(b board, u *ui, sz size) []line
	// scope says which keys of the table work in it.
	scope() scope
}

// scroller is a view that can be scrolled. Moving by a page is moving by many.
type scroller interface {
	scroll(u *ui, m move, page int) []effect
}

// move is a motion by the motion keys.
type move int

const (
	moveUp move = iota
	moveDown
	movePageUp
	movePageDown
	moveTop
	moveEnd
)

// offset applies a motion to a position in [0, last].
func (m move) offset(at, last, page int) int {
	switch m {
	case moveUp:
		at--
	case moveDown:
		at++
	case movePageUp:
		at -= max(1, page)
	case movePageDown:
		at += max(1, page)
	case moveTop:
		at = 0
	case moveEnd:
		at = last
	}
	return max(0, min(at, last))
}

// typist is a view or prompt with a text field: keys are text there.
type typist interface {
	// typeKey handles one key press: its name and the text it stands for.
	typeKey(m *model, name, text string) []effect
}

// top returns the view on top, or nil on the board.
func (u *ui) top() view {
	if len(u.views) == 0 {
		return nil
	}
	return u.views[len(u.views)-1]
}

func (u *ui) open(v view) { u.views = append(u.views, v) }

func (u *ui) close() {
	if len(u.views) > 0 {
		u.views = u.views[:len(u.views)-1]
	}
}

func (u *ui) say(l look, text string) {
	u.note = note{text: text, look: l, until: u.now.Add(noteTime)}
}

// noteTime is how long a note takes the footer.
const noteTime = 4 * time.Second
