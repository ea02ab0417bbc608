package mover

import (
	"context"
	"errors"
	"fmt"
	"path"
	"time"

	"pipedeck/pipeline/spec"
	"pipedeck/s3/ledger"
	"pipedeck/s3/local"
)

// recheckIncomplete is when an incomplete file that seems not to change is
// looked at again: writes through a mapping show late.
const recheckIncomplete = 10 * time.Second

// judgeAgain sends a file to be judged. Mover.mu is held.
func (m *Mover) judgeAgain(f *file) {
	f.setState(stateSeen)
	f.judgeAt.at(m.toJudge, f, time.Time{})
}

// reconsider judges a file again whose circumstances changed, unless it is on
// its way. Mover.mu is held.
func (m *Mover) reconsider(f *file) {
	if f.state == stateWriting || f.state == stateWaiting || f.state == stateKept {
		f.next = time.Time{}
		m.judgeAgain(f)
	}
}

func (m *Mover) judgeLoop(ctx context.Context) {
	for m.toJudge.wait(ctx) == nil {
		f, due := m.toJudge.pop()
		if f == nil {
			continue
		}
		m.mu.Lock()
		wanted := f.judgeAt.taken(due) && f.toJudge()
		m.mu.Unlock()
		if !wanted {
			continue
		}
		v := m.judge(ctx, f)
		m.mu.Lock()
		if f.toJudge() {
			m.place(f, v)
		}
		o := f.out
		m.mu.Unlock()
		m.firstScan(o)
		if m.toJudge.idle() {
			m.signal()
		}
	}
}

// toJudge says whether a verdict would be heard. Mover.mu is held.
func (f *file) toJudge() bool {
	return !f.dropped && (f.state == stateSeen || f.state == stateWriting || f.state == stateHeld)
}

// verdict is what was found of one file.
type verdict struct {
	id     local.Identity
	done   bool
	again  time.Time // when to judge again if not done
	reason string
	owner  string // the other run that it belongs to
	young  bool   // only time has to pass until it is done
	err    error
}

// judge opens a file and asks its format.
func (m *Mover) judge(ctx context.Context, f *file) verdict {
	m.mu.Lock()
	unknown := f.row == nil
	m.mu.Unlock()
	if unknown {
		if err := m.lookup(ctx, f); err != nil {
			return verdict{err: err}
		}
	}
	src, err := local.Open(f.root.dir, f.rel)
	if err != nil {
		return verdict{err: err}
	}
	defer func() { _ = src.Close() }()
	id, err := src.Identity()
	if err != nil {
		return verdict{err: err}
	}
	v := verdict{id: id, again: m.opt.Clock().Add(m.pause(recheckIncomplete))}
	if v.owner, v.err = m.ownerOf(ctx, f.out, id); v.owner != "" || v.err != nil {
		return v
	}
	if f.unit != "" {
		return m.judgeUnit(ctx, f, v)
	}
	j, err := local.Judge(src, f.out.spec.Format, id)
	if err != nil {
		v.err = err
		return v
	}
	return m.weigh(f, src, j, v)
}

// weigh turns the format's judgement into a verdict.
func (m *Mover) weigh(f *file, src *local.File, j local.Judgement, v verdict) verdict {
	v.reason = j.Reason
	switch j.Verdict {
	case local.Complete:
		v.done = true
	case local.AfterSettle:
		settle := f.out.spec.Settle
		switch {
		case !m.settledFor(f, v.id, settle):
			v.again, v.young = m.settleTime(v.id, settle), true
		case isOpen(src):
			v.reason = "open for writing"
		default:
			v.done = true
		}
	case local.Unsupported:
		v.err = errors.New(j.Reason)
	case local.Incomplete:
		v.done = f.out.spec.Format == spec.FormatJSONL && v.id.Size > 0 && m.linesCount(f, src, v.id)
	}
	return v
}

// linesCount says whether a jsonl file that ends inside a record is sent: its
// whole lines while it grows, all of it when nobody writes any more.
func (m *Mover) linesCount(f *file, src *local.File, id local.Identity) bool {
	m.mu.Lock()
	growing := f.out.grows()
	m.mu.Unlock()
	return growing || m.settledFor(f, id, f.out.spec.Settle) && !isOpen(src)
}

