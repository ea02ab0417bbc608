package probe

import (
	"maps"
	"slices"
	"strings"

	"pipedeck/pipeline"
)

// slow is what changes rarely and is read every slowEvery samples.
type slow struct {
	known      bool
	numa       bool
	powerLimit *float64
	ecc        *int64
	remap      *pipeline.GPURemap
	mig        []pipeline.MIGInstance
	missing    map[string]string
}

// reader turns one device's answers into a snapshot. What fails is null, with
// the driver's word as its reason.
type reader struct {
	dev     Device
	g       pipeline.GPUSnapshot
	missing map[string]string
	lost    Code // the first code that says that the GPU is gone
	denied  bool
}

// read asks a device everything. With fresh unset, the slow values are those
// of an earlier sample.
func read(dev Device, id identity, s *slow, fresh bool) pipeline.GPUSnapshot {
	r := reader{dev: dev, missing: map[string]string{}}
	r.g = pipeline.GPUSnapshot{Index: id.index, UUID: id.uuid, Name: id.name, State: pipeline.GPUOK}
	r.g.More = &pipeline.GPUMore{PCIID: id.pci, MemKind: pipeline.MemDevice, Missing: r.missing, XIDs: []pipeline.GPUXID{}}
	if fresh || !s.known {
		*s = r.readSlow()
	}
	r.addSlow(s)
	r.readMemory()
	r.readFast()
	r.readProcesses()
	return r.finish()
}

// ok notes why a value is missing.
func (r *reader) ok(what string, c Code) bool {
	if c == OK {
		return true
	}
	if c.meansLost() && r.lost == OK {
		r.lost = c
	}
	r.missing[what] = c.String()
	return false
}

func (r *reader) readMemory() {
	m, c := r.dev.Memory()
	if !r.ok("mem_used_bytes", c) {
		r.denied = c == NoPermission
		return
	}
	if m.Total == 0 {
		// Without memory of its own the GPU uses the node's.
		r.g.More.MemKind = pipeline.MemUnified
		r.missing["mem_used_bytes"] = "the GPU shares the node's memory"
		return
	}
	if m.Used > m.Total || m.Total == NoMemory {
		r.missing["mem_used_bytes"] = "the driver tells nonsense: more memory in use than there is"
		return
	}
	r.g.MemUsedBytes, r.g.MemTotalBytes = new(int64(m.Used)), new(int64(m.Total))
	if m.Separate {
		r.g.More.MemReservedBytes = new(int64(m.Reserved))
	} else {
		r.missing["mem_reserved_bytes"] = "this driver counts it as used"
	}
}

func (r *reader) readFast() {
	if v, c := r.dev.Utilisation(); r.ok("util_percent", c) {
		if v <= 100 {
			r.g.UtilPercent = new(float64(v))
		} else {
			r.missing["util_percent"] = "the driver tells nonsense: over 100 %"
		}
	}
	if v, c := r.dev.Power(); r.ok("power_watts", c) {
		r.g.PowerWatts = new(float64(v) / 1000)
	}
	if v, c := r.dev.Temperature(); r.ok("temp_celsius", c) {
		r.g.TempCelsius = new(float64(v))
	}
	if v, c := r.dev.Clock(ClockSM); r.ok("sm_clock_mhz", c) {
		r.g.More.SMClockMHz = new(float64(v))
	}
	if v, c := r.dev.Clock(ClockMemory); r.ok("mem_clock_mhz", c) {
		r.g.More.MemClockMHz = new(float64(v))
	}
	if v, c := r.dev.Throttle(); r.ok("throttle", c) {
		r.g.More.Throttle = throttled(v)
	}
	if v, c := r.dev.Activity(); r.ok("activity", c) {
		if v.SMPercent >= 0 && v.SMPercent <= 100 && v.DRAMPercent >= 0 && v.DRAMPercent <= 100 && v.TensorPercent >= 0 && v.TensorPercent <= 100 {
			r.g.More.Activity = &v
		} else {
			r.missing["activity"] = "the driver tells nonsense: outside of 0 to 100 %"
		}
	}
}

func (r *reader) readProcesses() {
	procs, c := r.dev.Processes()
	if !r.ok("processes", c) {
		return
	}
	r.g.Processes = []pipeline.GPUProcess{}
	for _, p := range procs {
		out := pipeline.GPUProcess{PID: int(p.PID)}
		if p.Used == NoMemory {
			out.MemReason = new("not told by the driver")
		} else {
			out.MemBytes = new(int64(p.Used))
		}
		if p.Util != nil && *p.Util <= 100 {
			out.UtilPercent = new(float64(*p.Util))
		}
		r.g.Processes = append(r.g.Processes, out)
	}
}

func (r *reader) readSlow() slow {
	s := slow{known: true, missing: map[string]string{}}
	saved := r.missing
	r.missing = s.missing
	defer func() { r.missing = saved }()
	s.numa, _ = r.dev.NUMA()
	if v, c := r.dev.PowerLimit(); r.ok("power_limit_watts", c) {
		s.powerLimit = new(float64(v) / 1000)
	}
	if v, c := r.dev.ECCUncorrected(); r.ok("ecc_uncorrected", c) && v != NoMemory {
		s.ecc = new(int64(v))
	}
	if v, c := r.dev.Remapped(); r.ok("remapped_rows", c) {
		s.remap = &v
	}
	if v, c := r.dev.MIG(); r.ok("mig", c) {
		s.mig = v
	}
	return s
}

func (r *reader) addSlow(s *slow) {
	m := r.g.More
	m.PowerLimitWatts, m.ECCUncorrected, m.RemappedRows, m.MIG = s.powerLimit, s.ecc, s.remap, s.mig
	if s.numa {
		m.MemKind = pipeline.MemNUMA
	}
	maps.Copy(r.missing, s.missing)
}

// finish decides the state. A GPU that lacks only some sensors is fine.
func (r *reader) finish() pipeline.GPUSnapshot {
	switch {
	case r.lost != OK:
		r.g.State, r.g.StateReason = pipeline.GPULost, new(r.lost.String())
	case r.g.MemUsedBytes != nil:
	case r.denied:
		r.g.State = pipeline.GPUDenied
	case r.missing["mem_used_bytes"] == NotSupported.String(), r.g.More.MemKind == pipeline.MemUnified:
		r.g.State = pipeline.GPUUnsupported
	default:
		r.g.State = pipeline.GPUUnknown
	}
	if r.g.StateReason == nil {
		r.g.StateReason = basicsMissing(r.missing)
	}
	return r.g
}

// basics are the values of every source; the reasons for them stand at the
// GPU itself.
var basics = []string{"mem_used_bytes", "util_percent", "power_watts", "temp_celsius"}

func basicsMissing(missing map[string]string) *string {
	var why []string
	for _, k := range slices.Sorted(maps.Keys(missing)) {
		if slices.Contains(basics, k) {
			why = append(why, k+": "+missing[k])
		}
	}
	if len(why) == 0 {
		return nil
	}
	return new(strings.Join(why, "; "))
}
