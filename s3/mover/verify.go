package mover

import (
	"context"
	"fmt"
	"sort"
	"time"

	"pipedeck/pipeline"
	"pipedeck/s3/ledger"
)

const (
	batchFiles = 1000
	batchBytes = 1_000_000_000
	batchAge   = 10 * time.Second
	batchIdle  = time.Second
	verifyTick = 100 * time.Millisecond
	// relists of a page that lies, after the immediate one; then each key is
	// asked for by itself.
	relists     = 3
	relistFirst = time.Second
	// coolAfter without anything in flight, upload buffers are given back.
	coolAfter = 5 * time.Second
)

// batch gathers what was sent until it is worth a listing.
type batch struct {
	files  []*file
	bytes  int64
	oldest time.Time
	busy   time.Time // when something was last queued or in flight
}

// sent queues a file for verification. Mover.mu is held.
func (m *Mover) sent(f *file) {
	f.setState(stateSent)
	now := m.opt.Clock()
	f.lastSent, f.hasty = now, false
	b := &f.out.batch
	if len(b.files) == 0 {
		b.oldest, b.busy = now, now
	}
	b.files = append(b.files, f)
	b.bytes += f.id.Size
	m.hook(HookSent)
	nudge(m.wakeVerify)
}

// verifyLoop closes batches and checks each in a goroutine of its own.
func (m *Mover) verifyLoop(ctx context.Context) {
	flying := newGroup()
	defer flying.Wait()
	busy := m.opt.Clock()
	tick := time.NewTicker(m.pause(verifyTick))
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-m.wakeVerify:
		case <-tick.C:
		}
		if now := m.opt.Clock(); m.gate.state().inflight > 0 {
			busy = now
		} else if now.Sub(busy) > coolAfter {
			m.buffers.coolAll()
		}
		for _, o := range m.outputs {
			if list, begun := m.beginRecheck(o); begun {
				flying.Go(func() { m.runRecheck(ctx, o, list) })
			}
			for files := m.closeBatch(o); files != nil; files = m.closeBatch(o) {
				select {
				case m.slots <- struct{}{}:
				case <-ctx.Done():
					return
				}
				flying.Go(func() {
					left := m.verify(ctx, o, files)
					<-m.slots
					m.verifyLate(ctx, o, left)
				})
			}
		}
	}
}

// closeBatch returns the next batch of an output that is due, or nil.
func (m *Mover) closeBatch(o *output) []*file {
	m.mu.Lock()
	defer m.mu.Unlock()
	b := &o.batch
	now := m.opt.Clock()
	if o.tally.files[stateInFlight] > 0 || !m.small.idle() || !m.large.idle() {
		b.busy = now
	}
	due := len(b.files) >= batchFiles || b.bytes >= batchBytes ||
		now.Sub(b.oldest) >= m.pause(batchAge) || now.Sub(b.busy) >= m.pause(batchIdle)
	if len(b.files) == 0 || !due {
		return nil
	}
	n, bytes := 0, int64(0)
	for n < len(b.files) && n < batchFiles && (n == 0 || bytes < batchBytes) {
		bytes += b.files[n].id.Size
		n++
	}
	files := b.files[:n:n]
	rest := append([]*file(nil), b.files[n:]...)
	*b = batch{files: rest, bytes: b.bytes - bytes, oldest: now, busy: now}
	return files
}

// item is one file of a batch with the copy that must be found.
type item struct {
	file    *file
	copy    *ledger.Copy
	key     string // in full
	found   *pipeline.Object
	like    likeness
	checked bool // the store was asked and answered
}

func (m *Mover) items(files []*file) []*item {
	m.mu.Lock()
	defer m.mu.Unlock()
	items := make([]*item, 0, len(files))
	for _, f := range files {
		if f.row.Put == nil {
			m.judgeAgain(f)
			continue
		}
		items = append(items, &item{file: f, copy: f.row.Put, key: m.prefix + f.key})
	}
	sort.Slice(items, func(i, j int) bool { return items[i].key < items[j].key })
	return items
}

// verify proves a batch and returns what could not be proven yet. What a
// listing denies is listed again at once.
func (m *Mover) verify(ctx context.Context, o *output, files []*file) []*item {
	items := m.items(files)
	_ = m.check(ctx, o, items) // what it could not ask for is left
	proven, left := split(items)
	if len(left) > 0 {
		_ = m.check(ctx, o, left)
		again, rest := split(left)
		proven, left = append(proven, again...), rest
	}
	m.conclude(ctx, o, proven)
	return left
}

