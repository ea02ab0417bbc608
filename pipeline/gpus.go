package pipeline

import (
	"fmt"
	"slices"
	"time"
)

func (w *World) foldGPUs(r GPUReading) {
	if len(r.GPUs) > maxGPUs {
		r.GPUs = r.GPUs[:maxGPUs]
	}
	gone := func(g GPUReading) bool { return g.Kind == "" || g.Kind == sourceNone }
	was, now := w.gpus.any && !gone(w.gpus.reading), !gone(r)
	switch {
	case was && !now:
		w.note(r.At, Warn, "gpu", "GPU readings are gone: %s", r.Reason)
	case w.gpus.any && !was && now:
		w.note(r.At, Info, "gpu", "GPU readings come from %s", r.Kind)
	}
	if !now && len(r.GPUs) == 0 {
		r.GPUs = blank(w.gpus.reading.GPUs, r.Reason)
	}
	for _, g := range r.GPUs {
		w.tellGPU(g, r.At)
	}
	w.gpus.reading, w.gpus.any = r, true
}

// tellGPU tells of a GPU that is lost or back, and of its error events.
func (w *World) tellGPU(g GPUSnapshot, at time.Time) {
	before, known := w.gpus.states[g.UUID]
	if !known && len(w.gpus.states) >= maxGPUs {
		return
	}
	w.gpus.states[g.UUID] = g.State
	w.tellXIDs(g, at)
	switch {
	case g.State == GPULost && before != GPULost:
		w.note(at, Error, "gpu", "GPU %d is lost: %s", g.Index, orElse(g.StateReason, unreached))
	case before == GPULost && g.State == GPUOK:
		w.note(at, Info, "gpu", "GPU %d is back", g.Index)
	}
}

// tellXIDs tells of error events once; the list begins anew with its source.
func (w *World) tellXIDs(g GPUSnapshot, at time.Time) {
	if g.More == nil {
		return
	}
	for _, x := range slices.Backward(g.More.XIDs) {
		if x.At.After(w.gpus.xids[g.UUID]) {
			w.gpus.xids[g.UUID] = x.At
			w.note(at, Warn, "gpu", "GPU %d: error event XID %d of the driver", g.Index, x.Code)
		}
	}
}

// unreached is the reason of a lost GPU when the driver gives none.
const unreached = "the driver does not reach it"

// blank keeps which GPUs there are and forgets what they do.
func blank(gpus []GPUSnapshot, why string) []GPUSnapshot {
	out := make([]GPUSnapshot, 0, len(gpus))
	for _, g := range gpus {
		out = append(out, GPUSnapshot{
			Index: g.Index, UUID: g.UUID, Name: g.Name, State: GPUUnknown, StateReason: text(why),
			MemTotalBytes: g.MemTotalBytes,
		})
	}
	return out
}

func (w *World) gpu(uuid string) *GPUSnapshot { return FindGPU(w.gpus.reading.GPUs, uuid) }

// gpuOf is the first GPU of a worker, nil if it has none.
func (s *stageWorld) gpuOf(wk *workerWorld) *GPURef {
	if wk.seen != nil && len(wk.seen.GPUs) > 0 {
		return &wk.seen.GPUs[0]
	}
	if gpus := s.want.Workers[wk.rank].GPUs; len(gpus) > 0 {
		return &gpus[0]
	}
	return nil
}

// workerMemory is what a worker holds on its GPU: by its process if the driver
// names it, else all of a GPU that it has for itself. A driver outside the
// container names processes by other numbers.
func (w *World) workerMemory(st *stageWorld, wk *workerWorld) *int64 {
	ref := st.gpuOf(wk)
	if ref == nil {
		return nil
	}
	g := w.gpu(ref.UUID)
	if g == nil {
		return nil
	}
	for _, p := range g.Processes {
		if wk.seen != nil && wk.seen.PID > 0 && p.PID == wk.seen.PID && p.MemBytes != nil && !p.Foreign {
			return count(p.MemBytes)
		}
	}
	if w.isShared(ref.UUID, wk) {
		return nil
	}
	return count(g.MemUsedBytes)
}

