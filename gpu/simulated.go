package gpu

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"pipedeck/pipeline"
)

// The figures of a simulated GPU: an H200 at rest.
const (
	simTotal     = int64(143771) * mib
	simIdleWatts = 78.0
	simIdleTemp  = 31.0
)

// Simulated is a source of GPUs that do not exist, for the demo and for tests.
// A simulated worker writes what its GPU would show into Dir; memory is held
// only as long as that process lives.
type Simulated struct {
	Dir   string
	Count int
	Now   func() time.Time
	// Alive says whether a process lives.
	Alive func(pid int) bool
}

var _ Source = (*Simulated)(nil)

// Load is what a simulated worker says of its GPU.
type Load struct {
	PID         int     `json:"pid"`
	MemBytes    int64   `json:"mem_bytes"`
	UtilPercent float64 `json:"util_percent"`
	PowerWatts  float64 `json:"power_watts"`
	TempCelsius float64 `json:"temp_celsius"`
}

// SimUUID is the UUID of the simulated GPU with an index. It differs between
// folders, so that two demos do not lock each other out of a slot.
func SimUUID(dir string, index int) string {
	h := uint64(14695981039346656037)
	for _, b := range []byte(dir) {
		h = (h ^ uint64(b)) * 1099511628211
	}
	return fmt.Sprintf("GPU-51aa%04x-%04x-%04x-%04x-%012x", uint16(h), uint16(h>>16), uint16(h>>32), uint16(h>>48), index)
}

// LoadFile is where the worker on a GPU writes its Load.
func LoadFile(dir string, index int) string {
	return filepath.Join(dir, "gpu-"+strconv.Itoa(index)+".json")
}

// WriteLoad replaces a worker's Load in one step.
func WriteLoad(dir string, index int, l Load) error {
	raw, err := json.Marshal(l)
	if err != nil {
		return err
	}
	tmp := LoadFile(dir, index) + ".tmp"
	if err := os.WriteFile(tmp, raw, 0o644); err != nil {
		return err
	}
	return os.Rename(tmp, LoadFile(dir, index))
}

// Read makes one reading of all simulated GPUs.
func (s *Simulated) Read(context.Context) pipeline.GPUReading {
	r := pipeline.GPUReading{At: s.Now(), Kind: KindSimulated}
	for i := range s.Count {
		r.GPUs = append(r.GPUs, s.one(i))
	}
	return r
}

func (s *Simulated) one(index int) pipeline.GPUSnapshot {
	l := Load{PowerWatts: simIdleWatts, TempCelsius: simIdleTemp}
	if raw, err := os.ReadFile(LoadFile(s.Dir, index)); err == nil {
		var held Load
		if json.Unmarshal(raw, &held) == nil && held.PID > 0 && s.Alive(held.PID) {
			l = held
		}
	}
	total := simTotal
	g := pipeline.GPUSnapshot{
		Index: index, UUID: SimUUID(s.Dir, index), Name: "Simulated H200", State: pipeline.GPUOK,
		MemUsedBytes: &l.MemBytes, MemTotalBytes: &total,
		UtilPercent: &l.UtilPercent, PowerWatts: &l.PowerWatts, TempCelsius: &l.TempCelsius,
		Processes: []pipeline.GPUProcess{},
	}
	if l.PID > 0 {
		p := pipeline.GPUProcess{PID: l.PID, MemBytes: &l.MemBytes}
		processNames{}.name(filepath.Join("/proc", strconv.Itoa(l.PID)), &p)
		g.Processes = append(g.Processes, p)
	}
	return g
}
