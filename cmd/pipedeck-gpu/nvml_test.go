//go:build linux && cgo

package main

import (
	"errors"
	"testing"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
	"github.com/NVIDIA/go-nvml/pkg/nvml/mock"

	"pipedeck/gpu/probe"
)

// mockDevice answers every call that the adapter makes.
func mockDevice() *mock.Device {
	return &mock.Device{
		GetUUIDFunc: func() (string, nvml.Return) { return "GPU-aa", nvml.SUCCESS },
		GetNameFunc: func() (string, nvml.Return) { return "NVIDIA H200", nvml.SUCCESS },
		GetPciInfoFunc: func() (nvml.PciInfo, nvml.Return) {
			return nvml.PciInfo{BusId: [32]int8{'0', '0', ':', '1', 'B'}}, nvml.SUCCESS
		},
		GetMemoryInfo_v2Func: func() (nvml.Memory_v2, nvml.Return) {
			return nvml.Memory_v2{Total: 100, Used: 10, Reserved: 5}, nvml.SUCCESS
		},
		GetMemoryInfoFunc:                   func() (nvml.Memory, nvml.Return) { return nvml.Memory{Total: 100, Used: 15}, nvml.SUCCESS },
		GetUtilizationRatesFunc:             func() (nvml.Utilization, nvml.Return) { return nvml.Utilization{Gpu: 97}, nvml.SUCCESS },
		GetPowerUsageFunc:                   func() (uint32, nvml.Return) { return 512_400, nvml.SUCCESS },
		GetEnforcedPowerLimitFunc:           func() (uint32, nvml.Return) { return 700_000, nvml.SUCCESS },
		GetTemperatureFunc:                  func(nvml.TemperatureSensors) (uint32, nvml.Return) { return 61, nvml.SUCCESS },
		GetClockInfoFunc:                    func(t nvml.ClockType) (uint32, nvml.Return) { return 1000 + uint32(t), nvml.SUCCESS },
		GetCurrentClocksEventReasonsFunc:    func() (uint64, nvml.Return) { return 4, nvml.SUCCESS },
		GetCurrentClocksThrottleReasonsFunc: func() (uint64, nvml.Return) { return 8, nvml.SUCCESS },
		GetTotalEccErrorsFunc: func(nvml.MemoryErrorType, nvml.EccCounterType) (uint64, nvml.Return) {
			return 3, nvml.SUCCESS
		},
		GetRemappedRowsFunc:  func() (int, int, bool, bool, nvml.Return) { return 1, 2, true, false, nvml.SUCCESS },
		GetMigModeFunc:       func() (int, int, nvml.Return) { return nvml.DEVICE_MIG_DISABLE, 0, nvml.SUCCESS },
		GetNumaNodeIdFunc:    func() (int, nvml.Return) { return 0, nvml.ERROR_NOT_SUPPORTED },
		GetGpuInstanceIdFunc: func() (int, nvml.Return) { return 3, nvml.SUCCESS },
		GetComputeRunningProcessesFunc: func() ([]nvml.ProcessInfo, nvml.Return) {
			return []nvml.ProcessInfo{{Pid: 7, UsedGpuMemory: 9}, {Pid: 8, UsedGpuMemory: probe.NoMemory}}, nvml.SUCCESS
		},
		GetGraphicsRunningProcessesFunc: func() ([]nvml.ProcessInfo, nvml.Return) {
			return []nvml.ProcessInfo{{Pid: 7, UsedGpuMemory: 4}, {Pid: 8, UsedGpuMemory: 1}}, nvml.SUCCESS
		},
		GetProcessUtilizationFunc: func(since uint64) ([]nvml.ProcessUtilizationSample, nvml.Return) {
			return []nvml.ProcessUtilizationSample{{Pid: 7, TimeStamp: since + 2, SmUtil: 40}, {Pid: 7, TimeStamp: since + 1, SmUtil: 30}, {Pid: 9, SmUtil: 1}}, nvml.SUCCESS
		},
		GetMPSComputeRunningProcessesFunc: func() ([]nvml.ProcessInfo, nvml.Return) { return nil, nvml.ERROR_NOT_SUPPORTED },
	}
}

func mockLibrary(d *mock.Device, lacks string) *library {
	api := &mock.Interface{
		SystemGetDriverVersionFunc: func() (string, nvml.Return) { return "580.159.04", nvml.SUCCESS },
		DeviceGetCountFunc:         func() (int, nvml.Return) { return 1, nvml.SUCCESS },
		DeviceGetHandleByIndexFunc: func(int) (nvml.Device, nvml.Return) { return d, nvml.SUCCESS },
	}
	return newLibrary(api, func(symbol string) error {
		if symbol == lacks {
			return errors.New("not there")
		}
		return nil
	}, []string{"nvmlGpmQueryDeviceSupport"})
}

func openMock(t *testing.T, d *mock.Device, lacks string) probe.Device {
	t.Helper()
	dev, c := mockLibrary(d, lacks).Device(0)
	if c != probe.OK {
		t.Fatal(c)
	}
	return dev
}

