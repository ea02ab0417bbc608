//go:build linux && cgo

package main

import (
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"pipedeck/gpu/probe"
)

// watchXIDs waits for error events of all GPUs, for as long as the process
// lives. UUIDs are taken first: a dead GPU cannot be asked for its own.
func (l *library) watchXIDs(s *probe.Sampler) {
	for _, call := range []string{"count", "handle", "uuid", "eventset", "eventtypes", "register", "eventwait"} {
		if !l.have[call] {
			return
		}
	}
	set, ret := l.api.EventSetCreate()
	if ret != nvml.SUCCESS {
		return
	}
	uuids := l.registerXIDs(set)
	if len(uuids) == 0 {
		return
	}
	pause := time.Second
	for {
		switch e, ret := l.api.EventSetWait(set, 1000); ret {
		case nvml.SUCCESS:
			if uuid, ok := uuids[e.Device]; ok && e.EventType == nvml.EventTypeXidCriticalError {
				s.NoteXID(uuid, e.EventData)
			}
			pause = time.Second
		case nvml.ERROR_TIMEOUT:
			pause = time.Second
		default:
			time.Sleep(pause)
			pause = min(2*pause, 30*time.Second)
		}
	}
}

// registerXIDs asks for the error events of each GPU that has them, and returns
// the UUIDs of those.
func (l *library) registerXIDs(set nvml.EventSet) map[nvml.Device]string {
	uuids := map[nvml.Device]string{}
	n, _ := l.Count()
	for i := range n {
		d, ret := l.api.DeviceGetHandleByIndex(i)
		if ret != nvml.SUCCESS {
			continue
		}
		uuid, ret := d.GetUUID()
		if ret != nvml.SUCCESS {
			continue
		}
		types, ret := d.GetSupportedEventTypes()
		if ret != nvml.SUCCESS || types&nvml.EventTypeXidCriticalError == 0 {
			continue
		}
		if d.RegisterEvents(nvml.EventTypeXidCriticalError, set) == nvml.SUCCESS {
			uuids[d] = uuid
		}
	}
	return uuids
}