// verifyLate asks again, later and later, and at last for each key by itself.
func (m *Mover) verifyLate(ctx context.Context, o *output, left []*item) {
	wait := m.pause(relistFirst)
	var lie error
	for n := 0; len(left) > 0; n++ {
		if sleep(ctx, wait) != nil {
			return
		}
		wait = min(wait*2, m.pause(maxBackoff))
		if n < relists {
			lie = m.check(ctx, o, left)
		} else {
			if n == relists && lie != nil && ctx.Err() == nil {
				m.notify(pipeline.Warn, fmt.Sprintf("%s: each object is asked for by itself, since no listing can be used: %v", o.name, lie))
			}
			m.checkEach(ctx, left)
		}
		proven, rest := split(left)
		m.conclude(ctx, o, proven)
		left = rest
		if n >= relists {
			left = m.giveUp(left)
		}
	}
}

// split parts what was proven from the rest.
func split(items []*item) (proven, left []*item) {
	for _, it := range items {
		if it.checked && it.found != nil && it.like == same {
			proven = append(proven, it)
		} else {
			left = append(left, it)
		}
	}
	return proven, left
}

// giveUp ends the verification of what the store denied to the end, and
// returns what could not be asked.
func (m *Mover) giveUp(items []*item) (unasked []*item) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, it := range items {
		if !it.checked || it.like == unsure && it.found != nil {
			unasked = append(unasked, it)
			continue
		}
		m.denied(it)
	}
	return unasked
}

// denied sends a file back whose object is missing or wrong. Mover.mu is held.
func (m *Mover) denied(it *item) {
	f := it.file
	if f.dropped {
		return
	}
	if it.found == nil {
		f.row.Put, f.row.Phase = nil, ledger.NoPut
		f.attempts++
		m.damaged(f, "the store took the file but does not hold it", m.backoff(f.attempts))
		return
	}
	reason := "the store holds other bytes than were sent"
	if it.found.Size != it.copy.Size {
		reason = "the store holds another size than was sent"
	}
	f.wrongTag = it.found.ETag
	f.attempts++
	m.damaged(f, reason, m.backoff(f.attempts))
}

// conclude takes proven files through manifest and ledger to their removal.
func (m *Mover) conclude(ctx context.Context, o *output, proven []*item) {
	if len(proven) == 0 {
		return
	}
	m.hook(HookBatchProven)
	rows := m.provenRows(proven)
	key, err := m.writeManifest(ctx, o, rows)
	if err != nil {
		return // only when the mover ends: the next one verifies again
	}
	m.hook(HookManifestStored)
	if err := m.settleProofs(ctx, o, key, proven, rows); err != nil {
		return
	}
	m.retire(o)
	m.signal()
}

// settleProofs makes the proofs durable and counts them, as one step: a recount in
// between would see half.
func (m *Mover) settleProofs(ctx context.Context, o *output, manifest string, proven []*item, rows []ledger.Row) error {
	m.counting.Lock()
	defer m.counting.Unlock()
	if err := m.commit(ctx, manifest, rows); err != nil {
		return err
	}
	m.hook(HookLedgerCommitted)
	m.mu.Lock()
	for i, it := range proven {
		m.stored(it.file, rows[i])
	}
	renewed := o.renewed
	m.mu.Unlock()
	if !renewed {
		return nil
	}
	return m.loadCounts(ctx)
}

func (m *Mover) provenRows(proven []*item) []ledger.Row {
	m.mu.Lock()
	defer m.mu.Unlock()
	rows := make([]ledger.Row, len(proven))
	for i, it := range proven {
		rows[i] = *it.file.row
		c := *it.copy
		c.ETag = it.found.ETag
		rows[i].Stored, rows[i].Put, rows[i].Phase = &c, nil, ledger.NoPut
	}
	return rows
}

// commit makes the proof durable. While it cannot, nothing is removed.
func (m *Mover) commit(ctx context.Context, manifest string, rows []ledger.Row) error {
	for n := 1; ; n++ {
		err := m.opt.Ledger.SaveManifest(manifest, rows)
		if err == nil {
			return nil
		}
		if m.makeRoom(err) {
			continue
		}
		if err := sleep(ctx, max(m.pause(time.Second), m.backoff(n))); err != nil {
			return err
		}
	}
}

// stored counts a file whose proof is durable. Mover.mu is held.
func (m *Mover) stored(f *file, row ledger.Row) {
	o := f.out
	if f.row.Stored == nil {
		o.stored.Files++
		o.idStored(f)
		o.stored.Bytes += row.Stored.Size
	} else {
		o.stored.Bytes += row.Stored.Size - f.row.Stored.Size
	}
	o.total.verifiedFiles++
	o.total.verifiedBytes += row.Stored.Size
	*f.row = row
	f.wrongTag, f.attempts, f.reason = "", 0, ""
	f.fresh = true
	delete(m.broken, f.key)
	if f.dropped {
		return
	}
	f.setStored(true)
	m.wakeMarker(f)
	if f.proven() {
		m.settled(f)
		return
	}
	m.judgeAgain(f)
}