// isShared says whether a living worker other than wk is on a GPU.
func (w *World) isShared(uuid string, wk *workerWorld) bool {
	for _, st := range w.stages {
		for _, o := range st.workers {
			if o == wk || o.seen == nil || o.seen.State != ProcRunning {
				continue
			}
			if r := st.gpuOf(o); r != nil && r.UUID == uuid {
				return true
			}
		}
	}
	return false
}

// gpuLost says that a GPU of a worker is lost, or "".
func (w *World) gpuLost(wk *workerWorld) string {
	if wk.seen == nil {
		return ""
	}
	for _, ref := range wk.seen.GPUs {
		if g := w.gpu(ref.UUID); g != nil && g.State == GPULost {
			return fmt.Sprintf("GPU %d is lost: %s", g.Index, orElse(g.StateReason, unreached))
		}
	}
	return ""
}

func (w *World) gpuSnapshots(now time.Time) (GPUSourceInfo, []GPUSnapshot) {
	r := w.gpus.reading
	info := GPUSourceInfo{Kind: r.Kind, AgeSeconds: age(now, r.At), Reason: text(r.Reason)}
	if info.Kind == "" {
		info.Kind = sourceNone
	}
	if info.AgeSeconds == nil && info.Reason == nil {
		info.Reason = new("not read yet")
	}
	gpus := r.GPUs
	if w.gpus.any && now.Sub(r.At) > rateStale {
		gpus = blank(gpus, fmt.Sprintf("last read %s ago", humanTime(now.Sub(r.At))))
	}
	owners := w.owners()
	out := make([]GPUSnapshot, 0, len(gpus))
	for _, g := range gpus {
		out = append(out, presentGPU(g, owners))
	}
	return info, out
}

// owners maps the process ids of living workers to their names.
func (w *World) owners() map[int]string {
	out := map[int]string{}
	for _, st := range w.stages {
		for rank, wk := range st.workers {
			if wk.seen != nil && wk.seen.State == ProcRunning && wk.seen.PID > 0 {
				out[wk.seen.PID] = st.id(rank)
			}
		}
	}
	return out
}

func presentGPU(g GPUSnapshot, owners map[int]string) GPUSnapshot {
	g.UUID, g.Name = Clean(g.UUID), Clean(g.Name)
	g.StateReason = text(orElse(g.StateReason, ""))
	switch g.State {
	case GPUOK, GPULost, GPUDenied, GPUUnsupported, GPUUnknown:
	default:
		g.State = GPUUnknown
	}
	g.MemUsedBytes, g.MemTotalBytes = count(g.MemUsedBytes), count(g.MemTotalBytes)
	g.UtilPercent, g.PowerWatts, g.TempCelsius = finite(g.UtilPercent), finite(g.PowerWatts), finite(g.TempCelsius)
	g.More = presentMore(g.More)
	missing := g.MemUsedBytes == nil || g.MemTotalBytes == nil || g.UtilPercent == nil || g.PowerWatts == nil || g.TempCelsius == nil
	if missing && g.StateReason == nil {
		g.StateReason = new("not all is told by the driver")
	}
	if g.Processes == nil {
		return g
	}
	procs := make([]GPUProcess, 0, len(g.Processes))
	for _, p := range g.Processes {
		p.MemBytes, p.Worker = count(p.MemBytes), nil
		if p.MemBytes == nil && p.MemReason == nil {
			p.MemReason = new("not told by the driver")
		}
		p.UtilPercent = finite(p.UtilPercent)
		p.Name, p.User = text(orElse(p.Name, "")), text(orElse(p.User, ""))
		if id, ok := owners[p.PID]; ok && !p.Foreign {
			p.Worker = new(id)
		}
		procs = append(procs, p)
	}
	g.Processes = procs
	return g
}
