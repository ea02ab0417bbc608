//go:build !linux

package proc

import (
	"context"
	"errors"

	"pipedeck/pipeline"
)

var _ pipeline.Host = (*Host)(nil)

var errLinuxOnly = errors.New("cannot run workers: the agent runs on Linux only")

// Host of a system without /proc: every method fails.
type Host struct{}

// New returns a Host whose methods fail.
func New(Options) *Host { return &Host{} }

// ShimMain fails.
func ShimMain(string) int { return 1 }

// Close does nothing.
func (*Host) Close() error { return nil }

// Start fails.
func (*Host) Start(context.Context, pipeline.Launch) error { return errLinuxOnly }

// Observe fails.
func (*Host) Observe(context.Context) ([]pipeline.LaunchSeen, error) { return nil, errLinuxOnly }

// Inspect fails.
func (*Host) Inspect(context.Context, string) (pipeline.ProcessSet, error) {
	return pipeline.ProcessSet{}, errLinuxOnly
}

// Signal fails.
func (*Host) Signal(context.Context, string, string, pipeline.Scope) ([]pipeline.Signalled, error) {
	return nil, errLinuxOnly
}

// Strangers fails.
func (*Host) Strangers(context.Context, []int) ([]pipeline.Stranger, error) {
	return nil, errLinuxOnly
}

// Adopt fails.
func (*Host) Adopt(context.Context, pipeline.Launch, pipeline.Stranger) error { return errLinuxOnly }

// Reap fails.
func (*Host) Reap(context.Context, pipeline.Stranger) ([]pipeline.Process, error) {
	return nil, errLinuxOnly
}

// Run fails.
func (*Host) Run(context.Context, string, []string) (pipeline.Ran, error) {
	return pipeline.Ran{}, errLinuxOnly
}

// Exits never tells anything.
func (*Host) Exits() <-chan struct{} { return nil }
