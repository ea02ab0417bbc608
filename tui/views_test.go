package tui

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	tea "charm.land/bubbletea/v2"

	"pipedeck/pipeline"
)

// withViews are desks with each view open, for golden screens.
func withViews(t *testing.T) map[string]*desk {
	t.Helper()
	detail := newDesk(t, crashed()).press("j", "j", "j", "enter")
	detail.m.described(describedMsg{worker: "extract/3", detail: exampleDetail("extract/3")})
	failures := newDesk(t, mixed(8)).press("e")
	failures.m.failuresListed(failuresMsg{list: exampleFailures()})
	failures.press("j")
	log := openLogDesk(t, bigLog(400))
	log.keys("k", "k").grow(strings.Repeat("later\n", 37))
	lost := openLogDesk(t, bigLog(400))
	in := lost.m.in
	in.link = pipeline.Link{State: pipeline.LinkLost, AgeSeconds: new(34.2)}
	lost.m.take(in)
	event := newDesk(t, mixed(8)).press("3", "j", "enter")
	plan := newDesk(t, healthy(4)).intend(pipeline.VerbWipe, "extract/hidden_states").planned().wait(time.Second)
	plan.text("1204 dflash")
	action := newDesk(t, healthy(4))
	action.m.ui.open(&actionView{action: exampleAction("a-14", t0())})
	return map[string]*desk{
		"view_detail": detail, "view_failures": failures, "view_log": log.desk, "view_log_lost": lost.desk, "view_event": event,
		"view_plan": plan, "view_action": action, "view_menu": newDesk(t, healthy(4)).press("!"), "view_help": newDesk(t, healthy(4)).press("?"),
		"view_locked": newDesk(t, healthy(4)).press("L", "!"), "filtered": newDesk(t, mixed(8)).press("/").text("run").press("enter", "s"),
		"sorted": newDesk(t, mixed(16)).press("s", "s"), "zoomed": newDesk(t, mixed(8)).press("2", "+"),
	}
}

func TestGoldenViews(t *testing.T) {
	t.Parallel()
	for name, d := range withViews(t) {
		for _, sz := range sizes()[1:] {
			d.m.size = sz
			golden(t, fmt.Sprintf("%s-%dx%d", name, sz.w, sz.h), d.screen())
			u := d.m.ui
			checkFits(t, name, render(d.m.in, &u, sz), sz)
		}
	}
}

// Without block characters a screen is pure ASCII.
func TestASCIIScreens(t *testing.T) {
	t.Parallel()
	for name, s := range scenes() {
		s.ui.ascii = true
		got := plainText(render(s.in, &s.ui, size{120, 40}))
		if name != "hostile" && !isPlain(strings.ReplaceAll(got, "\n", "")) {
			t.Errorf("%s is not plain ASCII:\n%s", name, got)
		}
	}
	s := mixed(8)
	s.ui.ascii = true
	golden(t, "ascii-120x40", plainText(render(s.in, &s.ui, size{120, 40})))
}

// Every state is a word on the screen; colour only repeats it.
func TestEveryStateIsAWord(t *testing.T) {
	t.Parallel()
	s := allStates()
	got := plainText(render(s.in, &s.ui, size{120, 40}))
	for _, w := range s.workers() {
		if word, _ := workerWord(w.State); !strings.Contains(got, " "+word+" ") {
			t.Errorf("state %s is not on the screen", w.State)
		}
	}
	for _, l := range []pipeline.LinkState{
		pipeline.LinkConnecting, pipeline.LinkLive, pipeline.LinkSlow, pipeline.LinkStale, pipeline.LinkLost, pipeline.LinkAuth, pipeline.LinkVersion,
	} {
		s := healthy(1)
		s.in.link.State = l
		for _, sz := range sizes()[1:] {
			if got := plainText(render(s.in, &s.ui, sz)); !strings.Contains(got, strings.ToUpper(string(l))) {
				t.Errorf("link state %s is not on the screen at %v", l, sz)
			}
		}
	}
}

func TestDetailShowsTheStart(t *testing.T) {
	t.Parallel()
	d := newDesk(t, crashed()).press("j", "j", "j", "enter")
	if d.last() != effect(describeEffect{"extract/3"}) {
		t.Fatalf("asked for %v", d.last())
	}
	d.m.size = size{120, 60}
	d.m.described(describedMsg{worker: "extract/3", detail: exampleDetail("extract/3")})
	d.shows("python3 extract.py --rank 2 --prompt 'two words' --api-key '******'").shows("HF_TOKEN=******  (not shown)").
		shows("rank 2 of 4").shows("code 137  SIGKILL").shows("out of memory").shows("last trouble").shows("exit 137 (SIGKILL); restart in 8 s (1 of 3)")
	if fx := d.wait(detailEvery).m.take(d.m.in); len(fx) != 1 || fx[0] != effect(describeEffect{"extract/3"}) {
		t.Errorf("an open detail view asks for %v", fx)
	}
	d.m.described(describedMsg{worker: "extract/3", err: pipeline.Problemf(pipeline.ProblemFailed, "look", "cannot ask")})
	d.shows("cannot ask (look)").shows("python3 extract.py")
}

