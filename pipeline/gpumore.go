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
