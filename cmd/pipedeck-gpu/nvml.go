//go:build linux && cgo

package main

import (
	"strconv"
	"strings"
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"pipedeck/gpu/probe"
)

// library is go-nvml behind guards. A call of a function that the installed
// library lacks would end the process, so each is looked up first.
type library struct {
	api      nvml.Interface
	lookup   func(string) error
	deny     map[string]bool
	have     map[string]bool
	shuffled bool          // see probe.ShuffledList
	gpm      chan struct{} // one token: GPM calls of all devices take turns
}

// needed lists what each guarded call may bind: go-nvml takes the newest
// version that the library has, so one of them is enough.
var needed = map[string][]string{
	"count":      {"nvmlDeviceGetCount_v2", "nvmlDeviceGetCount"},
	"driver":     {"nvmlSystemGetDriverVersion"},
	"handle":     {"nvmlDeviceGetHandleByIndex_v2", "nvmlDeviceGetHandleByIndex"},
	"uuid":       {"nvmlDeviceGetUUID"},
	"name":       {"nvmlDeviceGetName"},
	"pci":        {"nvmlDeviceGetPciInfo_v3", "nvmlDeviceGetPciInfo_v2", "nvmlDeviceGetPciInfo"},
	"memory2":    {"nvmlDeviceGetMemoryInfo_v2"},
	"memory":     {"nvmlDeviceGetMemoryInfo"},
	"util":       {"nvmlDeviceGetUtilizationRates"},
	"power":      {"nvmlDeviceGetPowerUsage"},
	"limit":      {"nvmlDeviceGetEnforcedPowerLimit"},
	"temp":       {"nvmlDeviceGetTemperature"},
	"clock":      {"nvmlDeviceGetClockInfo"},
	"reasons":    {"nvmlDeviceGetCurrentClocksEventReasons"},
	"oldreasons": {"nvmlDeviceGetCurrentClocksThrottleReasons"},
	"ecc":        {"nvmlDeviceGetTotalEccErrors"},
	"remap":      {"nvmlDeviceGetRemappedRows"},
	"migmode":    {"nvmlDeviceGetMigMode"},
	"migcount":   {"nvmlDeviceGetMaxMigDeviceCount"},
	"mighandle":  {"nvmlDeviceGetMigDeviceHandleByIndex"},
	"instance":   {"nvmlDeviceGetGpuInstanceId"},
	"numa":       {"nvmlDeviceGetNumaNodeId"},
	"compute":    {"nvmlDeviceGetComputeRunningProcesses_v3", "nvmlDeviceGetComputeRunningProcesses_v2", "nvmlDeviceGetComputeRunningProcesses"},
	"graphics":   {"nvmlDeviceGetGraphicsRunningProcesses_v3", "nvmlDeviceGetGraphicsRunningProcesses_v2", "nvmlDeviceGetGraphicsRunningProcesses"},
	"mps":        {"nvmlDeviceGetMPSComputeRunningProcesses_v3", "nvmlDeviceGetMPSComputeRunningProcesses_v2", "nvmlDeviceGetMPSComputeRunningProcesses"},
	"procutil":   {"nvmlDeviceGetProcessUtilization"},
	"gpmquery":   {"nvmlGpmQueryDeviceSupport"},
	"gpmalloc":   {"nvmlGpmSampleAlloc"},
	"gpmget":     {"nvmlGpmSampleGet"},
	"gpmfree":    {"nvmlGpmSampleFree"},
	"gpmmetrics": {"nvmlGpmMetricsGet"},
	"eventset":   {"nvmlEventSetCreate"},
	"eventtypes": {"nvmlDeviceGetSupportedEventTypes"},
	"register":   {"nvmlDeviceRegisterEvents"},
	"eventwait":  {"nvmlEventSetWait_v2", "nvmlEventSetWait"},
}

// openNVML starts NVML and looks up what it has.
func openNVML(deny []string) *openResult {
	api := nvml.New()
	if ret := api.Init(); ret != nvml.SUCCESS {
		c := probe.Code(ret)
		return &openResult{code: c, reason: c.String()}
	}
	l := newLibrary(api, api.Extensions().LookupSymbol, deny)
	s := probe.NewSampler(l, time.Now)
	go l.watchXIDs(s)
	return &openResult{sampler: s, swapped: librarySwap("/proc/self/maps")}
}

func newLibrary(api nvml.Interface, lookup func(string) error, deny []string) *library {
	l := &library{api: api, lookup: lookup, deny: map[string]bool{}, have: map[string]bool{}, gpm: make(chan struct{}, 1)}
	l.gpm <- struct{}{}
	for _, d := range deny {
		l.deny[d] = true
	}
	for call, symbols := range needed {
		for _, symbol := range symbols {
			if !l.deny[symbol] && lookup(symbol) == nil {
				l.have[call] = true
			}
		}
	}
	if v, c := l.Driver(); c == probe.OK {
		l.shuffled = shufflesProcesses(v)
	}
	return l
}

// shufflesProcesses holds for drivers 535.43 to 535.98.
func shufflesProcesses(driver string) bool {
	major, rest, _ := strings.Cut(driver, ".")
	minor, _, _ := strings.Cut(rest, ".")
	n, err := strconv.Atoi(minor)
	return err == nil && major == "535" && n >= 43 && n <= 98
}

// guarded makes a call that the library has, or answers for it.
func guarded[T any](l *library, call string, f func() (T, nvml.Return)) (T, probe.Code) {
	if !l.have[call] {
		var none T
		return none, probe.FunctionNotFound
	}
	v, ret := f()
	return v, probe.Code(ret)
}

func (l *library) Driver() (string, probe.Code) {
	return guarded(l, "driver", l.api.SystemGetDriverVersion)
}

func (l *library) Count() (int, probe.Code) { return guarded(l, "count", l.api.DeviceGetCount) }

func (l *library) Device(index int) (probe.Device, probe.Code) {
	d, c := guarded(l, "handle", func() (nvml.Device, nvml.Return) { return l.api.DeviceGetHandleByIndex(index) })
	if c != probe.OK {
		return nil, c
	}
	return &device{l: l, d: d}, probe.OK
}
