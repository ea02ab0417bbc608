package tui

import (
	"fmt"
	"strings"
	"time"

	"pipedeck/pipeline"
)

// lossLines says what lies there, what the store proves of it, and what would
// be gone. A short screen puts the kinds side by side.
func lossLines(p pipeline.Plan, w int, long bool) []line {
	l := p.Loss
	if c := p.Checking; c != nil {
		return checkingLines(*c, w)
	}
	var out []line
	if l.Files == 0 && l.LostFiles == 0 && l.OtherFiles == 0 {
		out = append(out, rowOf(plain, "No local file is removed."))
		return append(out, planEnds(p, w)...)
	}
	out = append(out, lossRow(bold, "Local files", l.Files, l.Files, bytesText(l.Bytes)))
	out = append(out, kindLines(l, w, long)...)
	if l.LostFiles > 0 {
		again := ""
		if l.RecomputeSeconds != nil {
			again = "recompute about " + lasting(*l.RecomputeSeconds)
		} else if r := deref(l.RecomputeReason); r != "" {
			again = "recompute: " + r
		}
		row := lossRow(bad, "  WILL BE LOST", l.LostFiles, l.Files, bytesText(l.LostBytes))
		out = append(out, noted(bad, row, ", ", again, w)...)
	} else {
		out = append(out, rowOf(good, "  nothing will be lost"))
	}
	if l.OtherFiles > 0 {
		out = append(out, lossRow(warn, "Other files in scratch, gone", l.OtherFiles, 0, bytesText(l.OtherBytes)))
	}
	return append(out, planEnds(p, w)...)
}

// kindLines are the kinds of files: those that the store proves, and the rest
// by what is wrong with them.
func kindLines(l pipeline.Loss, w int, long bool) []line {
	flight := ""
	if l.InFlight > 0 {
		flight = count(l.InFlight) + " of them being uploaded"
	}
	kinds := []struct {
		look look
		name string
		n    int64
		note string
	}{
		{plain, "proven in S3", l.Proven, "safe"},
		{warn, "in S3, not proven", l.Unproven, ""},
		{warn, "in S3 with other content", l.Mismatched, ""},
		{warn, "not in S3", l.Missing, flight},
		{warn, "unknown", l.Unknown, "counts as not in S3"},
		{warn, "being written", l.BeingWritten, ""},
	}
	var out []line
	var words []string
	for i, k := range kinds {
		if k.n == 0 && i > 0 {
			continue
		}
		out = append(out, noted(k.look, lossRow(k.look, "  "+k.name, k.n, l.Files, ""), "", k.note, w)...)
		words = append(words, k.name+" "+count(k.n))
	}
	if long {
		return out
	}
	out = out[:0]
	for _, s := range wrap(strings.Join(words, ";  "), w-2) {
		out = append(out, rowOf(plain, "  "+s))
	}
	return out
}

func lossRow(k look, name string, n, of int64, note string) line {
	share := strings.Repeat(" ", 7)
	if of > 0 && n != of {
		share = right(percent(n, of), 7)
	}
	return line{txt(k, left(name, 29)), txt(k, right(count(n), 11)), txt(plain, share), txt(k, "  "+note)}
}

// noted puts a note at the end of a row, or below it where it is too long.
func noted(k look, row line, joint, note string, w int) []line {
	note = clean(note)
	if note == "" || row.width()+width(joint+note) <= w {
		return []line{append(row, txt(k, joint+note))}
	}
	out := []line{row}
	for _, s := range wrap(note, w-4) {
		out = append(out, rowOf(k, "    "+s))
	}
	return out
}

func checkingLines(c pipeline.Checking, w int) []line {
	out := hanging(bold, "Looking at files and store: what would be lost is not known yet.", "", w)
	if c.Total <= 0 {
		return append(out, rowOf(plain, "  "+counted(c.Done, "file", "files")+" so far"))
	}
	share := float64(c.Done) / float64(c.Total)
	figures := count(c.Done) + " of " + count(c.Total) + "  " + percent(min(c.Done, c.Total), c.Total) + "  "
	return append(out, line{txt(plain, "  "+figures), txt(accent, meter(min(1, share), max(8, min(40, w-width(figures)-4))))})
}

// planEnds are what the store holds, the way to lose less, and the way back.
func planEnds(p pipeline.Plan, w int) []line {
	var out []line
	if s := storeLine(p); s != "" {
		out = append(out, hanging(plain, s, "    ", w)...)
	}
	if s := p.Safer; s != nil {
		text := fmt.Sprintf("Safer: %s first, then %s", s.Action, s.Then)
		if s.Seconds != nil {
			text += " (about " + lasting(*s.Seconds) + ")"
		}
		out = append(out, hanging(accent, text, "    ", w)...)
	}
	if u := undoText(p.Undo); u != "" {
		out = append(out, hanging(plain, u, "    ", w)...)
	}
	return out
}

func storeLine(p pipeline.Plan) string {
	s := p.Store
	if s.Bucket == "" {
		return ""
	}
	text := "S3  s3://" + strings.Trim(s.Bucket+"/"+s.Prefix, "/") + "  stored " + opt(s.StoredFiles, count)
	if s.Total != nil {
		text += " of " + count(*s.Total)
	}
	if r := deref(s.Reason); r != "" {
		text += " (" + r + ")"
	}
	return text
}

func undoText(u pipeline.Undo) string {
	if u.Until != nil {
		return "Can be undone until " + u.Until.UTC().Format(time.TimeOnly) + "Z"
	}
	if r := deref(u.Reason); r != "" {
		return "No undo: " + r
	}
	return ""
}
