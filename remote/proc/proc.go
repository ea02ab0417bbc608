// Package proc starts worker processes under shims that outlive the agent,
// finds them again by their identity, and signals nobody else.
package proc

import (
	"os"
	"path/filepath"
)

const envPrefix = "PIPEDECK_"

// Names of the variables that mark every process of a launch.
const (
	EnvRun    = "PIPEDECK_RUN"     // DECK/RUN
	EnvLaunch = "PIPEDECK_LAUNCH"  // the launch id
	EnvDeckID = "PIPEDECK_DECK_ID" // token of the state directory: launch ids repeat between decks
)

// Options says where a Host keeps its state and what it starts.
type Options struct {
	RunsDir  string   // absolute; one folder per launch below STAGE/RANK
	LocksDir string   // GPU slot locks, shared by all decks of the node; "" = DefaultLocksDir
	ShimArgv []string // starts ShimMain; "--dir RUNDIR" is appended. Empty = /proc/self/exe shim
	BaseEnv  []string // the agent's environment; cleaned again here
	ProcRoot string   // "" = /proc
	BootID   string   // "" = read from ProcRoot

	point hook // of the tests
}

func (o Options) withDefaults() Options {
	if o.LocksDir == "" {
		o.LocksDir = DefaultLocksDir()
	}
	if len(o.ShimArgv) == 0 {
		o.ShimArgv = []string{"/proc/self/exe", "shim"}
	}
	if o.ProcRoot == "" {
		o.ProcRoot = "/proc"
	}
	return o
}

// DefaultLocksDir returns the folder of the GPU slot locks: in the first
// folder that every user of the node may write to, so that all decks agree on
// it whoever runs them.
func DefaultLocksDir() string {
	for _, dir := range []string{"/run/lock", "/tmp"} {
		info, err := os.Stat(dir)
		if err == nil && info.IsDir() && info.Mode().Perm() == 0o777 {
			return filepath.Join(dir, "pipedeck")
		}
	}
	return filepath.Join(os.TempDir(), "pipedeck")
}
