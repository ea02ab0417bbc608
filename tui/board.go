package tui

import (
	"cmp"
	"slices"
	"strconv"
	"strings"
	"time"

	"pipedeck/pipeline"
)

// board is what the panes draw: one node of a Snapshot, its GPUs joined with
// their workers, and how far all of it can be believed.
type board struct {
	in      input // of all nodes
	snap    pipeline.Snapshot
	node    pipeline.NodeSnapshot
	have    bool // a snapshot has arrived
	link    pipeline.Link
	retryIn time.Duration
	now     time.Time
	stale   bool // the link is down: all values are old
	oldGPU  bool // the GPU readings are old though the link lives
	oldHost bool
	all     []row // every row, in the order of the GPUs
	rows    []row // those that the operator looks at, in the order asked for
	outputs []namedOutput
}

// namedOutput is one output with its full name, "stage/output".
type namedOutput struct {
	name  string
	stage string
	pipeline.OutputSnapshot
}

// row is one line of the workers pane: a GPU, a worker, or both.
type row struct {
	key    string // identity, which selection follows: worker id or "gpu N"
	gpu    *pipeline.GPUSnapshot
	worker *pipeline.WorkerSnapshot
	name   string
	word   string // state as shown
	reason string // why, in words; may be empty
	weight weight
	ended  bool // as it was told to: nothing is wrong with it
}

// works says whether a worker does what it is there for, or has done it.
func (r row) works() bool { return r.weight == calm && !r.ended }

// weight is how much attention something needs.
type weight uint8

const (
	calm weight = iota
	doubtful
	alarming
	broken
)

// mark is the sign in the first column.
func (w weight) mark() string { return [...]string{" ", "?", "!", "X"}[w] }

func (w weight) look() look { return [...]look{plain, dim, warn, bad}[w] }

// sourceLimit is how old a reading of one source may be before it is marked.
const sourceLimit = 6.0 // seconds

// newBoard shows the node of that name, the first one if there is none.
func newBoard(in input, now time.Time, name string) board {
	b := board{in: in, now: now}
	if len(in.snap.Nodes) > 0 {
		at := slices.IndexFunc(in.snap.Nodes, func(n pipeline.NodeSnapshot) bool { return n.Name == name })
		b.node = in.snap.Nodes[max(0, at)]
	} else {
		in.ok = false
	}
	if len(in.snap.Nodes) > 1 {
		in.link = b.node.Link // each node has a connection of its own
		in.only(b.node.Name)
	}
	b.snap, b.have, b.link, b.retryIn = in.snap, in.ok, in.link, in.retryIn
	b.stale = in.link.State != pipeline.LinkLive && in.link.State != pipeline.LinkSlow
	b.oldGPU = b.stale || tooOld(b.node.GPUSource.AgeSeconds)
	b.oldHost = b.stale || tooOld(b.node.Host.AgeSeconds)
	b.all = joinRows(b.node)
	b.rows = b.all
	for _, s := range b.node.Stages {
		for _, o := range s.Outputs {
			b.outputs = append(b.outputs, namedOutput{s.Name + "/" + o.Name, s.Name, o})
		}
	}
	if a := b.node.Artifacts; a != nil {
		b.outputs = append(b.outputs, namedOutput{"artifacts", "", *a})
	}
	return b
}

func tooOld(age *float64) bool { return age != nil && *age > sourceLimit }

// joinRows puts each worker beside its GPU. GPUs without a worker and workers
// without a GPU have rows too.
func joinRows(n pipeline.NodeSnapshot) []row {
	workers, stopped := shownWorkers(n.Stages), stoppedWorkers(n.Stages)
	taken := map[int]bool{}
	var rows []row
	for gi := range n.GPUs {
		g := &n.GPUs[gi]
		free := true
		for i, w := range workers {
			if !taken[i] && onGPU(w, g) {
				taken[i], free = true, false
				rows = append(rows, workerRow(w, g, stopped[w.ID]))
			}
		}
		if free {
			rows = append(rows, gpuRow(g))
		}
	}
	for i, w := range workers {
		if !taken[i] {
			rows = append(rows, workerRow(w, nil, stopped[w.ID]))
		}
	}
	for _, s := range n.Stages {
		for _, v := range s.Services {
			word, weight := workerWord(v.State)
			name := s.Name + "/" + v.Name + "." + strconv.Itoa(v.Rank)
			rows = append(rows, row{key: name, name: name, word: word, weight: weight})
		}
	}
	return rows
}

