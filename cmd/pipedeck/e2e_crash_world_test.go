package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"pipedeck/pipeline"
	"pipedeck/pipeline/engine"
	"pipedeck/remote/agent/wire"
	"pipedeck/remote/journal"
	"pipedeck/s3/s3test"
)

const (
	crashFiles = 20 // written before the deck knows of them, half by each rank
	crashTotal = 400
	crashSize  = 4000
)

const crashYAML = `version: 1
deck: m
run: r1
workdir: %[1]q
store: {bucket: %[2]q, endpoint: %[3]q, region: us-east-1, path_style: true, credentials: node, prefix: p, max_memory: 64MB}
artifacts: ["art/*"]
stages:
  extract:
    total: %[5]d
    workers:
      count: 2
      command: [%[4]q, sim-worker, --rank, "{rank}", --world-size, "{world}", --out, "{workdir}/out", --written, written, --progress, "p{rank}.json", --done, done.txt, --total, "%[5]d", --size, "%[6]d", --rate, "4", --load, 10ms]
    scratch: [scratch]
    outputs:
      hs: {dir: out, match: "*.safetensors", format: safetensors, id: 'hs_(\d+)\.', key: "hs/{path}", after_upload: %[7]s}
    progress: {json: "p{rank}.json", done: processed}
    done_set: {file: done.txt, form: lines}
  train:
    workers:
      count: 2
      command: [%[4]q, sim-worker, --rank, "{rank}", --world-size, "{world}", --out, "{workdir}/train", --total, "4000", --size, "100", --rate, "2", --load, 10ms]
    outputs:
      ck: {dir: train, match: "*.safetensors", format: safetensors, id: 'hs_(\d+)\.', key: "ck/{path}"}
`

// crash is a small deck of real processes in which an agent dies.
type crash struct {
	*program
	t      *testing.T
	c      crashCase
	server *s3test.Server
	args   []string // of the action
	byHand []int
}

