// Package probe is the NVML helper without NVML: what goes over its pipe, how
// a driver's answers become values, and how a GPU that hangs holds up no other.
package probe

import (
	"time"

	"pipedeck/pipeline"
)

// Request asks for one sample. It is one JSON line on the helper's stdin; the
// end of stdin ends the helper.
type Request struct {
	ID int64 `json:"id"`
}

// Answer is one JSON line on the helper's stdout.
type Answer struct {
	ID     int64     `json:"id"` // of the request; 0: said at the start
	At     time.Time `json:"at"`
	TookMS float64   `json:"took_ms"`
	Driver string    `json:"driver"`
	// Code and Error say why there is no sample at all.
	Code  Code   `json:"code,omitempty"`
	Error string `json:"error,omitempty"`
	// Replace says why this process should be ended and another one started:
	// the driver under it has changed.
	Replace string `json:"replace,omitempty"`
	// StuckSeconds is how long the longest call that is still out has been out.
	StuckSeconds float64                `json:"stuck_seconds,omitempty"`
	GPUs         []pipeline.GPUSnapshot `json:"gpus"`
}

// Code is what an NVML call returned.
type Code int

// The codes that the readers look at, with NVML's numbers.
const (
	OK               Code = 0
	Uninitialized    Code = 1
	NotSupported     Code = 3
	NoPermission     Code = 4
	NotFound         Code = 6
	DriverNotLoaded  Code = 9
	LibraryNotFound  Code = 12
	FunctionNotFound Code = 13
	Lost             Code = 15
	ResetRequired    Code = 16
	VersionMismatch  Code = 18
	InUse            Code = 19
	NoData           Code = 21
	NotReady         Code = 27
	GPUNotFound      Code = 28
	Unknown          Code = 999

	// ShuffledList is ours: drivers 535.43 to 535.98 fill the list of processes
	// with another layout than they say.
	ShuffledList Code = -1
)

var codeWords = map[Code]string{
	OK: "ok", Uninitialized: "NVML is not initialised", NotSupported: "not supported", NoPermission: "no permission",
	NotFound: "not found", DriverNotLoaded: "the NVIDIA driver is not loaded",
	LibraryNotFound:  "libnvidia-ml.so.1 was not found: no NVIDIA driver, or not in the library path",
	FunctionNotFound: "the installed driver has no such function", Lost: "the GPU is lost: it fell off the bus or cannot be reached",
	ResetRequired: "the GPU needs a reset", VersionMismatch: "driver and library versions differ: the driver was upgraded and not loaded yet",
	InUse: "in use", NoData: "no data yet", NotReady: "not ready", GPUNotFound: "the GPU was not found",
	Unknown: "the driver says: unknown error", ShuffledList: "drivers 535.43 to 535.98 shuffle this list",
}

// String is the code in words.
func (c Code) String() string {
	if w, ok := codeWords[c]; ok {
		return w
	}
	return "NVML error " + itoa(int(c))
}

// needsNewProcess holds for what only another process can get over.
func (c Code) needsNewProcess() bool {
	return c == Uninitialized || c == DriverNotLoaded || c == VersionMismatch
}

// meansLost holds for a GPU that cannot be asked any more.
func (c Code) meansLost() bool {
	return c == Lost || c == ResetRequired || c == GPUNotFound
}
