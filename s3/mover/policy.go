package mover

import (
	"path"
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
	case f.hasty:
		return now
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
		case i == 0:
			return due
		}
	}
	return now.Add(m.pause(time.Second))
}

// settled decides what becomes of a file that is proven. Mover.mu is held.
func (m *Mover) settled(f *file) {
	o := f.out
	switch {
	case o.mine() && m.isRemnant(f, f.id):
		m.depart(f)
	case !o.mine() || o.spec.AfterUpload == spec.AfterKeep || o.checkpoints(), o.grows():
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
