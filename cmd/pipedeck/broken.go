//go:build pipedeck_broken

package main

import (
	"os"
	"slices"
)

// init makes an agent that cannot start, for the test of an upgrade to one.
func init() {
	if len(os.Args) > 2 && slices.Equal(os.Args[1:3], []string{"agent", "serve"}) {
		os.Exit(exitFailed)
	}
}
