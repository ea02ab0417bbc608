//go:build linux && cgo

package main

import (
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"pipedeck/gpu"
	"pipedeck/gpu/probe"
	"pipedeck/pipeline"
)

// asHelper makes the test binary the helper itself.
const asHelper = "NVIDIA_TEST_AS_HELPER"

func TestMain(m *testing.M) {
	if os.Getenv(asHelper) != "" {
		main()
	}
	os.Exit(m.Run())
}

// stub builds a libnvidia-ml.so.1 with the given troubles into dir.
func stub(t *testing.T, dir string, defines ...string) {
	t.Helper()
	gcc, err := exec.LookPath("gcc")
	if err != nil {
		t.Skip("no gcc: the stub library cannot be built")
	}
	next := filepath.Join(dir, "next.so")
	args := []string{"-shared", "-fPIC", "-o", next, filepath.Join("testdata", "stub.c")}
	for _, d := range defines {
		args = append(args, "-D"+d)
	}
	if out, err := exec.CommandContext(t.Context(), gcc, args...).CombinedOutput(); err != nil {
		t.Fatalf("gcc: %v: %s", err, out)
	}
	if err := os.Rename(next, filepath.Join(dir, "libnvidia-ml.so.1")); err != nil {
		t.Fatal(err)
	}
}

// helper runs pipedeck-gpu over the stub library in dir.
type helper struct {
	t   *testing.T
	enc *json.Encoder
	dec *json.Decoder
	id  int64
}

func startHelper(t *testing.T, dir string, args ...string) *helper {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(cancel)
	cmd := exec.CommandContext(ctx, os.Args[0], args...)
	cmd.Env = []string{asHelper + "=1", "LD_LIBRARY_PATH=" + dir, "NVIDIA_STUB_DIR=" + dir}
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = in.Close() // ends it, also while a call hangs
		_ = cmd.Wait()
	})
	return &helper{t: t, enc: json.NewEncoder(in), dec: json.NewDecoder(out)}
}

// ask returns the answer to one question, once NVML has started or has been
// starting for patience.
func (h *helper) ask(patience time.Duration) probe.Answer {
	h.t.Helper()
	for {
		h.id++
		if err := h.enc.Encode(probe.Request{ID: h.id}); err != nil {
			h.t.Fatal(err)
		}
		var a probe.Answer
		if err := h.dec.Decode(&a); err != nil {
			h.t.Fatal(err)
		}
		if a.ID != h.id {
			h.t.Fatalf("answer %d to question %d", a.ID, h.id)
		}
		if a.Code != probe.NotReady || a.StuckSeconds > patience.Seconds() {
			return a
		}
	}
}

func TestStubLibrary(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	stub(t, dir)
	a := startHelper(t, dir).ask(time.Minute)
	if a.Error != "" || len(a.GPUs) != 2 || a.Driver != "580.1" {
		t.Fatalf("answer = %+v", a)
	}
	g := a.GPUs[1]
	if g.UUID != "GPU-bb" || g.State != pipeline.GPUOK || *g.MemUsedBytes != 10 || *g.More.MemReservedBytes != 100 || *g.UtilPercent != 51 {
		t.Errorf("GPU = %+v", g)
	}
	// What the stub lacks is missing with a reason, and the process lives.
	if g.PowerWatts != nil || g.More.Missing["power_watts"] == "" || g.Processes != nil || g.More.Activity != nil {
		t.Errorf("functions that are not there: %+v", g)
	}
}

func TestWithoutALibrary(t *testing.T) {
	t.Parallel()
	if a := startHelper(t, t.TempDir()).ask(time.Minute); a.Code != probe.LibraryNotFound || a.Error == "" {
		t.Skipf("this machine has a driver: %+v", a)
	}
}

func TestMissingFunctionFallsBack(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	stub(t, dir, "NO_MEMORY_V2")
	g := startHelper(t, dir).ask(time.Minute).GPUs[0]
	if *g.MemUsedBytes != 110 || g.More.MemReservedBytes != nil || g.More.Missing["mem_reserved_bytes"] == "" {
		t.Errorf("GPU = %+v", g)
	}
	// A function that is denied is not called though it is there.
	dir = t.TempDir()
	stub(t, dir)
	g = startHelper(t, dir, "--deny", "nvmlDeviceGetUtilizationRates").ask(time.Minute).GPUs[0]
	if g.UtilPercent != nil || *g.MemUsedBytes != 10 {
		t.Errorf("GPU with a denied function = %+v", g)
	}
}

func TestAHangingCall(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	stub(t, dir, "HANG_DEVICE")
	h := startHelper(t, dir)
	for range 2 {
		a := h.ask(time.Minute)
		if a.GPUs[0].State != pipeline.GPUOK || a.GPUs[1].State != pipeline.GPUUnknown || a.StuckSeconds == 0 {
			t.Errorf("answer = %+v", a)
		}
	}
	dir = t.TempDir()
	stub(t, dir, "HANG_INIT")
	if a := startHelper(t, dir).ask(200 * time.Millisecond); a.Code != probe.NotReady || a.Error == "" {
		t.Errorf("while NVML starts: %+v", a)
	}
}

func TestAnUpgradedDriver(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	stub(t, dir)
	h := startHelper(t, dir)
	if a := h.ask(time.Minute); a.Replace != "" {
		t.Fatalf("replace without a reason: %q", a.Replace)
	}
	stub(t, dir, `DRIVER="590.1"`)
	if a := h.ask(time.Minute); !strings.Contains(a.Replace, "replaced on disk") || len(a.GPUs) != 2 {
		t.Errorf("after the library was replaced: %+v", a)
	}
	dir = t.TempDir()
	stub(t, dir, "MISMATCH")
	if a := startHelper(t, dir).ask(time.Minute); a.Code != probe.VersionMismatch || !strings.Contains(a.Error, "upgraded") {
		t.Errorf("old library over a new driver: %+v", a)
	}
}

