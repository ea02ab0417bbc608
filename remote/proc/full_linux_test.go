package proc

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"pipedeck/pipeline"
	"pipedeck/remote/internal/smalldisk"
)

// With the state directory and the log on a full disk a worker runs on, its end
// is recorded, and a start is refused with nothing started.
func TestFullDisk(t *testing.T) {
	t.Parallel()
	d := newDeck(t)
	disk := smalldisk.Mount(t, 2<<20)
	o := d.options()
	o.RunsDir = filepath.Join(disk, "runs")
	h := New(o)
	t.Cleanup(func() {
		for _, id := range []string{"w-0-1", "w-1-1"} {
			_, _ = h.Signal(context.Background(), id, "SIGKILL", pipeline.ToSet)
		}
		h.Close()
	})
	l := d.launch("w-0-1", "trap 'exit 9' TERM; until test -e go; do echo noise; sleep 0.02; done; exit 7")
	l.Log = filepath.Join(disk, "w-0.log")
	start(t, h, l)
	worker := seen(t, h).PID
	filler := smalldisk.Fill(t, disk)
	if got := seen(t, h); got.State != pipeline.ProcRunning || got.PID != worker {
		t.Errorf("on a full disk: %+v", got)
	}
	other := l
	other.ID, other.Rank = "w-1-1", 1
	if err := h.Start(context.Background(), other); !errors.Is(err, unix.ENOSPC) {
		t.Errorf("start on a full disk: %v", err)
	}
	if got := seen(t, h); got.ID != "w-0-1" {
		t.Errorf("after the refused start: %+v", got)
	}
	letGo(t, d)
	if got := awaitState(t, h, pipeline.ProcExited); *got.Exit.Code != 7 {
		t.Errorf("exit on a full disk: %+v", got.Exit)
	}
	dir := filepath.Join(o.RunsDir, "w", "0", "w-0-1")
	await(t, "the shim to end", func() bool { return !locked(dir) })
	if _, err := os.Stat(filepath.Join(dir, reapedFile)); err != nil {
		t.Errorf("the last descendant's end is not recorded: %v", err)
	}
	if err := os.Remove(filler); err != nil {
		t.Fatal(err)
	}
	start(t, h, other) // the same launch, as a supervisor would
	await(t, "the other worker's end", func() bool {
		all, err := h.Observe(context.Background())
		return err == nil && len(all) == 2 && all[1].State == pipeline.ProcExited
	})
}
