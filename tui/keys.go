package tui

import (
	"slices"
	"strings"

	tea "charm.land/bubbletea/v2"
)

// scope says where a key works. A view has one scope; the board has its own.
type scope string

const (
	anywhere   scope = "anywhere"
	onBoard    scope = "board"
	inView     scope = "views" // any view without a text field
	inLog      scope = "log"
	inFailures scope = "failures"
	inHelp     scope = "help"
	inMenu     scope = "actions menu"
	inPlan     scope = "plan"
	inAction   scope = "action"
	// inStrangers lists processes that are no workers.
	inStrangers scope = "processes"
)

// binding is one row of the key table, from which key handling, the footer,
// the help screen and the documentation are made.
type binding struct {
	id      string   // its name in a key file
	keys    []string // names as Bubble Tea writes them; the first ones are shown
	name    string   // the word in the footer
	help    string
	scope   scope
	footer  int                     // place in the footer from 1; 0 is not there
	enabled func(m *model) string   // why it is not available now; nil or "" is available
	act     func(m *model) []effect // nil: handled by the view's text field
}

func (b binding) reason(m *model) string {
	if b.enabled == nil {
		return ""
	}
	return b.enabled(m)
}

// bindings is the key table as it is without a key file. Nothing in it
// destroys anything: what stops or removes something is reached through the
// actions menu and the palette, and from there only through a plan.
func bindings() []binding {
	return slices.Concat(boardKeys(), moveKeys(), viewKeys(), generalKeys())
}

func boardKeys() []binding {
	return []binding{
		{"next-pane", []string{"tab"}, "pane", "next pane", onBoard, 6, nil, nextPane(1)},
		{"previous-pane", []string{"shift+tab"}, "", "previous pane", onBoard, 0, nil, nextPane(-1)},
		{"workers", []string{"1"}, "", "the workers pane", onBoard, 0, nil, toPane(paneWorkers)},
		{"s3", []string{"2"}, "", "the S3 pane", onBoard, 0, nil, toPane(paneStore)},
		{"events", []string{"3"}, "", "the events pane", onBoard, 0, nil, toPane(paneEvents)},
		{"next-node", []string{"n"}, "node", "several nodes: the next one; the fleet shows all of them, the worst first", onBoard, 2, manyNodes, nextTab(1)},
		{"previous-node", []string{"N"}, "", "several nodes: the previous one", onBoard, 0, manyNodes, nextTab(-1)},
		{"detail", []string{"enter"}, "detail", "detail of the chosen worker or GPU; the whole text of the chosen event", onBoard, 7, hasDetail, openDetail},
		{"logs", []string{"l"}, "logs", "log of the chosen worker", onBoard, 5, hasWorker, openLog},
		{"failures", []string{"e"}, "failures", "failed and quarantined files, errors", onBoard, 9, nil, openFailures},
		{"action", []string{"a"}, "", "follow the running action, or the last one", onBoard, 0, hasAction, openAction},
		{"filter", []string{"/"}, "filter", "filter the pane; Esc clears", onBoard, 4, nil, askFilter},
		{"sort", []string{"s"}, "", "sort the workers by the next column", onBoard, 0, nil, nextSort},
		{"reverse", []string{"S"}, "", "reverse the order of the workers", onBoard, 0, nil, reverseSort},
		{"zoom", []string{"+", "-", "_"}, "", "zoom the pane in or out", onBoard, 0, nil, zoom},
		{"copy", []string{"y"}, "", "copy the chosen row or event as text (OSC 52)", onBoard, 0, nil, copyChosen},
		{"uploads", []string{"p"}, "uploads", "pause or resume uploads (asks: y, then Enter)", onBoard, 8, (*model).acting, askUploads},
	}
}

func moveKeys() []binding {
	m := func(mv move) func(*model) []effect {
		return func(m *model) []effect { return m.scroll(mv) }
	}
	return []binding{
		{"down", []string{"j", "down"}, "", "down", anywhere, 0, nil, m(moveDown)},
		{"up", []string{"k", "up"}, "", "up", anywhere, 0, nil, m(moveUp)},
		{"page-down", []string{"ctrl+d", "pgdown"}, "", "a page down (it only ever scrolls)", anywhere, 0, nil, m(movePageDown)},
		{"page-up", []string{"ctrl+u", "pgup"}, "", "a page up", anywhere, 0, nil, m(movePageUp)},
		{"top", []string{"g", "home"}, "", "to the top", anywhere, 0, nil, m(moveTop)},
		{"end", []string{"G", "end"}, "", "to the end; in a log or the events: the newest", anywhere, 0, nil, m(moveEnd)},
	}
}

func viewKeys() []binding {
	return []binding{
		{"log-follow", []string{"f"}, "follow", "follow the log or stop following", inLog, 1, nil, toggleFollow},
		{"log-wrap", []string{"w"}, "wrap", "wrap long lines or cut them", inLog, 2, nil, toggleWrap},
		{"log-search", []string{"/"}, "search", "search the whole log; n and N go on", inLog, 3, nil, askSearch},
		{"log-older", []string{"n"}, "", "next match towards the beginning", inLog, 0, nil, nextMatch(-1)},
		{"log-newer", []string{"N"}, "", "next match towards the end", inLog, 0, nil, nextMatch(1)},
		{"log-time", []string{"t"}, "time", "times in a column: the line's own, else when it arrived", inLog, 4, nil, toggleTime},
		{"log-copy", []string{"y"}, "copy", "copy the lines on the screen (OSC 52)", inLog, 5, nil, copyLog},
		{"help-filter", []string{"/"}, "filter", "filter the keys", inHelp, 1, nil, filterHelp},
		{"action-next", []string{"enter"}, "next", "after a settle that was offered as safer: the plan it was offered for", inAction, 0, hasNext, planNext},
		{"action-evidence", []string{"v"}, "evidence", "all evidence of each step, or only of what is not verified", inAction, 1, nil, toggleEvidence},
		{"strangers-again", []string{"t"}, "again", "look at the processes again", inStrangers, 1, nil, askStrangers},
		{"failures-retry", []string{"t"}, "try now", "try failed files again now", inFailures, 1, (*model).unlocked, retryFiles},
		{"failures-filter", []string{"/"}, "filter", "filter the files", inFailures, 2, nil, filterFailures},
		{"failures-whole", []string{"enter"}, "whole", "the whole text of the chosen file's trouble", inFailures, 3, nil, openFailure},
		{"failures-copy", []string{"y"}, "copy", "copy the chosen path (OSC 52)", inFailures, 4, nil, copyFailure},
	}
}

