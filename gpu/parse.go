package gpu

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"pipedeck/pipeline"
)

// The columns that are asked for: a short, old list that every driver since
// about 2016 answers. The name comes last since nothing is quoted.
const (
	gpuColumns     = "index,uuid,memory.used,memory.total,utilization.gpu,power.draw,temperature.gpu,name"
	minimalColumns = "index,uuid,memory.used,memory.total"
	appColumns     = "gpu_uuid,pid,used_memory,process_name"
)

const mib = 1 << 20

// parseGPUs reads the rows of gpuColumns or minimalColumns as csv,noheader,
// nounits. A line that is no row is an error: drivers print plain sentences
// among the rows.
func parseGPUs(out string, columns string) ([]pipeline.GPUSnapshot, error) {
	want := strings.Count(columns, ",") + 1
	var gpus []pipeline.GPUSnapshot
	for line := range strings.Lines(out) {
		line = strings.TrimSpace(line)
		if line == "" {
			continue
		}
		cells := strings.SplitN(line, ", ", want)
		if len(cells) != want {
			return gpus, fmt.Errorf("nvidia-smi said %q", pipeline.Clean(line))
		}
		g, err := gpuRow(cells)
		if err != nil {
			return gpus, err
		}
		gpus = append(gpus, g)
	}
	if len(gpus) == 0 {
		return nil, errors.New("nvidia-smi listed no GPU")
	}
	return gpus, nil
}

func gpuRow(cells []string) (pipeline.GPUSnapshot, error) {
	g := pipeline.GPUSnapshot{State: pipeline.GPUOK, UUID: cells[1]}
	index, err := strconv.Atoi(cells[0])
	if err != nil || !strings.HasPrefix(g.UUID, "GPU-") {
		return g, fmt.Errorf("nvidia-smi said %q where an index and a UUID were expected", pipeline.Clean(strings.Join(cells, ", ")))
	}
	g.Index = index
	var why []string
	number := func(cell, name string) *float64 {
		v, reason := cellNumber(cell)
		if reason != "" {
			why = append(why, name+": "+reason)
		}
		return v
	}
	g.MemUsedBytes = bytesOf(number(cells[2], "memory used"))
	g.MemTotalBytes = bytesOf(number(cells[3], "memory total"))
	if len(cells) > 4 {
		g.UtilPercent = number(cells[4], "utilisation")
		g.PowerWatts = number(cells[5], "power")
		g.TempCelsius = number(cells[6], "temperature")
		g.Name = pipeline.Clean(cells[7])
	}
	if len(why) > 0 {
		reason := strings.Join(why, "; ")
		g.StateReason = &reason
		g.State = stateOf(reason, g)
	}
	return g, nil
}

// stateOf turns what the driver said in its cells into a state. A GPU that
// lacks only some sensors is still fine.
func stateOf(reason string, g pipeline.GPUSnapshot) pipeline.GPUState {
	low := strings.ToLower(reason)
	switch {
	case strings.Contains(low, "lost"), strings.Contains(low, "reset required"):
		return pipeline.GPULost
	case g.MemUsedBytes != nil:
		return pipeline.GPUOK
	case strings.Contains(low, "permission"):
		return pipeline.GPUDenied
	case strings.Contains(low, "n/a"), strings.Contains(low, "not supported"):
		return pipeline.GPUUnsupported
	default:
		return pipeline.GPUUnknown
	}
}

// cellNumber reads one cell. Whatever is not a sane number is unknown, with
// the driver's own word as the reason: [N/A], [Unknown Error], ERR!, ….
func cellNumber(cell string) (*float64, string) {
	cell = strings.TrimSpace(cell)
	v, err := strconv.ParseFloat(cell, 64)
	if err != nil || v < 0 || v > 1e12 || v != v {
		word := pipeline.Clean(strings.Trim(cell, "[]"))
		if word == "" {
			word = "empty"
		}
		return nil, word
	}
	return &v, ""
}

func bytesOf(mibs *float64) *int64 {
	if mibs == nil {
		return nil
	}
	b := int64(*mibs * mib)
	return &b
}

// parseApps reads the rows of appColumns: processes by GPU UUID. A row that
// cannot be read is skipped and counted, since one odd process must not hide
// the others.
func parseApps(out string) (byGPU map[string][]pipeline.GPUProcess, bad int) {
	byGPU = map[string][]pipeline.GPUProcess{}
	for line := range strings.Lines(out) {
		line = strings.TrimSpace(line)
		if line == "" {
			continue
		}
		cells := strings.SplitN(line, ", ", 4)
		if len(cells) < 3 || !strings.HasPrefix(cells[0], "GPU-") {
			bad++
			continue
		}
		pid, err := strconv.Atoi(cells[1])
		if err != nil || pid <= 0 {
			bad++
			continue
		}
		mem, _ := cellNumber(cells[2])
		byGPU[cells[0]] = append(byGPU[cells[0]], pipeline.GPUProcess{PID: pid, MemBytes: bytesOf(mem)})
	}
	return byGPU, bad
}

// parseList reads `nvidia-smi -L`, which goes on after a bad GPU: the GPUs it
// could name, and what it said of the others.
func parseList(out string) (gpus []pipeline.GPUSnapshot, complaints []string) {
	for line := range strings.Lines(out) {
		line = strings.TrimSpace(line)
		head, rest, ok := strings.Cut(line, ": ")
		index, err := strconv.Atoi(strings.TrimPrefix(head, "GPU "))
		name, uuid, hasUUID := strings.Cut(rest, " (UUID: ")
		switch {
		case ok && err == nil && hasUUID && strings.HasPrefix(uuid, "GPU-"):
			gpus = append(gpus, pipeline.GPUSnapshot{Index: index, UUID: strings.TrimSuffix(uuid, ")"), Name: pipeline.Clean(name)})
		case line != "" && !strings.HasPrefix(line, "MIG "):
			complaints = append(complaints, pipeline.Clean(line))
		}
	}
	return gpus, complaints
}
