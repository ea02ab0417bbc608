package main

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"pipedeck/pipeline"
)

// testIncident1 is the first incident again: workers that were started by
// hand, files on the disk and none in the bucket, and an operator who wants a
// restart.
func testIncident1(t *testing.T, bin string) {
	t.Helper()
	m := &move{files: 600, size: 20_000, ranks: 4, maxMemory: 64e6}
	complete := 200
	if full() {
		m.files, complete = 4000, 2000
	}
	m.prepare(t, bin, 40)
	spec, err := os.ReadFile(filepath.Join(m.dir, "pipedeck.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	m.write(t, "pipedeck.yaml", strings.Replace(string(spec), "stages:\n", "artifacts: [\"art/*\"]\nstages:\n", 1))
	m.artifacts(t)
	m.expect(t)
	pids := m.byHand(t, 40)
	eventually(t, "files are on the disk", func() bool { return m.local(t) >= complete })

	m.wipeIsRefused(t, complete)
	out, errs, code := m.run(t, "adopt", "extract", "--pid", joined(pids), "--dry-run")
	if code != exitOK || !strings.Contains(out, "extract.py") {
		t.Fatalf("adopt --dry-run ends with %d: %s%s", code, out, errs)
	}
	m.must(t, "adopt", "extract", "--pid", joined(pids), "--confirm", "e2e")
	for _, w := range stageOf(m.snapshot(t)).Workers {
		if w.PID == nil || *w.PID != pids[w.Rank] {
			t.Fatalf("adopted: %+v", w)
		}
	}
	if _, errs, code := m.run(t, "logs", "extract/0"); code != exitFailed || !strings.Contains(errs, "stays where it was sent") {
		t.Errorf("the log of an adopted worker ends with %d: %s", code, errs)
	}
	m.must(t, "restart", "extract", "--confirm", "e2e")
	for _, pid := range pids {
		if syscall.Kill(pid, 0) == nil && !isZombie(pid) {
			t.Errorf("pid %d outlived the restart", pid)
		}
	}
	eventually(t, "all is stored and gone from the disk", func() bool {
		s := m.snapshot(t)
		o := stageOf(s).Outputs[0]
		return o.DeletedLocalFiles != nil && *o.DeletedLocalFiles == int64(m.files) && stageOf(s).State == pipeline.StageDone
	})
	m.look()
	if len(m.broken) > 0 || len(m.seen) != m.files {
		t.Errorf("%d of %d arrived; broken: %v", len(m.seen), m.files, m.broken)
	}
	m.onceEach(t)
	if got, err := os.ReadDir(filepath.Join(m.gateway.Dir, "p", "r1", "art")); err != nil || len(got) != 13 {
		t.Errorf("%d artifacts are in the bucket, %v", len(got), err)
	}
}

func (m *move) artifacts(t *testing.T) {
	t.Helper()
	if err := os.Mkdir(filepath.Join(m.dir, "art"), 0o755); err != nil {
		t.Fatal(err)
	}
	for i := range 13 {
		m.write(t, fmt.Sprintf("art/%02d.bin", i), strings.Repeat(strconv.Itoa(i), 50_000))
	}
}

// byHand starts the workers as the operator of the incident did: from a shell,
// with nobody watching. It returns their pids by rank.
func (m *move) byHand(t *testing.T, rate float64) []int {
	t.Helper()
	var pids []int
	for rank := range m.ranks {
		log, err := os.Create(filepath.Join(m.dir, fmt.Sprintf("hand-%d.log", rank)))
		if err != nil {
			t.Fatal(err)
		}
		defer log.Close()
		cmd := exec.Command("python3", filepath.Join(workersDir(t), "extract.py"), "--rank", strconv.Itoa(rank),
			"--world-size", strconv.Itoa(m.ranks), "--out", "out", "--progress", fmt.Sprintf("p%d.json", rank), "--done", "done.txt",
			"--total", strconv.Itoa(m.files), "--size", strconv.Itoa(m.size), "--rate", fmt.Sprint(rate))
		cmd.Dir, cmd.Env, cmd.Stdout, cmd.Stderr = m.dir, m.env, log, log
		cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		pid := cmd.Process.Pid
		ended := make(chan struct{})
		go func() { defer close(ended); _ = cmd.Wait() }() // reaped as init would
		t.Cleanup(func() { _ = cmd.Process.Kill(); <-ended })
		pids = append(pids, pid)
	}
	return pids
}

func joined(pids []int) string {
	out := make([]string, 0, len(pids))
	for _, p := range pids {
		out = append(out, strconv.Itoa(p))
	}
	return strings.Join(out, ",")
}

func isZombie(pid int) bool {
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	return err == nil && strings.Contains(string(raw), ") Z ")
}

func (m *move) local(t *testing.T) int {
	t.Helper()
	entries, err := os.ReadDir(filepath.Join(m.dir, "out"))
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	return len(entries)
}

// wipeIsRefused asks for the deletion that the incident was.
func (m *move) wipeIsRefused(t *testing.T, atLeast int) {
	t.Helper()
	var p pipeline.Plan
	if err := json.Unmarshal([]byte(m.must(t, "plan", "wipe", "extract/hs", "--json")), &p); err != nil {
		t.Fatal(err)
	}
	if err := validate(pipeline.PlanSchema, []byte(m.must(t, "plan", "wipe", "extract/hs", "--json"))); err != nil {
		t.Error(err)
	}
	if p.Loss.Proven != 0 || p.Loss.LostFiles < int64(atLeast) || p.Loss.LostFiles != p.Loss.Files || p.Safer == nil || p.Safer.Action != pipeline.VerbSettle {
		t.Errorf("the plan to wipe: %+v, safer %+v", p.Loss, p.Safer)
	}
	if want := fmt.Sprintf("%d e2e", p.Loss.LostFiles); p.Confirm == nil || *p.Confirm != want {
		t.Errorf("it asks for %v, not %q", p.Confirm, want)
	}
	before := m.local(t)
	for _, typed := range []string{"yes", "e2e", "wipe e2e", "0 e2e", "1 e2e"} {
		if _, errs, code := m.run(t, "wipe", "extract/hs", "--confirm", typed); code != exitRefused {
			t.Errorf("wipe confirmed by %q ends with %d: %s", typed, code, errs)
		}
	}
	_, errs, code := m.run(t, "wipe", "extract/hs")
	if code != exitRefused || !strings.Contains(errs, "--confirm") || !strings.Contains(errs, " e2e") {
		t.Errorf("headless, wipe ends with %d: %s", code, errs)
	}
	if after := m.local(t); after < before {
		t.Errorf("%d of %d files are left", after, before)
	}
}

var computed = regexp.MustCompile(`(?m)^sample (\d+):`)

// onceEach reads the logs of all workers, by hand or not: no sample was
// computed twice.
func (m *move) onceEach(t *testing.T) {
	t.Helper()
	var logs []string
	for _, pattern := range []string{"hand-*.log", ".pipedeck/logs/*.log"} {
		found, err := filepath.Glob(filepath.Join(m.dir, pattern))
		if err != nil {
			t.Fatal(err)
		}
		logs = append(logs, found...)
	}
	times := map[string]int{}
	for _, path := range logs {
		raw, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		for _, hit := range computed.FindAllStringSubmatch(string(raw), -1) {
			times[hit[1]]++
		}
	}
	for id, n := range times {
		if n > 1 {
			t.Errorf("sample %s was computed %d times", id, n)
		}
	}
	if len(times) != m.files {
		t.Errorf("%d of %d samples were computed", len(times), m.files)
	}
}
