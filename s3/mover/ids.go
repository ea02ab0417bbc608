package mover

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"pipedeck/pipeline"
)

const (
	// twinsLoaded is how many ids with two stored objects are read from the
	// ledger, twinsNoted how many of an output are told as events.
	twinsLoaded = 1000
	twinsNoted  = 10
)

// failureSameID is the kind of a file that shares its sample id with another.
const failureSameID pipeline.FailureKind = "same_id"

// twins are the keys of one sample id, and which of them are stored. It exists
// for ids that have two or more: that is an error to show, and no reason to
// prefer one of them.
type twins struct {
	keys  map[string]bool
	since time.Time
}

func (t *twins) stored() bool {
	for _, stored := range t.keys {
		if stored {
			return true
		}
	}
	return false
}

// loadTwins takes over from the ledger which ids have two stored objects.
func (m *Mover) loadTwins(ctx context.Context) error {
	for _, o := range m.outputs {
		err := m.opt.Ledger.Twins(ctx, o.name, twinsLoaded, func(sample, one, other string) {
			m.mu.Lock()
			defer m.mu.Unlock()
			m.twin(o, sample, one, true)
			m.twin(o, sample, other, true)
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// twin adds a key to those of an id. Mover.mu is held.
func (m *Mover) twin(o *output, sample, key string, stored bool) {
	t := o.twins[sample]
	if t == nil {
		t = &twins{keys: map[string]bool{}, since: m.opt.Clock()}
		o.twins[sample] = t
	}
	_, had := t.keys[key]
	t.keys[key] = t.keys[key] || stored
	if had || len(t.keys) < 2 {
		return
	}
	o.twinsNoted++
	if o.twinsNoted <= twinsNoted {
		m.note(pipeline.Error, o.name+": "+t.text(sample))
	}
}

func (t *twins) text(sample string) string {
	return fmt.Sprintf("sample id %q is that of %d files: %q", sample, len(t.keys), slices.Sorted(maps.Keys(t.keys)))
}

// twinFailures names every file that shares its id with another. Mover.mu is held.
func (m *Mover) twinFailures(o *output) (list []pipeline.Failure) {
	for sample, t := range o.twins {
		for key := range t.keys {
			rel, ok := m.relOf(o, key)
			if !ok {
				rel = key
			}
			list = append(list, pipeline.Failure{Output: o.name, Path: rel, Kind: failureSameID, Reason: t.text(sample), Since: t.since})
		}
	}
	return list
}

// identify looks whether a file that is being admitted shares its id with
// another. Mover.mu is held.
func (m *Mover) identify(f *file) {
	o := f.out
	if f.sample == "" {
		return
	}
	other := o.byID[f.sample]
	switch {
	case other == nil:
		o.byID[f.sample] = f
	case other != f:
		m.twin(o, f.sample, other.key, other.stored)
		m.twin(o, f.sample, f.key, f.stored)
	}
	if f.elsewhere != "" {
		m.twin(o, f.sample, f.elsewhere, true)
		m.twin(o, f.sample, f.key, f.stored)
	}
}

// unidentify forgets the id of a file that leaves the disk. Mover.mu is held.
func (o *output) unidentify(f *file, stored bool) {
	if f.sample == "" {
		return
	}
	if o.byID[f.sample] == f {
		delete(o.byID, f.sample)
	}
	if t := o.twins[f.sample]; t != nil && !stored {
		delete(t.keys, f.key)
		if len(t.keys) < 2 {
			delete(o.twins, f.sample)
		}
	}
	if o.left != nil {
		o.left[f.sample] = true
	}
}

// idStored counts a key that is stored from now on. Mover.mu is held.
func (o *output) idStored(f *file) {
	o.idMap.markStored(f.sample)
	t := o.twins[f.sample]
	if t == nil || !t.stored() {
		o.stored.IDs++
	}
	if t != nil {
		t.keys[f.key] = true
	}
}

// doneIDs counts distinct ids that are stored, or complete on the disk.
// Mover.mu is held.
func (o *output) doneIDs() int64 {
	n := o.stored.IDs + o.tally.done
	for _, t := range o.twins {
		local := int64(0)
		for key := range t.keys {
			if f := o.files[key]; f != nil && f.counted {
				local++
			}
		}
		if t.stored() {
			n -= local
		} else {
			n -= max(0, local-1)
		}
	}
	return n
}

// recount keeps tally.done. Mover.mu is held.
func (f *file) recount() {
	done := !f.dropped && f.complete && !f.odd && f.owner == "" && !f.stored
	if done == f.counted {
		return
	}
	f.counted = done
	f.out.idMap.markLocal(f.sample, done)
	if done {
		f.out.tally.done++
	} else {
		f.out.tally.done--
	}
}

// complaint says what is wrong with an output as a whole, "" if nothing.
// Mover.mu is held.
func (m *Mover) complaint(o *output) string {
	text := o.scan.problem
	add := func(s string) {
		if text != "" {
			text += "; "
		}
		text += s
	}
	for sample, t := range o.twins {
		more := ""
		if n := len(o.twins) - 1; n > 0 {
			more = ", and " + pipeline.Counted(n, "more id", "more ids")
		}
		add(t.text(sample) + more)
		break
	}
	if m.reserve.inUse() {
		add("the disk is full: what is stored leaves it, nothing else can be written")
	}
	if o.tally.foreign > 0 {
		add(pipeline.Counted(o.tally.foreign, "file belongs to another run", "files belong to another run"))
	}
	return text
}