// settledFor says whether a file was left alone for settle. Times in the
// future (a clock that was set back) say nothing: then it counts from when this
// process saw the last change.
func (m *Mover) settledFor(f *file, id local.Identity, settle time.Duration) bool {
	now := m.opt.Clock()
	if max(id.MTimeNS, id.CTimeNS) <= now.UnixNano() {
		return local.Settled(id, now, settle)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	return f.id.Same(id) && !f.changed.IsZero() && now.Sub(f.changed) >= settle
}

// settleTime is when to look again whether a file is settled.
func (m *Mover) settleTime(id local.Identity, settle time.Duration) time.Time {
	at := time.Unix(0, max(id.MTimeNS, id.CTimeNS)).Add(settle + time.Millisecond)
	now := m.opt.Clock()
	// Counted from now: a clock that is set back must not put it off.
	return now.Add(min(at.Sub(now), settle+time.Millisecond))
}

func isOpen(src *local.File) bool {
	state, _ := src.Writer()
	return state == local.WriterOpen
}

// judgeUnit judges a member of a directory that a marker file completes.
func (m *Mover) judgeUnit(ctx context.Context, f *file, v verdict) verdict {
	j, _, _, err := local.JudgeMarker(ctx, f.root.dir, f.unit, f.out.spec.Marker)
	v.err, v.reason, v.done = err, j.Reason, j.Verdict == local.Complete
	if v.again = m.opt.Clock().Add(m.pause(recheckIncomplete)); !v.done && j.Reason == "" {
		v.reason = fmt.Sprintf("%q has no %s yet", f.unit, f.out.spec.Marker)
	}
	if !v.done && v.err == nil {
		m.mu.Lock()
		v.done = m.isRemnant(f, v.id)
		m.mu.Unlock()
	}
	return v
}

// place puts a judged file into its state. Mover.mu is held.
func (m *Mover) place(f *file, v verdict) {
	switch {
	case isGone(v.err):
		m.vanish(f)
		return
	case v.err != nil:
		m.fail(f, v.err.Error(), m.pause(backoff(max(1, f.attempts), 1)))
		return
	}
	f.setIdentity(v.id)
	f.setOwner(v.owner)
	f.odd, f.reason = false, v.reason
	if v.owner != "" {
		m.fail(f, fmt.Sprintf("it belongs to run %q; %s", v.owner, goBack(v.owner)), 0)
		return
	}
	if !v.done {
		f.complete, f.settling = false, v.young
		f.setState(stateWriting)
		f.judgeAt.at(m.toJudge, f, v.again)
		return
	}
	m.completed(f)
}

// completed sends a complete file to where the ledger says it belongs.
// Mover.mu is held.
func (m *Mover) completed(f *file) {
	f.complete, f.reason = true, ""
	f.setStored(f.row.Stored != nil)
	if !f.produced {
		f.produced = true
		f.out.total.producedBytes += f.id.Size
		f.root.produced++
		f.root.newest = later(f.root.newest, f.id)
	}
	if f.isMarkerFile() {
		m.wakeUnit(f)
	}
	switch {
	case f.proven():
		m.settled(f)
	case !f.out.active:
		f.setState(stateWaiting)
	case isCopyOf(f.row.Put, f.id) && f.row.Phase != ledger.Intended:
		m.sent(f)
	default:
		f.since = m.opt.Clock()
		m.enqueue(f)
	}
}

// enqueue makes a file wait for its upload. Mover.mu is held.
func (m *Mover) enqueue(f *file) {
	f.setState(stateWaiting)
	f.out.line = append(f.out.line, waiter{f, f.since})
	m.remind(f)
}

// remind puts a waiting or failed file into the queue of its size.
func (m *Mover) remind(f *file) {
	due := f.next
	if due.IsZero() {
		due = f.since
	}
	if f.id.Size > m.sizes.single {
		f.sendAt.at(m.large, f, due)
	} else {
		f.sendAt.at(m.small, f, due)
	}
}

// wakeUnit judges the others of a marker's directory. Mover.mu is held.
func (m *Mover) wakeUnit(marker *file) {
	for _, f := range marker.out.files {
		if f.unit == marker.unit && f.root == marker.root && f.state == stateWriting {
			m.judgeAgain(f)
		}
	}
}

// fail makes a file wait for its next try, 0 for only when something changes.
// Mover.mu is held.
func (m *Mover) fail(f *file, reason string, wait time.Duration) {
	if f.state != stateFailed && f.state != stateMismatch {
		f.since = m.opt.Clock()
	}
	f.reason = reason
	f.setState(stateFailed)
	f.next = time.Time{}
	if wait > 0 {
		f.next = m.opt.Clock().Add(wait)
		m.remind(f)
	}
}

// unitKey names what is uploaded, kept and removed together.
func (f *file) unitKey() string {
	if f.unit != "" {
		return path.Join(f.root.dir, f.unit)
	}
	return path.Join(f.root.dir, f.rel)
}

// checkpoints says whether the output is uploaded by `every` and kept by
// `keep_last`.
func (o *output) checkpoints() bool {
	return !o.isArtifacts() && (o.isMarker() || o.spec.KeepLast > 0) && o.spec.Format != spec.FormatJSONL
}
