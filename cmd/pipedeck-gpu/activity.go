//go:build linux && cgo

package main

import (
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"pipedeck/gpu/probe"
	"pipedeck/pipeline"
)

// NVML wants a tenth of a second between two samples; after a long gap the mean
// would say nothing about now.
const (
	gpmApart = 100 * time.Millisecond
	gpmStale = 10 * time.Second
)

// gpmTurn is how long a device waits for its turn: one that hangs in there must
// not hold up the others.
const gpmTurn = 50 * time.Millisecond

// Activity is how busy the GPU's parts were since the call before. GPUs before
// Hopper do not measure it.
func (d *device) Activity() (pipeline.GPUActivity, probe.Code) {
	var none pipeline.GPUActivity
	for _, call := range []string{"gpmquery", "gpmalloc", "gpmget", "gpmfree", "gpmmetrics"} {
		if !d.l.have[call] {
			return none, probe.FunctionNotFound
		}
	}
	select {
	case <-d.l.gpm:
	case <-time.After(gpmTurn):
		return none, probe.InUse
	}
	defer func() { d.l.gpm <- struct{}{} }()
	if !d.gpmKnown {
		support, ret := d.d.GpmQueryDeviceSupport()
		if ret != nvml.SUCCESS {
			return none, probe.Code(ret)
		}
		d.gpmKnown, d.gpmHas = true, support.IsSupportedDevice != 0
	}
	if !d.gpmHas {
		return none, probe.NotSupported
	}
	return d.measure(time.Now())
}

func (d *device) measure(now time.Time) (pipeline.GPUActivity, probe.Code) {
	if d.measured && now.Sub(d.beforeAt) < gpmApart {
		return d.activity, probe.OK
	}
	sample, ret := d.l.api.GpmSampleAlloc()
	if ret != nvml.SUCCESS {
		return d.activity, probe.Code(ret)
	}
	if ret := d.d.GpmSampleGet(sample); ret != nvml.SUCCESS {
		d.l.api.GpmSampleFree(sample)
		return d.activity, probe.Code(ret)
	}
	before, age := d.before, now.Sub(d.beforeAt)
	if before != nil && age < gpmApart {
		d.l.api.GpmSampleFree(sample)
		return d.activity, probe.NoData
	}
	d.before, d.beforeAt, d.measured = sample, now, false
	if before == nil {
		return d.activity, probe.NoData
	}
	defer d.l.api.GpmSampleFree(before)
	if age > gpmStale {
		return d.activity, probe.NoData
	}
	a, ret := activityBetween(d.l.api, before, sample)
	d.activity, d.measured = a, ret == nvml.SUCCESS
	return a, probe.Code(ret)
}

func activityBetween(api nvml.Interface, before, after nvml.GpmSample) (pipeline.GPUActivity, nvml.Return) {
	get := nvml.GpmMetricsGetType{NumMetrics: 3, Sample1: before, Sample2: after}
	get.Metrics[0].MetricId = uint32(nvml.GPM_METRIC_SM_UTIL)
	get.Metrics[1].MetricId = uint32(nvml.GPM_METRIC_DRAM_BW_UTIL)
	get.Metrics[2].MetricId = uint32(nvml.GPM_METRIC_ANY_TENSOR_UTIL)
	if ret := api.GpmMetricsGet(&get); ret != nvml.SUCCESS {
		return pipeline.GPUActivity{}, ret
	}
	for _, m := range get.Metrics[:3] {
		if ret := nvml.Return(m.NvmlReturn); ret != nvml.SUCCESS {
			return pipeline.GPUActivity{}, ret
		}
	}
	return pipeline.GPUActivity{
		SMPercent: get.Metrics[0].Value, DRAMPercent: get.Metrics[1].Value, TensorPercent: get.Metrics[2].Value,
	}, nvml.SUCCESS
}
