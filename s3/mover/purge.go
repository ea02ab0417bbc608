package mover

import (
	"context"
	"errors"
	"fmt"
	"time"

	"pipedeck/pipeline"
	"pipedeck/s3/local"
)

const (
	// trashKept is how long a trash can be brought back, by the boot clock.
	trashKept = 10 * time.Minute
	roomEvery = 10 * time.Second
)

// bins lists what actions moved away; action "" is all.
func (m *Mover) bins(action string) (list []local.Bin, err error) {
	var roots []string
	for _, o := range m.outputs {
		if o.isArtifacts() {
			continue
		}
		for i := range o.roots {
			roots = append(roots, o.roots[i].dir)
		}
	}
	for _, base := range local.BinBases(m.opt.StateDir, roots) {
		for _, kind := range []local.BinKind{local.BinTrash, local.BinQuarantine} {
			found, berr := local.Bins(base, kind)
			err = errors.Join(err, berr)
			for _, b := range found {
				if action == "" || b.Action == action {
					list = append(list, b)
				}
			}
		}
	}
	return list, err
}

// countBin counts the files of a bin, once while nothing changes.
func (m *Mover) countBin(ctx context.Context, b local.Bin) (n binCount) {
	m.mu.Lock()
	n, known := m.care.bins[b.Dir()]
	m.mu.Unlock()
	if known {
		return n
	}
	problems, err := b.Files(ctx, func(a local.AsideFile) {
		n.files++
		n.bytes += a.Entry.ID.Size
	})
	if about, aerr := b.About(); err == nil && aerr == nil && about.Done && len(problems) == 0 {
		m.mu.Lock()
		m.care.bins[b.Dir()] = n
		m.mu.Unlock()
	}
	return n
}

func (m *Mover) forgetBin(b local.Bin) {
	m.mu.Lock()
	delete(m.care.bins, b.Dir())
	m.mu.Unlock()
}

// Trashes lists what can be brought back.
func (m *Mover) Trashes(ctx context.Context) ([]pipeline.Trashed, error) {
	bins, err := m.bins("")
	if err != nil {
		return nil, err
	}
	var list []pipeline.Trashed
	index := map[local.Bin]int{}
	for _, b := range bins {
		n := m.countBin(ctx, b)
		if n.files == 0 {
			continue
		}
		t := pipeline.Trashed{Action: b.Action, Quarantine: b.Kind == local.BinQuarantine, Files: n.files, Bytes: n.bytes}
		if !t.Quarantine {
			t.Left = m.left(b)
		}
		one := local.Bin{Kind: b.Kind, Action: b.Action}
		i, had := index[one]
		if !had {
			index[one] = len(list)
			list = append(list, t)
			continue
		}
		list[i].Files += t.Files
		list[i].Bytes += t.Bytes
		list[i].Left = max(list[i].Left, t.Left)
	}
	return list, ctx.Err()
}

// left is how long a trash is still kept. After a reboot it counts anew, and
// what was not moved to the end never ends by itself: nobody made sure yet
// that no file of it is written to.
func (m *Mover) left(b local.Bin) time.Duration {
	about, err := b.About()
	if err != nil || !about.Done {
		return trashKept
	}
	boot, up := m.care.boot()
	if boot != "" && boot == about.Boot && up >= about.Up {
		return max(0, trashKept-(up-about.Up))
	}
	if m.care.moving.TryLock() {
		defer m.care.moving.Unlock()
		about.Boot, about.Up = boot, up
		if err := b.SetAbout(about); err != nil {
			m.log.Warn("trash", "err", err)
		}
	}
	return trashKept
}

// Purge removes the trash of an action for good.
func (m *Mover) Purge(_ context.Context, action string) error {
	if err := goodAction(action); err != nil {
		return err
	}
	m.care.moving.Lock()
	defer m.care.moving.Unlock()
	bins, err := m.bins(action)
	for _, b := range bins {
		if b.Kind == local.BinTrash {
			err = errors.Join(err, b.Purge())
			m.forgetBin(b)
		}
	}
	return err
}

// roomLoop purges trashes early, oldest first, while space is needed.
func (m *Mover) roomLoop(ctx context.Context) {
	m.purgeRests()
	tick := time.NewTicker(m.pause(roomEvery))
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		case <-m.care.room:
		}
		if m.care.moving.TryLock() {
			for m.tight() && m.purgeOldest(ctx, "") {
				m.reserve.hold(m.opt.Clock())
			}
			m.care.moving.Unlock()
		}
	}
}

// tight says that a filesystem on which trash lies has no room left.
func (m *Mover) tight() bool {
	bins, err := m.bins("")
	if err != nil {
		return false
	}
	for _, b := range bins {
		if b.Kind != local.BinTrash {
			continue
		}
		if free, total, err := local.Space(b.Base); err == nil && free < reserveSize(total) {
			return true
		}
		if b.Base == m.opt.StateDir && m.reserve.inUse() {
			return true
		}
	}
	return false
}

// purgeOldest removes one trash that is complete, but not that of except.
// custody.moving is held.
func (m *Mover) purgeOldest(ctx context.Context, except string) bool {
	bins, err := m.bins("")
	if err != nil {
		return false
	}
	var oldest *local.Bin
	var at time.Time
	for i, b := range bins {
		about, err := b.About()
		if b.Kind != local.BinTrash || b.Action == except || err != nil || !about.Done {
			continue
		}
		if oldest == nil || about.At.Before(at) {
			oldest, at = &bins[i], about.At
		}
	}
	if oldest == nil {
		return false
	}
	n := m.countBin(ctx, *oldest)
	m.forgetBin(*oldest)
	if err := oldest.Purge(); err != nil {
		m.notify(pipeline.Warn, err.Error())
		return false
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.noteOf(oldest.Action, pipeline.Warn,
		fmt.Sprintf("the disk is full: the trash of action %s is purged early, %s, %d bytes", oldest.Action, pipeline.Counted(n.files, "file", "files"), n.bytes))
	return true
}

// purgeRests ends purges that were killed.
func (m *Mover) purgeRests() {
	m.care.moving.Lock()
	defer m.care.moving.Unlock()
	bases := map[string]bool{m.opt.StateDir: true}
	if bins, err := m.bins(""); err == nil {
		for _, b := range bins {
			bases[b.Base] = true
		}
	}
	for base := range bases {
		if err := local.PurgeRest(base); err != nil {
			m.notify(pipeline.Warn, err.Error())
		}
	}
}
