package tui

import (
	"cmp"
	"fmt"
	"strings"

	"pipedeck/pipeline"
)

// storeLines is how many lines the S3 pane takes when it has room.
const storeLines = 9

func storeTitle(b board, u *ui) string {
	title := "S3 upload"
	if f := u.filters[paneStore]; f != "" {
		title += "   /" + f
	}
	if s := sources(b); s != "" {
		title += "   " + s
	}
	return title
}

// sources says how old the account of the uploads and the disks is, once that
// is worth a word.
func sources(b board) string {
	var old []string
	oldest := 0.0
	for _, d := range b.node.Disks {
		oldest = max(oldest, deref(d.AgeSeconds))
	}
	if oldest > diskLimit {
		old = append(old, "disks "+lasting(oldest)+" old")
	}
	if tooOld(b.node.UploadsAgeSeconds) {
		old = append(old, "uploads "+lasting(*b.node.UploadsAgeSeconds)+" old")
	}
	return strings.Join(old, "  ")
}

// diskLimit is how old a reading of the disks may be, in seconds: they are
// read every five.
const diskLimit = 15.0

// storePane draws the way of the files to the store: one line, two lines, or
// a block with one line an output below it.
func storePane(b board, u *ui, sz size) []line {
	t := b.totals()
	switch {
	case len(b.usedOutputs()) == 0:
		return []line{bar(sz.w, []part{{span: txt(dim, "no output is in use yet")}, {span: txt(plain, diskText(b)), right: true, drop: 1}})}
	case sz.h <= 1:
		return []line{storeOneLine(b, t, sz.w)}
	case sz.h < storeLines-2:
		return storeTwoLines(b, t, sz.w)
	}
	out := storeBlock(b, u, t, sz.w)
	for _, o := range b.usedOutputs() {
		if contains(u.filters[paneStore], o.name, string(o.State), deref(o.StateReason)) {
			out = append(out, outputLine(b, o))
		}
	}
	if len(out) > sz.h {
		return out[:sz.h]
	}
	for _, c := range charts()[1:] {
		if sz.w < wideW && sz.h-len(out) > chartH+1 {
			out = append(append(out, nil), chart(u, c, size{sz.w, chartH})...)
		}
	}
	return out
}

// trouble is the state of the uploads when it is not plainly running.
func (t totals) trouble() (string, look) {
	w := outputWeight(t.worst)
	if w == calm {
		return "", plain
	}
	text := "[" + w.mark() + "] " + strings.ToUpper(string(t.worst))
	return text, w.look()
}

func storeOneLine(b board, t totals, w int) line {
	parts := []part{
		{span: txt(plain, "queue "+old(b.stale, count(t.waiting)))},
		{span: txt(plain, t.flight(b)), drop: 4},
		{span: txt(failLook(t.failed), "failed "+old(b.stale, opt(t.failed, count))), drop: 1},
		{span: txt(plain, "not proven "+old(b.stale, opt(t.notProven, count))), drop: 2},
		{span: txt(plain, rateOrNone(b, t.files)+" files/s"), drop: 3, right: true},
	}
	if text, l := t.trouble(); text != "" {
		parts = append([]part{{span: txt(l, text)}}, parts...)
	}
	return bar(w, parts)
}

func storeTwoLines(b board, t totals, w int) []line {
	queue := fmt.Sprintf("queue %s (%s, oldest %s)", old(b.stale, count(t.waiting)), bytesText(t.waitingBytes), opt(t.oldest, lasting))
	first := []part{
		{span: txt(plain, queue)},
		{span: txt(plain, "in flight "+t.flight(b)), drop: 3},
		{span: txt(failLook(t.failed), "failed "+old(b.stale, opt(t.failed, count))), drop: 1},
		{span: txt(plain, "quarantined "+old(b.stale, opt(t.quarantined, count))), drop: 6},
		{span: txt(plain, rateOrNone(b, t.files)+" files/s"), drop: 2, right: true},
		{span: txt(plain, bytesRate(b, t.bytes)), drop: 5, right: true},
	}
	if text, l := t.trouble(); text != "" {
		first = append([]part{{span: txt(l, text)}}, first...)
	}
	local := fmt.Sprintf("local %s (%s): %s safe,", old(b.stale, opt(t.local, count)), opt(t.localBytes, bytesText), old(b.stale, opt(t.safe, count)))
	if t.unproven > 0 {
		local += " " + old(b.stale, count(t.unproven)) + " unproven,"
	}
	second := []part{
		{span: txt(plain, local), drop: 2},
		{span: txt(bold, old(b.stale, opt(t.notInStore, count))+" not in S3")},
		{span: txt(plain, diskText(b)), drop: 1, right: true},
		{span: txt(dim, checked(b, t)), drop: 4, right: true},
	}
	return []line{bar(w, first), bar(w, second)}
}

