package mover

import (
	"context"
	"encoding/hex"
	"path"
	"slices"
	"sort"
	"time"

	"pipedeck/pipeline"
	"pipedeck/pipeline/spec"
	"pipedeck/s3/local"
)

// metaRetiring + output + unit says of a directory that it is on its way out.
const metaRetiring = "retiring."

// unit is a checkpoint: a file, or a directory with a marker.
type unit struct {
	key    string
	mtime  int64
	begun  bool // some of it is in the store, on the way, or was
	proven bool // all of it is
	files  []*file
	marker *file // nil: it has none, or lost it
}

// units returns the complete checkpoints, newest first. What a removal has left
// of one is none. Mover.mu is held.
func (o *output) units() []*unit {
	byKey := map[string]*unit{}
	partial := map[string]bool{}
	for _, f := range o.files {
		key := f.unitKey()
		if !f.complete || f.odd {
			partial[key] = true
			continue
		}
		u := byKey[key]
		if u == nil {
			u = &unit{key: key, proven: true}
			byKey[key] = u
		}
		u.files = append(u.files, f)
		if f.isMarkerFile() {
			u.marker = f
		}
		u.begun = u.begun || f.state == stateInFlight || f.state == stateSent || f.proven() || f.attempts > 0
		u.proven = u.proven && f.proven()
		u.mtime = max(u.mtime, f.id.MTimeNS)
	}
	units := make([]*unit, 0, len(byKey))
	for key, u := range byKey {
		if !partial[key] && (u.marker != nil || !o.isMarker()) {
			units = append(units, u)
		}
	}
	sort.Slice(units, func(i, j int) bool {
		if units[i].mtime != units[j].mtime {
			return units[i].mtime > units[j].mtime
		}
		return units[i].key > units[j].key
	})
	return units
}

// retire removes checkpoints that are no longer to be kept: beyond keep_last,
// or all of them with `delete`, and only if the whole checkpoint is proven.
func (m *Mover) retire(o *output) {
	for _, u := range m.toRetire(o) {
		if u.marker != nil {
			if err := m.announce(o, u.key); err != nil {
				m.notify(pipeline.Warn, err.Error())
				continue
			}
			m.hook(HookRetiring)
		}
		m.mu.Lock()
		m.departUnit(o, u)
		m.mu.Unlock()
	}
}

func (m *Mover) toRetire(o *output) (out []*unit) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !o.checkpoints() || !o.mine() || o.spec.KeepLast == 0 && o.spec.AfterUpload == spec.AfterKeep {
		return nil
	}
	for i, u := range o.units() {
		if i >= o.spec.KeepLast && u.proven {
			out = append(out, u)
		}
	}
	return out
}

// announce writes down that a directory is on its way out. Its marker goes
// first, so that no script takes what is left for a checkpoint; without a word
// the next agent would take it for one that is not complete yet.
func (m *Mover) announce(o *output, key string) error {
	m.mu.Lock()
	known := o.retiring[key]
	m.mu.Unlock()
	if known {
		return nil
	}
	if err := m.saveMeta(retiringName(o, key), "1"); err != nil {
		return err
	}
	m.mu.Lock()
	o.retiring[key] = true
	m.mu.Unlock()
	return nil
}

func retiringName(o *output, key string) string {
	return metaRetiring + o.name + "." + hex.EncodeToString([]byte(key))
}

// loadRetiring takes over what another process had begun to remove.
func (m *Mover) loadRetiring(ctx context.Context) error {
	for _, o := range m.outputs {
		metas, err := m.opt.Ledger.Metas(ctx, metaRetiring+o.name+".")
		if err != nil {
			return err
		}
		for name := range metas {
			if key, err := hex.DecodeString(name); err == nil {
				o.retiring[string(key)] = true
			}
		}
	}
	return nil
}

// departUnit sends a checkpoint's marker to be removed; what has none, at once.
// Mover.mu is held.
func (m *Mover) departUnit(o *output, u *unit) {
	files := u.files
	if u.marker != nil {
		files = []*file{u.marker}
	}
	for _, f := range files {
		if f.state == stateKept && !f.dropped && f.proven() && o.mine() {
			m.depart(f)
		}
	}
}

// isRemnant says whether f, a file that is now id, is what a removal has left of
// a directory, and is proven. Mover.mu is held.
func (m *Mover) isRemnant(f *file, id local.Identity) bool {
	o := f.out
	if f.unit == "" || f.isMarkerFile() || !o.retiring[f.unitKey()] || f.row == nil || !isCopyOf(f.row.Stored, id) {
		return false
	}
	marker := o.files[m.keyOf(o, path.Join(f.unit, o.spec.Marker))]
	return marker == nil || marker.root != f.root
}

// goneFromUnit goes on with the removal of a directory after one of its files
// has left.
func (m *Mover) goneFromUnit(f *file) {
	o, key, left := f.out, f.unitKey(), 0
	m.mu.Lock()
	for _, other := range o.files {
		if other.unitKey() != key {
			continue
		}
		left++
		if other.state == stateKept && m.isRemnant(other, other.id) {
			m.depart(other)
		}
	}
	was := o.retiring[key]
	if left == 0 {
		delete(o.retiring, key)
	}
	m.mu.Unlock()
	if left == 0 && was {
		_ = m.opt.Ledger.DropMeta(retiringName(o, key)) // kept, it says nothing of another file
	}
}

// Hasten lets what waits for its interval go now: growing files, and
// checkpoints, as many as are complete. From then on the outputs are settled
// only by what a scan sees that begins now.
func (m *Mover) Hasten(outputs []string) {
	defer m.scanNow()
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, o := range m.outputs {
		if !slices.Contains(outputs, o.name) {
			continue
		}
		o.scan.asked, o.scan.askedAt, o.recheck.wanted = o.scan.round+1, m.opt.Clock(), true
		for _, f := range o.files {
			f.hasty = true
			if f.state == stateWaiting && f.attempts == 0 {
				f.next = time.Time{}
				m.remind(f)
			}
		}
	}
}
