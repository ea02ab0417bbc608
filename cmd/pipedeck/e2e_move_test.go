package main

import (
	"crypto/md5"
	"encoding/hex"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"pipedeck/pipeline"
	"pipedeck/s3/s3test"
)

// move is the main case: a worker of testdata/workers writes files in
// place, slowly; they come into versitygw, and leave the disk.
type move struct {
	*program
	gateway     *s3test.Gateway
	files, size int
	ranks       int
	maxMemory   int64
	perFile     float64 // requests that a file may cost
	want        map[string]string
	mu          sync.Mutex
	seen        map[string]bool
	broken      []string
	worstFlight int64
	worstMemory int64
	polls       int
}

func testMove(t *testing.T, bin string) {
	t.Helper()
	m := &move{files: 400, size: 300_000, ranks: 4, maxMemory: 512e6, perFile: 1.25}
	if full() {
		m.files, m.size, m.perFile = 5000, 1_200_000, 1.05
	}
	m.prepare(t, bin, 25)
	m.expect(t)
	m.must(t, "start", "extract")
	m.follow(t)
	m.arrived(t)
	m.ledgerLost(t)
}

func testLargeFiles(t *testing.T, bin string) {
	t.Helper()
	m := &move{files: 6, size: 40_000_000, ranks: 2, maxMemory: 64e6, perFile: 20}
	if full() {
		m.files, m.size, m.ranks, m.maxMemory = 40, 150_000_000, 4, 512e6
	}
	m.prepare(t, bin, 2)
	m.expect(t)
	m.must(t, "start", "extract")
	m.follow(t)
	m.arrived(t)
}

func (m *move) prepare(t *testing.T, bin string, rate float64) {
	t.Helper()
	python := needTool(t, "python3")
	workers := workersDir(t)
	m.gateway = s3test.Versitygw(t)
	m.program = newProgram(t, bin, "AWS_ACCESS_KEY_ID="+m.gateway.AccessKey, "AWS_SECRET_ACCESS_KEY="+m.gateway.SecretKey)
	m.seen = map[string]bool{}
	m.write(t, "pipedeck.yaml", fmt.Sprintf(moveYAML, m.dir, m.gateway.Bucket, m.gateway.Endpoint, m.maxMemory,
		m.files, m.ranks, python, filepath.Join(workers, "extract.py"), m.files, m.size, rate))
}

const moveYAML = `version: 1
deck: e2e
run: r1
workdir: %q
store: {bucket: %q, endpoint: %q, region: us-east-1, path_style: true, credentials: node, prefix: p, max_parallel: 100, max_memory: %d}
stages:
  extract:
    total: %d
    workers:
      count: %d
      command: [%q, %q, --rank, "{rank}", --world-size, "{world}", --out, out, --progress, "p{rank}.json", --done, done.txt, --total, "%d", --size, "%d", --rate, "%g"]
    outputs:
      hs: {dir: out, match: "*.safetensors", format: safetensors, id: 'hs_(\d+)\.', key: "hs/{path}", after_upload: delete}
    progress: {json: "p{rank}.json", done: processed}
    done_set: {file: done.txt, form: lines}
`

func workersDir(t *testing.T) string {
	t.Helper()
	dir, err := filepath.Abs(filepath.Join("..", "..", "testdata", "workers"))
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

// expect asks the worker's own code for the MD5 of each file.
func (m *move) expect(t *testing.T) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "python3", "-c", `import sys, hashlib, extract
for i in range(int(sys.argv[1])):
    print(f"hs_{i:06d}.safetensors", hashlib.md5(extract.payload(i, int(sys.argv[2]))).hexdigest())`, strconv.Itoa(m.files), strconv.Itoa(m.size))
	cmd.Env = append(os.Environ(), "PYTHONPATH="+workersDir(t), "PYTHONDONTWRITEBYTECODE=1")
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("cannot ask the worker for its bytes: %v", err)
	}
	m.want = map[string]string{}
	for line := range strings.Lines(string(out)) {
		name, sum, _ := strings.Cut(strings.TrimSpace(line), " ")
		m.want[name] = sum
	}
}

// written counts the samples that the workers say they have finished.
func (m *move) written(t *testing.T) int {
	t.Helper()
	logs, err := filepath.Glob(filepath.Join(m.dir, ".pipedeck", "logs", "*.log"))
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for _, path := range logs {
		raw, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		n += strings.Count(string(raw), "\nsample ")
	}
	return n
}

// look compares every object that is new in the gateway's folder.
func (m *move) look() {
	m.mu.Lock()
	defer m.mu.Unlock()
	entries, err := os.ReadDir(filepath.Join(m.gateway.Dir, "p", "r1", "hs"))
	if err != nil {
		return // nothing was uploaded yet
	}
	for _, e := range entries {
		want, ours := m.want[e.Name()]
		if !ours || m.seen[e.Name()] {
			continue
		}
		raw, err := os.ReadFile(filepath.Join(m.gateway.Dir, "p", "r1", "hs", e.Name()))
		if err != nil {
			continue
		}
		m.seen[e.Name()] = true
		if sum := md5.Sum(raw); hex.EncodeToString(sum[:]) != want {
			m.broken = append(m.broken, fmt.Sprintf("%s with %d bytes", e.Name(), len(raw)))
		}
	}
}

