package deck

import (
	"context"
	"encoding/json"
	"fmt"
	"io/fs"
	"log/slog"
	"path"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"pipedeck/pipeline"
	"pipedeck/pipeline/spec"
)

// fakeHost is a node whose processes do what the test says.
type fakeHost struct {
	mu      sync.Mutex
	now     func() time.Time
	procs   map[string]*pipeline.LaunchSeen // by launch id
	order   []string
	signals []string // "launch SIG scope"
	onStart func(*pipeline.LaunchSeen)
	onSig   func(l *pipeline.LaunchSeen, sig string, to pipeline.Scope)
	refuse  error
	late    int // how many more looks find somebody whom Observe has missed
}

func (h *fakeHost) Start(_ context.Context, req pipeline.Launch) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.refuse != nil {
		return h.refuse
	}
	if h.procs[req.ID] != nil {
		return fmt.Errorf("launch %q was used before", req.ID)
	}
	l := &pipeline.LaunchSeen{
		ID: req.ID, Stage: req.Stage, Rank: req.Rank, World: req.World, GPUs: req.GPUs,
		State: pipeline.ProcRunning, PID: 1000 + len(h.order), StartedAt: h.now(), Log: req.Log,
	}
	h.procs[req.ID] = l
	h.order = append(h.order, req.ID)
	if h.onStart != nil {
		h.onStart(l)
	}
	return nil
}

func (h *fakeHost) Observe(context.Context) ([]pipeline.LaunchSeen, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	newest := map[string]pipeline.LaunchSeen{}
	for _, id := range h.order {
		l := *h.procs[id]
		newest[workerID(l.Stage, l.Rank)] = l
	}
	out := make([]pipeline.LaunchSeen, 0, len(newest))
	for _, l := range newest {
		out = append(out, l)
	}
	return out, nil
}

func (h *fakeHost) Inspect(_ context.Context, launch string) (pipeline.ProcessSet, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	l := h.procs[launch]
	set := pipeline.ProcessSet{At: h.now(), Exit: l.Exit}
	if l.State == pipeline.ProcRunning || h.late > 0 {
		h.late--
		set.Members = append(set.Members, pipeline.Process{PID: l.PID, State: "S", Threads: 1, By: "leader"})
	}
	return set, nil
}

func (h *fakeHost) Signal(_ context.Context, launch, sig string, to pipeline.Scope) ([]pipeline.Signalled, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.signals = append(h.signals, fmt.Sprintf("%s %s %s", launch, sig, to))
	if h.onSig != nil {
		h.onSig(h.procs[launch], sig, to)
	}
	return nil, nil
}

func (h *fakeHost) sent() []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return append([]string{}, h.signals...)
}

func (h *fakeHost) launches() []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return append([]string{}, h.order...)
}

// end lets a process end with a code.
func (h *fakeHost) end(launch string, code int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.exit(h.procs[launch], code)
}

func (h *fakeHost) exit(l *pipeline.LaunchSeen, code int) {
	l.State, l.PID = pipeline.ProcExited, 0
	l.Exit = &pipeline.Exit{Code: &code, At: h.now()}
}

// fakeMover has nothing to move.
type fakeMover struct {
	mu        sync.Mutex
	reading   pipeline.MoverReading
	doneSets  int
	doneLacks string
	doneErr   error
	active    []string
	paused    bool
	failures  []pipeline.Failure
}

func (m *fakeMover) Activate(_ context.Context, stage string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.active = append(m.active, stage)
	return nil
}
func (m *fakeMover) Live(string, bool) {}
func (m *fakeMover) Pause(_ context.Context, on bool) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.paused = on
	return nil
}
func (m *fakeMover) Retry()          {}
func (m *fakeMover) QueueArtifacts() {}
func (m *fakeMover) Hasten([]string) {}
func (m *fakeMover) Failures() []pipeline.Failure {
	m.mu.Lock()
	defer m.mu.Unlock()
	return append([]pipeline.Failure{
		{Output: "extract/hs", Path: "new", Since: time.Unix(2, 0)},
		{Output: "extract/hs", Path: "old", Since: time.Unix(1, 0)},
	}, m.failures...)
}