// shownWorkers are the workers of active stages, and of others those that
// live or failed; when nothing is active, those of the last stage that ran.
func shownWorkers(stages []pipeline.StageSnapshot) []*pipeline.WorkerSnapshot {
	var out, last []*pipeline.WorkerSnapshot
	for si := range stages {
		s := &stages[si]
		ran := false
		for wi := range s.Workers {
			w := &s.Workers[wi]
			ran = ran || w.StartedAt != nil
			if active(s.State) || w.PID != nil {
				out = append(out, w)
			}
		}
		if ran {
			last = last[:0]
			for wi := range s.Workers {
				last = append(last, &s.Workers[wi])
			}
		}
	}
	if len(out) == 0 {
		return last
	}
	return out
}

func active(s pipeline.StageState) bool {
	return s != pipeline.StageIdle && s != pipeline.StageStopped && s != pipeline.StageDone && s != ""
}

func onGPU(w *pipeline.WorkerSnapshot, g *pipeline.GPUSnapshot) bool {
	if w.GPUUUID != nil && g.UUID != "" {
		return *w.GPUUUID == g.UUID
	}
	return w.GPU != nil && *w.GPU == g.Index
}

// stoppedWorkers are those that ended in a stage that was stopped: with what
// code they ended is told, and needs nobody's attention.
func stoppedWorkers(stages []pipeline.StageSnapshot) map[string]bool {
	out := map[string]bool{}
	for _, s := range stages {
		for _, w := range s.Workers {
			out[w.ID] = s.State == pipeline.StageStopped && w.State == pipeline.WorkerExited
		}
	}
	return out
}

func workerRow(w *pipeline.WorkerSnapshot, g *pipeline.GPUSnapshot, stopped bool) row {
	r := row{key: w.ID, name: w.ID, worker: w, gpu: g}
	r.word, r.weight = workerWord(w.State)
	if w.ExitCode != nil && r.weight == broken && w.State != pipeline.WorkerOOM {
		r.word += " " + strconv.Itoa(*w.ExitCode)
	}
	if stopped {
		r.weight, r.ended = calm, true
	}
	r.reason = deref(w.StateReason)
	if r.reason == "" && r.weight == broken && w.ExitCode != nil {
		r.reason = deref(w.ExitReason)
	}
	if g != nil {
		if gw := gpuWeight(g.State); gw > r.weight {
			r.weight = gw
			r.reason = strings.TrimSpace("GPU " + string(g.State) + " " + deref(g.StateReason))
		}
	}
	return r
}

func gpuRow(g *pipeline.GPUSnapshot) row {
	r := row{key: "gpu " + strconv.Itoa(g.Index), gpu: g, name: none, word: "FREE", weight: gpuWeight(g.State)}
	if g.State != pipeline.GPUOK {
		r.word, r.reason = strings.ToUpper(string(g.State)), deref(g.StateReason)
		return r
	}
	if g.Processes == nil {
		r.word = none
	}
	if len(g.Processes) > 0 {
		r.word, r.weight = "HELD", alarming
		r.reason = "by " + holders(g.Processes)
	}
	return r
}

func holders(ps []pipeline.GPUProcess) string {
	names := make([]string, 0, len(ps))
	for _, p := range ps {
		s := "pid " + strconv.Itoa(p.PID)
		if p.Worker != nil {
			s = *p.Worker + " (" + s + ")"
		}
		names = append(names, s)
	}
	return strings.Join(names, ", ")
}

func gpuWeight(s pipeline.GPUState) weight {
	switch s {
	case pipeline.GPUOK:
		return calm
	case pipeline.GPULost:
		return broken
	case pipeline.GPUDenied, pipeline.GPUUnsupported, pipeline.GPUUnknown:
	}
	return doubtful
}

// workerWord is the word of a worker's state on screen, and its weight.
func workerWord(s pipeline.WorkerState) (string, weight) {
	switch s {
	case pipeline.WorkerInit:
		return "INIT", calm
	case pipeline.WorkerLoading:
		return "LOAD", calm
	case pipeline.WorkerRunning:
		return "RUN", calm
	case pipeline.WorkerIdle:
		return "IDLE", calm
	case pipeline.WorkerWaiting:
		return "WAIT", calm
	case pipeline.WorkerDraining:
		return "DRAIN", calm
	case pipeline.WorkerDone:
		return "DONE", calm
	case pipeline.WorkerStalled:
		return "STALL", alarming
	case pipeline.WorkerExited:
		return "EXIT", broken
	case pipeline.WorkerFailed:
		return "FAIL", broken
	case pipeline.WorkerOOM:
		return "OOM", broken
	case pipeline.WorkerLost:
		return "LOST", broken
	case pipeline.WorkerUnknown:
	}
	return "UNKNOWN", doubtful
}

