//go:build linux && cgo

package main

import (
	"strings"
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"pipedeck/gpu/probe"
	"pipedeck/pipeline"
)

// device is one GPU behind the library's guards.
type device struct {
	l     *library
	d     nvml.Device
	oldV1 bool // the newer memory call does not work here

	utilSince uint64 // NVML's time of the newest sample of processes' shares

	gpmKnown, gpmHas bool
	before           nvml.GpmSample
	beforeAt         time.Time
	activity         pipeline.GPUActivity
	measured         bool
}

func (d *device) UUID() (string, probe.Code) { return guarded(d.l, "uuid", d.d.GetUUID) }
func (d *device) Name() (string, probe.Code) { return guarded(d.l, "name", d.d.GetName) }

func (d *device) PCIID() (string, probe.Code) {
	info, c := guarded(d.l, "pci", d.d.GetPciInfo)
	var b strings.Builder
	for _, ch := range info.BusId {
		if ch == 0 {
			break
		}
		b.WriteByte(byte(ch))
	}
	return b.String(), c
}

// Memory prefers the call that tells what the driver reserves for itself.
func (d *device) Memory() (probe.Memory, probe.Code) {
	if !d.oldV1 {
		m, c := guarded(d.l, "memory2", d.d.GetMemoryInfo_v2)
		if c == probe.OK {
			return probe.Memory{Used: m.Used, Reserved: m.Reserved, Total: m.Total, Separate: true}, c
		}
		if c != probe.FunctionNotFound && c != probe.NotSupported && c != probe.Code(nvml.ERROR_ARGUMENT_VERSION_MISMATCH) {
			return probe.Memory{}, c
		}
		d.oldV1 = true
	}
	m, c := guarded(d.l, "memory", d.d.GetMemoryInfo)
	return probe.Memory{Used: m.Used, Total: m.Total}, c
}

func (d *device) Utilisation() (uint32, probe.Code) {
	u, c := guarded(d.l, "util", d.d.GetUtilizationRates)
	return u.Gpu, c
}

func (d *device) Power() (uint32, probe.Code) { return guarded(d.l, "power", d.d.GetPowerUsage) }
func (d *device) PowerLimit() (uint32, probe.Code) {
	return guarded(d.l, "limit", d.d.GetEnforcedPowerLimit)
}

func (d *device) Temperature() (uint32, probe.Code) {
	return guarded(d.l, "temp", func() (uint32, nvml.Return) { return d.d.GetTemperature(nvml.TEMPERATURE_GPU) })
}

func (d *device) Clock(of probe.Clock) (uint32, probe.Code) {
	kind := nvml.CLOCK_SM
	if of == probe.ClockMemory {
		kind = nvml.CLOCK_MEM
	}
	return guarded(d.l, "clock", func() (uint32, nvml.Return) { return d.d.GetClockInfo(kind) })
}

func (d *device) Throttle() (uint64, probe.Code) {
	if d.l.have["reasons"] {
		return guarded(d.l, "reasons", d.d.GetCurrentClocksEventReasons)
	}
	return guarded(d.l, "oldreasons", d.d.GetCurrentClocksThrottleReasons)
}

func (d *device) ECCUncorrected() (uint64, probe.Code) {
	return guarded(d.l, "ecc", func() (uint64, nvml.Return) {
		return d.d.GetTotalEccErrors(nvml.MEMORY_ERROR_TYPE_UNCORRECTED, nvml.VOLATILE_ECC)
	})
}

func (d *device) Remapped() (pipeline.GPURemap, probe.Code) {
	return guarded(d.l, "remap", func() (pipeline.GPURemap, nvml.Return) {
		corr, uncorr, pending, failed, ret := d.d.GetRemappedRows()
		return pipeline.GPURemap{Correctable: int64(corr), Uncorrectable: int64(uncorr), Pending: pending, Failed: failed}, ret
	})
}

