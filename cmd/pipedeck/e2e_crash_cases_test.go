package main

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"pipedeck/pipeline"
)

// crashCase is one action in a deck that is ready for it.
type crashCase struct {
	name    string
	args    []string
	records int  // that it makes, for those who do not count first
	keeps   bool // local files stay after their upload
	ready   func(w *crash)
	check   func(w *crash, p pipeline.Plan)
}

func crashCases() []crashCase {
	agent := func(w *crash) { w.run(w.t, "coverage", "extract/hs") } // which begins nothing
	running := func(w *crash) { w.must(w.t, "start", "extract") }
	paused := func(w *crash) { w.must(w.t, "pause"); running(w) }
	extracts := func(live ...int) func(*crash, pipeline.Plan) {
		return func(w *crash, _ pipeline.Plan) { w.t.Helper(); w.alive("out", live...) }
	}
	trains := func(kept int) func(*crash, pipeline.Plan) {
		return func(w *crash, _ pipeline.Plan) {
			w.t.Helper()
			w.alive("out")
			w.alive("train", 1, 1)
			w.firstFiles(kept)
		}
	}
	stopped := func(kept int) func(*crash, pipeline.Plan) {
		return func(w *crash, _ pipeline.Plan) { w.t.Helper(); w.alive("out"); w.firstFiles(kept) }
	}
	return []crashCase{
		{name: "start", args: []string{"start", "extract"}, records: 12, ready: agent, check: extracts(1, 1)},
		{name: "stop", args: []string{"stop", "extract"}, records: 6, ready: running, check: extracts()},
		{name: "kill", args: []string{"kill", "extract"}, records: 6, ready: running, check: extracts()},
		{name: "restart", args: []string{"restart", "extract"}, records: 16, ready: running, check: extracts(2, 2)},
		{name: "restart worker", args: []string{"restart", "extract/1"}, records: 14, ready: running, check: extracts(1, 2)},
		{name: "settle", args: []string{"settle", "extract/hs"}, records: 4, ready: agent, check: func(w *crash, _ pipeline.Plan) { w.t.Helper(); w.stored("hs/", crashFiles) }},
		{name: "pivot", args: []string{"pivot", "train"}, records: 20, ready: running, check: trains(-1)},
		{name: "pivot keep", args: []string{"pivot", "train", "--keep"}, records: 20, ready: paused, check: trains(crashFiles)},
		{name: "pivot discard", args: []string{"pivot", "train", "--discard"}, records: 22, ready: paused, check: trains(0)},
		{name: "wipe", args: []string{"wipe", "extract/hs"}, records: 14, ready: paused, check: stopped(0)},
		{name: "wipe proven", args: []string{"wipe", "extract/hs", "--proven-only"}, records: 14, keeps: true, ready: (*crash).halfProven, check: stopped(crashFiles / 2)},
		{name: "wipe scratch", args: []string{"wipe", "--scratch", "extract"}, records: 10, ready: running, check: func(w *crash, _ pipeline.Plan) {
			w.t.Helper()
			w.alive("out")
			w.scratchIsInTheTrash()
		}},
		{name: "push", args: []string{"push"}, records: 4, ready: agent, check: func(w *crash, _ pipeline.Plan) { w.t.Helper(); w.stored("art/", 3) }},
		{name: "undo", records: 4, ready: (*crash).wiped, check: stopped(crashFiles)},
		{name: "adopt", args: []string{"adopt", "extract"}, records: 6, ready: (*crash).startsByHand, check: func(w *crash, _ pipeline.Plan) { w.t.Helper(); w.adopted() }},
		{name: "reap", args: []string{"reap"}, records: 4, ready: (*crash).stray, check: func(w *crash, _ pipeline.Plan) { w.t.Helper(); w.strayIsGone() }},
	}
}

// alive compares the living workers that write into a folder, and how often
// each rank was launched, with what should be.
func (w *crash) alive(out string, launches ...int) {
	w.t.Helper()
	if live := processesOf(w.t, filepath.Join(w.dir, out)); len(live) != len(launches) {
		w.t.Errorf("%d workers write into %s, not %d: %v", len(live), out, len(launches), live)
	}
	stage := map[string]string{"out": "extract", "train": "train"}[out]
	for rank, want := range launches {
		got, err := filepath.Glob(filepath.Join(w.stateDir(), "runs", "*", "*", fmt.Sprintf("%s-%d-*", stage, rank)))
		if err != nil || len(got) != want {
			w.t.Errorf("rank %d of %s was launched %d times, not %d: %v, %v", rank, stage, len(got), want, got, err)
		}
	}
}

// firstFiles counts those of the files that were there from the beginning that
// are in their place; -1: not counted.
func (w *crash) firstFiles(want int) {
	w.t.Helper()
	n := 0
	for i := range crashFiles {
		if _, err := os.Stat(filepath.Join(w.dir, "out", simName(sampleOf(i)))); err == nil {
			n++
		}
	}
	if want >= 0 && n != want {
		w.t.Errorf("%d of the first files are in their place, not %d", n, want)
	}
}

