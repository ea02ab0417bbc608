package tui

import (
	"bytes"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"pipedeck/pipeline"
)

// memLog is a log in memory that answers as the agent does. Its places are
// byte offsets.
type memLog struct {
	data  []byte
	reads int
}

func (l *memLog) read(req pipeline.LogRequest) pipeline.LogChunk {
	l.reads++
	limit := req.Limit
	if limit == 0 {
		limit = 256 << 10
	}
	if req.Before != "" {
		end := len(l.data)
		if req.Before != pipeline.LogEnd {
			end, _ = strconv.Atoi(req.Before)
		}
		from := max(0, end-limit)
		if i := bytes.IndexByte(l.data[from:end], '\n'); from > 0 && i >= 0 {
			from += i + 1
		}
		return l.chunk(from, end)
	}
	from := 0
	if req.Cursor != pipeline.LogStart {
		from, _ = strconv.Atoi(req.Cursor)
	}
	end := min(len(l.data), from+limit)
	if i := bytes.LastIndexByte(l.data[from:end], '\n'); req.Lines && end < len(l.data) && i >= 0 {
		end = from + i + 1
	}
	return l.chunk(from, end)
}

func (l *memLog) chunk(from, end int) pipeline.LogChunk {
	return pipeline.LogChunk{
		Data: l.data[from:end], Start: strconv.Itoa(from), First: from == 0, Cursor: strconv.Itoa(end), EOF: end == len(l.data),
	}
}

// logDesk is a desk with an open log view over a log.
type logDesk struct {
	*desk
	log *memLog
}

func openLogDesk(t *testing.T, text string) *logDesk {
	t.Helper()
	d := &logDesk{newDesk(t, healthy(4)), &memLog{data: []byte(text)}}
	d.press("l")
	return d.answer()
}

func (d *logDesk) view() *logView { return d.m.ui.top().(*logView) }

// answer answers what the view asks for until it only waits for new lines.
func (d *logDesk) answer() *logDesk {
	d.t.Helper()
	for n := 0; len(d.fx) > 0; n++ {
		if n > 5000 {
			d.t.Fatal("the log view asks without end")
		}
		e, ok := d.fx[0].(logEffect)
		d.fx = d.fx[1:]
		if ok && e.part != partFollow {
			d.fx = append(d.fx, d.m.logged(logMsg{gen: e.gen, seq: e.seq, part: e.part, chunk: d.log.read(e.req)})...)
		}
	}
	return d
}

// grow appends to the log, and the view hears of it.
func (d *logDesk) grow(text string) *logDesk {
	d.log.data = append(d.log.data, text...)
	v := d.view()
	chunk := d.log.read(pipeline.LogRequest{Cursor: v.live})
	d.fx = append(d.fx, d.m.logged(logMsg{gen: v.gen, seq: v.seq, part: partFollow, chunk: chunk})...)
	return d.answer()
}

func (d *logDesk) keys(keys ...string) *logDesk {
	for _, k := range keys {
		d.press(k)
		d.answer()
	}
	return d
}

func TestLogFollows(t *testing.T) {
	t.Parallel()
	d := openLogDesk(t, "one\ntwo \x1b[31mred\x1b[0m\x1b[2J\nprogress 1%\rprogress 99%\nhalf")
	d.shows("two red").shows("progress 99%").shows("half").shows("following")
	if strings.Contains(d.screen(), "progress 1%") {
		t.Error("an overwritten progress line is shown")
	}
	d.grow(" a line\n"+strings.Repeat("more\n", 50)).keys("k", "k").shows("paused, 0 new")
	d.grow(strings.Repeat("later\n", 37))
	d.shows("paused, 37 new, G = newest").press("G").shows("following")
	d.keys("/").text("half a").press("enter")
	d.answer().shows("half a line").shows("paused")
	if fx := d.m.logged(logMsg{gen: 0}); fx != nil {
		t.Error("an answer to a closed log asks for more")
	}
	v := d.view()
	d.press("esc")
	if fx := d.m.logged(logMsg{gen: 1, seq: v.seq, part: partFollow}); fx != nil {
		t.Error("a closed log view asks for more")
	}
}

// bigLog has n numbered lines.
func bigLog(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, "2026-11-30 14:02:%02d,123 INFO step %06d loss 0.4321 some more text\n", i%60, i)
	}
	return b.String()
}

// A log of 900,000 lines opens with one read of a page, and every part of it
// can be reached; only a part is ever in memory.
func TestLargeLog(t *testing.T) {
	t.Parallel()
	text := bigLog(900_000)
	began := time.Now()
	d := openLogDesk(t, text)
	d.shows("step 899999")
	if took := time.Since(began); took > 200*time.Millisecond {
		t.Logf("opened in %v", took) // the limit is a benchmark's: machines differ
	}
	if d.log.reads > 2 {
		t.Errorf("opening takes %d reads", d.log.reads)
	}
	d.keys("g").shows("step 000000").shows("paused")
	for range 1000 {
		d.keys("ctrl+d")
	}
	d.shows(fmt.Sprintf("step %06d", 21+1000*20))
	if n := d.view().text.count(); n > 60_000 {
		t.Errorf("%d lines are in memory", n)
	}
	d.keys("G").shows("step 899999").shows("following")
	for range 1000 {
		d.keys("ctrl+u")
	}
	d.shows(fmt.Sprintf("step %06d", 899_999-1000*20))
	d.grow("new\nlines\n").shows("paused, 2 new")
	for range 1100 {
		d.keys("ctrl+d")
	}
	d.shows("lines").shows("following")
	d.grow("and more\n").shows("and more")
}

func TestLogSearchGoesThroughTheWholeFile(t *testing.T) {
	t.Parallel()
	d := openLogDesk(t, bigLog(200_000))
	d.keys("/").text("STEP 012345").press("enter")
	d.answer().shows("step 012345").shows("/STEP 012345").shows("paused")
	d.keys("n").shows("no match for STEP 012345 above")
	d.keys("/").text("00000 loss").press("enter")
	d.answer().shows("step 000000")
	d.keys("N").shows("step 100000")
	d.keys("N").shows("no match")
	d.keys("n").shows("step 000000")
	d.keys("G").shows("step 199999").shows("following")
}

func TestLogTimes(t *testing.T) {
	t.Parallel()
	d := openLogDesk(t, "2026-11-30 14:02:31,123 INFO own\n[09:00:01] bracket\nnone\n")
	d.keys("t").shows("14:02:31 INFO own").shows("09:00:01 bracket").shows("         none")
	d.grow("arrived\n").shows("14:02:31 arrived")
	d.keys("t").shows("2026-11-30 14:02:31,123 INFO own")
	d.press("y")
	if c, ok := d.last().(copyEffect); !ok || !strings.HasPrefix(c.text, "2026-11-30 14:02:31,123 INFO own\n") {
		t.Errorf("copied %v", d.last())
	}
}

func BenchmarkOpenLargeLog(b *testing.B) {
	log := &memLog{data: []byte(bigLog(900_000))}
	m := newModel(doer{}, t0, ui{theme: ThemeAuto})
	m.size = size{120, 40}
	m.take(healthy(4).in)
	for b.Loop() {
		m.ui.views = nil
		e := m.showLog("extract/0")[0].(logEffect)
		m.logged(logMsg{gen: e.gen, seq: e.seq, part: e.part, chunk: log.read(e.req)})
		render(m.in, &m.ui, m.size)
	}
}
