package mover

import (
	"path"
	"sort"
	"time"

	"pipedeck/pipeline/spec"
	"pipedeck/s3/ledger"
)

// markerWait is how long a marker file waits at most before it looks again
// whether the rest of its directory is stored.
const markerWait = 5 * time.Second

// scanWait is how long an upload waits for the first scan to end.
const scanWait = 200 * time.Millisecond

// turn says from when on a file may be uploaded. Mover.mu is held.
func (m *Mover) turn(f *file, now time.Time) time.Time {
	o := f.out
	switch {
	case f.isMarkerFile() && !o.restStored(f):
		return now.Add(m.pause(markerWait))
	case o.grows() && !f.lastSent.IsZero():
		return f.lastSent.Add(o.spec.Every)
	case o.checkpoints():
		return m.unitTurn(f, now)
	}
	return now
}

// wakeMarker lets a directory's marker go once the last other file is stored.
// Mover.mu is held.
func (m *Mover) wakeMarker(f *file) {
	if f.unit == "" || f.isMarkerFile() {
		return
	}
	marker := f.out.files[m.keyOf(f.out, path.Join(f.unit, f.out.spec.Marker))]
	if marker != nil && marker.state == stateWaiting && f.out.restStored(marker) {
		marker.next = time.Time{}
		m.remind(marker)
	}
}

// restStored says whether all other files of a marker's directory are stored
// as they are now. Mover.mu is held.
func (o *output) restStored(marker *file) bool {
	for _, f := range o.files {
		if f != marker && f.unit == marker.unit && f.root == marker.root && !f.proven() {
			return false
		}
	}
	return true
}

// unitTurn is turn by `every` and `keep_last`: while the stage lives the newest
// complete checkpoint goes at that interval, and older ones that are to leave
// the disk go at once. Mover.mu is held.
func (m *Mover) unitTurn(f *file, now time.Time) time.Time {
	o := f.out
	if !o.alive {
		return now
	}
	if !o.scan.done {
		return now.Add(m.pause(scanWait)) // which one is the newest is not known
	}
	units := o.units()
	key := f.unitKey()
	for i, u := range units {
		if u.key != key {
			continue
		}
		due := o.lastUnit.Add(o.spec.Every)
		switch {
		case u.begun, o.spec.KeepLast > 0 && i >= o.spec.KeepLast:
			return now
		case i == 0 && !due.After(now):
			o.lastUnit = now
			return now
		case i == 0:
			return due
		}
	}
	return now.Add(m.pause(time.Second))
}

// unit is a checkpoint: a file, or a directory with a marker.
type unit struct {
	key    string
	mtime  int64
	begun  bool // some of it is in the store or on the way
	proven bool // all of it is
	files  []*file
}

// units returns the complete checkpoints, newest first. Mover.mu is held.
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
		u.begun = u.begun || f.state == stateInFlight || f.state == stateSent || f.proven()
		u.proven = u.proven && f.proven()
		u.mtime = max(u.mtime, f.id.MTimeNS)
	}
	units := make([]*unit, 0, len(byKey))
	for key, u := range byKey {
		if !partial[key] {
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

// settled decides what becomes of a file that is proven. Mover.mu is held.
func (m *Mover) settled(f *file) {
	o := f.out
	switch {
	case !o.active || o.spec.AfterUpload == spec.AfterKeep || o.checkpoints(), o.grows():
		f.setState(stateKept)
	default:
		m.depart(f)
	}
}

// depart sends a proven file to be removed. Mover.mu is held.
func (m *Mover) depart(f *file) {
	if !f.fresh {
		// The ledger's word is from another process, perhaps days old: the
		// store is asked once more.
		again := *f.row.Stored
		f.row.Put, f.row.Phase = &again, ledger.Sent
		m.sent(f)
		return
	}
	f.setState(stateRemoving)
	m.leaving = append(m.leaving, f)
	nudge(m.wakeRemove)
}

// retire removes checkpoints that are no longer to be kept: beyond keep_last,
// or all of them with `delete`, and only if the whole checkpoint is proven.
func (m *Mover) retire(o *output) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !o.checkpoints() || !o.active || o.spec.KeepLast == 0 && o.spec.AfterUpload == spec.AfterKeep {
		return
	}
	for i, u := range o.units() {
		if i < o.spec.KeepLast || !u.proven {
			continue
		}
		// The marker goes first: a directory on its way out must not look
		// complete to a script.
		sort.Slice(u.files, func(a, b int) bool { return u.files[a].isMarkerFile() && !u.files[b].isMarkerFile() })
		for _, f := range u.files {
			if f.state == stateKept {
				m.depart(f)
			}
		}
	}
}
