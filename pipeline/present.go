package pipeline

import (
	"fmt"
	"strings"
	"time"
)

// known says whether the last look at the processes still holds.
func (w *World) known(now time.Time) (bool, string) {
	switch {
	case !w.launches.any && w.launches.err != "":
		return false, "the processes cannot be observed: " + w.launches.err
	case !w.launches.any:
		return false, "the processes were not looked at yet"
	case now.Sub(w.launches.good) <= staleAfter:
		return true, ""
	case w.launches.err != "":
		return false, fmt.Sprintf("the processes were last seen %s ago: %s", humanTime(now.Sub(w.launches.good)), w.launches.err)
	}
	return false, fmt.Sprintf("the processes were last seen %s ago", humanTime(now.Sub(w.launches.good)))
}

func (w *World) stageSnapshot(st *stageWorld, now time.Time) StageSnapshot {
	known, unseen := w.known(now)
	c := st.counts()
	out := StageSnapshot{
		Name: st.sp.Name, Done: c.done, DoneReason: text(c.why), Skipped: c.skipped, FailedSamples: c.failed,
		Total: c.total, TotalReason: text(c.whyTotal), Placement: st.want.Place,
		Workers: []WorkerSnapshot{}, Services: []ServiceSnapshot{}, Outputs: []OutputSnapshot{},
	}
	states := map[int]WorkerState{}
	var stopSent time.Time
	for _, rank := range st.ranks() {
		ws := w.workerSnapshot(st, rank, now, known, unseen)
		out.Workers = append(out.Workers, ws)
		states[rank] = ws.State
		if at := st.want.Workers[rank].StopSentAt; at.After(stopSent) {
			stopSent = at
		}
	}
	t := w.tally(st, states)
	var why string
	out.State, why = judgeStage(st.want.Want, st.sp.Workers.Stop.Grace, stopSent, now, t, known)
	if out.State == StageDone {
		why = doneText(c)
	}
	out.StateReason = text(why)
	out.SamplesPerSecond, why = st.stageRate(out.State, now)
	out.SamplesPerSecond, out.RateReason = round(out.SamplesPerSecond), text(why)
	out.ETASeconds, why = w.eta(st, out.State, t, c, now)
	out.ETAReason = text(why)
	for _, o := range st.outputs {
		os := w.outputSnapshot(o, now)
		os.CoverageMap, os.CoverageMapReason = coverageMap(o.reading, c.whole)
		out.Outputs = append(out.Outputs, os)
	}
	if (out.Done == nil || out.Skipped == nil || out.FailedSamples == nil) && out.DoneReason == nil {
		out.DoneReason = new("not told yet")
	}
	return out
}

func doneText(c stageCounts) string {
	if left := c.left(); left != nil && *left > c.slack {
		return "every worker ended with code 0, but " + notAccounted(*left, *c.total)
	}
	return ""
}

func (w *World) workerSnapshot(st *stageWorld, rank int, now time.Time, known bool, unseen string) WorkerSnapshot {
	wk := st.workers[rank]
	if wk == nil {
		wk = &workerWorld{rank: rank}
	}
	want := st.want.Workers[rank]
	out := WorkerSnapshot{
		ID: st.id(rank), Rank: rank, State: wk.state, StateReason: text(wk.reason), StateSince: moment(clampTime(wk.since, now)),
		Done: wk.done(st), Total: count(wk.source.total), Restarts: max(0, want.Restarts), MaxRestarts: st.sp.Workers.Restart.Max,
		LastOutputAt: moment(clampTime(wk.lastOutput(), now)), GPUMemBytes: w.workerMemory(st, wk),
	}
	if ref := st.gpuOf(wk); ref != nil {
		out.GPU, out.GPUUUID = new(ref.Index), new(Clean(ref.UUID))
	}
	if want.Code != "" {
		out.Code = new(want.Code)
	}
	if out.State == "" {
		out.State, out.StateReason = WorkerInit, new("not started yet")
	}
	wk.presentProcess(&out)
	out.Stopped = known && want.Stopping && wk.gone()
	living := wk.seen != nil && (wk.seen.State == ProcRunning || wk.seen.State == ProcIntended)
	if !known && (living || wk.seen == nil) {
		out.State, out.StateReason = WorkerUnknown, text(unseen)
	}
	out.SamplesPerSecond, out.RateReason = wk.presentRate(out, now)
	out.Reason = text(whyUnknown(out))
	return out
}

// whyUnknown says why numbers of a worker are null that have no reason of their
// own.
func whyUnknown(w WorkerSnapshot) string {
	var why []string
	if w.PID == nil {
		why = append(why, "no process lives")
	}
	if w.GPU == nil {
		why = append(why, "it holds no GPU")
	} else if w.GPUMemBytes == nil && w.PID != nil {
		why = append(why, "its GPU memory is not told")
	}
	if w.Done == nil {
		why = append(why, "nothing tells what it has done")
	}
	if w.Total == nil {
		why = append(why, "nothing tells its share")
	}
	return strings.Join(why, "; ")
}

// gone says whether nothing of the newest launch lives. An end that nobody
// recorded proves nothing.
func (wk *workerWorld) gone() bool {
	return wk.seen == nil || wk.seen.State == ProcExited && wk.seen.Stragglers == 0
}

