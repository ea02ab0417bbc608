package deck

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"sync"

	"pipedeck/pipeline"
)

// WantsName is the file in the state directory that says what is wanted of each
// stage. An agent must be able to write it on a full disk.
const WantsName = "deck.json"

// maxWants bounds deck.json: 10,000 workers need about 3 MB.
const maxWants = 16 << 20

// wantStore keeps what is wanted of each stage, durably: a change is on disk
// before anything is done about it.
type wantStore struct {
	files pipeline.Files
	path  string

	mu   sync.Mutex
	data wantFile
}

// wantFile is deck.json.
type wantFile struct {
	Schema   int                           `json:"schema"`
	Run      string                        `json:"run"`
	Stages   map[string]pipeline.StageWant `json:"stages"`
	Baseline map[string]int64              `json:"gpu_baseline"` // bytes in use before the last start, by UUID
	// Code is the hash of the operator's code that was last seen to be here.
	Code string `json:"code,omitempty"`
}

// loadWants reads what was wanted. Of another run only the numbers of launches
// are kept, since launch ids are used once: nothing of it is wanted any more.
func loadWants(files pipeline.Files, path, run string) (*wantStore, error) {
	w := &wantStore{files: files, path: path}
	w.data = wantFile{Schema: pipeline.SchemaVersion, Run: run, Stages: map[string]pipeline.StageWant{}, Baseline: map[string]int64{}}
	raw, _, err := files.ReadFile(path, maxWants)
	if errors.Is(err, fs.ErrNotExist) {
		return w, nil
	}
	if err != nil {
		return nil, fmt.Errorf("cannot read %q: %w", path, err)
	}
	if err := json.Unmarshal(raw, &w.data); err != nil {
		return nil, pipeline.Problemf(pipeline.ProblemFailed,
			"workers that live are not touched; move the file away and start the stages again",
			"cannot read %q: %w", path, err)
	}
	if w.data.Stages == nil {
		w.data.Stages = map[string]pipeline.StageWant{}
	}
	if w.data.Baseline == nil {
		w.data.Baseline = map[string]int64{}
	}
	if w.data.Run != run {
		w.data.Run = run
		for name, s := range w.data.Stages {
			w.data.Stages[name] = ofAnotherRun(s)
		}
	}
	return w, nil
}

func ofAnotherRun(s pipeline.StageWant) pipeline.StageWant {
	next := pipeline.StageWant{Workers: map[int]pipeline.WorkerWant{}}
	for rank, w := range s.Workers {
		next.Workers[rank] = pipeline.WorkerWant{Launches: w.Launches}
	}
	return next
}

// stages returns a copy of all wants.
func (w *wantStore) stages() map[string]pipeline.StageWant {
	w.mu.Lock()
	defer w.mu.Unlock()
	out := make(map[string]pipeline.StageWant, len(w.data.Stages))
	for name, s := range w.data.Stages {
		s.Workers = maps.Clone(s.Workers)
		out[name] = s
	}
	return out
}

func (w *wantStore) stage(name string) pipeline.StageWant {
	return w.stages()[name]
}

// change applies f to the wants of a stage and writes them. If the write
// fails nothing has changed.
func (w *wantStore) change(stage string, f func(*pipeline.StageWant)) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	s := w.data.Stages[stage]
	s.Workers = maps.Clone(s.Workers)
	if s.Workers == nil {
		s.Workers = map[int]pipeline.WorkerWant{}
	}
	f(&s)
	next := w.data
	next.Stages = maps.Clone(w.data.Stages)
	next.Stages[stage] = s
	return w.write(next)
}

// setBaseline records what each GPU held before a start.
func (w *wantStore) setBaseline(used map[string]int64) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	next := w.data
	next.Baseline = maps.Clone(w.data.Baseline)
	maps.Copy(next.Baseline, used)
	return w.write(next)
}

// setCode records which code the workers are launched with from now on.
func (w *wantStore) setCode(hash string) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.data.Code == hash {
		return nil
	}
	next := w.data
	next.Code = hash
	return w.write(next)
}

func (w *wantStore) code() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.data.Code
}

func (w *wantStore) baseline(uuid string) *int64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	if b, ok := w.data.Baseline[uuid]; ok {
		return &b
	}
	return nil
}

func (w *wantStore) baselines() map[string]int64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	return maps.Clone(w.data.Baseline)
}

func (w *wantStore) write(next wantFile) error {
	raw, err := json.MarshalIndent(next, "", " ")
	if err != nil {
		return fmt.Errorf("cannot write %q: %w", w.path, err)
	}
	if err := w.files.WriteFile(w.path, raw); err != nil {
		return fmt.Errorf("cannot write %q: %w", w.path, err)
	}
	w.data = next
	return nil
}