// A living worker has no exit to explain.
func TestLivingWorkerHasNoExit(t *testing.T) {
	t.Parallel()
	s := healthy(4)
	s.workers()[0].ExitReason = new("has not ended")
	d := newDesk(t, s).press("enter")
	d.m.size = size{120, 60}
	if strings.Contains(d.screen(), "has not ended") {
		t.Error("a living worker's missing exit is explained")
	}
}

func TestFailuresAreListed(t *testing.T) {
	t.Parallel()
	d := newDesk(t, mixed(8)).press("e")
	if d.last() != effect(failuresEffect{}) {
		t.Fatalf("asked for %v", d.last())
	}
	d.m.size = size{160, 40}
	d.m.failuresListed(failuresMsg{list: exampleFailures()})
	d.shows("hs_000412807.safetensors").shows("1m30s").shows("41s").shows("mismatched").shows("quarantined").shows("exit 137")
	d.press("j", "y")
	if c, ok := d.last().(copyEffect); !ok || c.text != "rank3/hs_000000012.safetensors" {
		t.Errorf("copied %v", d.last())
	}
	d.press("enter").shows("compare both and remove the wrong one").press("esc")
	d.press("/").text("503").press("enter").shows("hs_000412807").shows("/503")
	if strings.Contains(d.screen(), "rank3/") {
		t.Error("the filter lets another file through")
	}
	if fx := d.m.retried(nil); len(fx) != 1 || fx[0] != effect(failuresEffect{}) {
		t.Errorf("after a retry the list asks for %v", fx)
	}
}

func TestEachPaneHasItsFilter(t *testing.T) {
	t.Parallel()
	d := newDesk(t, mixed(8)).press("1", "/").text("extract/2").press("enter")
	d.shows("/extract/2  7 hidden, 2 of them failing").shows("6/8 workers").shows("exit 137")
	if strings.Contains(d.screen(), "extract/1 ") {
		t.Error("the filter lets another worker through")
	}
	d.press("3", "/").text("nothing like it").press("enter").shows("none match /nothing like it").shows("/extract/2")
	d.press("esc", "1", "esc").shows("extract/1 ").shows("exit 137")
}

func TestSorting(t *testing.T) {
	t.Parallel()
	order := func(d *desk) string {
		var out []string
		for _, r := range d.m.board().rows {
			out = append(out, strings.TrimPrefix(r.key, "extract/"))
		}
		return strings.Join(out, " ")
	}
	d := newDesk(t, mixed(8))
	for _, tc := range []struct{ key, want string }{
		{"s", "6 3 0 1 2 4 5 7"}, {"S", "7 5 4 2 1 0 3 6"}, {"s", "3 0 1 2 4 5 7 6"}, {"s", "0 1 2 4 5 7 3 6"}, {"s", "0 1 2 3 4 5 6 7"},
	} {
		if got := order(d.press(tc.key)); got != tc.want {
			t.Errorf("after %s %s: %s, want %s", tc.key, d.m.ui.order.text(), got, tc.want)
		}
	}
	d.press(":").text("sort need").press("enter").shows("by need")
}

func TestMouseIsOffUntilAskedFor(t *testing.T) {
	t.Parallel()
	d := newDesk(t, healthy(4))
	if d.m.View().MouseMode != tea.MouseModeNone {
		t.Error("the mouse is on at the start")
	}
	d.press("m")
	if d.m.View().MouseMode == tea.MouseModeNone {
		t.Error("m does not switch the mouse on")
	}
	y := -1
	for i, l := range strings.Split(d.screen(), "\n") {
		if strings.Contains(l, "extract/2") {
			y = i
		}
	}
	d.m.click(tea.Mouse{Y: y, X: 5, Button: tea.MouseLeft})
	if d.m.ui.selected != "extract/2" {
		t.Errorf("a click on extract/2 chooses %s", d.m.ui.selected)
	}
	d.m.wheel(tea.Mouse{Button: tea.MouseWheelUp})
	if d.m.ui.selected != "extract/0" {
		t.Errorf("the wheel chooses %s", d.m.ui.selected)
	}
	if len(d.fx) != 0 {
		t.Errorf("the mouse asked for %v", d.fx)
	}
}

func TestThemeFollowsTheBackground(t *testing.T) {
	t.Parallel()
	u := ui{theme: ThemeAuto}
	if u.shown() != ThemeAuto {
		t.Error("without an answer of the terminal")
	}
	u.dark = new(true)
	if u.shown() != ThemeDark {
		t.Error("on a dark background")
	}
	u.dark = new(false)
	if u.shown() != ThemeLight {
		t.Error("on a light background")
	}
	if u.theme = ThemeMono; u.shown() != ThemeMono {
		t.Error("the operator's choice does not win")
	}
}

