// Package deck is the agent's life: it samples through the ports, folds what
// it sees, supervises the workers, and answers what a console asks.
package deck

import (
	"context"
	"fmt"
	"log/slog"
	"path"
	"sync"
	"time"

	"pipedeck/pipeline"
	"pipedeck/pipeline/engine"
	"pipedeck/pipeline/spec"
)

// Ports is the world of a deck. All fields are required.
type Ports struct {
	Host    pipeline.Host
	Mover   pipeline.Mover
	Custody pipeline.Custody
	Adopter pipeline.Adopter
	Runner  pipeline.Runner
	Sensor  pipeline.Sensor
	Files   pipeline.Files
	Journal pipeline.Journal
	Logs    pipeline.Logs
	Now     func() time.Time
	Jitter  func() float64 // in [0,1)
	NewID   func() string  // short, random, safe in file names
	// Exits wakes the deck early when a worker ended; it may be nil.
	Exits <-chan struct{}
	Log   *slog.Logger
	// Credentials are those that were handed over; nil where the node has its own.
	Credentials func() pipeline.CredentialReading
}

// Deck owns the work of one spec on one node. It implements pipeline.Deck.
type Deck struct {
	sp     *spec.Spec
	node   spec.Node
	p      Ports
	engine *engine.Engine
	wants  *wantStore

	mu      sync.Mutex
	world   *pipeline.World
	seen    map[string]map[int]pipeline.LaunchSeen // by stage and rank
	exits   map[string]pipeline.Exit               // the last one of each worker, as far as this agent saw it
	plans   map[string]*heldPlan
	looks   map[string]*filesLook // by what they look at
	actions map[string]pipeline.Action
	cleared map[string]cleared                 // by action: what it may take
	cancels map[string]context.CancelCauseFunc // by running action
	parked  map[string]engine.Open             // interrupted actions that wait for the operator
	order   []string                           // action ids, oldest first
	holder  string                             // id of the action that holds the lease
	holding string                             // what it does and for whom, in words
	changed chan struct{}
	// holdEnds gives up a lease that was taken for an action that did not begin.
	holdEnds *time.Timer

	moverMu  sync.Mutex
	told     time.Time // the newest event of the mover that is in the journal; moverMu
	progress *progressReader
	ready    chan struct{} // closed when what an earlier agent left was taken over
	kick     chan struct{} // asks the supervision loop to look now
	life     context.Context
	work     sync.WaitGroup
}

var _ pipeline.Deck = (*Deck)(nil)

// New makes the deck of one node. It reads what was wanted before from the
// state directory and touches no process.
func New(sp *spec.Spec, node spec.Node, info pipeline.AgentInfo, p Ports) (*Deck, error) {
	wants, err := loadWants(p.Files, path.Join(sp.StateDir, WantsName), sp.Run)
	if err != nil {
		return nil, err
	}
	d := &Deck{
		sp: sp, node: node, p: p, wants: wants,
		world:   pipeline.NewWorld(sp, node.Name, info),
		seen:    map[string]map[int]pipeline.LaunchSeen{},
		exits:   map[string]pipeline.Exit{},
		plans:   map[string]*heldPlan{},
		looks:   map[string]*filesLook{},
		actions: map[string]pipeline.Action{},
		cleared: map[string]cleared{},
		cancels: map[string]context.CancelCauseFunc{},
		parked:  map[string]engine.Open{},
		changed: make(chan struct{}),
		ready:   make(chan struct{}),
		kick:    make(chan struct{}, 1),
		life:    context.Background(),
	}
	d.progress = newProgressReader(sp, p.Files)
	d.engine = &engine.Engine{Journal: p.Journal, Exec: d, Now: p.Now, Observe: d.observeAction}
	return d, nil
}

// Run samples and supervises until ctx is done. Before the first look at the
// processes nothing is started, so that what lives is adopted.
func (d *Deck) Run(ctx context.Context) error {
	d.life = ctx
	d.fold(pipeline.WantsReading{At: d.p.Now(), Stages: d.wants.stages()})
	if err := d.look(ctx); err != nil {
		return fmt.Errorf("cannot look at the workers: %w", err)
	}
	d.adopt()
	for stage, want := range d.wants.stages() {
		// The ledger knows it too, but may have been lost.
		if want.Want == pipeline.WantNothing {
			continue
		}
		if err := d.p.Mover.Activate(ctx, stage); err != nil {
			d.notice(pipeline.Error, stage, "its outputs are not moved: %v", err)
		}
	}
	if err := d.resume(ctx); err != nil {
		return err
	}
	d.readProgress()
	close(d.ready)
	loops := []func(context.Context){d.superviseLoop, d.sensorLoop, d.moverLoop, d.progressLoop, d.purgeLoop}
	for _, loop := range loops {
		d.work.Go(func() { loop(ctx) })
	}
	<-ctx.Done()
	d.work.Wait()
	return nil
}

// fold takes a reading and wakes whoever waits for a change.
func (d *Deck) fold(rs ...pipeline.Reading) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, r := range rs {
		d.world.Fold(r)
	}
	d.wakeLocked()
}

func (d *Deck) wakeLocked() {
	close(d.changed)
	d.changed = make(chan struct{})
}

// notice tells the operator something.
func (d *Deck) notice(level pipeline.Level, source, format string, args ...any) {
	d.fold(pipeline.NoticeReading{Event: pipeline.Event{
		At: d.p.Now(), Level: level, Source: source, Text: fmt.Sprintf(format, args...),
	}})
}

// record writes a journal line about the agent's own doings; if that fails,
// the operator is told, and the work goes on.
func (d *Deck) record(kind, format string, args ...any) { d.recordOf("", kind, format, args...) }

// recordOf is a record about an action.
func (d *Deck) recordOf(action, kind, format string, args ...any) {
	rec := pipeline.JournalRecord{At: d.p.Now(), Kind: kind, Action: action, Text: fmt.Sprintf(format, args...)}
	if err := d.p.Journal.Append(rec); err != nil {
		d.notice(pipeline.Error, "agent", "cannot write the journal: %v", err)
	}
}

// adopt says which workers an earlier agent had left running.
func (d *Deck) adopt() {
	for stage, ranks := range d.seenAll() {
		alive := 0
		for _, s := range ranks {
			if s.State == pipeline.ProcRunning {
				alive++
			}
		}
		if alive > 0 {
			d.record("agent", "adopted %s of %s", pipeline.Counted(alive, "living worker", "living workers"), stage)
			d.notice(pipeline.Info, "agent", "adopted %s of %s", pipeline.Counted(alive, "living worker", "living workers"), stage)
		}
	}
}

func (d *Deck) seenAll() map[string]map[int]pipeline.LaunchSeen {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.seen // replaced as a whole by look, never changed in place
}
