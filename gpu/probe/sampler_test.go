package probe

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"pipedeck/pipeline"
)

// fakeDevice answers what its fields say.
type fakeDevice struct {
	uuid   string
	mem    Memory
	code   Code // of every call but the identity's
	util   uint32
	procs  []Process
	numa   bool
	act    pipeline.GPUActivity
	actC   Code
	mig    []pipeline.MIGInstance
	block  chan struct{} // Memory waits for it
	reason uint64
}

func (d *fakeDevice) UUID() (string, Code)  { return d.uuid, OK }
func (d *fakeDevice) Name() (string, Code)  { return "NVIDIA H200", OK }
func (d *fakeDevice) PCIID() (string, Code) { return "00000000:1B:00.0", OK }
func (d *fakeDevice) Memory() (Memory, Code) {
	if d.block != nil {
		<-d.block
	}
	return d.mem, d.code
}
func (d *fakeDevice) Utilisation() (uint32, Code)            { return d.util, d.code }
func (d *fakeDevice) Power() (uint32, Code)                  { return 512_400, d.code }
func (d *fakeDevice) PowerLimit() (uint32, Code)             { return 700_000, d.code }
func (d *fakeDevice) Temperature() (uint32, Code)            { return 61, d.code }
func (d *fakeDevice) Clock(Clock) (uint32, Code)             { return 1980, d.code }
func (d *fakeDevice) Throttle() (uint64, Code)               { return d.reason, d.code }
func (d *fakeDevice) Activity() (pipeline.GPUActivity, Code) { return d.act, max(d.actC, d.code) }
func (d *fakeDevice) ECCUncorrected() (uint64, Code)         { return 0, d.code }
func (d *fakeDevice) Remapped() (pipeline.GPURemap, Code)    { return pipeline.GPURemap{}, d.code }
func (d *fakeDevice) MIG() ([]pipeline.MIGInstance, Code)    { return d.mig, d.code }
func (d *fakeDevice) NUMA() (bool, Code)                     { return d.numa, d.code }
func (d *fakeDevice) Processes() ([]Process, Code)           { return d.procs, d.code }

func wellDevice() *fakeDevice {
	return &fakeDevice{uuid: "GPU-aa", mem: Memory{Used: 10, Reserved: 5, Total: 100, Separate: true}, util: 97, reason: 0x1 | 0x4}
}

// fakeLibrary has the devices; a nil one is not handed out.
type fakeLibrary struct {
	devices []*fakeDevice
	handle  Code
	count   Code
}

func (l *fakeLibrary) Driver() (string, Code) { return "580.1", OK }
func (l *fakeLibrary) Count() (int, Code)     { return len(l.devices), l.count }
func (l *fakeLibrary) Device(i int) (Device, Code) {
	if l.devices[i] == nil {
		return nil, l.handle
	}
	return l.devices[i], OK
}

func TestAWellGPU(t *testing.T) {
	t.Parallel()
	d := wellDevice()
	d.procs = []Process{{PID: 7, Used: 9}, {PID: 8, Used: NoMemory}}
	a := NewSampler(&fakeLibrary{devices: []*fakeDevice{d}}, time.Now).Sample()
	if a.Error != "" || a.Replace != "" || len(a.GPUs) != 1 || a.Driver != "580.1" {
		t.Fatalf("answer = %+v", a)
	}
	g := a.GPUs[0]
	if g.State != pipeline.GPUOK || g.StateReason != nil || *g.MemUsedBytes != 10 || *g.MemTotalBytes != 100 || *g.UtilPercent != 97 || *g.PowerWatts != 512.4 || *g.TempCelsius != 61 {
		t.Errorf("GPU = %+v", g)
	}
	m := g.More
	if *m.MemReservedBytes != 5 || *m.PowerLimitWatts != 700 || *m.SMClockMHz != 1980 || m.MemKind != pipeline.MemDevice || len(m.Missing) != 0 ||
		len(m.Throttle) != 1 || m.Throttle[0] != "software power cap" || *m.ECCUncorrected != 0 || m.RemappedRows == nil || m.Activity == nil {
		t.Errorf("more = %+v", m)
	}
	if *g.Processes[0].MemBytes != 9 || g.Processes[1].MemBytes != nil || g.Processes[1].MemReason == nil {
		t.Errorf("processes = %+v", g.Processes)
	}
}

