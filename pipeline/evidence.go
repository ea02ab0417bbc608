package pipeline

import (
	"fmt"
	"strings"
	"time"
)

// evidenceSpan is the time over which evidence of a worker is averaged; what
// says less than minSpan says nothing.
const (
	evidenceSpan = 10 * time.Second
	minSpan      = 2 * time.Second
	maxLooks     = 64
)

// WorkerEvidence is what the state of a living worker rests on, averaged over
// the last seconds. Null is unknown.
type WorkerEvidence struct {
	At                 time.Time    `json:"at"`
	Kind               EvidenceKind `json:"kind"`
	Text               string       `json:"text"`
	OutputStillSeconds *float64     `json:"output_still_seconds"` // since its counter moved
	MotionStillSeconds *float64     `json:"motion_still_seconds"` // since GPU memory, disk reads, CPU or log moved
	CPUCores           *float64     `json:"cpu_cores"`
	ReadBytesPerSecond *float64     `json:"read_bytes_per_second"`
	GPUMemBytes        *int64       `json:"gpu_mem_bytes"`
	UtilPercent        *float64     `json:"util_percent"` // its own share where the driver tells it
	SMPercent          *float64     `json:"sm_percent"`
	DRAMPercent        *float64     `json:"dram_percent"`
	PowerWatts         *float64     `json:"power_watts"`
	UsualPowerWatts    *float64     `json:"usual_power_watts"` // while it made outputs
}

// EvidenceKind is what a worker's motion looks like.
type EvidenceKind string

// Values of EvidenceKind.
const (
	EvidenceLoading     EvidenceKind = "loading"      // no output yet, but something moves
	EvidenceWorking     EvidenceKind = "working"      // its counter moves
	EvidenceSpinningGPU EvidenceKind = "spinning_gpu" // the GPU is busy and nothing comes of it
	EvidenceSpinningCPU EvidenceKind = "spinning_cpu"
	EvidenceWaiting     EvidenceKind = "waiting" // neither GPU nor CPU does anything
	EvidenceUnclear     EvidenceKind = "unclear"
)

// lookAt is one look at a living worker.
type lookAt struct {
	at             time.Time
	made           int64 // its counters
	cpu            float64
	read           int64
	util, sm, dram *float64
	power          *float64
}

// trailWorld is what a worker looked like lately.
type trailWorld struct {
	looks []lookAt
	usual float64 // power while it produced, smoothed
	have  int     // how many outputs, or groups of them, that rests on
	power float64 // sum since the last output, which counts when the next one comes
	n     int
}

// observe takes one look.
func (t *trailWorld) observe(l lookAt) {
	if n := len(t.looks); n > 0 && !l.at.After(t.looks[n-1].at) {
		return
	}
	for len(t.looks) > 0 && (l.at.Sub(t.looks[0].at) > evidenceSpan || len(t.looks) >= maxLooks) {
		t.looks = t.looks[1:]
	}
	moved := len(t.looks) > 0 && l.made > t.looks[len(t.looks)-1].made
	t.looks = append(t.looks, l)
	if l.power != nil {
		t.power, t.n = t.power+*l.power, t.n+1
	}
	if moved && t.n > 0 {
		t.have++
		t.usual += (t.power/float64(t.n) - t.usual) / float64(min(t.have, 60))
		t.power, t.n = 0, 0
	}
}

// evidence is what the looks say together. Kind and Text are left to the caller.
func (t *trailWorld) evidence() WorkerEvidence {
	var e WorkerEvidence
	if len(t.looks) == 0 {
		return e
	}
	first, last := t.looks[0], t.looks[len(t.looks)-1]
	e.At = wireTime(last.at)
	if span := last.at.Sub(first.at); span >= minSpan {
		e.CPUCores = finite(round(new(max(0, last.cpu-first.cpu) / span.Seconds())))
		if first.read >= 0 && last.read >= first.read {
			e.ReadBytesPerSecond = new(float64(last.read-first.read) / span.Seconds())
		}
	}
	mean := func(of func(lookAt) *float64) *float64 {
		sum, n := 0.0, 0
		for _, l := range t.looks {
			if v := finite(of(l)); v != nil {
				sum, n = sum+*v, n+1
			}
		}
		if n == 0 {
			return nil
		}
		return round(new(sum / float64(n)))
	}
	e.UtilPercent = mean(func(l lookAt) *float64 { return l.util })
	e.SMPercent = mean(func(l lookAt) *float64 { return l.sm })
	e.DRAMPercent = mean(func(l lookAt) *float64 { return l.dram })
	e.PowerWatts = mean(func(l lookAt) *float64 { return l.power })
	if t.have >= 10 {
		e.UsualPowerWatts = round(new(t.usual))
	}
	return e
}

