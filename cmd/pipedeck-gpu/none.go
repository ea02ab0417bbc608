//go:build !linux || !cgo

package main

import "pipedeck/gpu/probe"

// openNVML says why this build reads nothing: go-nvml needs cgo, and NVIDIA's
// library exists on Linux only.
func openNVML([]string) *openResult {
	return &openResult{
		code:   probe.LibraryNotFound,
		reason: "this pipedeck-gpu was built without cgo or not for Linux and cannot use NVML: build it with `make gpu` on Linux",
	}
}
