package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"pipedeck/pipeline"
	"pipedeck/remote/agent/wire"
	"pipedeck/remote/journal"
)

// life is a run under which agent and keeper are killed again and again.
type life struct {
	*move
	kills, keepers int
	rnd            *rand.Rand
	workers        map[string]process // by run directory, as first seen
}

// testLife kills -9 the agent at random moments, with the keeper every fifth
// time, while workers write in place. Nothing is lost, nothing started twice.
func testLife(t *testing.T, bin string) {
	t.Helper()
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	m := &move{files: 300, size: 100_000, ranks: 4, maxMemory: 512e6}
	kills, rate := 12, 6.0
	if full() {
		m.files, m.size, kills, rate = 5000, 1_200_000, 50, 12
	}
	l := &life{move: m, rnd: rand.New(rand.NewPCG(seed, 0)), workers: map[string]process{}}
	l.prepare(t, bin, rate)
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("agent.log:\n%s", wire.LastLines(l.state().Log(), 40))
		}
	})
	l.expect(t)
	l.must(t, "start", "extract")
	l.sameWorkers(t)
	// The kills are spread over the time that the workers need at least.
	pause := time.Duration(float64(m.files) / float64(m.ranks) / rate / float64(kills) * float64(time.Second))
	for n := 1; n <= kills; n++ {
		time.Sleep(time.Duration(l.rnd.Float64() * 1.6 * float64(pause)))
		l.kill(t, n%5 == 0)
		l.look()
		l.sameWorkers(t)
	}
	l.finish(t)
	l.verify(t)
}

// state is where the deck's locks are.
func (l *life) state() wire.State { return wire.State{Dir: filepath.Join(l.dir, ".pipedeck")} }

// kill ends the agent, whatever it is doing, and its keeper first if told to.
// Then the next command has to bring them back.
func (l *life) kill(t *testing.T, keeper bool) {
	t.Helper()
	if keeper {
		l.killHolder(t, l.state().KeeperLock())
		l.keepers++
	}
	if l.killHolder(t, l.state().AgentLock()) {
		l.kills++
	}
	if keeper {
		l.snapshot(t)
	}
}

// killHolder waits for a holder of a lock and kills it. An agent that is just
// starting is as good as any.
func (l *life) killHolder(t *testing.T, path string) bool {
	t.Helper()
	killed := false
	eventually(t, path+" is held", func() bool {
		rec, held, err := wire.Held(path)
		if err != nil || !held || rec.PID <= 1 {
			return false
		}
		err = syscall.Kill(rec.PID, syscall.SIGKILL)
		if err != nil && !errors.Is(err, syscall.ESRCH) {
			t.Fatal(err)
		}
		killed = err == nil
		return true
	})
	return killed
}

// sameWorkers compares who was started with who was started first.
func (l *life) sameWorkers(t *testing.T) {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join(l.state().Dir, "runs", "*", "*", "*"))
	if err != nil {
		t.Fatal(err)
	}
	for _, dir := range paths {
		raw, err := os.ReadFile(filepath.Join(dir, "started.json"))
		if err != nil {
			t.Fatalf("a launch without a record of its start: %v", err)
		}
		var rec launched
		if err := json.Unmarshal(raw, &rec); err != nil {
			t.Fatal(err)
		}
		if was, known := l.workers[dir]; known && was != rec.Worker {
			t.Errorf("%s was %+v, is %+v", dir, was, rec.Worker)
		}
		l.workers[dir] = rec.Worker
		if _, err := os.Stat(filepath.Join(dir, "exit.json")); err != nil && !rec.Worker.alive() {
			// It may have ended between the two looks; its record follows.
			eventually(t, dir+" has an exit record", func() bool {
				_, err := os.Stat(filepath.Join(dir, "exit.json"))
				return err == nil
			})
		}
	}
	if len(l.workers) != l.ranks {
		t.Fatalf("%d launches for %d ranks: %v", len(l.workers), l.ranks, slices.Sorted(maps.Keys(l.workers)))
	}
}

// finish waits until all is stored and gone from the disk.
func (l *life) finish(t *testing.T) {
	t.Helper()
	var s pipeline.StageSnapshot
	for until := time.Now().Add(20 * patience); ; time.Sleep(100 * time.Millisecond) {
		l.look()
		s = stageOf(l.snapshot(t))
		o := s.Outputs[0]
		if s.State == pipeline.StageDone && o.DeletedLocalFiles != nil && *o.DeletedLocalFiles == int64(l.files) {
			break
		}
		if time.Now().After(until) {
			t.Fatalf("not done in time: %s", l.must(t, "snapshot"))
		}
	}
	for _, w := range s.Workers {
		if w.ExitCode == nil || *w.ExitCode != 0 || w.Restarts != 0 {
			t.Errorf("worker %s: exit code %v, %d restarts", w.ID, w.ExitCode, w.Restarts)
		}
	}
}

// verify holds the end against what the workers said.
func (l *life) verify(t *testing.T) {
	t.Helper()
	l.look()
	if len(l.broken) > 0 {
		t.Errorf("objects were visible that are not what the worker wrote: %v", l.broken)
	}
	if len(l.seen) != l.files {
		t.Errorf("%d of %d files are in the bucket", len(l.seen), l.files)
	}
	l.sameWorkers(t)
	if twice := l.samplesTwice(t); len(twice) > 0 {
		t.Errorf("computed more than once: %v", twice)
	}
	for _, dir := range []string{"out", ".pipedeck/aside", ".pipedeck/trash", ".pipedeck/quarantine"} {
		if left := outputsBelow(t, filepath.Join(l.dir, dir)); len(left) > 0 {
			t.Errorf("left in %s: %v", dir, left)
		}
	}
	records, err := journal.Verify(filepath.Join(l.state().Dir, "journal.jsonl"))
	if err != nil {
		t.Error(err)
	}
	l.ledgerLost(t) // the second start computes nothing and has a right done-set
	if len(l.workers) != l.ranks {
		t.Errorf("%d launches", len(l.workers))
	}
	t.Logf("%d files, %d kills of the agent, %d of the keeper; %d journal records, chain good; workers %v",
		l.files, l.kills, l.keepers, records, slices.Collect(maps.Values(l.workers)))
}

// outputsBelow lists the output files in a folder that may not be there.
func outputsBelow(t *testing.T, root string) []string {
	t.Helper()
	var out []string
	err := filepath.WalkDir(root, func(path string, e os.DirEntry, err error) error {
		if err == nil && !e.IsDir() && filepath.Ext(path) == ".safetensors" {
			out = append(out, path)
		}
		return err
	})
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		t.Fatal(err)
	}
	return out
}

// samplesTwice lists the samples that the workers' logs name twice.
func (l *life) samplesTwice(t *testing.T) []string {
	t.Helper()
	logs, err := filepath.Glob(filepath.Join(l.state().Dir, "logs", "*.log*"))
	if err != nil {
		t.Fatal(err)
	}
	count := map[string]int{}
	for _, path := range logs {
		raw, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(raw)) {
			if id, found := strings.CutPrefix(line, "sample "); found {
				count[strings.TrimSpace(id)]++
			}
		}
	}
	var twice []string
	for id, n := range count {
		if n > 1 {
			twice = append(twice, fmt.Sprintf("%s: %d times", id, n))
		}
	}
	if len(count) != l.files {
		t.Errorf("%d samples in the logs, not %d", len(count), l.files)
	}
	return twice
}