// NUMA says whether the operating system manages the GPU's memory.
func (d *device) NUMA() (bool, probe.Code) {
	_, c := guarded(d.l, "numa", d.d.GetNumaNodeId)
	return c == probe.OK, c
}

// MIG lists the instances of a GPU in MIG mode; nil if the mode is off.
func (d *device) MIG() ([]pipeline.MIGInstance, probe.Code) {
	mode, c := guarded(d.l, "migmode", func() (int, nvml.Return) {
		current, _, ret := d.d.GetMigMode()
		return current, ret
	})
	if c == probe.NotSupported || (c == probe.OK && mode != nvml.DEVICE_MIG_ENABLE) {
		return nil, probe.OK
	}
	if c != probe.OK {
		return nil, c
	}
	most, c := guarded(d.l, "migcount", d.d.GetMaxMigDeviceCount)
	if c != probe.OK {
		return nil, c
	}
	out := []pipeline.MIGInstance{}
	for i := range most {
		m, c := guarded(d.l, "mighandle", func() (nvml.Device, nvml.Return) { return d.d.GetMigDeviceHandleByIndex(i) })
		if c != probe.OK {
			continue // this place holds no instance
		}
		out = append(out, (&device{l: d.l, d: m}).instance())
	}
	return out, probe.OK
}

func (d *device) instance() pipeline.MIGInstance {
	var out pipeline.MIGInstance
	out.UUID, _ = d.UUID()
	out.Name, _ = d.Name()
	out.GPUInstance, _ = guarded(d.l, "instance", d.d.GetGpuInstanceId)
	if m, c := d.Memory(); c == probe.OK && m.Total > 0 && m.Used <= m.Total {
		out.MemUsedBytes, out.MemTotalBytes = new(int64(m.Used)), new(int64(m.Total))
	}
	return out
}

// Processes lists who holds memory: by CUDA, by graphics, and clients of MPS.
// The lists overlap; the largest figure for a process counts.
func (d *device) Processes() ([]probe.Process, probe.Code) {
	if d.l.shuffled {
		return nil, probe.ShuffledList
	}
	first := probe.FunctionNotFound
	var out []probe.Process
	for i, list := range []struct {
		call string
		get  func() ([]nvml.ProcessInfo, nvml.Return)
	}{{"compute", d.d.GetComputeRunningProcesses}, {"graphics", d.d.GetGraphicsRunningProcesses}, {"mps", d.d.GetMPSComputeRunningProcesses}} {
		procs, c := guarded(d.l, list.call, list.get)
		if i == 0 {
			first = c
		}
		for _, p := range procs {
			out = addProcess(out, probe.Process{PID: p.Pid, Used: p.UsedGpuMemory})
		}
	}
	if first == probe.OK && len(out) > 0 {
		d.addShares(out)
	}
	return out, first
}

// addShares notes each process's share of the GPU's time since the call
// before. NVML keeps samples of some seconds; without one for a process nothing
// is known of it.
func (d *device) addShares(procs []probe.Process) {
	samples, c := guarded(d.l, "procutil", func() ([]nvml.ProcessUtilizationSample, nvml.Return) {
		return d.d.GetProcessUtilization(d.utilSince)
	})
	if c != probe.OK {
		return
	}
	newest := map[uint32]nvml.ProcessUtilizationSample{}
	for _, s := range samples {
		if s.TimeStamp >= newest[s.Pid].TimeStamp {
			newest[s.Pid] = s
		}
		d.utilSince = max(d.utilSince, s.TimeStamp)
	}
	for i := range procs {
		if s, ok := newest[procs[i].PID]; ok && s.SmUtil <= 100 {
			procs[i].Util = new(s.SmUtil)
		}
	}
}

func addProcess(list []probe.Process, p probe.Process) []probe.Process {
	for i := range list {
		if list[i].PID != p.PID {
			continue
		}
		if list[i].Used == probe.NoMemory || (p.Used != probe.NoMemory && p.Used > list[i].Used) {
			list[i].Used = p.Used
		}
		return list
	}
	return append(list, p)
}
