package tui

import (
	"fmt"
	"math"
	"strings"
	"time"
)

// From this size on the lower part of the board has two columns: detail of
// the chosen row and events, S3 and charts.
const (
	wideW, wideH = 180, 45
	wideLower    = 30 // lines that the lower part keeps
	chartH       = 5  // least lines of one chart without its title
)

func wideLayout(b board, sz size) layout {
	p := layout{titles: true, wide: true, blank: true, progress: min(3, len(progress(b)))}
	p.workers = min(1+max(1, len(b.rows)), max(4, sz.h-p.progress-2-wideLower))
	return p
}

func lowerWide(b board, u *ui, sz size) []line {
	lw := sz.w * 3 / 5
	rw := sz.w - lw - 2
	return beside(wideLeft(b, u, size{lw, sz.h}), lw, 2, wideRight(b, u, size{rw, sz.h}), rw)
}

func wideLeft(b board, u *ui, sz size) []line {
	var out []line
	for _, r := range b.rows {
		if r.key == u.selected {
			out = append(out, ruled("Detail of "+r.key, sz.w))
			out = append(out, detailLines(b, u, r, sz.w)...)
		}
	}
	out = out[:min(len(out), sz.h-6)]
	out = append(out, layout{titles: true}.title(paneEvents, u, sz.w, eventsTitle(b, u))...)
	return append(out, eventsPane(u, size{sz.w, sz.h - len(out)})...)
}

func wideRight(b board, u *ui, sz size) []line {
	p := layout{titles: true}
	out := append(p.title(paneStore, u, sz.w, storeTitle(b, u)), storePane(b, u, size{sz.w, storeLines + 1 + min(3, len(b.usedOutputs()))})...)
	out = append(out, nil)
	out = append(out, coverage(b, size{sz.w, sz.h - len(out) - len(charts())*(chartH+1)})...)
	// The charts share what is left, as long as each is worth its place.
	h := max(chartH, min(2*chartH, (sz.h-len(out))/len(charts())-1))
	for _, c := range charts() {
		if sz.h-len(out) >= h+1 {
			out = append(out, chart(u, c, size{sz.w, h})...)
		}
	}
	return out[:min(len(out), sz.h)]
}

// charted is a series that is drawn as a chart.
type charted struct {
	title, series string
	unit          func(float64) string
}

func charts() []charted {
	return []charted{
		{"samples/s", seriesRate, rateText},
		{"queue", seriesQueue, func(v float64) string { return counted(int64(min(v, 1e18)), "file", "files") }},
		{"uploaded", seriesBytes, func(v float64) string { return bytesText(int64(min(v, 1e18))) + "/s" }},
	}
}

func ruled(text string, w int) line {
	text = "-- " + clean(text) + " "
	return rowOf(dim, cut(text, w)+strings.Repeat("-", max(0, w-width(text))))
}

// chart draws ten minutes of a series over the whole width, its scale in the
// title.
func chart(u *ui, c charted, sz size) []line {
	values := u.history.series[c.series]
	top := scaleTop(values)
	cells := resample(values, sz.w)
	out := []line{ruled(fmt.Sprintf("%s, last %d min, 0 to %s", c.title, int(historyKeep*historyStep/time.Minute), c.unit(top)), sz.w)}
	for y := sz.h - 1; y >= 0; y-- {
		out = append(out, line{{text: chartRow(cells, y, sz.h, top, u.ascii), look: accent}})
	}
	return out
}

// chartRow is one line of a chart of h lines; y counts from its foot.
func chartRow(cells []float64, y, h int, top float64, ascii bool) string {
	full, ramp := '█', []rune(blockRamp)
	if ascii {
		full, ramp = '#', []rune("..::==#")
	}
	out := make([]rune, len(cells))
	for i, v := range cells {
		part := v/top*float64(h) - float64(y)
		switch {
		case math.IsNaN(v) || part <= 0 && (y > 0 || v > 0):
			out[i] = ' '
		case part >= 1:
			out[i] = full
		default:
			out[i] = level(part, 1, ramp)
		}
	}
	return string(out)
}

// resample spreads ten minutes of values over w cells: each cell is the mean
// of what falls into it, NaN when nothing does.
func resample(values []float64, w int) []float64 {
	out := make([]float64, w)
	pad := historyKeep - len(values)
	for i := range out {
		lo, hi := i*historyKeep/w, (i+1)*historyKeep/w
		total, n := 0.0, 0
		for j := lo; j < max(hi, lo+1); j++ {
			if k := j - pad; k >= 0 && k < len(values) && !math.IsNaN(values[k]) {
				total, n = total+values[k], n+1
			}
		}
		out[i] = math.NaN()
		if n > 0 {
			out[i] = total / float64(n)
		}
	}
	return out
}
