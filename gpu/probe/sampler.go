package probe

import (
	"maps"
	"strconv"
	"sync"
	"time"

	"pipedeck/pipeline"
)

// DeviceDeadline bounds one sample of one device. Its own goroutine waits on
// for an answer; the others' samples do not.
const DeviceDeadline = 500 * time.Millisecond

// slowEvery is how often the values that change rarely are read.
const slowEvery = 15 * time.Second

// maxXIDs is how many error events are kept for a GPU.
const maxXIDs = 8

// Sampler reads all devices of a library, each in a goroutine of its own.
type Sampler struct {
	lib      Library
	now      func() time.Time
	deadline time.Duration

	devices []*watched

	mu   sync.Mutex
	xids map[string][]pipeline.GPUXID // by UUID
}

// identity is what names a device.
type identity struct {
	index           int
	uuid, name, pci string
}

// watched is one device. Only the goroutine that is out touches dev, slow and
// slowAt.
type watched struct {
	mu    sync.Mutex
	id    identity
	since time.Time // when the call that is out began; zero: none is

	dev    Device
	slow   slow
	slowAt time.Time
}

// NewSampler samples lib, which is initialised.
func NewSampler(lib Library, now func() time.Time) *Sampler {
	return &Sampler{lib: lib, now: now, deadline: DeviceDeadline, xids: map[string][]pipeline.GPUXID{}}
}

// NoteXID records an error event of a GPU.
func (s *Sampler) NoteXID(uuid string, code uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	list := append([]pipeline.GPUXID{{At: s.now(), Code: code}}, s.xids[uuid]...)
	s.xids[uuid] = list[:min(len(list), maxXIDs)]
}

// xidsOf returns the error events of a GPU, newest first.
func (s *Sampler) xidsOf(uuid string) []pipeline.GPUXID {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]pipeline.GPUXID{}, s.xids[uuid]...)
}

// Sample reads every device once. One that does not answer in time is unknown;
// one that has not come back is not asked again until it does.
func (s *Sampler) Sample() Answer {
	begin := s.now()
	a := Answer{GPUs: []pipeline.GPUSnapshot{}}
	n, c := s.lib.Count()
	if c != OK {
		a.Code, a.Error = c, "cannot count the GPUs: "+c.String()
		if c.needsNewProcess() {
			a.Replace = a.Error
		}
		a.At = s.now()
		return a
	}
	if a.Driver, c = s.lib.Driver(); c.needsNewProcess() {
		a.Replace = c.String()
	}
	for i := len(s.devices); i < n; i++ {
		s.devices = append(s.devices, &watched{id: identity{index: i}})
	}
	got := make([]chan pipeline.GPUSnapshot, len(s.devices))
	for i, w := range s.devices {
		got[i] = s.ask(w)
	}
	timer := time.NewTimer(s.deadline)
	defer timer.Stop()
	late := false
	for i, w := range s.devices {
		var g pipeline.GPUSnapshot
		g, late = s.await(w, got[i], timer.C, late)
		g.More.XIDs = s.xidsOf(g.UUID)
		if g.State == pipeline.GPULost && g.StateReason != nil && len(g.More.XIDs) > 0 {
			g.StateReason = new(*g.StateReason + "; XID " + strconv.FormatUint(g.More.XIDs[0].Code, 10))
		}
		a.GPUs = append(a.GPUs, g)
		a.StuckSeconds = max(a.StuckSeconds, w.outFor(s.now()).Seconds())
		if g.State == pipeline.GPULost && g.More.Missing["handle"] != "" && s.needsNew(g) {
			a.Replace = g.More.Missing["handle"]
		}
	}
	a.At = s.now()
	a.TookMS = float64(a.At.Sub(begin).Microseconds()) / 1000
	return a
}

// needsNew says whether a device's handle failed in a way that only a new
// process can get over.
func (s *Sampler) needsNew(g pipeline.GPUSnapshot) bool {
	for _, c := range []Code{Uninitialized, DriverNotLoaded, VersionMismatch} {
		if g.More.Missing["handle"] == c.String() {
			return true
		}
	}
	return false
}

// ask begins a sample of one device; nil if an earlier one is still out.
func (s *Sampler) ask(w *watched) chan pipeline.GPUSnapshot {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.since.IsZero() {
		return nil
	}
	w.since = s.now()
	id := w.id
	got := make(chan pipeline.GPUSnapshot, 1)
	go func() {
		g := s.sampleOne(w, id)
		w.mu.Lock()
		w.id.uuid, w.id.name, w.since = g.UUID, g.Name, time.Time{}
		w.id.pci = g.More.PCIID
		w.mu.Unlock()
		got <- g
	}()
	return got
}

// await takes one device's answer, or says that there is none. Once the common
// deadline is over, only what has come already counts.
func (s *Sampler) await(w *watched, got chan pipeline.GPUSnapshot, deadline <-chan time.Time, late bool) (pipeline.GPUSnapshot, bool) {
	if got != nil {
		select {
		case g := <-got:
			return g, late
		default:
		}
		if !late {
			select {
			case g := <-got:
				return g, false
			case <-deadline:
				late = true
			}
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	why := "the driver has not answered for " + w.outForLocked(s.now()).Round(100*time.Millisecond).String()
	return bare(w.id, pipeline.GPUUnknown, why), late
}

func (w *watched) outFor(now time.Time) time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.outForLocked(now)
}

func (w *watched) outForLocked(now time.Time) time.Duration {
	if w.since.IsZero() {
		return 0
	}
	return now.Sub(w.since)
}

// bare is a GPU of which nothing is known at the moment.
func bare(id identity, state pipeline.GPUState, why string) pipeline.GPUSnapshot {
	return pipeline.GPUSnapshot{
		Index: id.index, UUID: id.uuid, Name: id.name, State: state, StateReason: new(why),
		More: &pipeline.GPUMore{PCIID: id.pci, XIDs: []pipeline.GPUXID{}, Missing: map[string]string{}},
	}
}

// sampleOne reads one device, after finding it if it was not found yet.
func (s *Sampler) sampleOne(w *watched, id identity) pipeline.GPUSnapshot {
	if w.dev == nil {
		dev, c := s.lib.Device(id.index)
		if c != OK {
			return s.noHandle(id, c)
		}
		uuid, c := dev.UUID()
		if c != OK {
			return s.noHandle(id, c)
		}
		id.uuid, w.dev, w.slow = uuid, dev, slow{}
		id.name, _ = dev.Name()
		id.pci, _ = dev.PCIID()
	}
	fresh := s.now().Sub(w.slowAt) >= slowEvery
	if fresh {
		w.slowAt = s.now()
	}
	g := read(w.dev, id, &w.slow, fresh)
	if g.State == pipeline.GPULost {
		w.dev = nil // found again by the next sample, if it comes back
	}
	return g
}

// noHandle is a GPU that the driver counts and does not hand out: mostly one
// that fell off the bus.
func (s *Sampler) noHandle(id identity, c Code) pipeline.GPUSnapshot {
	state := pipeline.GPULost
	if c == NoPermission {
		state = pipeline.GPUDenied
	}
	g := bare(id, state, "the driver does not hand it out: "+c.String())
	maps.Copy(g.More.Missing, map[string]string{"handle": c.String()})
	return g
}
