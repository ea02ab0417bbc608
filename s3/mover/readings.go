package mover

import (
	"time"

	"pipedeck/pipeline"
)

// backlogAge is how long the oldest waiting file may wait before the state
// says backlog.
const backlogAge = 60 * time.Second

// Outputs returns the mover's account from memory.
func (m *Mover) Outputs() pipeline.MoverReading {
	gate := m.gate.state()
	m.mu.Lock()
	defer m.mu.Unlock()
	r := pipeline.MoverReading{At: m.opt.Clock(), Paused: m.paused, Events: m.events}
	m.events = nil
	if r.Problem = gate.blocked; r.Problem == "" {
		r.Problem = m.knownErr
	}
	for _, o := range m.outputs {
		reading := m.reading(o, gate, r.At)
		if o.isArtifacts() {
			r.Artifacts = &reading
		} else {
			r.Outputs = append(r.Outputs, reading)
		}
	}
	return r
}

// Failures lists the files that need the operator or another try, of all
// outputs, in no particular order.
func (m *Mover) Failures() []pipeline.Failure {
	m.mu.Lock()
	defer m.mu.Unlock()
	var list []pipeline.Failure
	for i := range m.care.apart {
		list = append(list, m.care.apart[i].failure())
	}
	for _, o := range m.outputs {
		list = append(list, m.twinFailures(o)...)
		if o.tally.files[stateFailed]+o.tally.files[stateMismatch]+o.tally.files[stateHeld] == 0 {
			continue
		}
		for _, f := range o.files {
			if f.state == stateFailed || f.state == stateMismatch || f.state == stateHeld {
				list = append(list, f.failure(o.name))
			}
		}
	}
	return list
}

func (s state) failureKind() pipeline.FailureKind {
	if s == stateMismatch {
		return pipeline.FailureMismatched
	}
	if s == stateHeld {
		return pipeline.FailureHeld
	}
	return pipeline.FailureUpload
}

func (f *file) failure(output string) pipeline.Failure {
	out := pipeline.Failure{Output: output, Path: f.rel, Kind: f.state.failureKind(), Reason: f.reason, Since: f.since}
	if !f.next.IsZero() {
		out.NextTry = new(f.next)
	}
	return out
}

func (m *Mover) reading(o *output, gate gateState, now time.Time) pipeline.OutputReading {
	t := &o.tally
	r := pipeline.OutputReading{
		Stage: o.stage.Name, Name: o.spec.Name, Dir: o.dir,
		VerifiedTotalFiles: o.total.verifiedFiles, VerifiedTotalBytes: o.total.verifiedBytes,
		ProducedTotalBytes: o.total.producedBytes,
	}
	r.Queue = m.queueOf(o, now)
	r.State, r.StateReason = m.stateOf(o, gate, &r.Queue)
	switch {
	case !o.scan.done:
		r.Reason = "the output directory was not scanned yet"
	case o.scan.blind:
		r.Reason = "the output directory cannot be read: " + o.scan.problem
	case !m.known:
		r.Reason = "what the bucket holds is not known yet"
		if m.knownErr != "" {
			r.Reason += ": " + m.knownErr
		}
	}
	if o.scan.done && !o.scan.blind {
		r.LocalFiles, r.LocalBytes = new(t.localFiles()), new(t.localBytes())
		r.FailedFiles, r.QuarantinedFiles = new(t.files[stateFailed]+t.files[stateMismatch]), new(m.apartOf(o))
		if !o.newest.IsZero() {
			r.NewestOutputAt = new(o.newest)
		}
	}
	if m.known {
		r.VerifiedFiles, r.VerifiedBytes = new(o.stored.Files), new(o.stored.Bytes)
	}
	if m.known && o.scan.done && !o.scan.blind {
		r.DeletedLocalFiles = new(o.stored.Files - t.localStored)
		r.DoneIDs = new(o.doneIDs())
		r.Coverage = m.quickCoverage(o)
		r.Settled = m.isSettled(o)
	}
	if o.spec.ID != "" {
		r.IDs = o.idMap.spread()
	}
	r.ByRank = o.ranks()
	return r
}

