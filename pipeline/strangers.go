package pipeline

import "slices"

// JoinGPUs fills in what strangers, with their descendants, hold of the GPUs.
// What no driver tells stays unknown.
func JoinGPUs(found []Stranger, gpus []GPUSnapshot) []Stranger {
	out := slices.Clone(found)
	for i := range out {
		joinGPUs(&out[i], gpus)
	}
	return out
}

func joinGPUs(s *Stranger, gpus []GPUSnapshot) {
	on := slices.Clone(s.GPUs)
	sum, known, held := int64(0), true, false
	for _, g := range gpus {
		for _, p := range g.Processes {
			if p.Foreign {
				known = false // any of them may be this one, under another number
			}
			if p.Foreign || p.PID != s.PID && !slices.Contains(s.Set, p.PID) {
				continue
			}
			held = true
			if !slices.Contains(on, g.UUID) {
				on = append(on, g.UUID)
			}
			if p.MemBytes == nil {
				known = false
				continue
			}
			sum += *p.MemBytes
		}
	}
	if s.GPUs = on; !held {
		return // that the driver lists nobody proves nothing
	}
	if s.GPUMem = -1; known {
		s.GPUMem = sum
	}
}

// BaselinesWithout is what the GPUs of some processes would hold without them,
// by UUID, where that can be told: the level that a stop must come back to.
func BaselinesWithout(adopted []Stranger, gpus []GPUSnapshot) map[string]int64 {
	out := map[string]int64{}
	for _, g := range gpus {
		rest, held, known := int64(0), false, g.MemUsedBytes != nil
		if known {
			rest = *g.MemUsedBytes
		}
		for _, p := range g.Processes {
			if p.Foreign || !slices.ContainsFunc(adopted, func(s Stranger) bool { return s.PID == p.PID || slices.Contains(s.Set, p.PID) }) {
				continue
			}
			if held = true; p.MemBytes == nil {
				known = false
				continue
			}
			rest -= *p.MemBytes
		}
		if held && known {
			out[g.UUID] = max(rest, 0)
		}
	}
	return out
}

// GPUHolders lists the processes that hold GPU memory and are no worker's.
func GPUHolders(gpus []GPUSnapshot) []int {
	var out []int
	for _, g := range gpus {
		for _, p := range g.Processes {
			if p.Worker == nil && !p.Foreign && p.PID > 1 && !slices.Contains(out, p.PID) {
				out = append(out, p.PID)
			}
		}
	}
	return out
}