// storeBlock has one subject a line, its figures in fixed columns.
func storeBlock(b board, u *ui, t totals, w int) []line {
	state := string(t.worst)
	_, l := t.trouble()
	if state == "" {
		state = none
	}
	if t.worstReason != "" {
		state += ": " + t.worstReason
	}
	chart := max(8, min(40, w-34))
	s := u.history.series[seriesBytes]
	top := scaleTop(s)
	f := func(v *int64) string { return old(b.stale, opt(v, count)) }
	lines := []line{
		{txt(plain, left("uploads", 11)), txt(l, state)},
		figures("queue", old(b.stale, counted(t.waiting, "file", "files")), bytesText(t.waitingBytes), "oldest "+opt(t.oldest, lasting)),
		figures("in flight", t.flight(b), bytesRate(b, t.bytes), rateOrNone(b, t.files)+" files/s"),
		{txt(plain, left("throughput", 11)), span{text: spark(s, chart, top, u.ascii), look: accent}, txt(dim, " 0-"+bytesText(int64(top))+"/s")},
		figures("produced", bytesRate(b, t.produced), "uploaded "+bytesRate(b, t.bytes), ""),
		figures("verified", f(t.verified), "failed "+f(t.failed), "quarantined "+f(t.quarantined)),
		figures("local", f(t.local)+" "+pipeline.Fit(deref(t.local), "file", "files"), opt(t.localBytes, bytesText), checked(b, t)),
		{txt(plain, left("", 11)), txt(plain, left("safe "+f(t.safe), 13)), txt(plain, left("unproven "+f(t.unprovenKnown()), 19)), txt(bold, "not in S3 "+f(t.notInStore))},
	}
	if deref(t.failed) > 0 {
		lines[5][2].look = bad
	}
	if notes := t.notes(); notes != "" {
		lines = append(lines, line{txt(plain, left("", 11)), txt(warn, "of these"+notes)})
	}
	return append(lines, line{txt(plain, left("disk", 11)), txt(plain, diskText(b)), txt(dim, diskReason(b))})
}

func figures(name, a, b, c string) line {
	return line{txt(plain, left(name, 11)), txt(plain, left(a, 13)), txt(plain, left(b, 19)), txt(plain, c)}
}

func outputLine(b board, o namedOutput) line {
	w := outputWeight(o.State)
	return line{
		txt(w.look(), w.mark()+" "), txt(plain, left(clean(o.name), 24)), txt(w.look(), " "+left(string(o.State), 9)),
		txt(plain, " verified "+left(old(b.stale, opt(o.VerifiedFiles, count)), 9)),
		txt(dim, " "+cmp.Or(deref(o.StateReason), deref(o.Reason))),
	}
}

// notes names those of the files not in the store for which there is more to say.
func (t totals) notes() string {
	var s strings.Builder
	for _, n := range []struct {
		n    int64
		word string
	}{{t.mismatched, "mismatched"}, {t.unknownInS3, "unknown"}} {
		if n.n > 0 {
			s.WriteString("  " + count(n.n) + " " + n.word)
		}
	}
	return s.String()
}

// unprovenKnown is nil while nothing is known of any file.
func (t totals) unprovenKnown() *int64 {
	if t.safe == nil {
		return nil
	}
	return &t.unproven
}

func (t totals) flight(b board) string {
	return old(b.stale, count(t.inFlight)) + "/" + count(t.maxParallel)
}

func failLook(n *int64) look {
	if deref(n) > 0 {
		return bad
	}
	return plain
}

func rateOrNone(b board, v *float64) string {
	if b.stale {
		return none
	}
	return opt(v, rateText)
}

func bytesRate(b board, v *float64) string {
	if b.stale || v == nil {
		return none
	}
	return bytesText(int64(min(*v, 1e18))) + "/s"
}

func checked(b board, t totals) string {
	if t.coverageAt.IsZero() {
		return "never checked"
	}
	return "checked " + lasting(max(0, b.now.Sub(t.coverageAt).Seconds()))
}

// tightest is the disk that is full first, else the one with the least space.
func tightest(b board) *pipeline.DiskSnapshot {
	var worst *pipeline.DiskSnapshot
	for i := range b.node.Disks {
		d := &b.node.Disks[i]
		if worst == nil || fuller(d, worst) {
			worst = d
		}
	}
	return worst
}

// diskReason is why it is not known when a disk will be full.
func diskReason(b board) string {
	if d := tightest(b); d != nil && d.FullInSeconds == nil && deref(d.FullReason) != "" {
		return " (" + *d.FullReason + ")"
	}
	return ""
}

func diskText(b board) string {
	worst := tightest(b)
	if worst == nil {
		return "disk -"
	}
	text := "free " + old(b.stale, opt(worst.FreeBytes, bytesText))
	if worst.FullInSeconds != nil && !b.stale {
		return text + "  full in " + lasting(*worst.FullInSeconds)
	}
	return text + "  full in -"
}

func fuller(a, b *pipeline.DiskSnapshot) bool {
	if (a.FullInSeconds == nil) != (b.FullInSeconds == nil) {
		return a.FullInSeconds != nil
	}
	if a.FullInSeconds != nil {
		return *a.FullInSeconds < *b.FullInSeconds
	}
	return a.FreeBytes != nil && (b.FreeBytes == nil || *a.FreeBytes < *b.FreeBytes)
}
