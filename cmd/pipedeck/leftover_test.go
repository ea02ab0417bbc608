package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
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

// cleanBelow ends the decks below a folder, sees every process of the test that
// had it end, and removes the folder. A process is of the test if its
// environment has the mark, which it gave to all that it started: what has lost
// its records, such as a shim whose state directory is gone, has it too, and
// could still write while the folder is removed.
func cleanBelow(dir, mark string) error {
	err := endDecksBelow(dir)
	stays := awaitGone(mark, patience)
	if len(stays) > 0 {
		err = errors.Join(err, fmt.Errorf("these should have ended, and were killed: %s", strings.Join(stays, "; ")))
	}
	return errors.Join(err, os.RemoveAll(dir))
}

// awaitGone waits for the end of every process with a mark in its environment.
// What is left after that is killed and named.
func awaitGone(mark string, wait time.Duration) []string {
	var stays []string
	for until := time.Now().Add(wait); ; time.Sleep(20 * time.Millisecond) {
		left := marked(mark)
		if len(left) == 0 {
			return stays
		}
		if time.Now().Before(until) {
			continue
		}
		for pid, what := range left {
			stays = append(stays, fmt.Sprintf("%d %s", pid, what))
			_ = syscall.Kill(pid, syscall.SIGKILL) // gone in between is as good
		}
		if len(stays) > 100 {
			return append(stays, "and more come")
		}
	}
}

// marked are the living processes with this variable in their environment, with
// their command lines; never this one.
func marked(mark string) map[int]string {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil
	}
	found := map[int]string{}
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil || pid == os.Getpid() {
			continue
		}
		env, err := os.ReadFile(filepath.Join("/proc", e.Name(), "environ"))
		if err != nil || !slices.Contains(strings.Split(string(env), "\x00"), mark) {
			continue
		}
		line, _ := os.ReadFile(filepath.Join("/proc", e.Name(), "cmdline")) // only to name it
		found[pid] = strings.ReplaceAll(strings.TrimRight(string(line), "\x00"), "\x00", " ")
	}
	return found
}

// TestAwaitGone has a process that nobody ends: it is killed, and named.
func TestAwaitGone(t *testing.T) {
	t.Parallel()
	mark := "TMPDIR=" + t.TempDir()
	cmd := exec.CommandContext(t.Context(), "sleep", "600")
	cmd.Env = []string{mark}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	stays := awaitGone(mark, 50*time.Millisecond)
	if len(stays) == 0 || !strings.Contains(stays[0], fmt.Sprintf("%d sleep 600", cmd.Process.Pid)) {
		t.Errorf("it names %q, not process %d", stays, cmd.Process.Pid)
	}
	<-ended
	if stays := awaitGone(mark, patience); len(stays) != 0 {
		t.Errorf("it names %q, and there is nothing", stays)
	}
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