// presentProcess fills in what the newest launch says.
func (wk *workerWorld) presentProcess(out *WorkerSnapshot) {
	out.ExitReason = new("has not ended")
	if wk.seen == nil {
		out.ExitReason = new("never ran here")
		return
	}
	l := wk.seen
	out.Log = Clean(l.Log)
	out.StartedAt = moment(l.StartedAt)
	if l.State == ProcRunning {
		if l.PID > 0 {
			out.PID = new(l.PID)
		}
		return
	}
	if l.State == ProcIntended {
		return
	}
	out.GPUMemBytes = nil
	out.ExitReason = text(EndText(*l))
	if l.Exit != nil && l.Exit.Code != nil {
		out.ExitCode = new(*l.Exit.Code)
	}
}

func (wk *workerWorld) presentRate(out WorkerSnapshot, now time.Time) (*float64, *string) {
	switch {
	case out.State == WorkerUnknown:
		return nil, new(reasonStale)
	case !isLiving(out.State) && out.PID == nil:
		return nil, new("not running")
	case out.Done == nil && wk.source.err != "":
		return nil, text(wk.source.err)
	case out.Done == nil && len(wk.rate.points) == 0:
		return nil, new("nothing tells what this worker has done")
	}
	rate, why := wk.rate.short(now)
	return round(rate), text(why)
}

// done is the worker's own count: what it declares, else its files.
func (wk *workerWorld) done(st *stageWorld) *int64 {
	if wk.source.done != nil {
		return count(wk.source.done)
	}
	if st.byRank && wk.files.have {
		return new(wk.files.value)
	}
	return nil
}

func (wk *workerWorld) lastOutput() time.Time {
	at := wk.newest
	for _, t := range []time.Time{wk.declared.last, wk.files.last} {
		if wk.newest.IsZero() && t.After(at) {
			at = t
		}
	}
	return at
}

// clampTime keeps a time from lying in the future, after the clock was set back.
func clampTime(t, now time.Time) time.Time {
	if t.After(now) {
		return now
	}
	return t
}

func (w *World) outputSnapshot(o *outputWorld, now time.Time) OutputSnapshot {
	out := OutputSnapshot{Name: o.name, Dir: o.dir, State: OutputUnknown}
	r := o.reading
	if r == nil {
		out.StateReason, out.Reason = new("not looked at yet"), new("not looked at yet")
		out.Queue.OldestReason = new("not looked at yet")
		return out
	}
	out.State, out.StateReason, out.Reason = r.State, text(r.StateReason), text(r.Reason)
	if !validOutput(out.State) {
		out.State = OutputUnknown
	}
	out.LocalFiles, out.LocalBytes = count(r.LocalFiles), count(r.LocalBytes)
	out.VerifiedFiles, out.VerifiedBytes = count(r.VerifiedFiles), count(r.VerifiedBytes)
	out.DeletedLocalFiles, out.FailedFiles = count(r.DeletedLocalFiles), count(r.FailedFiles)
	out.QuarantinedFiles = count(r.QuarantinedFiles)
	out.Queue = presentQueue(r.Queue)
	out.Coverage = presentCoverage(r.Coverage)
	if now.Sub(w.mover.good) > rateStale {
		out.State = OutputUnknown
		out.StateReason = new(fmt.Sprintf("the mover last told of it %s ago", humanTime(now.Sub(w.mover.good))))
	}
	var why string
	out.FilesPerSecond, why = o.files.short(now)
	out.BytesPerSecond, _ = o.bytes.short(now)
	out.ProducedBytesPerSecond, _ = o.produced.short(now)
	for _, f := range []**float64{&out.FilesPerSecond, &out.BytesPerSecond, &out.ProducedBytesPerSecond} {
		*f = round(*f)
	}
	if out.Reason == nil {
		out.Reason = text(why)
	}
	if out.Reason == nil && out.hasNull() {
		out.Reason = new("not known yet")
	}
	return out
}

func validOutput(s OutputState) bool {
	switch s {
	case OutputIdle, OutputRunning, OutputPaused, OutputThrottled, OutputBacklog, OutputBlocked, OutputStopped, OutputUnknown:
		return true
	}
	return false
}

func (o OutputSnapshot) hasNull() bool {
	for _, n := range []*int64{o.LocalFiles, o.LocalBytes, o.VerifiedFiles, o.VerifiedBytes, o.DeletedLocalFiles, o.FailedFiles, o.QuarantinedFiles} {
		if n == nil {
			return true
		}
	}
	return o.FilesPerSecond == nil || o.BytesPerSecond == nil || o.ProducedBytesPerSecond == nil
}

func presentQueue(q Queue) Queue {
	q.WaitingFiles, q.WaitingBytes = max(0, q.WaitingFiles), max(0, q.WaitingBytes)
	q.InFlight, q.MaxParallel = max(0, q.InFlight), max(0, q.MaxParallel)
	q.OldestSeconds = finite(q.OldestSeconds)
	switch {
	case q.OldestSeconds != nil:
		q.OldestReason = nil
	case q.OldestReason != nil:
	case q.WaitingFiles+q.InFlight > 0:
		q.OldestReason = new("not told by the mover")
	default:
		q.OldestReason = new("nothing waits")
	}
	return q
}

func presentCoverage(c *CoverageCounts) *CoverageCounts {
	if c == nil {
		return nil
	}
	out := *c
	out.At = wireTime(c.At)
	return &out
}
