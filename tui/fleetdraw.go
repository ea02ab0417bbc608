package tui

import (
	"cmp"
	"fmt"
	"slices"

	"pipedeck/pipeline"
)

// fleetColumns are the figures of a node. Higher drop goes first.
func fleetColumns() []fleetColumn {
	f := func(stale bool, v *int64) string { return old(stale, opt(v, count)) }
	return []fleetColumn{
		{"NODE", 12, false, 0, func(b board, _ totals) string { return b.node.Name }},
		{"STATE", 10, false, 0, func(b board, _ totals) string { return b.state() }},
		{"LINK", 12, false, 5, func(b board, _ totals) string { return linkSpan(b, true).text }},
		{"WORKERS", 8, true, 2, func(b board, _ totals) string { return b.alive() }},
		{"SAMPLES/S", 9, true, 1, func(b board, _ totals) string { return rateOrNone(b, b.rate()) }},
		{"QUEUE", 9, true, 3, func(b board, t totals) string {
			if b.unheard() {
				return none
			}
			return old(b.stale, count(t.waiting))
		}},
		{"NOT PROVEN", 10, true, 0, func(b board, t totals) string { return f(b.stale, t.notProven) }},
		{"FAILED", 8, true, 4, func(b board, t totals) string { return f(b.stale, t.failed) }},
		{"UPLOAD", 11, true, 6, func(b board, t totals) string { return bytesRate(b, t.bytes) }},
		{"DISK", 24, false, 7, func(b board, _ totals) string { return diskText(b) }},
	}
}

type fleetColumn struct {
	title string
	w     int
	flush bool
	drop  int
	cell  func(b board, t totals) string
}

func (c fleetColumn) text(s string) string {
	if c.flush {
		return right(clean(s), c.w)
	}
	return left(clean(s), c.w)
}

// drawFleet shows a row a node, the worst first, what they add up to, and the
// events of all.
func drawFleet(in input, bs []board, u *ui, sz size) []line {
	b := bs[0]
	out := []line{fleetHeader(in, bs, u, sz.w), tabs(bs, u, sz.w)}
	for _, n := range worstFirst(bs) {
		if n.stale && len(out) < sz.h/4 {
			out = append(out, rowOf(bad, left(clean(n.lostLine()), sz.w)))
		}
	}
	for _, n := range bs {
		if a := n.node.Action; a != nil && a.EndedAt == nil {
			out = append(out, rowOf(accent, left(clean(fmt.Sprintf("ACTION on %s: %s %s by %s: %s", n.node.Name, a.Verb, a.Target, a.By, actionStep(*a))), sz.w)))
		}
	}
	for _, s := range b.node.Stages {
		if p, ok := fleetProgress(bs, s.Name); ok && len(out) < sz.h/3 {
			out = append(out, p.line(b, sz.w))
		}
	}
	cols := columnsWithin(sz.w)
	title := line{span{text: "  "}}
	for _, c := range cols {
		title = append(title, txt(dim, c.text(c.title)+" "))
	}
	out = append(out, title)
	rows := worstFirst(bs)
	room := max(1, sz.h-len(out)-3)
	for _, n := range rows[:min(len(rows), room)] {
		out = append(out, fleetRow(n, u, cols, sz.w))
	}
	if more := len(rows) - room; more > 0 {
		out = append(out, rowOf(dim, "  + "+counted(int64(more), "more node", "more nodes")))
	}
	out = append(out, sumRow(bs, cols))
	if sz.h-len(out) > 1 {
		out = append(out, ruled("Events of all nodes", sz.w))
		out = append(out, eventsOf(fleetEvents(bs, u), size{sz.w, sz.h - len(out)})...)
	}
	return out
}

// columnsWithin are the columns that a width has room for.
func columnsWithin(w int) []fleetColumn {
	cols := fleetColumns()
	total := 2
	for _, c := range cols {
		total += c.w + 1
	}
	for total > w {
		worst := 0
		for i, c := range cols {
			if c.drop > cols[worst].drop {
				worst = i
			}
		}
		if cols[worst].drop == 0 {
			break
		}
		total -= cols[worst].w + 1
		cols = slices.Delete(cols, worst, worst+1)
	}
	return cols
}

// lostLine says of a node without a living link what is done about it.
func (b board) lostLine() string {
	text := b.node.Name + " " + b.state()
	if b.retryIn > 0 {
		text += ", retry in " + lasting(b.retryIn.Seconds()) + " (r: now)"
	}
	if why := deref(b.link.Reason); why != "" {
		text += ": " + why
	}
	return text
}

func fleetRow(n board, u *ui, cols []fleetColumn, w int) line {
	t := n.totals()
	l := line{txt(n.weight().look(), n.weight().mark()), txt(plain, " ")}
	if n.node.Name == u.fleetAt {
		l[1] = txt(bold, ">")
	}
	for i, c := range cols {
		k := plain
		if i == 1 {
			k = n.weight().look()
		}
		l = append(l, txt(k, c.text(c.cell(n, t))+" "))
	}
	if why := n.why(); why != "" && w-l.width() > 10 {
		l = append(l, txt(n.weight().look(), why))
	}
	if n.node.Name == u.fleetAt {
		for i := range l {
			l[i].look = chosen
		}
	}
	return l
}

