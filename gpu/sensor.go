// Package gpu reads a node's hardware: GPUs through nvidia-smi or simulated,
// CPU, memory and filesystems. Unknown is a value with a reason, never zero.
package gpu

import (
	"context"
	"sync"
	"time"

	"pipedeck/pipeline"
)

// The kinds of GPU sources, as the Snapshot names them.
const (
	KindSMI       = "nvidia-smi"
	KindSimulated = "simulated"
	KindNone      = "none"
)

// Source reads all GPUs of a node once.
type Source interface {
	Read(ctx context.Context) pipeline.GPUReading
}

// Sensor is the node's hardware behind one port.
type Sensor struct {
	source Source
	now    func() time.Time

	mu      sync.Mutex
	machine machine
	disks   disks
}

var _ pipeline.Sensor = (*Sensor)(nil)

// New makes a sensor that reads GPUs from source and the rest from this
// machine.
func New(source Source, now func() time.Time) *Sensor {
	return &Sensor{source: source, now: now, machine: machine{proc: "/proc", cgroup: "/sys/fs/cgroup"}, disks: newDisks()}
}

// GPUs reads all GPUs.
func (s *Sensor) GPUs(ctx context.Context) pipeline.GPUReading { return s.source.Read(ctx) }

// Machine reads CPU and memory. The CPU figure is the share of busy time since
// the call before, so the first one is unknown.
func (s *Sensor) Machine(context.Context) pipeline.MachineReading {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.machine.read(s.now())
}

// Disks reads the filesystems of the given paths, each filesystem once, under
// the first path that lies on it.
func (s *Sensor) Disks(ctx context.Context, paths []string) []pipeline.DiskReading {
	return s.disks.read(ctx, s.now, paths)
}