func (m *fakeMover) Outputs() pipeline.MoverReading {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.reading
}

func (m *fakeMover) set(r pipeline.MoverReading) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.reading = r
}

func (m *fakeMover) WriteDoneSet(context.Context, string) (int, string, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.doneSets++
	return 0, m.doneLacks, m.doneErr
}

func (m *fakeMover) Coverage(_ context.Context, names []string, _ bool) ([]pipeline.OutputCoverage, error) {
	out := make([]pipeline.OutputCoverage, 0, len(names))
	for _, n := range names {
		out = append(out, pipeline.OutputCoverage{Name: n})
	}
	return out, nil
}

// fakeSensor has GPUs whose memory a test sets.
type fakeSensor struct {
	mu   sync.Mutex
	now  func() time.Time
	used []int64           // by index
	more *pipeline.GPUMore // of the first GPU
	lost map[int]string    // why GPUs are lost, by index
}

func (s *fakeSensor) GPUs(context.Context) pipeline.GPUReading {
	s.mu.Lock()
	defer s.mu.Unlock()
	r := pipeline.GPUReading{At: s.now(), Kind: "nvml"}
	for i, u := range s.used {
		total := int64(100 << 30)
		r.GPUs = append(r.GPUs, pipeline.GPUSnapshot{
			Index: i, UUID: fmt.Sprintf("GPU-%d", i), State: pipeline.GPUOK,
			MemUsedBytes: &u, MemTotalBytes: &total, Processes: []pipeline.GPUProcess{},
		})
		if why := s.lost[i]; why != "" {
			r.GPUs[i] = pipeline.GPUSnapshot{Index: i, UUID: r.GPUs[i].UUID, State: pipeline.GPULost, StateReason: &why}
		}
	}
	if s.more != nil {
		r.GPUs[0].More = s.more
	}
	return r
}

func (s *fakeSensor) setUsed(index int, used int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.used[index] = used
}

func (s *fakeSensor) Machine(context.Context) pipeline.MachineReading {
	return pipeline.MachineReading{At: s.now()}
}
func (s *fakeSensor) Disks(context.Context, []string) []pipeline.DiskReading { return nil }

// memFiles is a disk in memory.
type memFiles struct {
	mu    sync.Mutex
	files map[string][]byte
	fail  error
}

func (f *memFiles) ReadFile(p string, _ int64) ([]byte, time.Time, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	raw, ok := f.files[p]
	if !ok {
		return nil, time.Time{}, fs.ErrNotExist
	}
	return raw, time.Time{}, nil
}

func (f *memFiles) ReadFrom(p string, offset, limit int64) ([]byte, int64, uint64, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	raw, ok := f.files[p]
	if !ok {
		return nil, 0, 0, fs.ErrNotExist
	}
	end := min(int64(len(raw)), offset+limit)
	if offset > end {
		return nil, int64(len(raw)), 1, nil
	}
	return raw[offset:end], int64(len(raw)), 1, nil
}

func (f *memFiles) Glob(pattern string) ([]string, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	var out []string
	for p := range f.files {
		if ok, err := path.Match(pattern, p); err != nil {
			return nil, err
		} else if ok {
			out = append(out, p)
		}
	}
	return out, nil
}

func (f *memFiles) WriteFile(p string, data []byte) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.fail != nil {
		return f.fail
	}
	f.files[p] = data
	return nil
}

func (f *memFiles) Remove(p string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.files, p)
	return nil
}

// memJournal passes records through JSON, as a file would.
type memJournal struct {
	mu   sync.Mutex
	recs []pipeline.JournalRecord
}

