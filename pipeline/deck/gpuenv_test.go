package deck

import (
	"slices"
	"testing"

	"pipedeck/pipeline"
)

// A worker sees its own GPUs and no other, in whatever order CUDA would like.
func TestGPUEnvironment(t *testing.T) {
	t.Parallel()
	two := []pipeline.GPURef{{Index: 0, UUID: "GPU-a"}, {Index: 1, UUID: "MIG-b"}}
	for _, tc := range []struct {
		env  []string
		gpus []pipeline.GPURef
		want []string
	}{
		{nil, nil, nil},
		{nil, two, []string{"CUDA_DEVICE_ORDER=PCI_BUS_ID", "CUDA_VISIBLE_DEVICES=GPU-a,MIG-b"}},
		{[]string{"CUDA_VISIBLE_DEVICES=0"}, two, []string{"CUDA_DEVICE_ORDER=PCI_BUS_ID"}},
		{[]string{"CUDA_DEVICE_ORDER=FASTEST_FIRST", "CUDA_VISIBLE_DEVICES=0"}, two, nil},
	} {
		if got := gpuEnviron(tc.env, tc.gpus); !slices.Equal(got, tc.want) {
			t.Errorf("%v: %v, want %v", tc.env, got, tc.want)
		}
	}
}