func TestClockSkewIsShown(t *testing.T) {
	t.Parallel()
	for by, want := range map[time.Duration]string{0: "", time.Second: "", 12 * time.Second: "node clock 12s ahead", -time.Minute: "node clock 59s behind"} {
		s := healthy(1)
		s.in.snap.At = t0().Add(by)
		got := plainText(render(s.in, &s.ui, size{160, 40}))
		if want == "" && strings.Contains(got, "node clock") || !strings.Contains(got, want) {
			t.Errorf("by %v: %s", by, strings.SplitN(got, "\n", 2)[0])
		}
	}
}

func TestSourcesHaveAges(t *testing.T) {
	t.Parallel()
	s := healthy(1)
	n := &s.in.snap.Nodes[0]
	n.GPUSource.AgeSeconds, n.UploadsAgeSeconds, n.Disks[0].AgeSeconds, n.Host.AgeSeconds = new(14.0), new(9.0), new(61.0), new(33.0)
	got := plainText(render(s.in, &s.ui, size{160, 40}))
	for _, want := range []string{"GPUs 14s old", "uploads 9s old", "disks 1m01s old", "machine 33s old", "~95%"} {
		if !strings.Contains(got, want) {
			t.Errorf("not on the screen: %s\n%s", want, got)
		}
	}
}

func TestKeyFile(t *testing.T) {
	t.Parallel()
	m, err := ParseKeys("keys", "# mine\nquit = Q\nzoom = z ctrl-f f5\nmouse =\n")
	if err != nil {
		t.Fatal(err)
	}
	d := newDesk(t, healthy(4))
	d.m.ui.keymap = m
	d.press("q")
	if len(d.fx) != 0 {
		t.Error("q still leaves")
	}
	if d.press("ctrl+f"); !d.m.ui.zoom {
		t.Error("ctrl-f does not zoom")
	}
	d.press("m").press("ctrl+f").shows("Q quit")
	if d.m.ui.mouse {
		t.Error("a name without keys still has one")
	}
	if d.press("Q"); d.last() != effect(quitEffect{}) {
		t.Error("Q does not leave")
	}
	for text, want := range map[string]string{
		"quit = l\n":           `"l" means both logs and quit`,
		"zoom = enter\n":       `"Enter" means both detail and zoom`,
		"log-wrap = q\n":       `"q" means both log-wrap and quit`,
		"log-wrap = l\n":       "",
		"nosuch = x\n":         `keys:1: no name "nosuch"`,
		"zoom = ctrl+nokey\n":  `no key`,
		"zoom z\n":             `has no =`,
		"zoom = z\nzoom = x\n": `twice`,
		"quit =\nleave =\n":    `neither quit nor leave`,
	} {
		_, err := ParseKeys("keys", text)
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%q: %v, want %s", text, err, want)
		}
	}
}

func TestPlainSaysEachChangeOnce(t *testing.T) {
	t.Parallel()
	src := newFakeSource(healthy(4).in)
	var out strings.Builder
	p := newPlainLog(&out)
	p.look(newBoard(src.in, t0(), ""))
	first := out.String()
	for _, want := range []string{"link: live\n", "dflash-qwen36-27b @ train1: RUNNING\n", "extract/0: RUN\n", "stage extract: running\n", "summary: extract running verified in S3 411,602 / 914,000"} {
		if !strings.Contains(first, want) {
			t.Errorf("not said: %q in\n%s", want, first)
		}
	}
	p.look(newBoard(src.in, t0().Add(time.Second), ""))
	if out.String() != first {
		t.Errorf("said again: %s", out.String()[len(first):])
	}
	p.look(newBoard(crashed().in, t0().Add(2*time.Second), ""))
	said := strings.TrimPrefix(out.String(), first)
	for _, want := range []string{"extract/3: EXIT 137, exit 137 (SIGKILL)\n", "[!] DEGRADED", "error extract/3: exit 137 (SIGKILL); restart in 8 s (1 of 3)\n"} {
		if !strings.Contains(said, want) {
			t.Errorf("not said: %q in\n%s", want, said)
		}
	}
	if strings.Contains(out.String(), "\x1b") {
		t.Error("a control sequence")
	}
}

// The document has the key table as it is; -update writes it there.
func TestKeysAreDocumented(t *testing.T) {
	t.Parallel()
	path := filepath.Join("..", "docs", "console.md")
	raw, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	const begin, end = "from the key table -->\n", "<!-- /keys -->"
	head, rest, ok1 := strings.Cut(string(raw), begin)
	_, tail, ok2 := strings.Cut(rest, end)
	if !ok1 || !ok2 {
		t.Fatal("the place of the key table is not marked")
	}
	want := head + begin + KeysMarkdown() + end + tail
	if *update {
		if err := os.WriteFile(path, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if want != string(raw) {
		t.Error("docs/console.md has another key table (go test ./tui -update writes it)")
	}
}
