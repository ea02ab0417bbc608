package mover

import (
	"fmt"
	"path/filepath"
	"sync"
	"time"

	"pipedeck/pipeline"
	"pipedeck/s3/ledger"
	"pipedeck/s3/local"
)

const (
	reserveName = "reserve"
	// The reserve is 1 % of the filesystem, at most 64 MiB and at least what the
	// ledger's log grows to, but no more than a sixteenth.
	reserveMost  = 64 << 20
	reserveLeast = 4 << 20
	reserveShare = 100
	smallShare   = 16
	// reserveRoom is how many times its own size must be free before it is
	// taken again.
	reserveRoom = 4
	reserveLook = 10 * time.Second
)

// reserve is room on the state directory's filesystem that is given up when
// the disk is full, so that the ledger can go on: uploads and proven deletes
// then make room.
type reserve struct {
	path string
	room local.Room // for the operator, beside what uploads use

	mu   sync.Mutex
	held bool
	full bool // it was needed, and could not be taken again yet
	next time.Time

	roomAt time.Time // of the next look at the room
}

func newReserve(stateDir string) *reserve {
	return &reserve{path: filepath.Join(stateDir, reserveName), room: local.RoomIn(stateDir)}
}

// hold takes the reserve if it is not held and there is room for it.
func (r *reserve) hold(now time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !now.Before(r.roomAt) {
		r.roomAt = now.Add(reserveLook)
		r.room.Hold()
	}
	if r.held || now.Before(r.next) {
		return
	}
	r.next = now.Add(reserveLook)
	free, total, err := local.Space(filepath.Dir(r.path))
	if err != nil {
		return
	}
	size := reserveSize(total)
	if free < reserveRoom*size {
		return
	}
	if local.Reserve(r.path, size) == nil {
		r.held, r.full = true, false
	}
}

func reserveSize(total int64) int64 {
	return min(reserveMost, max(total/reserveShare, min(reserveLeast, total/smallShare)))
}

// release gives the room back and says whether there was some.
func (r *reserve) release() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	had := r.held
	r.held, r.full = false, true
	r.next = time.Time{}
	return local.ReleaseReserve(r.path) == nil && had
}

// inUse says that the disk was full and is not known to be better.
func (r *reserve) inUse() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.full
}

// makeRoom gives up the reserve for a write that failed, and says whether to
// try it again.
func (m *Mover) makeRoom(err error) bool {
	had := m.reserve.release()
	nudge(m.care.room)
	m.notify(pipeline.Error, err.Error()+"; the reserve is given up, uploads and proven removals make room")
	return had
}

// saveMeta records what the operator wants, which must be possible on a full
// disk: that uploads go on is what makes room.
func (m *Mover) saveMeta(name, value string) error {
	set := func() error { return m.opt.Ledger.SetMeta(name, value) }
	err := set()
	if err != nil && m.makeRoom(err) {
		err = set()
	}
	if err != nil {
		err = m.reserve.room.Again(err, set)
	}
	return err
}

// saveIntent records what is about to be sent. Without the record a PUT gives
// no right to replace anything later, and only to an absent key does it need
// none: that must not take the room which the proofs need.
func (m *Mover) saveIntent(row ledger.Row, toAbsent bool) error {
	if toAbsent && m.reserve.inUse() {
		return nil
	}
	err := m.opt.Ledger.Save(row)
	if err == nil {
		return nil
	}
	had := m.makeRoom(err)
	if toAbsent {
		return nil
	}
	if had {
		err = m.opt.Ledger.Save(row)
	}
	if err != nil {
		return fmt.Errorf("cannot record the intent: %w", err)
	}
	return nil
}

// prepareAside makes the folders of a removal ahead, while there is room.
func (m *Mover) prepareAside(o *output, r *root) {
	m.mu.Lock()
	wanted := o.active && !o.isArtifacts() && !r.prepared
	m.mu.Unlock()
	if !wanted {
		return
	}
	remover, err := m.remover(r.dir)
	if err == nil {
		err = remover.Prepare(r.dir)
	}
	m.mu.Lock()
	r.prepared = err == nil
	m.mu.Unlock()
}
