package mover

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync"
	"time"

	"pipedeck/pipeline"
	"pipedeck/pipeline/spec"
	"pipedeck/s3/ledger"
	"pipedeck/s3/local"
)

const (
	metaActive = "active." // + stage
	// metaKnown says that what the bucket held was taken over into this ledger.
	metaKnown = "known"

	judges   = 4
	removers = 8
	// batches verified at the same time: enough that listing pages of one do
	// not hold up the removals of another.
	parallelBatches = 4
	keptEvents      = 200
)

// Options are the mover's parts and knobs.
type Options struct {
	Spec     *spec.Spec
	Store    pipeline.Store // for uploads
	Verifier pipeline.Store // an independent client: it only reads
	Ledger   *ledger.Ledger
	StateDir string
	Files    pipeline.Files     // nil: local.FS
	Clock    func() time.Time   // nil: time.Now
	Rand     func() float64     // [0, 1), for jitter; nil: math/rand
	Log      *slog.Logger       // nil: nowhere
	Hook     func(point string) // for crash tests; may be nil
	// Boot tells the boot and the time since it, which no one can set; nil: the node's.
	Boot  func() (id string, up time.Duration)
	Hurry int // for tests: pauses between tries are divided by it; 0 is 1
}

// Mover implements pipeline.Mover over a ledger and two store clients.
type Mover struct {
	opt                    Options
	log                    *slog.Logger
	prefix                 string // of every key of this run
	gate                   *gate
	buffers                *buffers
	reserve                *reserve
	sizes                  sizes
	names                  names
	care                   *custody
	others                 others
	small                  *queue // files that go in one PUT
	large                  *queue // files that go in parts
	toJudge                *queue
	slots                  chan struct{}
	wakeVerify, wakeRemove chan struct{}
	wakeKnow               chan struct{}

	counting  sync.Mutex // held from a commit of proofs until they are counted
	mu        sync.Mutex
	outputs   []*output // of the spec, then the artifacts if there are any
	removers  map[string]*local.Remover
	events    []pipeline.Event
	leaving   []*file // verified files to remove
	paused    bool
	known     bool
	knownErr  string
	asked     time.Time // when known or knownErr was found out
	stopped   bool
	noDeletes string // why nothing is removed any more, "" if things are
	broken    map[string]struct{}
	prof      *pipeline.StoreProfile
	changed   chan struct{} // closed and replaced when something waited for may be there
}

// New prepares a mover and reads from the ledger what it left behind. Run does
// the work.
func New(opt Options) (*Mover, error) {
	if opt.Clock == nil {
		opt.Clock = time.Now
	}
	if opt.Rand == nil {
		opt.Rand = rand.Float64
	}
	if opt.Files == nil {
		opt.Files = local.FS{Room: local.RoomIn(opt.StateDir)}
	}
	opt.Hurry = max(1, opt.Hurry)
	if opt.Log == nil {
		opt.Log = slog.New(slog.DiscardHandler)
	}
	s := opt.Spec
	m := &Mover{
		opt: opt, log: opt.Log, prefix: s.RunPrefix(),
		gate: newGate(s.Store.MaxParallel, opt), buffers: newBuffers(s.Store.MaxMemory), reserve: newReserve(opt.StateDir),
		sizes: sizesFor(s.Store.MaxMemory), names: names{known: map[string]bool{}}, care: newCustody(opt.Boot),
		small: newQueue(opt.Clock), large: newQueue(opt.Clock), toJudge: newQueue(opt.Clock),
		slots:      make(chan struct{}, parallelBatches),
		wakeVerify: make(chan struct{}, 1), wakeRemove: make(chan struct{}, 1), wakeKnow: make(chan struct{}, 1),
		removers: map[string]*local.Remover{}, broken: map[string]struct{}{}, changed: make(chan struct{}), stopped: true,
	}
	for i := range s.Stages {
		st := &s.Stages[i]
		for j := range st.Outputs {
			m.outputs = append(m.outputs, newOutput(st, &st.Outputs[j], s))
		}
	}
	if len(s.Artifacts) > 0 {
		m.outputs = append(m.outputs, newArtifacts(s))
	}
	if err := m.load(context.Background()); err != nil {
		return nil, err
	}
	return m, nil
}

// load takes over from the ledger: active stages, pause, what is stored.
func (m *Mover) load(ctx context.Context) error {
	active, err := m.opt.Ledger.Metas(ctx, metaActive)
	if err != nil {
		return err
	}
	metas, err := m.opt.Ledger.Metas(ctx, "")
	if err != nil {
		return err
	}
	for _, o := range m.outputs {
		if active[o.stage.Name] != "" {
			// Whether its workers live is told later; a growing file is not
			// final until then.
			o.active, o.alive = true, true
		}
	}
	m.paused, m.known = metas[ledger.MetaPaused] == "1", metas[metaKnown] == "1"
	m.gate.setPaused(m.paused)
	if err := m.loadHolds(ctx); err != nil {
		return err
	}
	if aside := m.opt.Ledger.MovedAside(); aside != "" {
		m.note(pipeline.Warn, "the ledger was broken and is rebuilt from directory and bucket; the old one is at "+aside)
	}
	if err := errors.Join(m.inherit(ctx), m.loadRetiring(ctx)); err != nil {
		return err
	}
	m.loadApart(ctx)
	return m.loadCounts(ctx)
}

func (m *Mover) loadCounts(ctx context.Context) error {
	counts, err := m.opt.Ledger.Counts(ctx)
	if err != nil {
		return err
	}
	m.mu.Lock()
	for _, o := range m.outputs {
		o.stored = counts[o.name]
	}
	m.mu.Unlock()
	return m.loadTwins(ctx)
}

