package mover

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"pipedeck/pipeline"
	"pipedeck/s3/local"
)

// metaHold + action lists the outputs that an action holds, one a line.
const metaHold = "hold."

var _ pipeline.Custody = (*Mover)(nil)

// custody is what the mover keeps for actions that touch local files.
type custody struct {
	// moving orders everything that moves or removes files of an action.
	moving sync.Mutex
	room   chan struct{} // the disk is full: purge what can be
	boot   func() (id string, up time.Duration)
	hashes *inputHashes

	// Guarded by Mover.mu.
	holds map[string][]string // outputs by action
	apart []apartFile         // in quarantine
	bins  map[string]binCount // what lies in the trashes, by folder
}

type binCount struct{ files, bytes int64 }

func newCustody(boot func() (string, time.Duration)) *custody {
	if boot == nil {
		boot = local.Boot
	}
	return &custody{boot: boot, room: make(chan struct{}, 1), hashes: newInputHashes(), holds: map[string][]string{}, bins: map[string]binCount{}}
}

// loadHolds takes over from the ledger what actions hold.
func (m *Mover) loadHolds(ctx context.Context) error {
	metas, err := m.opt.Ledger.Metas(ctx, metaHold)
	if err != nil {
		return err
	}
	for action, names := range metas {
		if names != "" {
			m.care.holds[action] = strings.Split(names, "\n")
		}
	}
	m.applyHolds()
	return nil
}

// applyHolds tells each output who holds it. Mover.mu is held, but by New.
func (m *Mover) applyHolds() {
	for _, o := range m.outputs {
		o.heldBy = ""
		for action, names := range m.care.holds {
			if slices.Contains(names, o.name) && (o.heldBy == "" || action < o.heldBy) {
				o.heldBy = action
			}
		}
	}
}

// mine says whether the mover may upload or remove the output's files.
// Mover.mu is held.
func (o *output) mine() bool { return o.active && o.heldBy == "" }

// Suspend keeps the mover off outputs for an action.
func (m *Mover) Suspend(ctx context.Context, action string, outputs []string) error {
	if err := goodAction(action); err != nil {
		return err
	}
	chosen, err := m.chooseExactly(outputs)
	if err != nil {
		return err
	}
	m.mu.Lock()
	names := slices.Clone(m.care.holds[action])
	m.mu.Unlock()
	for _, o := range chosen {
		if !slices.Contains(names, o.name) {
			names = append(names, o.name)
		}
	}
	if len(names) == 0 {
		return nil
	}
	if err := m.saveMeta(metaHold+action, strings.Join(names, "\n")); err != nil {
		return fmt.Errorf("cannot hold %q: %w", strings.Join(names, ", "), err)
	}
	m.mu.Lock()
	m.care.holds[action] = names
	m.applyHolds()
	m.mu.Unlock()
	if err := m.awaitQuiet(ctx, chosen); err != nil {
		return err
	}
	m.awaitProofs(ctx, chosen)
	return ctx.Err()
}

// proofPatience is longer than a batch stays open for more files.
const proofPatience = 15 * time.Second

// awaitProofs waits until what was sent is verified and in a manifest: what is
// wiped before that is in the store, but not among what is done. A store that
// does not answer keeps nobody from wiping.
func (m *Mover) awaitProofs(ctx context.Context, outputs []*output) {
	bounded, cancel := context.WithTimeout(ctx, m.pause(proofPatience))
	defer cancel()
	poll := time.NewTicker(m.pause(proofPatience) / 100)
	defer poll.Stop()
	for {
		m.mu.Lock()
		sent := int64(0)
		for _, o := range outputs {
			sent += o.tally.files[stateSent]
		}
		stopped := m.stopped
		m.mu.Unlock()
		if sent == 0 || stopped {
			return
		}
		select {
		case <-bounded.Done():
			return
		case <-poll.C:
		}
	}
}

// awaitQuiet waits for what is in flight of outputs that are not the mover's
// any more: bytes that were sent may arrive whoever listens. Uploads in parts
// end after the parts under way.
func (m *Mover) awaitQuiet(ctx context.Context, outputs []*output) error {
	m.gate.poke()
	err := m.await(ctx, func() bool {
		for _, o := range outputs {
			if o.tally.files[stateInFlight]+o.tally.inflight+o.removing > 0 && !m.stopped {
				return false
			}
		}
		return true
	})
	if err != nil {
		return pipeline.Problemf(pipeline.ProblemUnreachable, "", "cannot wait for what is in flight: %w", err)
	}
	return nil
}

// isMine is mine for whoever does not hold Mover.mu.
func (m *Mover) isMine(o *output) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return o.mine()
}

// quieter wakes a Suspend that waits for the output.
func (m *Mover) quieter(o *output) {
	if !m.isMine(o) {
		m.signal()
	}
}

// Release ends what Suspend began.
func (m *Mover) Release(_ context.Context, action string) error {
	m.mu.Lock()
	names := m.care.holds[action]
	m.mu.Unlock()
	if names == nil {
		return nil
	}
	if err := m.saveMeta(metaHold+action, ""); err != nil {
		return fmt.Errorf("cannot release %q: %w", strings.Join(names, ", "), err)
	}
	m.mu.Lock()
	delete(m.care.holds, action)
	m.applyHolds()
	for _, o := range m.outputs {
		if slices.Contains(names, o.name) && o.heldBy == "" {
			m.goOn(o)
		}
	}
	m.mu.Unlock()
	m.scanNow()
	return nil
}

// goOn looks again at every file that waited while others had the output.
// Mover.mu is held.
func (m *Mover) goOn(o *output) {
	for _, f := range o.files {
		switch f.state {
		case stateWaiting, stateKept, stateHeld, stateFailed:
			if !f.odd {
				m.judgeAgain(f)
			}
		case stateSeen, stateWriting, stateInFlight, stateSent, stateRemoving, stateMismatch, states:
		}
	}
}

// Leave makes the mover leave a stage alone until it is activated.
func (m *Mover) Leave(ctx context.Context, stage string) error {
	if m.opt.Spec.Stage(stage) == nil {
		return pipeline.Problemf(pipeline.ProblemUsage, "", "cannot leave stage %q: the spec has none of that name", stage)
	}
	if err := m.saveMeta(metaActive+stage, ""); err != nil {
		return fmt.Errorf("cannot leave stage %q: %w", stage, err)
	}
	var left []*output
	m.mu.Lock()
	for _, o := range m.outputs {
		if o.stage.Name == stage {
			o.active = false
			left = append(left, o)
		}
	}
	m.mu.Unlock()
	return m.awaitQuiet(ctx, left)
}

// goodAction: an action's id names folders.
func goodAction(action string) error {
	ok := action != "" && len(action) <= 128 && action[0] != '.'
	for _, c := range action {
		ok = ok && (c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '-' || c == '_' || c == '.')
	}
	if !ok {
		return pipeline.Problemf(pipeline.ProblemUsage, "", "cannot use action id %q: it is no plain name", action)
	}
	return nil
}
