package tui

import (
	"cmp"
	"fmt"
	"strings"

	"pipedeck/pipeline"
)

func deckName(b board) string {
	if b.snap.Deck == "" {
		return "pipedeck"
	}
	return b.snap.Deck
}

// header is the identity of what is shown, how old it is, how it is, and what
// keys can do here.
func header(b board, u *ui, w int) line {
	id := deckName(b)
	if b.node.Name != "" && w >= 60 {
		id += " @ " + b.node.Name
	}
	parts := []part{{span: txt(ident, " "+cut(clean(id), max(12, w/2))+" ")}, {span: linkSpan(b, w >= 60)}}
	if via := viaText(b); via != "" {
		parts = append(parts, part{span: txt(dim, via), drop: 6})
	}
	if b.have {
		word, tally, l := worst(b)
		parts = append(parts, part{span: txt(l, word)}, part{span: txt(l, tally), drop: 4})
		if rs := b.snap.HealthReasons; len(rs) > 0 && !b.stale {
			parts = append(parts, part{span: txt(l, cut(clean(rs[0]), w/3)), drop: 9})
		}
	}
	if s := skewText(b); s != "" {
		parts = append(parts, part{span: txt(warn, s), drop: 6})
	}
	if !u.frozen.since.IsZero() {
		parts = append(parts, part{span: txt(warn, "FROZEN "+lasting(u.now.Sub(u.frozen.since).Seconds())), right: true})
	}
	return bar(w, append(parts, headerEnd(u, w)...))
}

// headerEnd is what keys can do here, and the time.
func headerEnd(u *ui, w int) []part {
	mode := [...]string{"rw", "RO", "read-write", "READ-ONLY"}[btoi(u.lock.on)+2*btoi(w >= 100)]
	return []part{
		{span: txt(dim, mode), drop: 7 - 4*btoi(u.lock.on), right: true},
		{span: txt(plain, utc(u.now)+"Z"), drop: 8, right: true},
	}
}

// skewLimit is how far the node's clock may be from this machine's, in seconds.
const skewLimit = 2.0

// skewText says that the node's clock is not this machine's. The age of the
// data is measured here, so what it does not explain is the clock.
func skewText(b board) string {
	if !b.have || b.stale || b.link.AgeSeconds == nil || b.snap.At.IsZero() {
		return ""
	}
	ahead := *b.link.AgeSeconds - b.now.Sub(b.snap.At).Seconds()
	switch {
	case ahead > skewLimit:
		return "node clock " + lasting(ahead) + " ahead"
	case ahead < -skewLimit:
		return "node clock " + lasting(-ahead) + " behind"
	}
	return ""
}

// linkSpan is the state of the connection and the age of the data.
func linkSpan(b board, withAge bool) span {
	text := strings.ToUpper(string(b.link.State))
	if text == "" {
		text = "CONNECTING"
	}
	if b.link.AgeSeconds != nil && withAge {
		text += " " + ageText(*b.link.AgeSeconds)
	}
	switch b.link.State {
	case pipeline.LinkLive:
		return txt(good, text)
	case pipeline.LinkSlow, pipeline.LinkConnecting, "":
		return txt(warn, text)
	case pipeline.LinkStale, pipeline.LinkLost, pipeline.LinkAuth, pipeline.LinkVersion:
	}
	return txt(bad, text)
}

// viaText says how the node is reached where that is not this machine's socket.
func viaText(b board) string {
	via := deref(b.node.Link.Via)
	switch {
	case via == "":
		return ""
	case strings.Contains(via, "without an agent"):
		return "no agent"
	case strings.Contains(via, "dial-stdio"):
		return "ssh, dial-stdio"
	}
	return "ssh"
}

// worst is the worst state of the deck in words, and the count behind it.
func worst(b board) (word, tally string, l look) {
	alive, all := 0, 0
	for _, r := range b.all {
		if r.worker != nil {
			all++
			if r.works() {
				alive++
			}
		}
	}
	if all > 0 {
		tally = fmt.Sprintf("%d/%d %s", alive, all, pipeline.Fit(all, "worker", "workers"))
	}
	switch {
	case b.stale:
		return "[?] UNKNOWN", "was " + cmp.Or(tally, "idle"), warn
	case b.snap.Health == pipeline.Failed:
		return "[X] FAILED", tally, bad
	case b.snap.Health == pipeline.Degraded:
		return "[!] DEGRADED", tally, warn
	case b.snap.Health == pipeline.Stale:
		return "[?] STALE", tally, warn
	case b.node.UploadsPaused:
		return "[!] UPLOADS PAUSED", tally, warn
	}
	return calmWord(b), tally, good
}

// calmWord is what a healthy deck is doing.
func calmWord(b board) string {
	word := "IDLE"
	for _, s := range b.node.Stages {
		if active(s.State) {
			return strings.ToUpper(string(s.State))
		}
		if s.State == pipeline.StageDone || s.State == pipeline.StageStopped {
			word = strings.ToUpper(string(s.State))
		}
	}
	return word
}

