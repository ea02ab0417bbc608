package tui

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"pipedeck/pipeline"
)

// column is one column of the workers pane. Higher drop goes first when the
// width is short; drop 0 stays. Widths are fixed, so nothing jumps.
type column struct {
	title string
	w     int
	flush bool // right-aligned
	drop  int
	cell  func(c cellInput) span
}

// cellInput is what a cell may show.
type cellInput struct {
	b   board
	u   *ui
	r   row
	w   int
	top float64 // of the sparkline's scale
}

// The sparkline takes what the other columns leave, within these bounds.
const (
	sparkTitle = "LAST"
	sparkMin   = 12
	sparkMax   = 40
)

// columns lists the columns from left to right.
func columns(nameWidth, sparkWidth, stateWidth int) []column {
	return []column{
		{"GPU", 3, false, 0, gpuCell},
		{"WORKER", nameWidth, false, 0, func(c cellInput) span { return txt(plain, c.r.name) }},
		{"STATE", stateWidth, false, 0, func(c cellInput) span { return txt(c.r.weight.look(), old(c.b.stale, c.r.word)) }},
		{"UTIL", 5, true, 2, utilCell},
		{"", 8, false, 4, utilBar},
		{"MEM GiB", 8, true, 3, memCell},
		{"", 6, false, 9, memBar},
		{"TEMP", 5, true, 8, tempCell},
		{"POWER", 6, true, 10, powerCell},
		{"SAMPLES/S", 9, true, 0, rateCell},
		{sparkTitle, sparkWidth, false, 5, sparkCell},
		{"DONE", 10, true, 6, doneCell},
		{"SHARD", 9, true, 7, shardCell},
		{"ETA", 6, true, 3, etaCell},
		{"PID", 8, true, 11, pidCell},
		{"RESTARTS", 8, true, 12, restartCell},
		{"LAST OUT", 8, true, 13, lastCell},
	}
}

// fitColumns drops columns until the rest fits in w cells, then gives the
// spare cells to the sparkline.
func fitColumns(cols []column, w int) []column {
	total := func() int {
		n := 2
		for _, c := range cols {
			n += c.w + 1
		}
		return n - 1
	}
	for total() > w {
		worst := -1
		for i, c := range cols {
			if c.drop > 0 && (worst < 0 || c.drop > cols[worst].drop) {
				worst = i
			}
		}
		if worst < 0 {
			break
		}
		cols = append(cols[:worst:worst], cols[worst+1:]...)
	}
	for i := range cols {
		if cols[i].title == sparkTitle {
			cols[i].w = min(sparkMax, cols[i].w+w-total())
		}
	}
	return cols
}

// knownColumns leaves out columns that no row has a value for: their place is
// better used.
func knownColumns(cols []column, rows []row) []column {
	some := func(f func(r row) bool) bool { return len(rows) == 0 || slices.ContainsFunc(rows, f) }
	gpu := func(f func(g *pipeline.GPUSnapshot) bool) bool {
		return some(func(r row) bool { return r.gpu != nil && f(r.gpu) })
	}
	total := some(func(r row) bool { return r.worker != nil && r.worker.Total != nil })
	empty := map[string]bool{
		"SHARD": !total, "ETA": !total,
		"TEMP":  !gpu(func(g *pipeline.GPUSnapshot) bool { return g.TempCelsius != nil }),
		"POWER": !gpu(func(g *pipeline.GPUSnapshot) bool { return g.PowerWatts != nil }),
	}
	return slices.DeleteFunc(cols, func(c column) bool { return empty[c.title] })
}

// workersPane draws the column titles and one line a row. When rows do not
// fit, failing ones come first and the rest folds into a summary.
func workersPane(b board, u *ui, sz size) []line {
	names := 6
	for _, r := range b.rows {
		names = max(names, width(clean(r.name)))
	}
	spark := sparkMin
	if sz.w >= 100 {
		spark = 2 * sparkMin
	}
	cols := fitColumns(knownColumns(columns(min(names, max(10, sz.w/7)), spark, 8+btoi(b.stale)), b.all), sz.w)
	top := scaleTop(workerSeries(b, u)...)
	out := []line{columnTitles(cols, top)}
	rows, folded := foldRows(b.rows, u.selected, sz.h-1)
	for _, r := range rows {
		out = append(out, workerLine(cellInput{b: b, u: u, r: r, top: top}, cols))
	}
	if len(folded) > 0 {
		out = append(out, rowOf(dim, "  "+foldText(folded, b.stale)))
	}
	if len(b.rows) == 0 {
		text := noRows(b)
		if len(b.all) > 0 {
			text = "none match /" + u.filters[paneWorkers]
		}
		out = append(out, rowOf(dim, "  "+text))
	}
	return out
}

