package probe

import (
	"strconv"

	"pipedeck/pipeline"
)

// Library is NVML as the sampler needs it. Any call may hang.
type Library interface {
	Driver() (string, Code)
	Count() (int, Code)
	Device(index int) (Device, Code)
}

// Device is one GPU. Any call may hang or fail; none may end the process.
type Device interface {
	UUID() (string, Code)
	Name() (string, Code)
	PCIID() (string, Code)
	Memory() (Memory, Code)
	Utilisation() (uint32, Code)
	Power() (milliwatts uint32, code Code)
	PowerLimit() (milliwatts uint32, code Code)
	Temperature() (uint32, Code)
	Clock(of Clock) (uint32, Code)
	Throttle() (uint64, Code)
	Activity() (pipeline.GPUActivity, Code)
	ECCUncorrected() (uint64, Code)
	Remapped() (pipeline.GPURemap, Code)
	MIG() ([]pipeline.MIGInstance, Code)
	NUMA() (bool, Code)
	Processes() ([]Process, Code)
}

// Memory is a GPU's memory in bytes. Without Separate the driver counts what it
// reserves for itself as used.
type Memory struct {
	Used, Reserved, Total uint64
	Separate              bool
}

// Process is a process that holds a GPU's memory.
type Process struct {
	PID  uint32
	Used uint64  // NoMemory: not told
	Util *uint32 // its share of the GPU's time in percent; nil: not told
}

// NoMemory is NVML's word for "not available" among sizes.
const NoMemory = ^uint64(0)

// Clock names a clock of a GPU.
type Clock int

// The clocks that are read.
const (
	ClockSM Clock = iota
	ClockMemory
)

// throttleWords names the bits of the clocks' event reasons that hold a GPU
// back; idle and the application's own setting are no complaint.
var throttleWords = []struct {
	bit  uint64
	word string
}{
	{0x4, "software power cap"},
	{0x8, "hardware slowdown"},
	{0x10, "sync boost"},
	{0x20, "software thermal slowdown"},
	{0x40, "hardware thermal slowdown"},
	{0x80, "hardware power brake"},
	{0x200, "board limit"},
	{0x400, "reliability"},
}

func throttled(bits uint64) []string {
	out := []string{}
	for _, t := range throttleWords {
		if bits&t.bit != 0 {
			out = append(out, t.word)
		}
	}
	return out
}

func itoa(n int) string { return strconv.Itoa(n) }
