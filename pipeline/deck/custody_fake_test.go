package deck

import (
	"context"
	"errors"
	"path"
	"slices"
	"sync"
	"testing/synctest"

	"pipedeck/pipeline"
)

// diskFile is one file of a fakeCustody.
type diskFile struct {
	id    pipeline.FileID
	class pipeline.FileClass
}

// fakeCustody is a directory and a bucket in memory. It keeps the rules of the
// port: only listed, unchanged files move, and each can be brought back.
type fakeCustody struct {
	mu        sync.Mutex
	files     map[string]map[string]*diskFile // by output or scratch directory, then path
	trash     map[string]map[string]*diskFile // by action, then path
	suspended map[string][]string
	left      []string
	record    *pipeline.StageRecord
	recordErr error
	inputs    string
	noUndo    bool
	onTrash   func()
	slow      chan struct{} // Holdings waits for it
	partial   []string      // incomplete files, for Quarantine
	probeErr  error
	known     bool
}

func newFakeCustody() *fakeCustody {
	return &fakeCustody{
		files: map[string]map[string]*diskFile{}, trash: map[string]map[string]*diskFile{},
		suspended: map[string][]string{}, inputs: "same", known: true,
	}
}

func rootOf(area string) string {
	if path.IsAbs(area) {
		return area
	}
	return "/w/" + area
}

// put makes a file; the inode is the id.
func (c *fakeCustody) put(area, name string, ino uint64, class pipeline.FileClass) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.files[area] == nil {
		c.files[area] = map[string]*diskFile{}
	}
	c.files[area][name] = &diskFile{id: pipeline.FileID{Ino: ino, Size: 10}, class: class}
}

func (c *fakeCustody) names(area string) []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	var out []string
	for n := range c.files[area] {
		out = append(out, n)
	}
	slices.Sort(out)
	return out
}

func (c *fakeCustody) Holdings(ctx context.Context, req pipeline.HoldingsRequest, progress pipeline.Progress) ([]pipeline.Holding, error) {
	if c.slow != nil {
		if progress != nil {
			progress(3, 10)
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-c.slow:
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	var out []pipeline.Holding
	for i, area := range append(slices.Clone(req.Outputs), req.Scratch...) {
		h := pipeline.Holding{Name: area, Scratch: i >= len(req.Outputs), Complete: true, Undoable: !c.noUndo, StoredFiles: -1}
		for name, f := range c.files[area] {
			h.Files = append(h.Files, pipeline.ListedFile{Root: rootOf(area), Path: name, ID: f.id, Class: f.class})
		}
		slices.SortFunc(h.Files, func(a, b pipeline.ListedFile) int { return int(a.ID.Ino) - int(b.ID.Ino) })
		out = append(out, h)
	}
	return out, nil
}

func (c *fakeCustody) Suspend(_ context.Context, action string, outputs []string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.suspended[action] = outputs
	return nil
}

// held is how many actions keep the mover off, once all has come to rest.
func (c *fakeCustody) held() int {
	synctest.Wait()
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.suspended)
}

func (c *fakeCustody) Release(_ context.Context, action string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.suspended, action)
	return nil
}

func (c *fakeCustody) Trash(_ context.Context, action string, files []pipeline.ListedFile, _ pipeline.Progress) (pipeline.MoveReport, error) {
	if c.onTrash != nil {
		c.onTrash()
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.trash[action] == nil {
		c.trash[action] = map[string]*diskFile{}
	}
	var rep pipeline.MoveReport
	for _, f := range files {
		full := path.Join(f.Root, f.Path)
		for area, there := range c.files {
			is := there[f.Path]
			if rootOf(area) != f.Root || is == nil {
				continue
			}
			if is.id != f.ID {
				rep.StayedAll++
				rep.Stayed = append(rep.Stayed, pipeline.StayedFile{Path: full, Reason: "it changed"})
				continue
			}
			delete(there, f.Path)
			c.trash[action][area+"\x00"+f.Path] = is
			rep.Moved++
		}
	}
	return rep, nil
}

func (c *fakeCustody) Untrash(_ context.Context, action string, _ pipeline.Progress) (pipeline.MoveReport, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	var rep pipeline.MoveReport
	for key, f := range c.trash[action] {
		area, name, _ := cut(key)
		if c.files[area][name] != nil {
			rep.StayedAll++
			continue
		}
		c.files[area][name] = f
		delete(c.trash[action], key)
		rep.Moved++
	}
	return rep, nil
}

func cut(key string) (string, string, bool) {
	i := slices.Index([]byte(key), 0)
	return key[:i], key[i+1:], true
}

func (c *fakeCustody) Trashes(context.Context) ([]pipeline.Trashed, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	var out []pipeline.Trashed
	for action, files := range c.trash {
		if len(files) > 0 {
			out = append(out, pipeline.Trashed{Action: action, Files: int64(len(files)), Left: pipeline.TrashLife})
		}
	}
	return out, nil
}

func (c *fakeCustody) Purge(_ context.Context, action string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.trash, action)
	return nil
}

func (c *fakeCustody) Quarantine(_ context.Context, _, _ string, _ pipeline.Progress) (pipeline.MoveReport, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := int64(len(c.partial))
	c.partial = nil
	return pipeline.MoveReport{Moved: n}, nil
}

func (c *fakeCustody) Leave(_ context.Context, stage string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.left = append(c.left, stage)
	return nil
}

func (c *fakeCustody) StageRecord(context.Context, string) (*pipeline.StageRecord, bool, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.record, c.known, c.recordErr
}

func (c *fakeCustody) WriteStageRecord(_ context.Context, _ string, rec pipeline.StageRecord) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.recordErr != nil {
		return c.recordErr
	}
	c.record = &rec
	return nil
}

func (c *fakeCustody) DescribeInputs(context.Context, string) (pipeline.StageRecord, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return pipeline.StageRecord{Inputs: c.inputs, Command: "cmd"}, nil
}

func (c *fakeCustody) ProbeStore(context.Context) error { return c.probeErr }

// fakeAdopter has the processes that a test puts there.
type fakeAdopter struct {
	host      *fakeHost
	strangers []pipeline.Stranger
	reaped    []int
}

func (a *fakeAdopter) Strangers(_ context.Context, pids []int) ([]pipeline.Stranger, error) {
	var out []pipeline.Stranger
	for _, s := range a.strangers {
		if len(pids) == 0 || slices.Contains(pids, s.PID) {
			out = append(out, s)
		}
	}
	return out, nil
}

func (a *fakeAdopter) Adopt(_ context.Context, req pipeline.Launch, who pipeline.Stranger) error {
	a.host.mu.Lock()
	defer a.host.mu.Unlock()
	if a.host.procs[req.ID] != nil {
		return errors.New("used before")
	}
	a.host.procs[req.ID] = &pipeline.LaunchSeen{
		ID: req.ID, Stage: req.Stage, Rank: req.Rank, World: req.World, GPUs: req.GPUs,
		State: pipeline.ProcRunning, PID: who.PID, StartedAt: who.StartedAt, Log: req.Log,
	}
	a.host.order = append(a.host.order, req.ID)
	return nil
}

func (a *fakeAdopter) Reap(_ context.Context, who pipeline.Stranger) ([]pipeline.Process, error) {
	a.reaped = append(a.reaped, who.PID)
	return nil, nil
}

type fakeRunner struct{ code int }

func (r *fakeRunner) Run(context.Context, string, []string) (pipeline.Ran, error) {
	return pipeline.Ran{Code: r.code, Tail: "said"}, nil
}
