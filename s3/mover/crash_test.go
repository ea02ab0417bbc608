package mover_test

import (
	"os"
	"os/exec"
	"strconv"
	"syscall"
	"testing"

	"pipedeck/s3/mover"
	"pipedeck/s3/s3test"
)

// TestKilledAtEveryStep runs a mover in a process of its own that is killed at
// a named point, and lets another one finish.
func TestKilledAtEveryStep(t *testing.T) {
	t.Parallel()
	points := []string{
		mover.HookFileRead, mover.HookIntentSaved, mover.HookObjectPut, mover.HookSent, mover.HookBatchProven,
		mover.HookManifestStored, mover.HookLedgerCommitted, mover.HookBeforeRemove, "aside.renamed", "aside.checked", "unlinked", mover.HookRemoved,
	}
	for _, point := range points {
		t.Run(point, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, s3test.Options{}, oneOutput)
			w.writeSamples(0, 6, 300)
			cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestHelperKilled$")
			cmd.Env = append(os.Environ(), "MOVER_KILL_AT="+point, "MOVER_DIR="+w.dir, "MOVER_URL="+w.server.URL(),
				"MOVER_KILL_SKIP="+strconv.Itoa(len(point)%4))
			out, err := cmd.CombinedOutput()
			if err == nil {
				t.Fatalf("the mover was not killed at %s:\n%s", point, out)
			}
			w.safe()
			w.start("extract")
			w.await("all are moved", w.moved(6))
			if n := len(w.server.Overwrites()); n != 0 {
				t.Errorf("%d objects were overwritten", n)
			}
		})
	}
}

// TestHelperKilled is the process that TestKilledAtEveryStep kills.
func TestHelperKilled(t *testing.T) {
	point := os.Getenv("MOVER_KILL_AT")
	if point == "" {
		t.Skip("only as a child of TestKilledAtEveryStep")
	}
	skip, err := strconv.Atoi(os.Getenv("MOVER_KILL_SKIP"))
	if err != nil {
		t.Fatal(err)
	}
	w := worldAt(t, os.Getenv("MOVER_DIR"), os.Getenv("MOVER_URL"), "bucket", oneOutput)
	calls := make(chan struct{}, skip)
	w.hook = func(at string) {
		if at != point {
			return
		}
		select {
		case calls <- struct{}{}:
		default:
			_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
		}
	}
	w.start("extract")
	w.await("this process is killed", func() bool { return w.moved(6)() && false })
}