// workersTitle counts the rows and says how the node is.
func workersTitle(b board, u *ui, w int) string {
	title := fmt.Sprintf("Workers (%d)", len(b.rows))
	if f := u.filters[paneWorkers]; f != "" {
		title += "   /" + f + "  " + b.hidden()
	}
	if u.order != (order{}) {
		title += "   " + u.order.text()
	}
	if h := b.node.Host; w >= 100 {
		f := func(v *int64) string {
			return opt(v, func(n int64) string { return fmt.Sprintf("%.0f", float64(n)/gib) })
		}
		title += "   cpu " + old(b.oldHost, opt(h.CPUPercent, func(v float64) string { return fmt.Sprintf("%.0f%%", v) })) +
			"  mem " + old(b.oldHost, f(h.MemUsedBytes)) + "/" + f(h.MemTotalBytes) + " GiB  load " + old(b.oldHost, opt(h.Load1, rateText))
	}
	if tooOld(b.node.GPUSource.AgeSeconds) {
		title += "   GPUs " + lasting(*b.node.GPUSource.AgeSeconds) + " old"
	}
	if w >= 100 && tooOld(b.node.Host.AgeSeconds) {
		title += "   machine " + lasting(*b.node.Host.AgeSeconds) + " old"
	}
	return title
}

func noRows(b board) string {
	text := "no workers"
	if r := deref(b.node.GPUSource.Reason); r != "" {
		text += ", no GPU data: " + r
	}
	return text
}

func workerSeries(b board, u *ui) [][]float64 {
	var out [][]float64
	for _, r := range b.rows {
		if r.worker != nil {
			out = append(out, u.history.series[r.worker.ID])
		}
	}
	return out
}

func columnTitles(cols []column, top float64) line {
	l := line{span{text: "  "}}
	for i, c := range cols {
		if i > 0 {
			l = append(l, span{text: " "})
		}
		title := c.title
		if title == sparkTitle {
			title = fmt.Sprintf("%s 0-%s/s", lasting(float64(c.w)*historyStep.Seconds()), rateText(top))
			title = cut(title, c.w)
		}
		if c.flush {
			title = right(title, c.w)
		}
		l = append(l, txt(dim, left(title, c.w)))
	}
	return l
}

func workerLine(c cellInput, cols []column) line {
	l := line{txt(c.r.weight.look(), c.r.weight.mark()), txt(plain, " ")}
	if c.r.key == c.u.selected {
		l[1] = txt(bold, ">")
	}
	for i, col := range cols {
		if i > 0 {
			l = append(l, span{text: " "})
		}
		c.w = col.w
		if col.title == sparkTitle && c.r.explains() {
			return chosenLine(append(l, txt(c.r.reasonLook(), c.r.reason)), c)
		}
		s := col.cell(c)
		if col.flush {
			s.text = right(s.text, col.w)
		} else {
			s.text = left(s.text, col.w)
		}
		l = append(l, s)
	}
	return chosenLine(l, c)
}

// chosenLine marks the line of the chosen row, also without colour.
func chosenLine(l line, c cellInput) line {
	if c.r.key == c.u.selected && c.u.focus == paneWorkers {
		for i := range l {
			l[i].look = chosen
		}
	}
	return l
}

// explains says whether the row shows why it is as it is, in the place of a
// sparkline that would be empty or beside the point.
func (r row) explains() bool {
	return r.reason != "" && (r.weight > calm || r.worker != nil && r.worker.SamplesPerSecond == nil)
}

func (r row) reasonLook() look {
	if r.weight == calm {
		return dim
	}
	return r.weight.look()
}

// foldRows picks the rows to draw in n lines. The chosen row is always among
// them, as far as there is room beside the failing ones.
func foldRows(rows []row, selected string, n int) (shown, folded []row) {
	if len(rows) <= n {
		return rows, nil
	}
	n = max(0, n-1)
	need := byNeed(rows)
	urgent := min(n, failing(rows))
	keep := map[string]bool{}
	for _, r := range need[:urgent] {
		keep[r.key] = true
	}
	if len(keep) < n && selected != "" {
		keep[selected] = true
	}
	for _, r := range need {
		if len(keep) >= n {
			break
		}
		keep[r.key] = true
	}
	for _, r := range rows {
		if keep[r.key] && len(shown) < n {
			shown = append(shown, r)
		} else {
			folded = append(folded, r)
		}
	}
	return shown, folded
}

// foldText says what the folded rows are: "+ 8 more: 8 RUN, 84.1/s".
func foldText(rows []row, stale bool) string {
	words := []string{}
	n := map[string]int{}
	rate := 0.0
	for _, r := range rows {
		if n[r.word] == 0 {
			words = append(words, r.word)
		}
		n[r.word]++
		if r.worker != nil {
			rate += deref(r.worker.SamplesPerSecond)
		}
	}
	for i, w := range words {
		words[i] = strconv.Itoa(n[w]) + " " + w
	}
	text := fmt.Sprintf("+ %d more: %s", len(rows), strings.Join(words, ", "))
	if rate > 0 && !stale {
		text += ", " + rateText(rate) + "/s"
	}
	return text
}
