package tui

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"pipedeck/pipeline"
)

// detailView shows all that is known of one row of the workers pane.
type detailView struct {
	key string
	top int
}

func (v *detailView) scope() scope { return inView }

func (v *detailView) scroll(_ *ui, m move, page int) { v.top = m.offset(v.top, 1<<16, page) }

func (v *detailView) draw(b board, u *ui, sz size) []line {
	title := rowOf(ident, left(" "+clean(v.key), sz.w))
	for _, r := range b.rows {
		if r.key == v.key {
			return append([]line{title}, window(detailLines(b, u, r, sz.w), &v.top, sz.h-1)...)
		}
	}
	return []line{title, rowOf(dim, "  not there any more")}
}

// window returns the h lines from *top on, and keeps *top within the text.
func window(lines []line, top *int, h int) []line {
	*top = max(0, min(*top, len(lines)-h))
	return lines[*top:min(len(lines), *top+max(0, h))]
}

func field(name, value string) line {
	return line{txt(dim, left(name, 16)), txt(plain, value)}
}

func detailLines(b board, u *ui, r row, w int) []line {
	out := []line{{txt(dim, left("state", 16)), txt(r.weight.look(), strings.TrimSpace(r.weight.mark()+" "+old(b.stale, r.word)))}}
	if r.reason != "" {
		for _, s := range wrap(r.reason, max(20, w-16)) {
			out = append(out, field("", s))
		}
	}
	if r.worker != nil {
		out = append(out, workerFields(b, *r.worker)...)
		out = append(out, chartLine(u, "rate", r.worker.ID, w))
	}
	if r.gpu != nil {
		out = append(out, nil)
		out = append(out, gpuFields(b, *r.gpu)...)
	}
	return out
}

func workerFields(b board, w pipeline.WorkerSnapshot) []line {
	when := func(t *time.Time) string {
		return opt(t, func(t time.Time) string {
			return t.UTC().Format("2006-01-02 15:04:05Z") + " (" + lasting(b.since(t)) + " ago)"
		})
	}
	rate := opt(w.SamplesPerSecond, rateText)
	if b.stale {
		rate = none
	}
	return []line{
		field("since", when(w.StateSince)),
		field("rank", strconv.Itoa(w.Rank)),
		field("pid", opt(w.PID, strconv.Itoa)),
		field("started", when(w.StartedAt)),
		field("restarts", fmt.Sprintf("%d of %d", w.Restarts, w.MaxRestarts)),
		field("done", old(b.stale, opt(w.Done, count))+" of "+opt(w.Total, count)),
		field("samples/s", strings.TrimSpace(rate+"  "+deref(w.RateReason))),
		field("last output", when(w.LastOutputAt)),
		field("exit code", strings.TrimSpace(opt(w.ExitCode, strconv.Itoa)+"  "+deref(w.ExitReason))),
		field("GPU memory", old(b.stale, opt(w.GPUMemBytes, bytesText))),
		field("log", w.Log+"   (l opens it)"),
	}
}

func gpuFields(b board, g pipeline.GPUSnapshot) []line {
	o := func(s string) string { return old(b.oldGPU, s) }
	out := []line{
		field("GPU", fmt.Sprintf("%d  %s  %s", g.Index, g.Name, g.UUID)),
		field("GPU state", strings.TrimSpace(o(string(g.State))+"  "+deref(g.StateReason))),
		field("memory", o(opt(g.MemUsedBytes, bytesText))+" of "+opt(g.MemTotalBytes, bytesText)),
		field("utilisation", o(opt(g.UtilPercent, func(v float64) string { return fmt.Sprintf("%.0f%%", v) }))),
		field("temperature", o(opt(g.TempCelsius, func(v float64) string { return fmt.Sprintf("%.0f C", v) }))),
		field("power", o(opt(g.PowerWatts, func(v float64) string { return fmt.Sprintf("%.0f W", v) }))),
	}
	if g.Processes == nil {
		return append(out, field("processes", none))
	}
	if len(g.Processes) == 0 {
		return append(out, field("processes", "none"))
	}
	for _, p := range g.Processes {
		owner := "not a worker of this deck"
		if p.Worker != nil {
			owner = *p.Worker
		}
		out = append(out, field("process", fmt.Sprintf("pid %d  %s  %s", p.PID, o(opt(p.MemBytes, bytesText)), owner)))
	}
	return out
}

// chartLine is a sparkline over the whole width with its scale.
func chartLine(u *ui, name, series string, w int) line {
	s := u.history.series[series]
	top := scaleTop(s)
	n := max(8, min(historyKeep, w-32))
	scale := fmt.Sprintf(" 0-%s, %s", rateText(top), lasting(float64(n)*historyStep.Seconds()))
	return line{txt(dim, left(name, 16)), span{text: spark(s, n, top, u.ascii), look: accent}, txt(dim, scale)}
}

// failuresView lists what went wrong: outputs with failed or quarantined
// files, and the warnings and errors among the events.
type failuresView struct{ top int }

func (v *failuresView) scope() scope { return inFailures }

func (v *failuresView) scroll(_ *ui, m move, page int) { v.top = m.offset(v.top, 1<<16, page) }

func (v *failuresView) draw(b board, u *ui, sz size) []line {
	var out []line
	for _, o := range b.outputs {
		n, q := deref(o.FailedFiles), deref(o.QuarantinedFiles)
		if n == 0 && q == 0 && outputWeight(o.State) < alarming {
			continue
		}
		out = append(out,
			line{txt(bad, o.name), txt(plain, fmt.Sprintf("  %s  failed %s  quarantined %s", o.State, count(n), count(q)))},
			rowOf(dim, "    "+cmp.Or(deref(o.StateReason), "no reason given")))
	}
	if len(out) == 0 {
		out = append(out, rowOf(plain, "  no failed or quarantined files"))
	}
	out = append(out, nil, rowOf(bold, "Warnings and errors, newest first"))
	for _, e := range slices.Backward(u.events.list) {
		if e.Level == pipeline.Warn || e.Level == pipeline.Error {
			out = append(out, eventLine(e))
		}
	}
	return append([]line{rowOf(ident, left(" Failures", sz.w))}, window(out, &v.top, sz.h-1)...)
}
