package tui

import (
	"fmt"
	"time"

	"pipedeck/pipeline"
)

// filePage is how many files are asked for at once.
const filePage = 200

// fileList pages through the files that a plan touches, those that would be
// lost first, over the plan. Only one page is held.
type fileList struct {
	plan  string
	top   int // of all files
	shown int // lines on the screen
	page  *pipeline.PlanFiles
	asked int // offset of the page asked for
	err   string
}

func (l *fileList) ask() []effect {
	l.asked = max(0, l.top-filePage/4)
	return []effect{planFilesEffect{plan: l.plan, offset: l.asked, limit: filePage}}
}

// renew goes on with the files of the plan that took the other's place.
func (l *fileList) renew(p pipeline.Plan) []effect {
	l.plan = p.ID
	return l.ask()
}

// filesListed takes a page.
func (m *model) filesListed(msg planFilesMsg) {
	v, ok := m.ui.top().(*planView)
	if !ok || v.files == nil || v.files.plan != msg.plan || v.files.asked != msg.offset {
		return
	}
	v.files.err = ""
	if msg.err != nil {
		v.files.err = problemText(msg.err)
		return
	}
	v.files.page = &msg.files
	v.files.top = max(0, min(v.files.top, int(msg.files.Total)-1))
}

func (l *fileList) typeKey(v *planView, name string) []effect {
	moves := map[string]move{
		"down": moveDown, "j": moveDown, "up": moveUp, "k": moveUp, "pgdown": movePageDown, "ctrl+d": movePageDown,
		"pgup": movePageUp, "ctrl+u": movePageUp, "g": moveTop, "home": moveTop, "G": moveEnd, "end": moveEnd,
	}
	switch mv, ok := moves[name]; {
	case name == "esc" || name == "q":
		v.files, v.at, v.drawn = nil, toField, time.Time{} // the field is new on the screen again
		return nil
	case ok && l.page != nil:
		l.top = mv.offset(l.top, max(0, int(l.page.Total)-max(1, l.shown)), max(1, l.shown-1))
		if !l.holds(l.top, max(1, l.shown)) {
			return l.ask()
		}
	}
	return nil
}

// holds says whether the page has the n files from a place on.
func (l *fileList) holds(at, n int) bool {
	first := int(l.page.Offset)
	end := first + len(l.page.Files)
	return at >= first && min(at+n, int(l.page.Total)) <= end
}

func (l *fileList) draw(v *planView, sz size) []line {
	p := v.plan
	lost := count(p.Loss.LostFiles) + " would be lost"
	out := []line{bar(sz.w, []part{
		{span: txt(ident, planTitle(fmt.Sprintf("files of %s %s", p.Action, p.Target), p, sz.w-width(lost)-2))},
		{span: txt(bad, lost), right: true}, // whole, whatever the width
	})}
	if l.err != "" {
		out = append(out, hanging(bad, "cannot list the files: "+l.err, "    ", sz.w)...)
	}
	if l.page == nil {
		return append(out, rowOf(dim, "asking the agent"))
	}
	l.shown = max(1, sz.h-len(out)-3)
	out = append(out, rowOf(dim, "  "+left("S3", 14)+right("SIZE", 10)+"  FILE"))
	for i := l.top; i < min(l.top+l.shown, int(l.page.Total)); i++ {
		at := i - int(l.page.Offset)
		if at < 0 || at >= len(l.page.Files) {
			out = append(out, rowOf(dim, "  ..."))
			continue
		}
		f := l.page.Files[at]
		k, mark := plain, "  "
		if f.Lost() {
			k, mark = bad, "X "
		}
		out = append(out, line{
			txt(k, mark+left(classWord(f.Class), 14)), txt(plain, right(bytesText(f.ID.Size), 10)+"  "),
			txt(plain, cutFront(clean(f.Root+"/"+f.Path), sz.w-28)),
		})
	}
	for len(out) < sz.h-1 {
		out = append(out, nil)
	}
	last := min(l.top+l.shown, int(l.page.Total))
	return append(out, bar(sz.w, []part{
		{span: txt(dim, fmt.Sprintf("%s to %s of %s, X: would be lost",
			count(int64(min(l.top+1, last))), count(int64(last)), counted(l.page.Total, "file", "files")))},
		{span: txt(dim, "PgUp PgDn g G"), drop: 2},
		{span: txt(dim, "Esc: back to the plan"), drop: 1},
	}))
}

func classWord(c pipeline.FileClass) string {
	switch c {
	case pipeline.ClassProven:
		return "proven"
	case pipeline.ClassUnproven:
		return "not proven"
	case pipeline.ClassMismatched:
		return "other content"
	case pipeline.ClassMissing:
		return "not in S3"
	case pipeline.ClassBeingWritten:
		return "being written"
	case pipeline.ClassOther:
		return "scratch"
	case pipeline.ClassUnknown:
	}
	return "unknown"
}

// cutFront shortens a path at its front: the name is what matters.
func cutFront(s string, w int) string {
	if width(s) <= w {
		return s
	}
	return "<" + tail(s, max(1, w-1))
}
