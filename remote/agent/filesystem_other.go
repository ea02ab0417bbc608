//go:build !linux

package agent

import "pipedeck/pipeline"

// CheckStateDir refuses: the agent needs Linux.
func CheckStateDir(string) error {
	return pipeline.Problemf(pipeline.ProblemRefused, "run the agent on a Linux node and connect to it",
		"cannot run an agent here: it needs Linux")
}
