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
