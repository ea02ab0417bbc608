package tui

import (
	"strings"
	"time"
	"unicode/utf8"
)

// prompt is a question in the footer with a text field.
type prompt struct {
	label string
	text  string
	bad   string                               // why the last Enter did nothing
	live  func(m *model, text string)          // after each change; may be nil
	done  func(m *model, text string) []effect // on Enter
	abort func(m *model)                       // on Esc; may be nil
	tab   func(m *model, text string) string   // completion; may be nil
	past  []string                             // earlier entries, oldest first
	at    int                                  // position in past, counted from its end
	typed bool                                 // pasted text does not count
	until time.Time                            // no answer by then means no; zero: it waits
}

func (p *prompt) draw(w int) line {
	l := line{txt(bold, p.label), txt(plain, p.text), txt(bold, "_")}
	if p.bad != "" {
		l = append(l, txt(warn, "  "+p.bad))
	}
	return l.fit(w)
}

func (p *prompt) typeKey(m *model, name, text string) []effect {
	p.bad = ""
	switch name {
	case "esc", "ctrl+c":
		m.ui.prompt = nil
		if p.abort != nil {
			p.abort(m)
		}
		return nil
	case "enter":
		m.ui.prompt = nil
		return p.done(m, p.text)
	case "tab":
		if p.tab != nil {
			p.text = p.tab(m, p.text)
		}
	case "up", "down":
		p.recall(name)
	default:
		p.text = edit(p.text, name, text)
	}
	if p.live != nil {
		p.live(m, p.text)
	}
	return nil
}

func (p *prompt) recall(name string) {
	if name == "up" {
		p.at = min(len(p.past), p.at+1)
	} else {
		p.at = max(0, p.at-1)
	}
	p.text = ""
	if p.at > 0 {
		p.text = p.past[len(p.past)-p.at]
	}
}

func (p *prompt) paste(text string) {
	if p.typed {
		p.bad = "pasted text does not count"
		return
	}
	p.text += strings.TrimSpace(text)
}

// edit applies one key to a line of text: characters, erasing, nothing else.
func edit(s, name, text string) string {
	switch name {
	case "backspace":
		_, n := utf8.DecodeLastRuneInString(s)
		return s[:len(s)-n]
	case "ctrl+u":
		return ""
	case "ctrl+w":
		s = strings.TrimRight(s, " ")
		return s[:strings.LastIndexByte(s, ' ')+1]
	}
	if len(s) > 200 {
		return s
	}
	return s + clean(text)
}

// answerTime is how long a question or the actions menu waits for an answer.
// Then the footer, or the board, is what it was.
const answerTime = 30 * time.Second

// expire takes no answer for a no.
func (m *model) expire() {
	if p := m.ui.prompt; p != nil && !p.until.IsZero() && m.ui.now.After(p.until) {
		m.ui.prompt = nil
		m.ui.say(plain, "no answer: nothing was done")
	}
	if v, ok := m.ui.top().(*menuView); ok && m.ui.now.Sub(v.used) > answerTime {
		m.ui.close()
		m.ui.say(plain, "the actions menu was closed: no key for "+lasting(answerTime.Seconds()))
	}
}

// askYes asks for y and Enter in the footer; anything else is No.
func (m *model) askYes(question string, then func(m *model) []effect) {
	m.ui.prompt = &prompt{
		typed: true, until: m.ui.now.Add(answerTime),
		label: question + " y then Enter, Esc = no: ",
		done: func(m *model, text string) []effect {
			if text != "y" {
				m.ui.say(plain, "nothing was done")
				return nil
			}
			return then(m)
		},
		abort: func(m *model) { m.ui.say(plain, "nothing was done") },
	}
}
