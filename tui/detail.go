package tui

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"
	"time"

	"pipedeck/pipeline"
)

// detailView shows all that is known of one row of the workers pane. How the
// worker was started is asked of the agent.
type detailView struct {
	key    string
	top    int
	detail *pipeline.WorkerDetail
	err    string
	asked  time.Time
}

// detailEvery is how often an open detail view asks the agent again.
const detailEvery = 5 * time.Second

func (v *detailView) scope() scope { return inView }

func (v *detailView) scroll(_ *ui, m move, page int) []effect {
	v.top = m.offset(v.top, 1<<16, page)
	return nil
}

func openDetail(m *model) []effect {
	if m.ui.inFleet(m.in.snap) {
		m.showTab(m.ui.fleetAt)
		return nil
	}
	if m.ui.focus == paneEvents {
		e := m.ui.chosenEvent()
		m.ui.open(&textView{title: "event of " + e.Source + ", " + e.At.UTC().Format(time.DateTime) + "Z", text: eventText(*e)})
		return nil
	}
	v := &detailView{key: m.ui.selected}
	m.ui.open(v)
	return v.watch(m, m.board())
}

// watch asks again now and then: a restart changes what is shown.
func (v *detailView) watch(m *model, b board) []effect {
	for _, r := range b.rows {
		if r.key == v.key && r.worker != nil && m.linked() == "" && m.ui.now.Sub(v.asked) >= detailEvery {
			v.asked = m.ui.now
			return []effect{describeEffect{r.worker.ID}}
		}
	}
	return nil
}

func (m *model) described(msg describedMsg) {
	for _, o := range m.ui.views {
		if v, ok := o.(*detailView); ok && v.key == msg.worker {
			v.err = ""
			if msg.err != nil {
				v.err = problemText(msg.err)
				continue
			}
			v.detail = &msg.detail
		}
	}
}

func (v *detailView) draw(b board, u *ui, sz size) []line {
	title := rowOf(ident, left(" "+clean(v.key), sz.w))
	for _, r := range b.rows {
		if r.key == v.key {
			return append([]line{title}, window(v.lines(b, u, r, sz.w), &v.top, sz.h-1)...)
		}
	}
	return []line{title, rowOf(dim, "  not there any more")}
}

func (v *detailView) lines(b board, u *ui, r row, w int) []line {
	out := detailLines(b, u, r, w)
	if r.worker == nil {
		return out
	}
	if e := lastTrouble(u, r.worker.ID); e != nil {
		out = append(out, nil, field("last trouble", utc(e.At)+"Z  "+string(e.Level)))
		out = append(out, wrapped("", eventText(*e), w)...)
	}
	if v.detail != nil && v.detail.Evidence != nil && v.detail.Evidence.Text != "" {
		out = append(out, nil)
		out = append(out, wrapped("evidence", utc(v.detail.Evidence.At)+"Z  "+clean(v.detail.Evidence.Text), w)...)
	}
	out = append(out, nil, rowOf(bold, "How it was started"))
	if v.err != "" {
		out = append(out, wrapped("", v.err, w)...)
	}
	if v.detail == nil {
		return out
	}
	return append(out, startLines(*v.detail, w)...)
}

// lastTrouble is the newest warning or error of a worker.
func lastTrouble(u *ui, worker string) *pipeline.Event {
	for i := len(u.events.list) - 1; i >= 0; i-- {
		if e := &u.events.list[i]; e.Source == worker && (e.Level == pipeline.Warn || e.Level == pipeline.Error) {
			return e
		}
	}
	return nil
}

// startLines is the command, environment and launch of a worker.
func startLines(d pipeline.WorkerDetail, w int) []line {
	out := wrapped("command", shellText(d.Command), w)
	out = append(out, wrapped("directory", d.Dir, w)...)
	for i, e := range d.Env {
		name := "environment"
		if i > 0 {
			name = ""
		}
		text := e.Name + "=" + e.Value
		if e.Masked {
			text += "  (not shown)"
		}
		out = append(out, wrapped(name, text, w)...)
	}
	gpus := make([]string, 0, len(d.GPUs))
	for _, g := range d.GPUs {
		gpus = append(gpus, fmt.Sprintf("%d (%s) slot %d", g.Index, g.UUID, g.Slot))
	}
	out = append(out,
		field("GPU slots", cmp.Or(strings.Join(gpus, ", "), none)),
		field("shard", fmt.Sprintf("rank %d of %d", d.Rank, d.World)),
		field("launch", fmt.Sprintf("%s, number %d", d.Launch, d.Launches)))
	last := none
	if e := d.LastExit; e != nil {
		last = "code " + opt(e.Code, strconv.Itoa) + strings.TrimRight("  "+e.Signal, " ") + "  at " + e.At.UTC().Format(time.DateTime) + "Z"
		if e.OOM {
			last += "  out of memory"
		}
	}
	return append(out, field("last exit", last))
}

// shellText writes an argument vector so that a shell reads it as it is.
func shellText(argv []string) string {
	out := make([]string, len(argv))
	for i, a := range argv {
		out[i] = a
		if a == "" || strings.ContainsAny(a, " \t\n'\"\\$`*?[]{}()<>|&;#~!") {
			out[i] = "'" + strings.ReplaceAll(a, "'", `'\''`) + "'"
		}
	}
	return strings.Join(out, " ")
}

// wrapped is a field whose value may take several lines.
func wrapped(name, value string, w int) []line {
	var out []line
	for _, s := range wrap(value, max(20, w-16)) {
		out = append(out, field(name, s))
		name = ""
	}
	return out
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
		out = append(out, wrapped("", r.reason, w)...)
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
		field("exit code", exitText(w)),
		field("GPU memory", old(b.stale, opt(w.GPUMemBytes, bytesText))),
		field("log", w.Log+"   (l opens it)"),
	}
}

// exitText is how a worker ended; of one that lives there is nothing to say.
func exitText(w pipeline.WorkerSnapshot) string {
	if w.ExitCode == nil && w.PID != nil {
		return none
	}
	return strings.TrimSpace(opt(w.ExitCode, strconv.Itoa) + "  " + deref(w.ExitReason))
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
	out = append(out, troubleFields(g)...)
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

// troubleFields are what only NVML tells, where it is worth a line.
func troubleFields(g pipeline.GPUSnapshot) []line {
	m := g.More
	if m == nil {
		return nil
	}
	var out []line
	if len(m.Throttle) > 0 {
		out = append(out, field("held down by", strings.Join(m.Throttle, ", ")))
	}
	for _, x := range m.XIDs {
		out = append(out, field("error event", fmt.Sprintf("XID %d at %s", x.Code, utc(x.At)+"Z")))
	}
	if n := m.ECCUncorrected; n != nil && *n > 0 {
		out = append(out, field("ECC errors", strconv.FormatInt(*n, 10)+" that could not be corrected"))
	}
	if r := m.RemappedRows; r != nil && (r.Pending || r.Failed) {
		out = append(out, field("memory rows", "to be replaced at the next reset"))
	}
	for _, i := range m.MIG {
		out = append(out, field("MIG instance", fmt.Sprintf("%d  %s  %s  %s of %s", i.GPUInstance, i.Name, i.UUID, opt(i.MemUsedBytes, bytesText), opt(i.MemTotalBytes, bytesText))))
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