func generalKeys() []binding {
	return []binding{
		{"help", []string{"?"}, "help", "these keys", anywhere, 1, nil, openHelp},
		{"command", []string{":"}, "command", "command palette (Tab completes)", anywhere, 3, nil, openPalette},
		{"actions", []string{"!"}, "actions", "actions: start, stop, restart, pause", anywhere, 2, nil, openMenu},
		{"retry", []string{"r"}, "", "try the link again now", anywhere, 0, nil, retryLink},
		{"freeze", []string{"space"}, "", "freeze the display or let it go; data go on", anywhere, 0, nil, freeze},
		{"lock", []string{"L"}, "", "lock (read-only) or unlock", anywhere, 0, unpinned, toggleLock},
		{"mouse", []string{"m"}, "", "mouse on or off: the wheel scrolls, a click chooses a row", anywhere, 0, nil, toggleMouse},
		{"theme", []string{"T"}, "", "theme: auto, dark, light, mono", anywhere, 0, nil, nextTheme},
		{"redraw", []string{"ctrl+l"}, "", "draw the screen anew", anywhere, 0, nil, redraw},
		{"suspend", []string{"ctrl+z"}, "", "suspend; fg comes back", anywhere, 0, nil, suspend},
		{"back", []string{"esc"}, "back", "back; on the board: clear filter and zoom", anywhere, 0, nil, goBack},
		{"quit", []string{"q"}, "quit", "close the view; on the board: leave the console, everything goes on", anywhere, 10, nil, leaveOrBack},
		{"leave", []string{"ctrl+c"}, "", "leave the console, everything goes on", anywhere, 0, nil, leave},
	}
}

// press handles one key: an open text field first, then the table.
func (m *model) press(name, text string) []effect {
	if m.crash != nil {
		return []effect{quitEffect{}}
	}
	if m.ui.prompt != nil {
		return m.ui.prompt.typeKey(m, name, text)
	}
	top := m.ui.top()
	if t, ok := top.(typist); ok && name != "ctrl+c" && name != "ctrl+z" {
		return t.typeKey(m, name, text)
	}
	where := onBoard
	if top != nil {
		where = top.scope()
	}
	b, ok := lookup(m.ui.table(), where, name)
	if !ok {
		return nil
	}
	if why := b.reason(m); why != "" {
		m.ui.say(warn, name+": "+why)
		return nil
	}
	return b.act(m)
}

// lookup finds what a key does in a scope: its own binding, else the one that
// works anywhere.
func lookup(table []binding, where scope, key string) (binding, bool) {
	var general binding
	found := false
	for _, b := range table {
		if b.act == nil || !slices.Contains(b.keys, key) {
			continue
		}
		if b.scope == where {
			return b, true
		}
		if b.scope == anywhere {
			general, found = b, true
		}
	}
	return general, found
}

// keyName is the name of a key as the table writes it.
func keyName(k tea.KeyPressMsg) string { return k.String() }

// paste takes pasted text. It never presses a key; a text field that
// confirms refuses it.
func (m *model) paste(text string) {
	text = clean(text)
	if m.ui.prompt != nil {
		m.ui.prompt.paste(text)
		return
	}
	if p, ok := m.ui.top().(interface{ paste(string) }); ok {
		p.paste(text)
	}
}

// KeyDoc is one row of the key table as documentation.
type KeyDoc struct {
	ID    string // its name in a key file
	Keys  []string
	Where string
	Name  string // the word in the footer; may be empty
	Help  string
}

// KeyTable returns the key table, from which the console's own help is made.
func KeyTable() []KeyDoc {
	table := bindings()
	out := make([]KeyDoc, 0, len(table))
	for _, b := range table {
		out = append(out, KeyDoc{ID: b.id, Keys: b.keys, Where: string(b.scope), Name: b.name, Help: b.help})
	}
	return out
}

// KeysMarkdown renders the key table for the documentation.
func KeysMarkdown() string {
	var b strings.Builder
	b.WriteString("| key | where | does | name |\n| --- | --- | --- | --- |\n")
	for _, k := range KeyTable() {
		keys := make([]string, len(k.Keys))
		for i, s := range k.Keys {
			keys[i] = "`" + showKey(s) + "`"
		}
		b.WriteString("| " + strings.Join(keys, " ") + " | " + k.Where + " | " + strings.ReplaceAll(k.Help, "|", "\\|") + " | `" + k.ID + "` |\n")
	}
	return b.String()
}

// showKey writes a key's name as keyboards do.
func showKey(s string) string {
	switch s {
	case "tab", "enter", "esc", "home", "end", "up", "down", "space":
		return strings.ToUpper(s[:1]) + s[1:]
	case "pgdown":
		return "PgDn"
	case "pgup":
		return "PgUp"
	case "shift+tab":
		return "Shift+Tab"
	}
	return strings.ReplaceAll(s, "ctrl+", "ctrl-")
}