// Whatever a driver answers, what is unknown is null with a reason and never 0.
func TestTroubledGPUs(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name   string
		change func(*fakeDevice)
		state  pipeline.GPUState
		reason string
	}{
		{"lost", func(d *fakeDevice) { d.code = Lost }, pipeline.GPULost, "lost"},
		{"needs a reset", func(d *fakeDevice) { d.code = ResetRequired }, pipeline.GPULost, "reset"},
		{"denied", func(d *fakeDevice) { d.code = NoPermission }, pipeline.GPUDenied, "no permission"},
		{"unsupported", func(d *fakeDevice) { d.code = NotSupported }, pipeline.GPUUnsupported, "not supported"},
		{"no function", func(d *fakeDevice) { d.code = FunctionNotFound }, pipeline.GPUUnknown, "no such function"},
		{"unknown", func(d *fakeDevice) { d.code = Unknown }, pipeline.GPUUnknown, "unknown error"},
		{"a code of the future", func(d *fakeDevice) { d.code = 77 }, pipeline.GPUUnknown, "NVML error 77"},
		{"no memory of its own", func(d *fakeDevice) { d.mem = Memory{} }, pipeline.GPUUnsupported, "shares the node's memory"},
		{"nonsense memory", func(d *fakeDevice) { d.mem.Used = 101 }, pipeline.GPUUnknown, "nonsense"},
		{"all ones", func(d *fakeDevice) { d.mem = Memory{Used: NoMemory, Total: NoMemory} }, pipeline.GPUUnknown, "nonsense"},
	} {
		d := wellDevice()
		tc.change(d)
		g := NewSampler(&fakeLibrary{devices: []*fakeDevice{d}}, time.Now).Sample().GPUs[0]
		if g.State != tc.state || g.StateReason == nil || !strings.Contains(*g.StateReason, tc.reason) || g.MemUsedBytes != nil {
			t.Errorf("%s: %s, %v", tc.name, g.State, g)
		}
		if d.code != OK && (g.UtilPercent != nil || g.Processes != nil || g.More.Throttle != nil || g.More.Missing["power_limit_watts"] == "") {
			t.Errorf("%s: values from failed calls: %+v", tc.name, g)
		}
	}
}

func TestOddValuesOfAWellGPU(t *testing.T) {
	t.Parallel()
	d := wellDevice()
	d.util, d.act.SMPercent, d.numa, d.mem.Separate = 101, 1e9, true, false
	d.mig = []pipeline.MIGInstance{{UUID: "MIG-1"}}
	g := NewSampler(&fakeLibrary{devices: []*fakeDevice{d}}, time.Now).Sample().GPUs[0]
	if g.State != pipeline.GPUOK || g.UtilPercent != nil || g.StateReason == nil || g.More.Activity != nil || g.More.MemReservedBytes != nil {
		t.Errorf("GPU = %+v, %+v", g, g.More)
	}
	if g.More.MemKind != pipeline.MemNUMA || len(g.More.MIG) != 1 {
		t.Errorf("more = %+v", g.More)
	}
}

func TestNoSampleAtAll(t *testing.T) {
	t.Parallel()
	for code, replace := range map[Code]bool{Unknown: false, VersionMismatch: true, DriverNotLoaded: true, Uninitialized: true} {
		a := NewSampler(&fakeLibrary{count: code}, time.Now).Sample()
		if a.Error == "" || a.Code != code || (a.Replace != "") != replace {
			t.Errorf("%v: answer = %+v", code, a)
		}
	}
	a := NewSampler(&fakeLibrary{devices: []*fakeDevice{nil}, handle: VersionMismatch}, time.Now).Sample()
	if a.Replace == "" {
		t.Errorf("a handle that needs a new process: %+v", a)
	}
}

// One GPU that hangs or is gone costs the others nothing.
func TestOneBadGPU(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		hangs, well := wellDevice(), wellDevice()
		hangs.uuid, hangs.block = "GPU-hh", make(chan struct{})
		lib := &fakeLibrary{devices: []*fakeDevice{hangs, nil, well}, handle: Unknown}
		s := NewSampler(lib, time.Now)
		begin := time.Now()
		a := s.Sample()
		if took := time.Since(begin); took != DeviceDeadline {
			t.Errorf("the sample took %v", took)
		}
		if g := a.GPUs[0]; g.State != pipeline.GPUUnknown || !strings.Contains(*g.StateReason, "not answered") {
			t.Errorf("the GPU that hangs = %+v", g)
		}
		if g := a.GPUs[1]; g.State != pipeline.GPULost || g.StateReason == nil || a.Replace != "" {
			t.Errorf("the GPU without a handle = %+v", g)
		}
		if g := a.GPUs[2]; g.State != pipeline.GPUOK || *g.MemUsedBytes != 10 {
			t.Errorf("the well GPU = %+v", g)
		}
		time.Sleep(12 * time.Second)
		if a = s.Sample(); a.StuckSeconds < 12 || a.GPUs[2].State != pipeline.GPUOK {
			t.Errorf("later: %+v", a)
		}
		close(hangs.block)
		synctest.Wait()
		if a = s.Sample(); a.GPUs[0].State != pipeline.GPUOK || a.GPUs[0].UUID != "GPU-hh" || a.StuckSeconds != 0 {
			t.Errorf("after it answered: %+v", a)
		}
	})
}

func TestAGPUThatComesBack(t *testing.T) {
	t.Parallel()
	d := wellDevice()
	s := NewSampler(&fakeLibrary{devices: []*fakeDevice{d}}, time.Now)
	s.NoteXID("GPU-aa", 79)
	s.Sample()
	d.code = Lost
	if g := s.Sample().GPUs[0]; g.State != pipeline.GPULost || g.UUID != "GPU-aa" || len(g.More.XIDs) != 1 || g.More.XIDs[0].Code != 79 || !strings.Contains(*g.StateReason, "XID 79") {
		t.Errorf("lost: %+v", g)
	}
	d.code = OK
	if g := s.Sample().GPUs[0]; g.State != pipeline.GPUOK || *g.MemUsedBytes != 10 {
		t.Errorf("back: %+v", g)
	}
}
