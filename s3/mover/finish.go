package mover

import (
	"context"
	"errors"
	"sync"
	"syscall"
	"time"

	"pipedeck/pipeline"
)

const (
	// integrityTries of one file before it waits for long.
	integrityTries = 3
	integrityWait  = 10 * time.Minute
	// integrityFiles with damaged transfers are no accident: deletes stop.
	integrityFiles = 3
	// patience is how many transient failures a file has before it counts as
	// failed and not as waiting.
	patience = 5
)

// newGroup waits for goroutines that come and go.
func newGroup() *sync.WaitGroup { return &sync.WaitGroup{} }

// finish puts a file into the state that follows from how its upload ended.
func (m *Mover) finish(f *file, err error) {
	m.gate.report(err)
	m.mu.Lock()
	defer m.mu.Unlock()
	if f.dropped {
		return
	}
	if err == nil {
		f.attempts, f.next = 0, time.Time{}
		f.out.lastUnit = m.opt.Clock()
		m.sent(f)
		return
	}
	switch {
	case errors.Is(err, context.Canceled):
		f.setState(stateWaiting)
	case errors.Is(err, errChanged):
		f.setState(stateSeen)
		f.judgeAt.at(m.toJudge, f, m.opt.Clock().Add(racyWindow))
	case errors.Is(err, errNotYet):
		f.next = m.opt.Clock().Add(f.out.spec.Every)
		m.enqueue(f)
	case isGone(err):
		m.vanish(f)
	case errors.Is(err, errHolder):
		m.holdsPlace(f)
	case errors.Is(err, errMismatch):
		m.mismatch(f, err.Error())
	default:
		m.stumble(f, err)
	}
}

// mismatch leaves a file to the operator. Mover.mu is held.
func (m *Mover) mismatch(f *file, reason string) {
	f.reason, f.since = reason, m.opt.Clock()
	f.setState(stateMismatch)
	m.note(pipeline.Error, f.out.name+"/"+f.rel+": "+reason+"; it is neither replaced nor is the local file removed")
}

// stumble makes a file wait for its next try. Mover.mu is held.
func (m *Mover) stumble(f *file, err error) {
	f.attempts++
	wait := m.backoff(f.attempts)
	if se, ok := errors.AsType[*pipeline.StoreError](err); ok && se.RetryAfter > 0 {
		wait = max(wait, min(se.RetryAfter, maxBackoff))
	}
	switch class := classOf(err); {
	case class == pipeline.StoreCredentials || class == pipeline.StoreConfig:
		f.attempts--
		m.again(f, err, 0)
	case class == pipeline.StoreTransient || class == pipeline.StoreThrottled || outOfHandles(err):
		m.again(f, err, wait)
	case class == pipeline.StoreIntegrity:
		m.damaged(f, err.Error(), wait)
	default:
		m.fail(f, err.Error(), max(wait, m.pause(time.Second)))
	}
}

// again queues a file after trouble that is not its own.
func (m *Mover) again(f *file, err error, wait time.Duration) {
	if f.attempts >= patience {
		m.fail(f, err.Error(), wait)
		return
	}
	f.reason = err.Error()
	f.next = m.opt.Clock().Add(wait)
	m.enqueue(f)
}

// damaged counts a transfer whose bytes did not arrive as sent. Mover.mu is held.
func (m *Mover) damaged(f *file, reason string, wait time.Duration) {
	m.broken[f.key] = struct{}{}
	if len(m.broken) >= integrityFiles && m.noDeletes == "" {
		m.noDeletes = "bytes arrive damaged in the store: nothing local is removed until `retry`"
		m.note(pipeline.Error, m.noDeletes+" ("+reason+")")
	}
	if f.attempts >= integrityTries {
		wait = m.pause(integrityWait)
	}
	m.fail(f, reason, wait)
}

// outOfHandles is the process's trouble, not the file's.
func outOfHandles(err error) bool {
	return errors.Is(err, syscall.EMFILE) || errors.Is(err, syscall.ENFILE) || errors.Is(err, syscall.ENOMEM)
}