// isSettled says whether every complete local file is stored and nothing is on
// its way. What could not be read may hold files. Mover.mu is held.
func (m *Mover) isSettled(o *output) bool {
	t := &o.tally
	return o.scan.problem == "" && o.scan.rounds >= o.scan.asked && !o.recheck.open() && t.files[stateSeen]+t.files[stateWaiting]+t.files[stateInFlight]+t.files[stateSent]+
		t.files[stateRemoving]+t.files[stateHeld]+t.files[stateFailed]+t.files[stateMismatch]+t.inflight == 0 &&
		!o.awaitsTime()
}

// awaitsTime says whether files that were there when a settle began are only
// too young to be called complete. Mover.mu is held.
func (o *output) awaitsTime() bool {
	if o.tally.files[stateWriting] == 0 || o.scan.asked == 0 {
		return false
	}
	for _, f := range o.files {
		there := f.id.MTimeNS <= o.scan.askedAt.UnixNano() || !f.changed.After(o.scan.askedAt)
		if f.state == stateWriting && f.settling && there {
			return true
		}
	}
	o.scan.asked = 0 // it was answered
	return false
}

func (m *Mover) queueOf(o *output, now time.Time) pipeline.Queue {
	t := &o.tally
	q := pipeline.Queue{
		InFlight: t.inflight, MaxParallel: m.gate.max,
		WaitingFiles: t.files[stateWaiting] + t.files[stateFailed],
		WaitingBytes: t.bytes[stateWaiting] + t.bytes[stateFailed],
	}
	if since := o.waitingSince(); !since.IsZero() {
		q.OldestSeconds = new(max(0, now.Sub(since).Seconds()))
	}
	return q
}

// stateOf says in one word, and why, what the mover does for an output.
func (m *Mover) stateOf(o *output, gate gateState, q *pipeline.Queue) (pipeline.OutputState, string) {
	t := &o.tally
	work := q.WaitingFiles + q.InFlight + t.files[stateSent] + t.files[stateRemoving]
	switch {
	case m.stopped:
		return pipeline.OutputStopped, "the mover does not run"
	case m.paused:
		return pipeline.OutputPaused, "uploads are paused by the operator"
	case o.heldBy != "":
		return pipeline.OutputPaused, "held by action " + o.heldBy
	case !o.active:
		return pipeline.OutputIdle, "its stage was not started here"
	case !o.scan.done:
		return pipeline.OutputUnknown, "the output directory was not scanned yet"
	case gate.blocked != "":
		return pipeline.OutputBlocked, gate.blocked
	case m.knownErr != "":
		return pipeline.OutputBlocked, m.knownErr
	case m.noDeletes != "":
		return pipeline.OutputBlocked, m.noDeletes
	case o.scan.blind:
		return pipeline.OutputBlocked, o.scan.problem
	case gate.throttled && work > 0:
		return pipeline.OutputThrottled, "the store asks for fewer requests"
	case q.OldestSeconds != nil && *q.OldestSeconds > backlogAge.Seconds():
		return pipeline.OutputBacklog, "files come faster than they are uploaded"
	case work > 0:
		return pipeline.OutputRunning, m.complaint(o)
	default:
		return pipeline.OutputIdle, m.complaint(o)
	}
}

// quickCoverage is what the mover knows without asking. A file that is being
// written is missing in the store.
func (m *Mover) quickCoverage(o *output) *pipeline.CoverageCounts {
	t := &o.tally
	c := &pipeline.CoverageCounts{
		At: m.opt.Clock(), Complete: o.scan.problem == "",
		Local:      t.localFiles(),
		Proven:     t.files[stateKept] + t.files[stateRemoving] + t.files[stateHeld],
		Unproven:   t.files[stateSent],
		Mismatched: t.files[stateMismatch],
		Unknown:    t.files[stateSeen],
	}
	c.Missing = c.Local - c.Proven - c.Unproven - c.Mismatched - c.Unknown
	return c
}

// ranks counts by rank where directories are of one rank each.
func (o *output) ranks() map[int]pipeline.RankFiles {
	ranks := map[int]pipeline.RankFiles{}
	for i := range o.roots {
		if r := &o.roots[i]; r.rank >= 0 && r.produced > 0 {
			ranks[r.rank] = pipeline.RankFiles{Done: r.produced, NewestAt: r.newest}
		}
	}
	return ranks
}
