package proc

import (
	"testing"

	"pipedeck/pipeline"
)

func TestSlotsOfOneGPUAreLockedApart(t *testing.T) {
	t.Parallel()
	h := &Host{}
	h.opt.LocksDir = t.TempDir()
	launch := pipeline.Launch{ID: "extract-0-1", Deck: "d", Run: "r"}
	for _, slot := range []int{0, 1} {
		f, err := h.takeSlot(launch, pipeline.GPURef{UUID: "GPU-1", Slot: slot})
		if err != nil {
			t.Fatalf("slot %d: %v", slot, err)
		}
		defer f.Close()
		if again, err := h.takeSlot(launch, pipeline.GPURef{UUID: "GPU-1", Slot: slot}); err == nil {
			again.Close()
			t.Errorf("slot %d was taken twice", slot)
		}
	}
}
