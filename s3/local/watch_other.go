//go:build !linux

package local

import "strings"

// Watcher is for the agent, which runs on Linux only.
type Watcher struct{}

// NewWatcher fails here.
func NewWatcher(roots ...string) (*Watcher, error) {
	return nil, pathError("watch", strings.Join(roots, " "), errLinuxOnly)
}

// Events never tells anything.
func (*Watcher) Events() <-chan Hint { return nil }

// Add fails here.
func (*Watcher) Add(root string) error { return pathError("watch", root, errLinuxOnly) }

// Close does nothing.
func (*Watcher) Close() error { return nil }
