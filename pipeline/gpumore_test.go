package pipeline

import (
	"encoding/json"
	"math"
	"testing"
	"time"
)

func TestPresentMore(t *testing.T) {
	t.Parallel()
	if presentMore(nil) != nil {
		t.Error("nothing became something")
	}
	m := presentMore(&GPUMore{
		PCIID: "00:1B\x1b[31m", MemReservedBytes: new(int64(-1)), PowerLimitWatts: new(math.Inf(1)), Throttle: []string{"cap\x07"},
		Activity: &GPUActivity{SMPercent: math.NaN()}, XIDs: []GPUXID{{At: time.Date(99999, 1, 1, 0, 0, 0, 0, time.UTC), Code: 79}},
		MIG: []MIGInstance{{UUID: "MIG-1"}}, Missing: map[string]string{"x\x1b": "y\x1b"},
	})
	if m.MemReservedBytes != nil || m.PowerLimitWatts != nil || m.Activity != nil || m.MIG[0].MemReason == nil || !m.XIDs[0].At.IsZero() {
		t.Errorf("more = %+v", m)
	}
	raw, err := json.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range raw {
		if c < 0x20 {
			t.Errorf("control character in %s", raw)
		}
	}
}

// A GPU in MIG mode is its instances, each with a memory of its own.
func TestMIGInstancesAreSlots(t *testing.T) {
	t.Parallel()
	whole := GPUSnapshot{Index: 1, UUID: "GPU-b", State: GPUOK, MemUsedBytes: new(int64(7))}
	parted := GPUSnapshot{Index: 0, UUID: "GPU-a", State: GPUOK, MemUsedBytes: new(int64(99)), Processes: []GPUProcess{{PID: 3}}, More: &GPUMore{MIG: []MIGInstance{
		{UUID: "MIG-1", MemUsedBytes: new(int64(1))}, {UUID: "MIG-2"},
	}}}
	if s := whole.Slots(); len(s) != 1 || s[0].UUID != "GPU-b" {
		t.Errorf("slots of a whole GPU: %+v", s)
	}
	if s := parted.Slots(); len(s) != 2 || s[0].UUID != "MIG-1" || *s[0].MemUsedBytes != 1 || s[1].MemUsedBytes != nil || s[1].Processes != nil {
		t.Errorf("slots of a parted GPU: %+v", s)
	}
	parted.More.MIG = []MIGInstance{}
	if s := parted.Slots(); len(s) != 0 {
		t.Errorf("slots of a GPU in MIG mode without instances: %+v", s)
	}
	parted.More.MIG = []MIGInstance{{UUID: "MIG-1", MemUsedBytes: new(int64(1))}}
	all := []GPUSnapshot{parted, whole}
	for uuid, want := range map[string]int64{"GPU-a": 99, "GPU-b": 7, "MIG-1": 1} {
		if g := FindGPU(all, uuid); g == nil || *g.MemUsedBytes != want {
			t.Errorf("%s: %+v", uuid, g)
		}
	}
	if FindGPU(all, "MIG-9") != nil {
		t.Error("found what is not there")
	}
}
