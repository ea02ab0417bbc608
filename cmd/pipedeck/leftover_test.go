package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"pipedeck/remote/agent/wire"
	"pipedeck/remote/client"
)

// process is one that a launch recorded.
type process struct {
	PID        int    `json:"pid"`
	StartTicks uint64 `json:"start_ticks"`
}

// alive compares the start time, so that another process of the same number is
// never taken for it.
func (p process) alive() bool {
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", p.PID))
	if err != nil {
		return false
	}
	_, rest, ok := strings.Cut(string(raw), ") ")
	fields := strings.Fields(rest)
	if !ok || len(fields) < 20 || fields[0] == "Z" {
		return false
	}
	ticks, err := strconv.ParseUint(fields[19], 10, 64)
	return err == nil && ticks == p.StartTicks
}

// launched is what started.json says.
type launched struct {
	Shim   process `json:"shim"`
	Worker process `json:"worker"`
}

func recordedLaunches(stateDir string) []launched {
	paths, err := filepath.Glob(filepath.Join(stateDir, "runs", "*", "*", "*", "started.json"))
	if err != nil {
		return nil
	}
	var out []launched
	for _, path := range paths {
		var l launched
		raw, err := os.ReadFile(path)
		if err == nil && json.Unmarshal(raw, &l) == nil {
			out = append(out, l)
		}
	}
	return out
}

// endDeck ends all that a deck of a test left: agent, keeper, workers, shims.
func endDeck(stateDir string) error {
	if _, err := os.Stat(stateDir); err != nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	_, err := client.End(ctx, wire.State{Dir: stateDir})
	for _, l := range recordedLaunches(stateDir) {
		for _, p := range []process{l.Worker, l.Shim} {
			if p.alive() {
				_ = syscall.Kill(p.PID, syscall.SIGKILL) // gone in between is as good
			}
		}
	}
	return err
}

// endDecksBelow ends every deck whose state is somewhere in a folder.
func endDecksBelow(root string) error {
	var errs []string
	_ = filepath.WalkDir(root, func(path string, e os.DirEntry, err error) error {
		if err == nil && e.IsDir() && e.Name() == ".pipedeck" {
			if err := endDeck(path); err != nil {
				errs = append(errs, err.Error())
			}
			return filepath.SkipDir
		}
		return nil
	})
	if len(errs) > 0 {
		return fmt.Errorf("cannot end a deck: %s", strings.Join(errs, "; "))
	}
	return nil
}

// patience is how long a test waits for what should come at once: the machine
// may be busy with everything else.
const patience = 60 * time.Second

// eventually waits for a condition.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for until := time.Now().Add(patience); !ok(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(until) {
			t.Fatalf("not within %s: %s", patience, what)
		}
	}
}