// alarms are full-width lines for what must not be overlooked: a lost link
// and a running action.
func alarms(b board, sz size) []line {
	w := sz.w
	var out []line
	if b.have && b.stale {
		// Why decides what to do: where there is room it is not cut.
		state, why := lostText(b)
		lines := wrap(strings.TrimSpace(state+" "+why), w)
		if len(lines) > 1 && sz.h >= 16 && why != "" {
			lines = append(wrap(state, w), wrap(why, w)...)
		}
		if most := max(1, min(4, sz.h/8)); len(lines) > most {
			lines = append(lines[:most-1], cut(strings.Join(lines[most-1:], " "), w))
		}
		for _, s := range lines {
			out = append(out, rowOf(bad, left(s, w)))
		}
	}
	if a := b.node.Action; a != nil && a.EndedAt == nil {
		text := fmt.Sprintf("ACTION %s %s by %s: %s (a)", a.Verb, a.Target, a.By, actionStep(*a))
		out = append(out, rowOf(accent, left(clean(text), w)))
	}
	return out
}

func lostText(b board) (state, why string) {
	text := strings.ToUpper(string(b.link.State))
	if b.link.AgeSeconds != nil {
		text += " " + lasting(*b.link.AgeSeconds)
	}
	text += ": last data " + utc(b.snap.At) + "Z, the pipeline may run on."
	if b.retryIn > 0 {
		text += " Retry in " + lasting(b.retryIn.Seconds()) + " (r: now)."
	}
	return text, deref(b.link.Reason)
}

// actionStep says which step an action is at.
func actionStep(a pipeline.Action) string {
	if a.Waits {
		return "interrupted, waits for you"
	}
	for _, s := range a.Steps {
		if s.EndedAt == nil && s.BeganAt != nil {
			return fmt.Sprintf("step %d/%d %s %s", s.N, len(a.Steps), s.Kind, s.Text)
		}
	}
	return string(a.Result)
}

// stageProgress is the one figure that matters of a stage: what of its total
// is provably in S3.
type stageProgress struct {
	stage    pipeline.StageSnapshot
	verified *int64
	percent  string
	atLeast  bool // more may be in S3 than is known here
}

// progress lists the stages to show: the active ones, else the last that has
// anything in S3.
func progress(b board) []stageProgress {
	var out, rest []stageProgress
	for _, s := range b.node.Stages {
		p := progressOf(s)
		switch {
		case active(s.State):
			out = append(out, p)
		case s.State != pipeline.StageIdle || deref(p.verified) > 0:
			rest = append(rest, p)
		}
	}
	if len(out) == 0 && len(rest) > 0 {
		out = rest[len(rest)-1:]
	}
	if len(out) == 0 && len(b.node.Stages) > 0 {
		out = []stageProgress{{stage: b.node.Stages[0], percent: none}}
	}
	return out
}

func progressOf(s pipeline.StageSnapshot) stageProgress {
	p := stageProgress{stage: s, percent: none}
	for _, o := range s.Outputs {
		if o.VerifiedFiles != nil && (p.verified == nil || *o.VerifiedFiles > *p.verified) {
			p.verified = o.VerifiedFiles
		}
	}
	if p.verified != nil && s.Total != nil {
		p.percent = percent(min(*p.verified, *s.Total), *s.Total)
	}
	return p
}

// line draws the figures of one stage; the bar takes what they leave.
func (p stageProgress) line(b board, w int) line {
	s := p.stage
	figures := old(b.stale && !p.atLeast, opt(p.verified, count))
	if p.atLeast && p.verified != nil {
		figures = ">=" + figures
	}
	if s.Total != nil {
		figures += " / " + count(*s.Total)
	}
	share := 0.0
	if p.verified != nil && s.Total != nil && *s.Total > 0 {
		share = float64(*p.verified) / float64(*s.Total)
	}
	rate, eta := opt(s.SamplesPerSecond, rateText), opt(s.ETASeconds, lasting)
	if b.stale && !p.atLeast {
		rate, eta = none, none
	}
	etaText := "ETA " + eta
	if eta != none && w >= 100 {
		etaText += " (" + b.now.Add(seconds(*s.ETASeconds)).UTC().Format("15:04Z") + ")"
	}
	if eta == none && w >= 100 && deref(s.ETAReason) != "" {
		etaText += " (" + cut(clean(*s.ETAReason), 30) + ")"
	}
	fixed := []part{
		{span: txt(bold, cut(clean(s.Name), 16)), drop: 5},
		{span: txt(dim, string(s.State)), drop: 6},
		{span: txt(plain, "verified in S3"), drop: 7},
		{span: txt(bold, figures), drop: 0},
		{span: txt(plain, old(b.stale && !p.atLeast, p.percent)), drop: 1},
		{span: txt(plain, rate+"/s"), drop: 3, right: true},
		{span: txt(plain, etaText), drop: 2, right: true},
	}
	spare := w - barWidth(fixed) - 2
	if spare >= 8 {
		m := part{span: txt(accent, meter(share, min(spare, 60)))}
		fixed = append(fixed[:5:5], m, fixed[5], fixed[6])
	}
	return bar(w, fixed)
}
