package pipeline

import (
	"fmt"
	"slices"
	"time"
)

// namelessLimit is how much memory a GPU may hold without anybody being named
// and without a baseline: contexts of a display or a monitor, not a model.
const namelessLimit = 1 << 30

// JudgeFree says of each GPU that a start wants whether it is free: nobody
// else's process on it, and no more memory in use than before. baseline is
// what it held when it was last known to be free; ours says whether a process
// belongs to the same stage and may stay.
func JudgeFree(r GPUReading, uuids []string, baseline map[string]int64, ours func(GPUProcess) bool, now time.Time) (Verdict, []Check) {
	checks := make([]Check, 0, len(uuids))
	for _, uuid := range uuids {
		checks = append(checks, judgeFree(r, uuid, baseline, ours, now))
	}
	return worst(checks), checks
}

func judgeFree(r GPUReading, uuid string, baseline map[string]int64, ours func(GPUProcess) bool, now time.Time) Check {
	c := Check{Name: GPUCheckPrefix + uuid + ": free", At: now, Result: Unverified}
	gpu, why := readGPU(r, uuid)
	if why != "" {
		c.Observed = why
		return c
	}
	c.Name, c.At = fmt.Sprintf("%s%d: free", GPUCheckPrefix, gpu.Index), r.At
	used, shared := *gpu.MemUsedBytes, false
	for _, p := range gpu.Processes {
		if ours(p) {
			shared = true
			continue
		}
		if p.MemBytes == nil || *p.MemBytes > gpuSlack {
			c.Result, c.Observed = ActionFailed, fmt.Sprintf("%s in use: %s", humanBytes(used), memoryHolders(gpu))
			return c
		}
	}
	if shared {
		c.Result, c.Observed = Verified, "only this stage's workers are on it"
		return c
	}
	most, since := int64(namelessLimit), "nobody is named"
	if b, ok := baseline[uuid]; ok {
		most, since = b+gpuSlack, humanBytes(b)+" before"
	}
	if used > most {
		c.Result, c.Observed = ActionFailed, fmt.Sprintf("%s in use, %s; %s", humanBytes(used), since, memoryHolders(gpu))
		return c
	}
	c.Result, c.Observed = Verified, humanBytes(used)+" in use, no process of others"
	return c
}

// HeldByOthers says whether a living, named process that is not ours holds
// memory on one of the GPUs: waiting for the driver would not change that.
func HeldByOthers(r GPUReading, uuids []string, ours func(GPUProcess) bool) bool {
	for _, g := range r.GPUs {
		if !slices.Contains(uuids, g.UUID) {
			continue
		}
		for _, p := range g.Processes {
			if !ours(p) && p.User != nil && p.MemBytes != nil && *p.MemBytes > gpuSlack {
				return true
			}
		}
	}
	return false
}