// byNeed orders rows so that those that need attention come first; the order
// is otherwise kept.
func byNeed(rows []row) []row {
	out := slices.Clone(rows)
	slices.SortStableFunc(out, func(a, b row) int { return cmp.Compare(b.weight, a.weight) })
	return out
}

func deref[T any](p *T) T {
	var zero T
	if p == nil {
		return zero
	}
	return *p
}

// totals sums what is on its way to the store over the outputs in use. Nil is
// unknown: one unknown part makes the sum unknown.
type totals struct {
	waiting, inFlight, maxParallel    int64
	waitingBytes                      int64
	oldest                            *float64
	local, localBytes                 *int64
	verified, failed, quarantined     *int64
	safe, notProven, notInStore       *int64 // not proven: all that is not safe
	files, bytes, produced            *float64
	worst                             pipeline.OutputState
	worstReason                       string
	coverageAt                        time.Time
	mismatched, unproven, unknownInS3 int64
}

func (b board) totals() totals {
	var t totals
	used := b.usedOutputs()
	if len(used) == 0 {
		return t
	}
	zero, zeroF := int64(0), 0.0
	t.local, t.localBytes, t.verified, t.failed, t.quarantined = &zero, &zero, &zero, &zero, &zero
	t.safe, t.notProven, t.notInStore = &zero, &zero, &zero
	t.files, t.bytes, t.produced = &zeroF, &zeroF, &zeroF
	for _, o := range used {
		t.add(o.OutputSnapshot)
	}
	return t
}

func (t *totals) add(o pipeline.OutputSnapshot) {
	q := o.Queue
	t.waiting += q.WaitingFiles
	t.waitingBytes += q.WaitingBytes
	t.inFlight += q.InFlight
	t.maxParallel = max(t.maxParallel, int64(q.MaxParallel))
	if q.OldestSeconds != nil && (t.oldest == nil || *q.OldestSeconds > *t.oldest) {
		t.oldest = q.OldestSeconds
	}
	t.local, t.localBytes = sum(t.local, o.LocalFiles), sum(t.localBytes, o.LocalBytes)
	t.verified, t.failed = sum(t.verified, o.VerifiedFiles), sum(t.failed, o.FailedFiles)
	t.quarantined = sum(t.quarantined, o.QuarantinedFiles)
	t.files, t.bytes = sum(t.files, o.FilesPerSecond), sum(t.bytes, o.BytesPerSecond)
	t.produced = sum(t.produced, o.ProducedBytesPerSecond)
	if outputWeight(o.State) >= outputWeight(t.worst) {
		t.worst, t.worstReason = o.State, deref(o.StateReason)
	}
	c := o.Coverage
	if c == nil {
		t.safe, t.notProven, t.notInStore = nil, nil, nil
		return
	}
	rest := c.Local - c.Proven
	absent := rest - c.Unproven
	t.safe, t.notProven, t.notInStore = sum(t.safe, &c.Proven), sum(t.notProven, &rest), sum(t.notInStore, &absent)
	t.mismatched += c.Mismatched
	t.unproven += c.Unproven
	t.unknownInS3 += c.Unknown
	if t.coverageAt.IsZero() || c.At.Before(t.coverageAt) {
		t.coverageAt = c.At
	}
}

func sum[T int64 | float64](a, b *T) *T {
	if a == nil || b == nil {
		return nil
	}
	s := *a + *b
	return &s
}

// usedOutputs are the outputs that the mover has something to do with.
func (b board) usedOutputs() []namedOutput {
	var used []namedOutput
	for _, o := range b.outputs {
		if o.State != pipeline.OutputIdle || deref(o.LocalFiles) > 0 || deref(o.VerifiedFiles) > 0 {
			used = append(used, o)
		}
	}
	return used
}

func outputWeight(s pipeline.OutputState) weight {
	switch s {
	case pipeline.OutputBlocked:
		return broken
	case pipeline.OutputPaused, pipeline.OutputThrottled, pipeline.OutputBacklog, pipeline.OutputStopped:
		return alarming
	case pipeline.OutputUnknown:
		return doubtful
	case pipeline.OutputIdle, pipeline.OutputRunning:
	}
	return calm
}
