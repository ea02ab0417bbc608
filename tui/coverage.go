package tui

import (
	"strings"

	"pipedeck/pipeline"
)

// mapLines is how many lines the map of one output takes at most, without its
// title and its figures.
const mapLines = 8

// coverage shows, for each active stage, where in its whole range of samples
// what is: stored, only on this node, not there yet.
func coverage(b board, sz size) []line {
	shown := progress(b)
	var out []line
	for i, p := range shown {
		room := (sz.h - len(out)) / (len(shown) - i)
		total := deref(p.stage.Total)
		if room < 3 || total <= 0 {
			continue
		}
		o := mappedOutput(p.stage)
		title := "coverage of " + p.stage.Name + ", samples 0 to " + count(total-1)
		if o == nil || b.stale {
			out = append(out, barOfShares(b, p, title, sz.w)...)
			continue
		}
		out = append(out, ruled(title, sz.w))
		out = append(out, mapOf(*o.CoverageMap, total, size{sz.w, min(mapLines, room-2)})...)
	}
	return out
}

// mappedOutput is the output of a stage whose map is drawn: the one that is
// furthest behind.
func mappedOutput(s pipeline.StageSnapshot) *pipeline.OutputSnapshot {
	var out *pipeline.OutputSnapshot
	for i := range s.Outputs {
		o := &s.Outputs[i]
		if m := o.CoverageMap; m == nil || len(m.StoredIDs) == 0 || len(m.StoredIDs) != len(m.LocalIDs) || m.IDsPerCell < 1 {
			continue
		}
		if out == nil || deref(o.VerifiedFiles) < deref(out.VerifiedFiles) {
			out = o
		}
	}
	return out
}

// mapOf draws the cells of a map, as many to a sign as fit, and says in words
// what they add up to.
func mapOf(m pipeline.CoverageMap, total int64, sz size) []line {
	cells := len(m.StoredIDs)
	per := (cells + sz.w*sz.h - 1) / (sz.w * sz.h)
	signs := make([]byte, 0, cells/per+1)
	var stored, local int64
	for i := 0; i < cells; i += per {
		var s, l int64
		for j := i; j < min(cells, i+per); j++ {
			s, l = s+max(0, m.StoredIDs[j]), l+max(0, m.LocalIDs[j])
		}
		ids := min(total, int64(i+per)*m.IDsPerCell) - int64(i)*m.IDsPerCell
		signs = append(signs, mapSign(s, l, ids))
		stored, local = stored+s, local+l
	}
	var out []line
	for len(signs) > 0 {
		n := min(len(signs), sz.w)
		out = append(out, mapLine(string(signs[:n])))
		signs = signs[n:]
	}
	return append(out, bar(sz.w, []part{
		{span: txt(good, "# in S3 "+count(stored)), drop: 1},
		{span: txt(plain, ": part"), drop: 3},
		{span: txt(warn, "+ only here "+count(local))},
		{span: txt(dim, ". not yet "+count(max(0, total-stored-local))), drop: 2},
		{span: txt(dim, "1 sign = "+count(m.IDsPerCell*int64(per))), drop: 4, right: true},
	}))
}

// mapSign is the sign of some ids. What is only here outweighs all else: it is
// what can be lost.
func mapSign(stored, local, ids int64) byte {
	switch {
	case local > 0:
		return '+'
	case stored >= ids:
		return '#'
	case stored > 0:
		return ':'
	}
	return '.'
}

// mapLine gives each sign its look, in runs.
func mapLine(signs string) line {
	looks := map[byte]look{'#': good, ':': plain, '+': warn, '.': dim}
	var out line
	for len(signs) > 0 {
		n := len(signs) - len(strings.TrimLeft(signs, signs[:1]))
		out = append(out, span{text: signs[:n], look: looks[signs[0]]})
		signs = signs[n:]
	}
	return out
}

// barOfShares shows how much is where when it is not known which.
func barOfShares(b board, p stageProgress, title string, w int) []line {
	if p.verified == nil {
		return nil
	}
	why := ""
	for _, o := range p.stage.Outputs {
		if r := deref(o.CoverageMapReason); r != "" {
			why = "; no map: " + r
		}
	}
	if b.stale {
		why = "; old"
	}
	return []line{
		ruled(title, w),
		rowOf(plain, shares(w, *p.stage.Total, *p.verified, localOnly(p.stage))),
		rowOf(dim, cut("# in S3  + only here  . not yet"+clean(why), w)),
	}
}

func localOnly(s pipeline.StageSnapshot) int64 {
	n := int64(0)
	for _, o := range s.Outputs {
		if o.Coverage != nil {
			n = max(n, o.Coverage.Local-o.Coverage.Proven)
		}
	}
	return n
}

// shares draws the parts of a total in w cells; what exists has at least one.
func shares(w int, total, stored, here int64) string {
	cells := func(n int64) int {
		if n <= 0 {
			return 0
		}
		return max(1, int(min(1, float64(n)/float64(total))*float64(w)))
	}
	s := min(w, cells(stored))
	l := min(w-s, cells(here))
	return strings.Repeat("#", s) + strings.Repeat("+", l) + strings.Repeat(".", w-s-l)
}
