package pipeline

import "time"

// GPUMore is what only NVML tells of a GPU. Unknown values are null; Missing
// says why, by key.
type GPUMore struct {
	PCIID            string            `json:"pci_id"`
	MemKind          string            `json:"mem_kind"` // device; numa or unified: the operating system owns the memory
	MemReservedBytes *int64            `json:"mem_reserved_bytes"`
	PowerLimitWatts  *float64          `json:"power_limit_watts"`
	SMClockMHz       *float64          `json:"sm_clock_mhz"`
	MemClockMHz      *float64          `json:"mem_clock_mhz"`
	Throttle         []string          `json:"throttle"` // why clocks are held down; null unknown, [] nothing
	Activity         *GPUActivity      `json:"activity"` // null: the GPU does not measure it
	ECCUncorrected   *int64            `json:"ecc_uncorrected"`
	RemappedRows     *GPURemap         `json:"remapped_rows"`
	XIDs             []GPUXID          `json:"xids"` // since the source was started, newest first
	MIG              []MIGInstance     `json:"mig"`  // null: MIG is off, or unknown
	Missing          map[string]string `json:"missing"`
}

// GPUActivity is how busy the parts of a GPU were since the reading before.
type GPUActivity struct {
	SMPercent     float64 `json:"sm_percent"`
	DRAMPercent   float64 `json:"dram_percent"`
	TensorPercent float64 `json:"tensor_percent"`
}

// GPURemap counts memory rows that the GPU has replaced.
type GPURemap struct {
	Correctable   int64 `json:"correctable"`
	Uncorrectable int64 `json:"uncorrectable"`
	Pending       bool  `json:"pending"`
	Failed        bool  `json:"failed"`
}

// GPUXID is one error event of the driver.
type GPUXID struct {
	At   time.Time `json:"at"`
	Code uint64    `json:"code"`
}

// MIGInstance is one part of a GPU in MIG mode; it is a slot of its own.
type MIGInstance struct {
	UUID          string  `json:"uuid"`
	GPUInstance   int     `json:"gpu_instance"`
	Name          string  `json:"name"`
	MemUsedBytes  *int64  `json:"mem_used_bytes"`
	MemTotalBytes *int64  `json:"mem_total_bytes"`
	MemReason     *string `json:"mem_reason"` // why these are null
}

// Slots are the parts of a GPU that workers can have for themselves: its MIG
// instances in MIG mode, else the GPU as a whole.
func (g GPUSnapshot) Slots() []GPUSnapshot {
	if g.More == nil || g.More.MIG == nil {
		return []GPUSnapshot{g}
	}
	out := make([]GPUSnapshot, 0, len(g.More.MIG))
	for _, m := range g.More.MIG {
		out = append(out, g.instance(m))
	}
	return out
}

// instance is a MIG instance as if it were a GPU. Utilisation is not told of
// one, and the processes of the GPU may be on another.
func (g GPUSnapshot) instance(m MIGInstance) GPUSnapshot {
	out := GPUSnapshot{
		Index: g.Index, UUID: m.UUID, Name: m.Name, State: g.State, StateReason: g.StateReason,
		MemUsedBytes: m.MemUsedBytes, MemTotalBytes: m.MemTotalBytes,
	}
	if out.StateReason == nil {
		out.StateReason = new("a MIG instance tells memory only")
	}
	return out
}

// FindGPU finds a GPU or a MIG instance by its UUID, nil if it is not there.
func FindGPU(gpus []GPUSnapshot, uuid string) *GPUSnapshot {
	for i := range gpus {
		if gpus[i].UUID == uuid {
			return &gpus[i]
		}
	}
	for i := range gpus {
		if gpus[i].More == nil {
			continue
		}
		for _, m := range gpus[i].More.MIG {
			if m.UUID == uuid {
				return new(gpus[i].instance(m))
			}
		}
	}
	return nil
}

// ownsMemory says whether memory that is in use on a GPU is the processes' own
// and comes back when they end.
func (g GPUSnapshot) ownsMemory() bool {
	return g.More == nil || g.More.MemKind == "" || g.More.MemKind == MemDevice
}

// Values of GPUMore.MemKind.
const (
	MemDevice  = "device"
	MemNUMA    = "numa"
	MemUnified = "unified"
)

// presentMore drops what no reader may see: negative or endless numbers, and
// control sequences in text.
func presentMore(m *GPUMore) *GPUMore {
	if m == nil {
		return nil
	}
	out := *m
	out.PCIID, out.MemKind = Clean(m.PCIID), Clean(m.MemKind)
	out.MemReservedBytes, out.ECCUncorrected = count(m.MemReservedBytes), count(m.ECCUncorrected)
	out.PowerLimitWatts, out.SMClockMHz, out.MemClockMHz = finite(m.PowerLimitWatts), finite(m.SMClockMHz), finite(m.MemClockMHz)
	if m.Throttle != nil {
		out.Throttle = []string{}
		for _, t := range m.Throttle {
			out.Throttle = append(out.Throttle, Clean(t))
		}
	}
	if a := m.Activity; a != nil && (finite(&a.SMPercent) == nil || finite(&a.DRAMPercent) == nil || finite(&a.TensorPercent) == nil) {
		out.Activity = nil
	}
	out.XIDs = append([]GPUXID{}, m.XIDs...)
	for i := range out.XIDs {
		out.XIDs[i].At = wireTime(out.XIDs[i].At)
	}
	if m.MIG != nil {
		out.MIG = []MIGInstance{}
		for _, i := range m.MIG {
			i.UUID, i.Name = Clean(i.UUID), Clean(i.Name)
			i.MemUsedBytes, i.MemTotalBytes = count(i.MemUsedBytes), count(i.MemTotalBytes)
			if i.MemUsedBytes == nil || i.MemTotalBytes == nil {
				i.MemReason = new("not told by the driver")
			}
			out.MIG = append(out.MIG, i)
		}
	}
	out.Missing = map[string]string{}
	for k, why := range m.Missing {
		out.Missing[Clean(k)] = shorten(Clean(why), maxEventBytes)
	}
	return &out
}
