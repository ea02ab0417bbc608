package main

import (
	"strconv"
	"syscall"
	"testing"
)

// testConsoleSettlesFirst takes the safer way that a wipe offers: it becomes
// the plan, and after it the wipe is offered again, with nothing to lose.
func testConsoleSettlesFirst(t *testing.T, bin string) {
	t.Helper()
	c := newCrash(t, bin, crashCase{keeps: true, ready: func(*crash) {}})
	w := consoleOf(t, c.program)
	w.press(": "+keysOf("wipe extract/hs")+" Enter", "WIPE extract/hs", "WILL BE LOST", "20", "Safer: settle first, then wipe", "[settle first]")
	t.Log(w.screen())
	w.takesKeys()
	w.press("C-u Tab Enter", "SETTLE extract/hs", "verified")
	t.Log(w.screen())
	c.stored("hs/", crashFiles)
	w.press("Enter", "WIPE extract/hs", "type exactly:  wipe m")
	t.Log(w.screen())
	w.confirm("wipe m")
	w.shows("WIPE extract/hs   verified", "20 files moved to the trash")
	c.firstFiles(0)
	w.do(t, "send-keys", "C-c")
}

// testConsoleAdopts finds workers that were started by hand in the list of
// strangers, and takes them over.
func testConsoleAdopts(t *testing.T, bin string) {
	t.Helper()
	c := newCrash(t, bin, crashCase{args: []string{"adopt", "extract"}, ready: (*crash).startsByHand})
	w := consoleOf(t, c.program)
	w.press(": s t r a n g e r s Enter", "Processes that are no workers")
	t.Log(w.screen())
	w.press("q", "LIVE")
	w.press(": "+keysOf("adopt extract "+joined(c.byHand))+" Enter", "ADOPT extract", "pid "+strconv.Itoa(c.byHand[0]), "pid "+strconv.Itoa(c.byHand[1]), " of ", ", started 20", "of GPU memory", "sim-worker --rank 0", "sim-worker --rank 1", "type exactly:  m")
	t.Log(w.screen())
	w.confirm("m")
	w.shows("ADOPT extract   verified")
	t.Log(w.screen())
	w.do(t, "send-keys", "C-c")
	c.adopted()
}

// testConsoleReaps ends a stray, and nobody else's process.
func testConsoleReaps(t *testing.T, bin string) {
	t.Helper()
	c := newCrash(t, bin, crashCase{args: []string{"reap"}, ready: (*crash).stray})
	stray := strconv.Itoa(c.byHand[0])
	c.hand(c.env, "sleep", "601")
	other := c.byHand[1]
	w := consoleOf(t, c.program)
	w.press(": s t r a n g e r s Enter", "Processes that are no workers", stray, "sleep 600", "carries the run m/r1")
	t.Log(w.screen())
	w.press("q", "LIVE")
	w.press(": "+keysOf("reap "+stray)+" Enter", "REAP", "pid "+stray, "sleep 600", "type exactly:  m")
	t.Log(w.screen())
	w.confirm("m")
	w.shows("verified", "are gone")
	t.Log(w.screen())
	c.strayIsGone()
	w.press("q", "LIVE")
	w.press(": "+keysOf("reap "+strconv.Itoa(other))+" Enter", "nobody else's processes", "This plan cannot be executed")
	if syscall.Kill(other, 0) != nil || isZombie(other) {
		t.Error("somebody else's process was ended")
	}
	w.do(t, "send-keys", "C-c")
}