// sumRow adds up what nodes that are heard of say; it says of how many.
func sumRow(bs []board, cols []fleetColumn) line {
	all := board{have: true, now: bs[0].now}
	var t totals
	zero, zeroF := int64(0), 0.0
	t.failed, t.notProven, t.bytes = &zero, &zero, &zeroF
	heard, used := 0, 0
	for _, b := range bs {
		if b.stale || !b.have {
			continue
		}
		heard++
		all.all = append(all.all, b.all...)
		all.node.Stages = append(all.node.Stages, b.node.Stages...)
		if n := b.totals(); n.local != nil || n.verified != nil {
			used++
			t.waiting += n.waiting
			t.failed, t.notProven, t.bytes = sum(t.failed, n.failed), sum(t.notProven, n.notProven), sum(t.bytes, n.bytes)
		}
	}
	if used == 0 {
		t.failed, t.notProven, t.bytes = nil, nil, nil
	}
	l := line{span{text: "  "}}
	for _, c := range cols {
		s := ""
		switch c.title {
		case "NODE":
			s = "sum"
		case "STATE":
			s = fmt.Sprintf("of %d/%d", heard, len(bs))
		case "LINK", "DISK":
		default:
			s = c.cell(all, t)
		}
		l = append(l, txt(bold, c.text(s)+" "))
	}
	return l
}

// fleetProgress is a stage over all nodes. What is in S3 is counted by each
// agent for itself, and some count the same objects: the most that one of them
// knows is right at least.
func fleetProgress(bs []board, stage string) (stageProgress, bool) {
	var out stageProgress
	var rate, eta *float64
	running := false
	for _, b := range bs {
		i := slices.IndexFunc(b.node.Stages, func(s pipeline.StageSnapshot) bool { return s.Name == stage })
		if i < 0 {
			continue
		}
		s := b.node.Stages[i]
		p := progressOf(s)
		if out.stage.Name == "" || active(s.State) && !running {
			had := out.verified
			out.stage, out.percent = s, p.percent
			out.verified = cmp.Or(had, p.verified)
		}
		running = running || active(s.State)
		if p.verified != nil && (out.verified == nil || *p.verified > *out.verified) {
			out.verified, out.percent = p.verified, p.percent
		}
		if b.stale {
			continue
		}
		if s.SamplesPerSecond != nil {
			rate = new(deref(rate) + *s.SamplesPerSecond)
		}
		if s.ETASeconds != nil && (eta == nil || *s.ETASeconds > *eta) {
			eta = s.ETASeconds
		}
	}
	out.stage.SamplesPerSecond, out.stage.ETASeconds, out.atLeast = rate, eta, true
	return out, running
}

func fleetHeader(in input, bs []board, u *ui, w int) line {
	live := 0
	all := board{snap: in.snap, have: true}
	for _, n := range bs {
		live += btoi(!n.stale)
		for _, r := range n.all {
			if n.stale {
				r.weight = max(r.weight, doubtful)
			}
			all.all = append(all.all, r)
		}
		all.node.Stages = append(all.node.Stages, n.node.Stages...)
		all.node.UploadsPaused = all.node.UploadsPaused || n.node.UploadsPaused
	}
	l := good
	if live < len(bs) {
		l = bad
	}
	word, tally, look := worst(all)
	parts := []part{
		{span: txt(ident, " "+cut(clean(deckName(all)), max(12, w/2))+fmt.Sprintf(" @ %d nodes ", len(bs)))},
		{span: txt(l, fmt.Sprintf("%d/%d LIVE", live, len(bs)))},
		{span: txt(look, word)},
		{span: txt(look, tally), drop: 4},
	}
	if rs := in.snap.HealthReasons; len(rs) > 0 {
		parts = append(parts, part{span: txt(look, cut(clean(rs[0]), w/3)), drop: 9})
	}
	return bar(w, append(parts, headerEnd(u, w)...))
}

// fleetEvents are the newest events of all nodes, each with its node's name.
func fleetEvents(bs []board, u *ui) []pipeline.Event {
	var out []pipeline.Event
	for _, b := range bs {
		list := b.node.Events
		if p, ok := u.pasts[b.node.Name]; ok {
			list = p.events.list
		}
		for _, e := range list[max(0, len(list)-100):] {
			e.Source = b.node.Name + " " + e.Source
			out = append(out, e)
		}
	}
	slices.SortStableFunc(out, func(a, b pipeline.Event) int { return a.At.Compare(b.At) })
	return out
}

func eventsOf(list []pipeline.Event, sz size) []line {
	var out []line
	for i := len(list) - 1; i >= 0 && len(out) < sz.h; i-- {
		out = append(out, eventLine(list[i], 20))
	}
	return out
}