func (j *memJournal) Append(rec pipeline.JournalRecord) error {
	raw, err := json.Marshal(rec)
	if err != nil {
		return err
	}
	var back pipeline.JournalRecord
	if err := json.Unmarshal(raw, &back); err != nil {
		return err
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	j.recs = append(j.recs, back)
	return nil
}

func (j *memJournal) Read(int) ([]pipeline.JournalRecord, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	return append([]pipeline.JournalRecord{}, j.recs...), nil
}

type noLogs struct{}

func (noLogs) Read(context.Context, string, pipeline.LogRequest) (pipeline.LogChunk, error) {
	return pipeline.LogChunk{EOF: true}, nil
}

// world is a deck on fakes that outlive it, as a node outlives an agent.
type world struct {
	sp      *spec.Spec
	host    *fakeHost
	mover   *fakeMover
	sensor  *fakeSensor
	files   *memFiles
	journal *memJournal
	custody *fakeCustody
	adopter *fakeAdopter
	runner  *fakeRunner
	ids     int
	step    atomic.Int64 // of the wall clock, in ns
}

const testSpec = `version: 1
deck: d
run: r1
workdir: /w
store: {bucket: bucket, endpoint: "http://127.0.0.1:1", region: x, path_style: true}
stages:
  extract:
    total: 100
    workers:
      %s
      command: [work, "{rank}"]
      stop: {signal: SIGINT, grace: 20s}
      restart: {max: 2, backoff: 10s}
    outputs:
      states: {dir: out, match: "*.safetensors", format: safetensors, id: '(\d+)\.safetensors', key: "states/{path}"}
    done_set: {file: done.txt, form: lines}
`

func newWorld(t *testing.T, workers string, gpus int) *world {
	t.Helper()
	sp, err := spec.Parse("pipedeck.yaml", fmt.Appendf(nil, testSpec, workers))
	if err != nil {
		t.Fatal(err)
	}
	host := &fakeHost{now: time.Now, procs: map[string]*pipeline.LaunchSeen{}}
	return &world{
		sp:      sp,
		host:    host,
		custody: newFakeCustody(),
		adopter: &fakeAdopter{host: host},
		runner:  &fakeRunner{},
		mover:   &fakeMover{},
		sensor:  &fakeSensor{now: time.Now, used: make([]int64, gpus)},
		files:   &memFiles{files: map[string][]byte{}},
		journal: &memJournal{},
	}
}

// agent runs a deck on the world until the returned function ends it.
func (w *world) agent(t *testing.T) (*Deck, func()) {
	t.Helper()
	return w.agentWith(t, w.journal)
}

// agentOver is agent with another custody.
func (w *world) agentOver(t *testing.T, c pipeline.Custody) (*Deck, func()) {
	t.Helper()
	return w.agentOn(t, w.journal, c)
}

func (w *world) agentWith(t *testing.T, j pipeline.Journal) (*Deck, func()) {
	t.Helper()
	return w.agentOn(t, j, w.custody)
}

func (w *world) agentOn(t *testing.T, j pipeline.Journal, custody pipeline.Custody) (*Deck, func()) {
	t.Helper()
	d, err := New(w.sp, w.sp.Nodes[0], pipeline.AgentInfo{Instance: "i"}, Ports{
		Host: w.host, Custody: custody, Adopter: w.adopter, Runner: w.runner, Mover: w.mover, Sensor: w.sensor, Files: w.files, Journal: j, Logs: noLogs{},
		Now: func() time.Time { return time.Now().Add(time.Duration(w.step.Load())) }, Jitter: func() float64 { return 0.5 }, NewID: func() string { w.ids++; return strconv.Itoa(w.ids) },
		Log: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- d.Run(ctx) }()
	return d, func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
}

// do plans, confirms and follows an intent to its end.
func do(t *testing.T, d *Deck, verb pipeline.Verb, target string) pipeline.Action {
	t.Helper()
	p, err := d.Plan(t.Context(), pipeline.Intent{Verb: verb, Target: target})
	if err != nil {
		t.Fatal(err)
	}
	a, err := d.Apply(t.Context(), pipeline.ApplyRequest{Plan: p.ID, Confirm: confirmOf(p), By: "tester"})
	for err == nil && a.EndedAt == nil {
		a, err = d.Action(t.Context(), a.ID, time.Minute)
	}
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func confirmOf(p pipeline.Plan) string {
	if p.Confirm == nil {
		return ""
	}
	return *p.Confirm
}