// kindOfStill says what a worker does whose counter stands still. What is not
// known accuses nobody.
func kindOfStill(e WorkerEvidence) EvidenceKind {
	busyGPU := e.UtilPercent != nil && *e.UtilPercent >= 80
	idleGPU := e.UtilPercent != nil && *e.UtilPercent < 5
	switch {
	case busyGPU:
		return EvidenceSpinningGPU
	case e.CPUCores == nil:
		return EvidenceUnclear
	case *e.CPUCores >= 0.8 && (idleGPU || e.UtilPercent == nil):
		return EvidenceSpinningCPU
	case *e.CPUCores < 0.2 && (idleGPU || e.UtilPercent == nil):
		return EvidenceWaiting
	}
	return EvidenceUnclear
}

// words says what was seen, and what it looks like where that is clear.
func (e WorkerEvidence) words() string {
	var out []string
	if e.GPUMemBytes != nil {
		out = append(out, "GPU memory "+humanBytes(*e.GPUMemBytes))
	}
	if e.UtilPercent != nil {
		out = append(out, fmt.Sprintf("util %.0f %%", *e.UtilPercent))
	}
	if e.SMPercent != nil && e.DRAMPercent != nil {
		out = append(out, fmt.Sprintf("SM %.0f %%, DRAM %.0f %%", *e.SMPercent, *e.DRAMPercent))
	}
	switch {
	case e.PowerWatts != nil && e.UsualPowerWatts != nil:
		out = append(out, fmt.Sprintf("%.0f W, usually %.0f W", *e.PowerWatts, *e.UsualPowerWatts))
	case e.PowerWatts != nil:
		out = append(out, fmt.Sprintf("%.0f W", *e.PowerWatts))
	}
	if e.CPUCores != nil {
		out = append(out, fmt.Sprintf("%.1f CPU cores", *e.CPUCores))
	}
	if e.ReadBytesPerSecond != nil && *e.ReadBytesPerSecond >= 1e6 {
		out = append(out, "reads "+humanBytes(int64(*e.ReadBytesPerSecond))+"/s")
	}
	text := strings.Join(out, ", ")
	if looks := e.looksLike(); looks != "" {
		text += ": " + looks
	}
	return text
}

func (e WorkerEvidence) looksLike() string {
	switch e.Kind {
	case EvidenceSpinningGPU:
		if e.PowerWatts != nil && e.UsualPowerWatts != nil && *e.PowerWatts < 0.6**e.UsualPowerWatts {
			return "it spins on the GPU (busy at little power: a loop, or waiting for another rank)"
		}
		return "it spins on the GPU (a loop, or one very long sample)"
	case EvidenceSpinningCPU:
		return "it spins on the CPU, the GPU has nothing to do"
	case EvidenceWaiting:
		return "it waits (a lock, a queue, a disk), neither GPU nor CPU has anything to do"
	case EvidenceLoading, EvidenceWorking, EvidenceUnclear:
	}
	return ""
}

// look is what is seen of a living worker at the moment.
func (w *World) look(st *stageWorld, wk *workerWorld, at time.Time) lookAt {
	l := lookAt{at: at, cpu: wk.seen.CPUSeconds, read: wk.seen.ReadBytes, made: saturate(wk.declared.value, wk.files.value)}
	ref := st.gpuOf(wk)
	if ref == nil {
		return l
	}
	g := w.gpu(ref.UUID)
	if g == nil || at.Sub(w.gpus.reading.At) > staleAfter {
		return l
	}
	for _, p := range g.Processes {
		if p.PID == wk.seen.PID && !p.Foreign {
			l.util = finite(p.UtilPercent)
		}
	}
	if w.isShared(ref.UUID, wk) {
		return l
	}
	if l.util == nil {
		l.util = finite(g.UtilPercent)
	}
	l.power = finite(g.PowerWatts)
	if g.More != nil && g.More.Activity != nil {
		l.sm, l.dram = finite(&g.More.Activity.SMPercent), finite(&g.More.Activity.DRAMPercent)
	}
	return l
}

// evidenceOf is what a living worker's state rests on.
func (w *World) evidenceOf(st *stageWorld, wk *workerWorld, f workerFacts) WorkerEvidence {
	e := wk.trail.evidence()
	e.GPUMemBytes = w.workerMemory(st, wk)
	e.MotionStillSeconds = new(f.motionless.Seconds())
	if f.counted {
		e.OutputStillSeconds = new(f.still.Seconds())
	}
	switch {
	case f.counted && f.produced && f.still <= f.stallAfter:
		e.Kind = EvidenceWorking
	case !f.produced && f.motionless <= f.stallAfter:
		e.Kind = EvidenceLoading
	default:
		e.Kind = kindOfStill(e)
	}
	e.Text = e.words()
	return e
}

// Evidence is what the state of a worker ("stage", rank) rests on, nil if it
// does not live.
func (w *World) Evidence(stage string, rank int, now time.Time) *WorkerEvidence {
	st := w.stage(stage)
	if st == nil || st.workers[rank] == nil {
		return nil
	}
	wk := st.workers[rank]
	if wk.seen == nil || wk.seen.State != ProcRunning {
		return nil
	}
	e := w.evidenceOf(st, wk, w.facts(st, wk, st.counts(), now))
	e.Text = Clean(e.Text)
	return &e
}