func newCrash(t *testing.T, bin string, c crashCase) *crash {
	t.Helper()
	w := &crash{t: t, c: c, server: s3test.Start(t, s3test.Options{})}
	w.program = newProgram(t, bin, "AWS_ACCESS_KEY_ID=k", "AWS_SECRET_ACCESS_KEY=s")
	after := "delete"
	if c.keeps {
		after = "keep"
	}
	w.write(t, "pipedeck.yaml", fmt.Sprintf(crashYAML, w.dir, w.server.Bucket(), w.server.URL(), bin, crashTotal, crashSize, after))
	for _, dir := range []string{"out", "scratch", "art", "train"} {
		if err := os.Mkdir(filepath.Join(w.dir, dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for i := range crashFiles {
		w.write(t, "out/"+simName(sampleOf(i)), string(simFile(sampleOf(i), crashSize)))
	}
	for i := range 3 {
		w.write(t, fmt.Sprintf("scratch/shard_%d.bin", i), strings.Repeat("s", 1000))
		w.write(t, fmt.Sprintf("art/%d.bin", i), strings.Repeat("a", 1000+i))
	}
	w.args = c.args
	c.ready(w)
	return w
}

// sampleOf are the first samples of either rank.
func sampleOf(i int) int { return i%(crashFiles/2) + i/(crashFiles/2)*(crashTotal/2) }

func (w *crash) stateDir() string { return filepath.Join(w.dir, ".pipedeck") }

func (w *crash) journal() []pipeline.JournalRecord {
	w.t.Helper()
	raw, err := os.ReadFile(filepath.Join(w.stateDir(), "journal.jsonl"))
	if err != nil {
		w.t.Fatal(err)
	}
	var out []pipeline.JournalRecord
	for line := range bytes.Lines(raw) {
		var rec pipeline.JournalRecord
		if err := json.Unmarshal(line, &rec); err != nil {
			break // just being written
		}
		out = append(out, rec)
	}
	return out
}

func (w *crash) lastSeq() int64 {
	recs := w.journal()
	if len(recs) == 0 {
		return 0
	}
	return recs[len(recs)-1].Seq
}

// plan makes the plan of the case's action and returns it.
func (w *crash) plan() pipeline.Plan {
	w.t.Helper()
	var p pipeline.Plan
	out := w.must(w.t, append(append([]string{"plan"}, w.args...), "--json")...)
	if err := json.Unmarshal([]byte(out), &p); err != nil {
		w.t.Fatal(err)
	}
	if !p.Executable || len(p.Steps) == 0 {
		w.t.Fatalf("the plan cannot be tried: %s", out)
	}
	return p
}

// apply runs the plan and returns the exit code that its operator sees.
func (w *crash) apply(p pipeline.Plan) (code int, said string) {
	w.t.Helper()
	args := []string{"apply", p.ID}
	if p.Confirm != nil {
		args = append(args, "--confirm", *p.Confirm)
	}
	_, said, code = w.run(w.t, args...)
	return code, said
}

// undisturbed returns how many records the action makes.
func (w *crash) undisturbed() int {
	w.t.Helper()
	p := w.plan()
	before := w.lastSeq()
	code, said := w.apply(p)
	if code != exitOK {
		w.t.Fatalf("undisturbed, it ends with %d: %s", code, said)
	}
	end := w.ended(p.ID)
	w.holds(p)
	return int(end.Seq - before)
}

// dies has the agent die at a moment of the action and judges what came of it.
// It is false if the action did not come there.
func (w *crash) dies(m moment) bool {
	w.t.Helper()
	p := w.plan()
	w.write(w.t, ".pipedeck/die-at", fmt.Sprintf("%d %s", w.lastSeq()+int64(m.n), m.when))
	code, said := w.apply(p)
	_, err := os.Stat(filepath.Join(w.stateDir(), "die-at"))
	died := os.IsNotExist(err)
	if died && m == (moment{1, "before"}) {
		w.neverBegan(p, code, said)
		return true
	}
	end := w.ended(p.ID)
	verified := strings.HasPrefix(end.Text, string(pipeline.Verified))
	w.account(code, said, verified)
	if !verified {
		w.t.Errorf("it ends as %q", end.Text)
	}
	w.holds(p)
	if !died {
		w.t.Logf("the action has fewer records than %d", m.n)
	}
	return died
}

// account holds what the operator was told against what came of it.
func (w *crash) account(code int, said string, verified bool) {
	w.t.Helper()
	if code == exitOK && !verified {
		w.t.Errorf("the command ends with 0: %s", said)
	}
	if code != exitOK && code != exitUnknown {
		w.t.Errorf("the command ends with %d: %s", code, said)
	}
}

// neverBegan judges a death before the first record: nothing was done.
func (w *crash) neverBegan(p pipeline.Plan, code int, said string) {
	w.t.Helper()
	if code == exitOK {
		w.t.Errorf("the command ends with 0: %s", said)
	}
	w.run(w.t, "coverage", "extract/hs") // brings the next agent, which goes on with whatever is open
	for _, r := range w.journal() {
		if r.Plan == p.ID && r.Kind != "refused" {
			w.t.Errorf("a record of it: %+v", r)
		}
	}
	w.leaseIsFree()
	w.lost()
	w.noLists()
}

func (w *crash) noLists() {
	w.t.Helper()
	if left, _ := filepath.Glob(filepath.Join(w.stateDir(), "plans", "*")); len(left) > 0 {
		w.t.Errorf("left of the plans: %v", left)
	}
}

// ended waits for the end of the action, resuming it if it waits for that.
func (w *crash) ended(plan string) pipeline.JournalRecord {
	w.t.Helper()
	resumed := false
	for until := time.Now().Add(2 * patience); ; time.Sleep(50 * time.Millisecond) {
		action := ""
		for _, r := range w.journal() {
			switch {
			case r.Plan == plan && r.Kind == engine.KindBegin:
				action = r.Action
			case action != "" && r.Action == action && r.Kind == engine.KindEnd:
				return r
			case !resumed && action != "" && r.Kind == "agent" && strings.HasPrefix(r.Text, "action "+action+" waits"):
				resumed = true
				w.t.Logf("%s", r.Text)
				w.must(w.t, "action", "resume", action)
			}
		}
		if time.Now().After(until) {
			for _, r := range w.journal() {
				w.t.Log(r.At.Format("04:05.000"), r.Kind, r.Action, r.Step, r.Text)
			}
			w.t.Fatalf("plan %s has no end; agent.log:\n%s", plan, wire.LastLines(wire.State{Dir: w.stateDir()}.Log(), 30))
		}
	}
}

// holds is what must be so after the action, whoever died in it.
func (w *crash) holds(p pipeline.Plan) {
	w.t.Helper()
	w.c.check(w, p)
	w.leaseIsFree()
	w.lost()
	w.twice()
	if n := len(w.server.Overwrites()); n != 0 {
		w.t.Errorf("%d objects were overwritten", n)
	}
	if _, err := journal.Verify(filepath.Join(w.stateDir(), "journal.jsonl")); err != nil {
		w.t.Error(err)
	}
	w.noLists()
	if w.t.Failed() {
		for _, r := range w.journal() {
			w.t.Log(r.At.Format("04:05.000"), r.Kind, r.Action, r.Step, r.Text)
		}
	}
}

// lost looks for every sample that was ever written: on the disk, wherever it
// was moved to, or in the store.
func (w *crash) lost() {
	w.t.Helper()
	have := map[string]bool{}
	err := filepath.WalkDir(w.dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() || filepath.Ext(path) != ".safetensors" {
			return nil //nolint:nilerr // it moved on; it is looked for in the store
		}
		raw, err := os.ReadFile(path)
		if id, convErr := strconv.Atoi(strings.TrimSuffix(strings.TrimPrefix(filepath.Base(path), "hs_"), ".safetensors")); err == nil && convErr == nil && bytes.Equal(raw, simFile(id, crashSize)) {
			have[filepath.Base(path)] = true
		}
		return nil
	})
	if err != nil {
		w.t.Fatal(err)
	}
	for _, id := range w.samples() {
		name := simName(id)
		stored, ok := w.server.Object("p/r1/hs/" + name)
		if ok && !bytes.Equal(stored, simFile(id, crashSize)) {
			w.t.Errorf("%s is in the store and is not what was written", name)
		}
		if !have[name] && !ok {
			w.t.Errorf("%s is lost", name)
		}
	}
}

// samples are all that were written, by the test or by workers.
func (w *crash) samples() []int {
	var out []int
	for i := range crashFiles {
		out = append(out, sampleOf(i))
	}
	raw, err := os.ReadFile(filepath.Join(w.dir, "written"))
	if err != nil {
		return out
	}
	for line := range strings.Lines(string(raw)) {
		if id, err := strconv.Atoi(strings.TrimSpace(line)); err == nil {
			out = append(out, id)
		}
	}
	return out
}

// twice fails if a sample was computed more than once.
func (w *crash) twice() {
	w.t.Helper()
	times := map[int]int{}
	for _, id := range w.samples() {
		if times[id]++; times[id] == 2 {
			w.t.Errorf("sample %d was computed twice", id)
		}
	}
}

// leaseIsFree needs it.
func (w *crash) leaseIsFree() {
	w.t.Helper()
	for _, stage := range []string{"extract", "train"} {
		if _, errs, code := w.run(w.t, "stop", stage, "--confirm", "m"); code != exitOK {
			w.t.Errorf("stop %s ends with %d: %s", stage, code, errs)
		}
	}
}