func TestAdapter(t *testing.T) {
	t.Parallel()
	d := openMock(t, mockDevice(), "")
	if v, c := d.PCIID(); v != "00:1B" || c != probe.OK {
		t.Errorf("PCI id %q, %v", v, c)
	}
	if m, c := d.Memory(); m != (probe.Memory{Used: 10, Reserved: 5, Total: 100, Separate: true}) || c != probe.OK {
		t.Errorf("memory %+v, %v", m, c)
	}
	if v, _ := d.Clock(probe.ClockSM); v != 1000+uint32(nvml.CLOCK_SM) {
		t.Errorf("SM clock %d", v)
	}
	if v, _ := d.Clock(probe.ClockMemory); v != 1000+uint32(nvml.CLOCK_MEM) {
		t.Errorf("memory clock %d", v)
	}
	if v, _ := d.Throttle(); v != 4 {
		t.Errorf("throttle %d", v)
	}
	if v, _ := d.Remapped(); v.Correctable != 1 || v.Uncorrectable != 2 || !v.Pending || v.Failed {
		t.Errorf("remapped %+v", v)
	}
	if _, c := d.Activity(); c != probe.FunctionNotFound {
		t.Errorf("activity without its functions: %v", c)
	}
	procs, c := d.Processes()
	if c != probe.OK || len(procs) != 2 || procs[0].Used != 9 || procs[1].Used != 1 || *procs[0].Util != 40 || procs[1].Util != nil {
		t.Errorf("processes %+v, %v", procs, c)
	}
	if v, c := d.MIG(); v != nil || c != probe.OK {
		t.Errorf("MIG %+v, %v", v, c)
	}
}

func TestAdapterWithoutAFunction(t *testing.T) {
	t.Parallel()
	d := openMock(t, mockDevice(), "nvmlDeviceGetMemoryInfo_v2")
	if m, c := d.Memory(); m != (probe.Memory{Used: 15, Total: 100}) || c != probe.OK {
		t.Errorf("memory by the old call: %+v, %v", m, c)
	}
	if v, c := openMock(t, mockDevice(), "nvmlDeviceGetCurrentClocksEventReasons").Throttle(); v != 8 || c != probe.OK {
		t.Errorf("throttle by the old call: %d, %v", v, c)
	}
	if _, c := openMock(t, mockDevice(), "nvmlDeviceGetPowerUsage").Power(); c != probe.FunctionNotFound {
		t.Errorf("power without its function: %v", c)
	}
}

func TestAdapterMIG(t *testing.T) {
	t.Parallel()
	part := mockDevice()
	part.GetUUIDFunc = func() (string, nvml.Return) { return "MIG-1", nvml.SUCCESS }
	d := mockDevice()
	d.GetMigModeFunc = func() (int, int, nvml.Return) { return nvml.DEVICE_MIG_ENABLE, 0, nvml.SUCCESS }
	d.GetMaxMigDeviceCountFunc = func() (int, nvml.Return) { return 7, nvml.SUCCESS }
	d.GetMigDeviceHandleByIndexFunc = func(i int) (nvml.Device, nvml.Return) {
		if i != 2 {
			return nil, nvml.ERROR_NOT_FOUND
		}
		return part, nvml.SUCCESS
	}
	parts, c := openMock(t, d, "").MIG()
	if c != probe.OK || len(parts) != 1 || parts[0].UUID != "MIG-1" || parts[0].GPUInstance != 3 || *parts[0].MemUsedBytes != 10 {
		t.Errorf("instances %+v, %v", parts, c)
	}
}

func TestDriversThatShuffle(t *testing.T) {
	t.Parallel()
	for v, want := range map[string]bool{"535.43.02": true, "535.98": true, "535.104.05": false, "535.42": false, "550.54": false, "580": false, "": false} {
		if shufflesProcesses(v) != want {
			t.Errorf("driver %q: want %v", v, want)
		}
	}
	l := mockLibrary(mockDevice(), "")
	l.shuffled = true
	dev, _ := l.Device(0)
	if _, c := dev.Processes(); c != probe.ShuffledList {
		t.Errorf("processes of such a driver: %v", c)
	}
}

func TestLibrarySwapLines(t *testing.T) {
	t.Parallel()
	for line, want := range map[string]bool{
		"7f00-7f01 r-xp 00000000 08:01 42 /usr/lib/libnvidia-ml.so.580.1 (deleted)": true,
		"7f00-7f01 r-xp 00000000 08:01 42 /nowhere/libnvidia-ml.so.580.1":           false,
		"7f00-7f01 r-xp 00000000 08:01 42 /usr/lib/libc.so.6 (deleted)":             false,
		"7f00-7f01 rw-p 00000000 00:00 0":                                           false,
	} {
		if (swapped(line) != "") != want {
			t.Errorf("%q: %q", line, swapped(line))
		}
	}
}