// Run moves files until ctx ends, then waits until nothing is in flight.
func (m *Mover) Run(ctx context.Context) error {
	if err := m.recoverAside(ctx); err != nil {
		return err
	}
	m.reserve.hold(m.opt.Clock())
	// Taken before anything is uploaded: what is open now is nobody's.
	left, err := m.opt.Ledger.Uploads(ctx)
	if err != nil && ctx.Err() == nil {
		return err
	}
	m.mu.Lock()
	m.stopped = false
	m.mu.Unlock()
	var wg sync.WaitGroup
	loops := []func(context.Context){func(ctx context.Context) { m.knowLoop(ctx, left) }, m.dispatchSmall, m.dispatchLarge, m.verifyLoop, m.roomLoop}
	for _, o := range m.outputs {
		loops = append(loops, func(ctx context.Context) { m.scanLoop(ctx, o) })
	}
	for range judges {
		loops = append(loops, m.judgeLoop)
	}
	for range removers {
		loops = append(loops, m.removeLoop)
	}
	for _, loop := range loops {
		wg.Go(func() { loop(ctx) })
	}
	<-ctx.Done()
	wg.Wait()
	m.mu.Lock()
	m.stopped = true
	m.mu.Unlock()
	for _, r := range m.removers {
		_ = r.Tidy() // what is left in it is found by the next one
	}
	return nil
}

// Activate makes the outputs of a stage the mover's.
func (m *Mover) Activate(_ context.Context, stage string) error {
	if m.opt.Spec.Stage(stage) == nil {
		return pipeline.Problemf(pipeline.ProblemUsage, "", "cannot activate stage %q: the spec has none of that name", stage)
	}
	if err := m.saveMeta(metaActive+stage, "1"); err != nil {
		return fmt.Errorf("cannot activate stage %q: %w", stage, err)
	}
	m.mu.Lock()
	for _, o := range m.outputs {
		if o.stage.Name != stage || o.active {
			continue
		}
		// A growing file is not final before Live says that nobody writes it.
		o.active, o.alive = true, true
		for _, f := range o.files {
			m.judgeAgain(f)
		}
	}
	m.mu.Unlock()
	m.scanNow()
	return nil
}

// Live says whether processes of a stage are alive.
func (m *Mover) Live(stage string, alive bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, o := range m.outputs {
		if o.stage.Name != stage || o.alive == alive {
			continue
		}
		o.alive = alive
		for _, f := range o.files {
			m.reconsider(f)
		}
	}
}

// Pause holds or resumes all uploads.
func (m *Mover) Pause(_ context.Context, on bool) error {
	value, verb := "0", "resume"
	if on {
		value, verb = "1", "pause"
	}
	if err := m.saveMeta(ledger.MetaPaused, value); err != nil {
		return fmt.Errorf("cannot %s uploads: %w", verb, err)
	}
	m.mu.Lock()
	m.paused = on
	m.mu.Unlock()
	m.gate.setPaused(on)
	return nil
}

// Retry clears backoffs.
func (m *Mover) Retry() {
	m.mu.Lock()
	for _, o := range m.outputs {
		for _, f := range o.files {
			if f.state == stateFailed || f.state == stateMismatch || f.state == stateWaiting && f.attempts > 0 {
				f.attempts, f.next = 0, time.Time{}
				m.judgeAgain(f)
			}
		}
	}
	m.broken, m.noDeletes = map[string]struct{}{}, ""
	m.askAgain()
	m.mu.Unlock()
	m.names.forget()
	m.gate.retry()
	nudge(m.wakeRemove)
	m.signal()
}

// QueueArtifacts looks at the artifacts again.
func (m *Mover) QueueArtifacts() {
	m.scanNow()
}

// profile asks what the endpoint can, once.
func (m *Mover) profile(ctx context.Context) (pipeline.StoreProfile, error) {
	m.mu.Lock()
	p := m.prof
	m.mu.Unlock()
	if p != nil {
		return *p, nil
	}
	got, err := m.opt.Store.Profile(ctx)
	m.gate.report(err)
	if err != nil {
		return pipeline.StoreProfile{}, err
	}
	m.mu.Lock()
	m.prof = &got
	m.mu.Unlock()
	return got, nil
}

// note queues an event. Mover.mu need not be held by New, and is by others.
func (m *Mover) note(level pipeline.Level, text string) { m.noteOf("", level, text) }

// noteOf is a note about what an action left. Mover.mu is held.
func (m *Mover) noteOf(action string, level pipeline.Level, text string) {
	text = pipeline.Clean(text)
	if n := len(m.events); n > 0 && m.events[n-1].Text == text {
		return
	}
	if len(m.events) >= keptEvents {
		m.events = m.events[1:]
	}
	m.events = append(m.events, pipeline.Event{At: m.opt.Clock(), Level: level, Source: "s3", Text: text, Action: action})
	m.log.Info(text, "level", string(level))
}

// notify is note without Mover.mu held.
func (m *Mover) notify(level pipeline.Level, text string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.note(level, text)
}

// signal wakes whoever waits for a state of affairs.
func (m *Mover) signal() {
	m.mu.Lock()
	defer m.mu.Unlock()
	close(m.changed)
	m.changed = make(chan struct{})
}

// await waits until ok, called with Mover.mu held, says true.
func (m *Mover) await(ctx context.Context, ok func() bool) error {
	for {
		m.mu.Lock()
		done, changed := ok(), m.changed
		m.mu.Unlock()
		if done {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func nudge(ch chan struct{}) {
	select {
	case ch <- struct{}{}:
	default:
	}
}

func (m *Mover) scanNow() {
	for _, o := range m.outputs {
		nudge(o.wakeScan)
	}
}
