package tui

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"pipedeck/pipeline"
)

// stepLeast is how many lines the steps keep when the screen is short: they
// can be scrolled, the counts cannot.
const stepLeast = 2

// stepRoom is for how many steps the rest is made shorter.
const stepRoom = 4

// fits says whether the screen shows every count of the plan.
func (v *planView) fits(sz size) bool {
	return sz.w >= confirmW && sz.h+1 >= confirmH && v.fixed(sz, v.got).height()+stepLeast <= sz.h
}

// planParts is the plan on the screen, from top to bottom; the steps come
// after the head.
type planParts struct {
	head, loss, foot []line
}

func (p planParts) height() int { return len(p.head) + len(p.loss) + len(p.foot) }

// fixed are the parts of the plan that are always whole. On a short screen
// they take fewer lines; nothing less is said of what would be lost.
func (v *planView) fixed(sz size, now time.Time) planParts {
	parts := v.parts(sz.w, now, true)
	steps, notes := len(v.plan.Steps)+len(v.plan.Blocked), v.plan.Notes
	if parts.height()+min(stepRoom, steps)+min(1, len(notes)) > sz.h {
		parts = v.parts(sz.w, now, false)
	}
	parts.loss = append(parts.loss, noteLines(notes, sz.w, max(1, sz.h-parts.height()-min(2*stepRoom, steps)))...)
	return parts
}

// noteLines are the notes in at most so many lines: whole if there is room,
// else cut, and what is left out is counted.
func noteLines(notes []string, w, room int) []line {
	var whole, short []line
	for _, n := range notes {
		for i, part := range wrap(clean(n), w-2) {
			whole = append(whole, rowOf(warn, map[bool]string{true: "! ", false: "  "}[i == 0]+part))
		}
		short = append(short, rowOf(warn, cut("! "+clean(n), w)))
	}
	switch {
	case len(whole) <= room:
		return whole
	case len(short) <= room:
		return short
	}
	last := fmt.Sprintf("! %s (and %d more)", cut(clean(notes[room-1]), w-20), len(notes)-room)
	return append(short[:room-1:room-1], rowOf(warn, cut(last, w)))
}

func (v *planView) parts(w int, now time.Time, long bool) planParts {
	p := v.plan
	seen := now.Sub(v.got)
	if at := p.Store.CheckedAt; at != nil {
		seen += max(0, p.MadeAt.Sub(*at))
	}
	age := "checked " + lasting(max(0, seen.Seconds())) + " ago"
	if v.renewing {
		age = "checking again"
	}
	parts := planParts{head: []line{
		bar(w, []part{
			{span: txt(ident, planTitle(strings.TrimSpace(planName(p)+" "+p.Target), p, w))},
			{span: txt(plain, age), right: true, drop: 1},
			{span: txt(plain, "Esc = no"), right: true, drop: 2},
		}),
		rowOf(dim, strings.Repeat("=", w)),
	}}
	if long {
		parts.head = append(parts.head, rowOf(bold, "What will happen"))
		parts.loss = append(parts.loss, nil)
	}
	parts.loss = append(parts.loss, lossLines(p, w, long)...)
	parts.foot = v.footLines(w)
	return parts
}

// planTitle names the plan's deck and node. Where that is too long the deck's
// name is cut: the text to type has it whole.
func planTitle(what string, p pipeline.Plan, w int) string {
	over := width(clean(what+p.Deck+p.Node)) + len(" :  @  ") - w
	deck := clean(p.Deck)
	if over > 0 {
		deck = cut(deck, max(8, width(deck)-over))
	}
	return fmt.Sprintf(" %s: %s @ %s ", clean(what), deck, clean(p.Node))
}

// planName is the verb, with what it makes of it.
func planName(p pipeline.Plan) string {
	name := strings.ToUpper(string(p.Action))
	switch {
	case p.Intent.Scratch:
		name += " SCRATCH OF"
	case p.Intent.ProvenOnly:
		name += " PROVEN FILES OF"
	case p.Action == pipeline.VerbPivot && p.Intent.Leave != "":
		name += " (" + string(p.Intent.Leave) + ") TO"
	}
	return name
}

func (v *planView) draw(_ board, u *ui, sz size) []line {
	if v.files != nil {
		return v.files.draw(v, sz)
	}
	parts := v.fixed(sz, u.now)
	if !v.fits(sz) {
		return v.refuse(sz, parts)
	}
	if v.drawn.IsZero() {
		v.drawn = u.now
	}
	out := append(parts.head, v.steps(size{sz.w, sz.h - parts.height()})...)
	out = append(out, parts.loss...)
	for len(out) < sz.h-len(parts.foot) {
		out = append(out, nil)
	}
	return append(out, parts.foot...)
}

