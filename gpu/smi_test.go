package gpu

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"pipedeck/pipeline"
)

// answers plays nvidia-smi: the first entry whose key is in the arguments.
type answers []struct {
	match string
	out   string
	err   error
}

func (a answers) run(_ context.Context, args ...string) (string, error) {
	line := strings.Join(args, " ")
	for _, x := range a {
		if strings.Contains(line, x.match) {
			return x.out, x.err
		}
	}
	return "", errors.New("no answer for " + line)
}

func smiWith(a answers) *SMI {
	s := NewSMI("", time.Now)
	s.run = a.run
	return s
}

const twoGPUs = `0, GPU-aa, 28234, 143771, 97, 512.40, 61, NVIDIA H200
1, GPU-bb, 0, 143771, 0, 78.11, 31, NVIDIA H200
`

func TestReadGPUs(t *testing.T) {
	t.Parallel()
	r := smiWith(answers{
		{match: "--query-gpu=" + gpuColumns, out: twoGPUs},
		{match: "--query-compute-apps", out: "GPU-aa, 4711, 27000, python3\n"},
	}).Read(t.Context())
	if r.Kind != KindSMI || r.Reason != "" || len(r.GPUs) != 2 {
		t.Fatalf("reading = %+v", r)
	}
	g := r.GPUs[0]
	if *g.MemUsedBytes != 28234<<20 || *g.UtilPercent != 97 || *g.PowerWatts != 512.4 || *g.TempCelsius != 61 || g.Name != "NVIDIA H200" {
		t.Errorf("GPU 0 = %+v", g)
	}
	if len(g.Processes) != 1 || g.Processes[0].PID != 4711 || *g.Processes[0].MemBytes != 27000<<20 {
		t.Errorf("processes = %+v", g.Processes)
	}
	if r.GPUs[1].Processes == nil || len(r.GPUs[1].Processes) != 0 {
		t.Errorf("an idle GPU has processes %+v, want none but known", r.GPUs[1].Processes)
	}
}

func TestWhatIsNoNumberIsUnknownWithAReason(t *testing.T) {
	t.Parallel()
	for _, word := range []string{
		"[N/A]", "N/A", "[Not Supported]", "[Unknown Error]", "[Insufficient Permissions]", "ERR!", "[Function Not Found]",
		"", "-1", "nan", "1e99", "GPU is lost",
	} {
		out := "0, GPU-aa, 10, 143771, " + word + ", 70.0, 30, NVIDIA H200\n"
		gpus, err := parseGPUs(out, gpuColumns)
		if err != nil {
			t.Errorf("%q: %v", word, err)
			continue
		}
		g := gpus[0]
		if g.UtilPercent != nil {
			t.Errorf("%q was read as %v", word, *g.UtilPercent)
		}
		if g.StateReason == nil || !strings.Contains(*g.StateReason, "utilisation") {
			t.Errorf("%q: no reason", word)
		}
	}
}

func TestStateOfAGPU(t *testing.T) {
	t.Parallel()
	for cell, want := range map[string]pipeline.GPUState{
		"[N/A]":                      pipeline.GPUUnsupported,
		"[Not Supported]":            pipeline.GPUUnsupported,
		"[Insufficient Permissions]": pipeline.GPUDenied,
		"[GPU is lost]":              pipeline.GPULost,
		"[Unknown Error]":            pipeline.GPUUnknown,
		"10":                         pipeline.GPUOK,
	} {
		gpus, err := parseGPUs("0, GPU-aa, "+cell+", 143771, 1, 70.0, 30, X\n", gpuColumns)
		if err != nil || gpus[0].State != want {
			t.Errorf("memory %q: state %v, %v; want %s", cell, gpus, err, want)
		}
	}
}

func TestOneBadGPUHidesNoOther(t *testing.T) {
	t.Parallel()
	broken := errors.New("exit status 15")
	r := smiWith(answers{
		{match: "-i GPU-aa", out: "0, GPU-aa, 5, 143771, 1, 70.0, 30, NVIDIA H200\n"},
		{match: "-i GPU-bb", out: "Unable to determine the device handle for GPU1: GPU is lost.", err: broken},
		{match: "--query-gpu=", out: "Unable to determine the device handle for GPU1", err: broken},
		{match: "-L", out: "GPU 0: NVIDIA H200 (UUID: GPU-aa)\nGPU 1: NVIDIA H200 (UUID: GPU-bb)\n"},
		{match: "--query-compute-apps", err: broken},
	}).Read(t.Context())
	if len(r.GPUs) != 2 || r.Reason == "" {
		t.Fatalf("reading = %+v", r)
	}
	if g := r.GPUs[0]; g.State != pipeline.GPUOK || *g.MemUsedBytes != 5<<20 || g.Processes != nil {
		t.Errorf("the good GPU = %+v", g)
	}
	if g := r.GPUs[1]; g.State != pipeline.GPULost || g.StateReason == nil || g.MemUsedBytes != nil {
		t.Errorf("the bad GPU = %+v", g)
	}
}