// steer writes a file that the stub library looks at while it runs.
func steer(t *testing.T, dir, name, content string) {
	t.Helper()
	path := filepath.Join(dir, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path+".tmp", []byte(content), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(path+".tmp", path); err != nil {
		t.Fatal(err)
	}
}

// An error event comes first, then the GPU falls off the bus and comes back;
// the other one is read all the while.
func TestALostGPU(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	stub(t, dir, "EVENTS")
	h := startHelper(t, dir)
	until := func(what string, ok func(pipeline.GPUSnapshot) bool) pipeline.GPUSnapshot {
		t.Helper()
		for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
			a := h.ask(time.Minute)
			if g := a.GPUs[0]; g.State != pipeline.GPUOK || *g.MemUsedBytes != 10 || len(g.More.XIDs) != 0 || a.Replace != "" {
				t.Fatalf("the other GPU: %+v, replace %q", g, a.Replace)
			}
			if ok(a.GPUs[1]) {
				return a.GPUs[1]
			}
		}
		t.Fatalf("never: %s", what)
		return pipeline.GPUSnapshot{}
	}
	until("a well GPU", func(g pipeline.GPUSnapshot) bool { return g.State == pipeline.GPUOK })
	steer(t, dir, "xid", "79")
	until("the error event", func(g pipeline.GPUSnapshot) bool { return len(g.More.XIDs) == 1 && g.More.XIDs[0].Code == 79 })
	steer(t, dir, "lost", "")
	g := until("a lost GPU", func(g pipeline.GPUSnapshot) bool { return g.State == pipeline.GPULost })
	if g.UUID != "GPU-bb" || !strings.Contains(*g.StateReason, "; XID 79") || g.MemUsedBytes != nil || g.UtilPercent != nil || g.Processes != nil {
		t.Errorf("lost GPU = %+v, %q", g, *g.StateReason)
	}
	if err := os.Remove(filepath.Join(dir, "lost")); err != nil {
		t.Fatal(err)
	}
	g = until("the GPU again", func(g pipeline.GPUSnapshot) bool { return g.State == pipeline.GPUOK })
	if *g.MemUsedBytes != 10 || len(g.More.XIDs) != 1 {
		t.Errorf("after it came back: %+v", g)
	}
}

func TestMIGInstances(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	stub(t, dir, "MIG")
	a := startHelper(t, dir).ask(time.Minute)
	if m := a.GPUs[1].More.MIG; m != nil {
		t.Errorf("instances of a whole GPU: %+v", m)
	}
	var uuids []string
	for _, s := range append(a.GPUs[0].Slots(), a.GPUs[1].Slots()...) {
		uuids = append(uuids, s.UUID)
	}
	if strings.Join(uuids, " ") != "MIG-1 MIG-2 GPU-bb" {
		t.Errorf("places for workers: %q", uuids)
	}
	if m := a.GPUs[0].More.MIG[1]; m.GPUInstance != 8 || *m.MemUsedBytes != 10 || *m.MemTotalBytes != 1000 {
		t.Errorf("instance = %+v", m)
	}
}

// Processes are listed with what they hold, for as long as they live.
func TestWhoHoldsMemory(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	stub(t, dir, "PROCESSES")
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	holder := exec.CommandContext(ctx, "sleep", "60")
	if err := holder.Start(); err != nil {
		t.Fatal(err)
	}
	steer(t, dir, filepath.Join("GPU-bb", strconv.Itoa(holder.Process.Pid)), "5000000000")
	h := startHelper(t, dir)
	a := h.ask(time.Minute)
	g := a.GPUs[1]
	if len(a.GPUs[0].Processes) != 0 || *a.GPUs[0].MemUsedBytes != 0 || len(g.Processes) != 1 || *g.MemUsedBytes != 5e9 || g.Processes[0].PID != holder.Process.Pid || *g.Processes[0].MemBytes != 5e9 {
		t.Fatalf("held: %+v", a.GPUs)
	}
	_ = holder.Process.Kill()
	_ = holder.Wait()
	if g = h.ask(time.Minute).GPUs[1]; len(g.Processes) != 0 || *g.MemUsedBytes != 0 {
		t.Errorf("after its end: %+v", g)
	}
}

// The agent's end and the helper's, over a stub library that is replaced.
func TestTheAgentFollowsAnUpgrade(t *testing.T) {
	dir := t.TempDir()
	stub(t, dir)
	t.Setenv(asHelper, "1") // NVIDIA_* is passed on
	t.Setenv("LD_LIBRARY_PATH", dir)
	t.Setenv(gpu.HelperEnv, os.Args[0])
	c := gpu.NewChain(time.Now)
	r := c.Read(t.Context())
	if r.Kind != gpu.KindNVML || len(r.GPUs) != 2 || r.Reason != "" {
		t.Fatalf("reading = %+v", r)
	}
	stub(t, dir, "NO_MEMORY_V2")
	c.Read(t.Context()) // the old library's last answer
	r = c.Read(t.Context())
	if r.Kind != gpu.KindNVML || len(r.GPUs) != 2 || *r.GPUs[0].MemUsedBytes != 110 {
		t.Errorf("reading of the new library = %+v", r)
	}
}