// refuse says that nothing can be confirmed on a screen that would hide counts.
func (v *planView) refuse(sz size, parts planParts) []line {
	h := max(confirmH, parts.height()+stepLeast+1)
	return []line{
		parts.head[0], rowOf(bad, cut(fmt.Sprintf("too small to confirm a plan: need %dx%d", confirmW, h), sz.w)),
		rowOf(plain, "Nothing will be done."), rowOf(plain, "Enlarge the window or press Esc."),
	}
}

// steps draws the steps, with their proofs if there is room, and scrolls them
// if there is not.
func (v *planView) steps(sz size) []line {
	out := stepLines(v.plan, sz.w, true)
	if len(out) > sz.h {
		out = stepLines(v.plan, sz.w, false)
	}
	if len(out) > sz.h && sz.w >= 2*confirmW {
		out = twoColumns(stepLines(v.plan, (sz.w-2)/2, false), sz.w)
	}
	if len(out) <= sz.h {
		return out
	}
	v.top = max(0, min(v.top, len(out)-sz.h+1))
	last := min(len(out), v.top+sz.h-1)
	more := rowOf(accent, fmt.Sprintf("    %d to %d of %s, PgUp PgDn", v.top+1, last, counted(int64(len(out)), "line", "lines")))
	return append(append([]line{}, out[v.top:last]...), more)
}

// hanging is a text over as many lines as it takes, those after the first one
// indented.
func hanging(k look, text, indent string, w int) []line {
	var out []line
	for i, part := range wrap(text, w-len(indent)) {
		if i > 0 {
			part = indent + part
		}
		out = append(out, rowOf(k, part))
	}
	return out
}

func twoColumns(l []line, w int) []line {
	h := (len(l) + 1) / 2
	return beside(l[:h], (w-2)/2, 2, l[h:], (w-2)/2)
}

func stepLines(p pipeline.Plan, w int, proofs bool) []line {
	var out []line
	for _, why := range p.Blocked {
		for _, part := range wrap("cannot be executed: "+why, w) {
			out = append(out, rowOf(bad, part))
		}
	}
	for _, s := range p.Steps {
		text := fmt.Sprintf("%2d. %s %s", s.N, strings.ReplaceAll(string(s.Kind), "_", " "), strings.Join(s.On, " "))
		if s.TimeoutSeconds > 0 {
			text += fmt.Sprintf(" (up to %s)", lasting(s.TimeoutSeconds))
		}
		out = append(out, hanging(plain, text, "    ", w)...)
		if proofs && s.Proof != "" {
			out = append(out, hanging(dim, "    proof: "+s.Proof, "           ", w)...)
		}
	}
	return out
}

// footLines ask for the text, or say why nothing is asked.
func (v *planView) footLines(w int) []line {
	rule := rowOf(dim, strings.Repeat("=", w))
	out := []line{rule}
	switch {
	case v.plan.Checking != nil:
		out = append(out, rowOf(bold, "Nothing can be confirmed until this is known. Esc = no."))
	case !v.plan.Executable:
		out = append(out, rowOf(bad, "This plan cannot be executed. Esc goes back."))
	default:
		for _, s := range wrap(ask(v.plan), w) {
			out = append(out, rowOf(bold, s))
		}
		field := []span{txt(plain, "  > "), txt(bold, tail(v.typed, w-6)), txt(bold, "_")}
		if v.at != toField {
			field[2] = txt(plain, " ")
		}
		out = append(out, field)
	}
	return append(out, rowOf(warn, cut(v.note, w)), v.choiceLine(w))
}

// ask says what to type. Where files are lost, their number is not spelled out
// here: it must be read above.
func ask(p pipeline.Plan) string {
	c := deref(p.Confirm)
	_, name, ok := strings.Cut(c, " ")
	switch {
	case p.Confirm == nil:
		return "To do it, press Enter."
	case p.Loss.LostFiles > 0 && ok && strings.HasPrefix(c, strconv.FormatInt(p.Loss.LostFiles, 10)+" "):
		return "To do it, type how many files will be lost (without commas), then " + name + ":"
	}
	return "To do it, type exactly:  " + c
}

// tail is the end of a text that is longer than its field.
func tail(s string, w int) string {
	r := []rune(s)
	for len(r) > 0 && width(string(r)) > w {
		r = r[1:]
	}
	return string(r)
}

func (v *planView) choiceLine(w int) line {
	names := map[choice]string{toRenew: "count again", toFiles: "list of files", toField: "confirm"}
	if w < 2*len("  [list of files]")+2*len("  [settle first]") {
		names[toFiles] = "files"
	}
	if s := v.plan.Safer; s != nil {
		names[toSafer] = string(s.Action) + " first"
	}
	parts := []part{{span: txt(dim, "Tab:")}}
	for _, c := range v.choices() {
		k := plain
		if c == v.at {
			k = chosen
		}
		parts = append(parts, part{span: txt(k, "["+names[c]+"]")})
	}
	return bar(w, append(parts, part{span: txt(dim, "Enter does only what is marked"), right: true, drop: 1}))
}