// follow polls until everything is stored and gone from the disk.
func (m *move) follow(t *testing.T) {
	t.Helper()
	stop, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		for {
			m.look()
			select {
			case <-stop:
				return
			case <-time.After(5 * time.Millisecond):
			}
		}
	}()
	var slow []float64
	for until := time.Now().Add(20 * patience); ; {
		before := m.written(t)
		var s pipeline.Snapshot
		slow = append(slow, milliseconds(func() { s = m.snapshot(t) }))
		after := m.written(t)
		m.judge(t, s, before, after)
		o := stageOf(s).Outputs[0]
		if after == m.files && *o.DeletedLocalFiles == int64(m.files) && stageOf(s).State == pipeline.StageDone {
			break
		}
		if time.Now().After(until) {
			t.Fatalf("not done in time: %s", m.must(t, "snapshot"))
		}
		time.Sleep(50 * time.Millisecond)
	}
	close(stop)
	<-ended
	slices.Sort(slow)
	t.Logf("%d polls; --json took %.0f ms in the median, %.0f ms at worst", len(slow), slow[len(slow)/2], slow[len(slow)-1])
}

// judge holds one snapshot against what the workers said before and after it.
// A worker that is writing has one file on disk that it has not told of.
func (m *move) judge(t *testing.T, s pipeline.Snapshot, before, after int) {
	t.Helper()
	o := stageOf(s).Outputs[0]
	if o.LocalFiles != nil && o.DeletedLocalFiles != nil {
		m.polls++
		sum := int(*o.LocalFiles + *o.DeletedLocalFiles)
		if sum < before || sum > after+m.ranks {
			t.Errorf("%d local + %d gone = %d, but %d to %d were written", *o.LocalFiles, *o.DeletedLocalFiles, sum, before, after)
		}
	}
	m.worstFlight = max(m.worstFlight, o.Queue.InFlight)
	if o.Queue.InFlight > 100 {
		t.Errorf("%d uploads in flight", o.Queue.InFlight)
	}
	m.worstMemory = max(m.worstMemory, peakMemory(s.Nodes[0].Agent.PID))
}

// peakMemory is the most memory that a process had resident so far, in bytes.
func peakMemory(pid int) int64 {
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0
	}
	_, rest, _ := strings.Cut(string(raw), "VmHWM:")
	var kib int64
	if _, err := fmt.Sscan(rest, &kib); err != nil {
		return 0
	}
	return kib << 10
}

// arrived checks the end: all there, all the same, nothing left, at the cost
// that was promised.
func (m *move) arrived(t *testing.T) {
	t.Helper()
	m.look()
	if len(m.broken) > 0 {
		t.Errorf("objects were visible that are not what the worker wrote: %v", m.broken)
	}
	if len(m.seen) != m.files {
		t.Errorf("%d of %d files are in the bucket", len(m.seen), m.files)
	}
	left, err := os.ReadDir(filepath.Join(m.dir, "out"))
	if err != nil || len(left) > 0 {
		t.Errorf("the output directory has %d entries, %v", len(left), err)
	}
	n, err := m.gateway.Requests()
	if err != nil {
		t.Fatal(err)
	}
	total := 0
	for _, c := range n {
		total += c
	}
	t.Logf("%d files of %d bytes: %d requests (%.3f a file) %v; at most %d in flight; agent had %d MB at most; %d polls compared",
		m.files, m.size, total, float64(total)/float64(m.files), n, m.worstFlight, m.worstMemory/1e6, m.polls)
	if got := float64(total) / float64(m.files); got > m.perFile {
		t.Errorf("%.3f requests a file, more than %.2f", got, m.perFile)
	}
	if most := m.maxMemory + 150e6; m.worstMemory > most || m.worstMemory == 0 {
		t.Errorf("the agent had %d bytes of memory, more than %d", m.worstMemory, most)
	}
	if m.polls == 0 {
		t.Error("no poll could be compared")
	}
}

// ledgerLost deletes the ledger: the bucket tells it all again, and a second
// start computes nothing.
func (m *move) ledgerLost(t *testing.T) {
	t.Helper()
	m.must(t, "agent", "stop")
	found, err := filepath.Glob(filepath.Join(m.dir, ".pipedeck", "ledger.db*"))
	if err != nil || len(found) == 0 {
		t.Fatalf("no ledger: %v", err)
	}
	for _, path := range append(found, filepath.Join(m.dir, "done.txt")) {
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
	}
	eventually(t, "the verified files are known again", func() bool {
		o := stageOf(m.snapshot(t)).Outputs[0]
		return o.VerifiedFiles != nil && *o.VerifiedFiles == int64(m.files) && *o.DeletedLocalFiles == int64(m.files)
	})
	m.must(t, "start", "extract")
	eventually(t, "the stage is done again", func() bool { return stageOf(m.snapshot(t)).State == pipeline.StageDone })
	if n := m.written(t); n != m.files {
		t.Errorf("%d samples were computed twice", n-m.files)
	}
	raw, err := os.ReadFile(filepath.Join(m.dir, "done.txt"))
	if err != nil {
		t.Fatal(err)
	}
	ids := map[int]bool{}
	for line := range strings.Lines(string(raw)) {
		id, err := strconv.Atoi(strings.TrimSpace(line))
		if err != nil {
			t.Fatal(err)
		}
		ids[id] = true
	}
	if got := slices.Sorted(maps.Keys(ids)); len(got) != m.files || got[0] != 0 || got[len(got)-1] != m.files-1 {
		t.Errorf("the done-set has %d ids", len(got))
	}
	s := m.snapshot(t)
	if o := stageOf(s).Outputs[0]; *o.VerifiedFiles != int64(m.files) || *o.LocalFiles != 0 {
		t.Errorf("%d verified, %d local", *o.VerifiedFiles, *o.LocalFiles)
	}
}