func TestAGPUThatVanishedKeepsItsRow(t *testing.T) {
	t.Parallel()
	s := smiWith(answers{
		{match: "--query-gpu=", out: twoGPUs},
		{match: "--query-compute-apps", out: ""},
	})
	s.Read(t.Context())
	s.run = answers{
		{match: "-i GPU-aa", out: "0, GPU-aa, 5, 143771, 1, 70.0, 30, NVIDIA H200\n"},
		{match: "--query-gpu=", err: errors.New("exit status 15")},
		{match: "-L", out: "GPU 0: NVIDIA H200 (UUID: GPU-aa)\nUnable to determine the device handle for gpu 0000:1B:00.0: Unknown Error\n"},
	}.run
	r := s.Read(t.Context())
	if len(r.GPUs) != 2 || r.GPUs[1].UUID != "GPU-bb" || r.GPUs[1].State != pipeline.GPULost {
		t.Errorf("GPUs = %+v", r.GPUs)
	}
	if !strings.Contains(r.Reason, "0000:1B:00.0") {
		t.Errorf("reason = %q", r.Reason)
	}
}

func TestNoDriver(t *testing.T) {
	t.Parallel()
	r := NewSMI(filepath.Join(t.TempDir(), "nvidia-smi"), time.Now).Read(t.Context())
	if r.Kind == KindSMI && r.Reason == "" || len(r.GPUs) != 0 {
		t.Errorf("reading without a driver = %+v", r)
	}
	r = smiWith(answers{{match: "", err: exec.ErrNotFound}}).Read(t.Context())
	if r.Kind != KindNone || r.Reason == "" {
		t.Errorf("reading without nvidia-smi = %+v", r)
	}
}

// A driver that hangs leaves its call out: nobody waits for it for ever, and no
// second call joins it.
func TestAHungDriverIsAskedOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var calls atomic.Int32
		release := make(chan struct{})
		s := NewSMI("", time.Now)
		s.run = func(context.Context, ...string) (string, error) {
			calls.Add(1)
			<-release
			return "", errors.New("killed")
		}
		for range 3 {
			r := s.Read(t.Context())
			if r.Reason == "" {
				t.Errorf("reading = %+v", r)
			}
		}
		if n := calls.Load(); n != 1 {
			t.Errorf("nvidia-smi was started %d times", n)
		}
		close(release)
		synctest.Wait()
	})
}

func TestReadersTakeTurns(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := NewSMI("", time.Now)
		good := answers{{match: "--query-gpu=", out: twoGPUs}, {match: "--query-compute-apps"}}
		s.run = func(ctx context.Context, args ...string) (string, error) {
			time.Sleep(20 * time.Millisecond) // virtual: what nvidia-smi takes
			return good.run(ctx, args...)
		}
		asked := time.Now()
		got := make(chan pipeline.GPUReading, 5)
		for range cap(got) {
			go func() { got <- s.Read(t.Context()) }()
		}
		for range cap(got) {
			if r := <-got; len(r.GPUs) != 2 || r.Reason != "" || !r.At.After(asked) {
				t.Errorf("reading = %+v", r)
			}
		}
	})
}

func TestExecReportsTheDriversWords(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "nvidia-smi")
	script := "#!/bin/sh\necho 'NVIDIA-SMI has failed because it could not communicate with the NVIDIA driver.'\nexit 9\n"
	if err := os.WriteFile(path, []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	r := NewSMI(path, time.Now).Read(t.Context())
	if !strings.Contains(r.Reason, "could not communicate") || len(r.GPUs) != 0 {
		t.Errorf("reading = %+v", r)
	}
}

func FuzzParseGPUs(f *testing.F) {
	f.Add(twoGPUs)
	f.Add("No devices were found\n")
	f.Add("0, GPU-aa, [N/A], [N/A], [N/A], [N/A], [N/A], NVIDIA GB10\n")
	f.Fuzz(func(t *testing.T, out string) {
		gpus, err := parseGPUs(out, gpuColumns)
		if err == nil && len(gpus) == 0 {
			t.Error("no GPU and no error")
		}
		for _, g := range gpus {
			for _, v := range []*float64{g.UtilPercent, g.PowerWatts, g.TempCelsius} {
				if v != nil && (*v < 0 || *v != *v) {
					t.Errorf("value %v from %q", *v, out)
				}
			}
			if g.State == "" {
				t.Errorf("no state from %q", out)
			}
		}
		parseApps(out)
		parseList(out)
	})
}