func (w *crash) stored(prefix string, atLeast int) {
	w.t.Helper()
	n := 0
	for _, key := range w.server.Keys() {
		if strings.HasPrefix(key, "p/r1/"+prefix) {
			n++
		}
	}
	if n < atLeast {
		w.t.Errorf("%d objects below %s, not %d", n, prefix, atLeast)
	}
}

// halfProven has half of the files in the store.
func (w *crash) halfProven() {
	w.t.Helper()
	away := filepath.Join(w.dir, "away")
	move := func(from, to string) {
		if err := os.Rename(from, to); err != nil {
			w.t.Fatal(err)
		}
	}
	if err := os.Mkdir(away, 0o755); err != nil {
		w.t.Fatal(err)
	}
	for i := range crashFiles / 2 {
		move(filepath.Join(w.dir, "out", simName(sampleOf(i))), filepath.Join(away, simName(sampleOf(i))))
	}
	w.must(w.t, "settle", "extract/hs")
	w.must(w.t, "pause")
	for i := range crashFiles / 2 {
		move(filepath.Join(away, simName(sampleOf(i))), filepath.Join(w.dir, "out", simName(sampleOf(i))))
	}
	w.must(w.t, "start", "extract")
}

func (w *crash) scratchIsInTheTrash() {
	w.t.Helper()
	if left, _ := os.ReadDir(filepath.Join(w.dir, "scratch")); len(left) > 0 {
		w.t.Errorf("%d entries are left in scratch", len(left))
	}
	n := 0
	_ = filepath.WalkDir(filepath.Join(w.stateDir(), "trash"), func(path string, e os.DirEntry, err error) error {
		if err == nil && strings.HasPrefix(filepath.Base(path), "shard_") && !e.IsDir() {
			n++
		}
		return nil
	})
	if n != 3 {
		w.t.Errorf("%d of 3 scratch files are in the trash", n)
	}
}

var actionID = regexp.MustCompile(`a-[0-9a-f]+`)

// wiped has a wipe to undo.
func (w *crash) wiped() {
	w.t.Helper()
	w.must(w.t, "pause")
	out := w.must(w.t, "wipe", "extract/hs", "--confirm", fmt.Sprintf("%d m", crashFiles), "--json")
	w.firstFiles(0)
	w.args = []string{"undo", actionID.FindString(out)}
}

// hand starts a process as an operator would, with nobody watching.
func (w *crash) hand(env []string, argv ...string) {
	w.t.Helper()
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Dir, cmd.Env = w.dir, env
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		w.t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() { defer close(ended); _ = cmd.Wait() }() // reaped as init would
	w.t.Cleanup(func() { _ = cmd.Process.Kill(); <-ended })
	w.byHand = append(w.byHand, cmd.Process.Pid)
}

func (w *crash) startsByHand() {
	w.t.Helper()
	w.run(w.t, "coverage", "extract/hs")
	for rank := range 2 {
		w.hand(w.env, w.bin, "sim-worker", "--rank", strconv.Itoa(rank), "--world-size", "2", "--out", filepath.Join(w.dir, "out"), "--written", "written",
			"--progress", fmt.Sprintf("p%d.json", rank), "--done", "done.txt", "--total", strconv.Itoa(crashTotal), "--size", strconv.Itoa(crashSize), "--rate", "4", "--load", "10ms")
	}
	w.args = append(slices.Clip(w.args), "--pid", joined(w.byHand))
}

func (w *crash) adopted() {
	w.t.Helper()
	w.alive("out", 1, 1)
	var s pipeline.Snapshot
	out, errs, _ := w.run(w.t, "--json")
	if err := json.Unmarshal([]byte(out), &s); err != nil {
		w.t.Fatalf("%v: %s", err, errs)
	}
	for _, x := range stageOf(s).Workers {
		if x.PID == nil || *x.PID != w.byHand[x.Rank] {
			w.t.Errorf("%s has pid %v, not %d", x.ID, x.PID, w.byHand[x.Rank])
		}
	}
}

// stray has a process that carries the mark of a worker that is gone.
func (w *crash) stray() {
	w.t.Helper()
	w.must(w.t, "start", "extract")
	all := recordedLaunches(w.stateDir())
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", all[0].Worker.PID))
	if err != nil {
		w.t.Fatal(err)
	}
	w.must(w.t, "stop", "extract", "--confirm", "m")
	w.hand(strings.Split(strings.TrimRight(string(raw), "\x00"), "\x00"), "sleep", "600")
	w.args = append(slices.Clip(w.args), "--pid", joined(w.byHand))
}

func (w *crash) strayIsGone() {
	w.t.Helper()
	if pid := w.byHand[0]; syscall.Kill(pid, 0) == nil && !isZombie(pid) {
		w.t.Errorf("pid %d lives", pid)
	}
}
