package proc

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"
)

func TestOOMFiles(t *testing.T) {
	t.Parallel()
	got := oomFiles("5:devices:/\n4:memory:/pod/x\n0::/a/b\n")
	for _, want := range []string{
		"/sys/fs/cgroup/memory/pod/x/memory.oom_control", "/sys/fs/cgroup/a/b/memory.events", "/sys/fs/cgroup/memory.events",
	} {
		if !slices.Contains(got, want) {
			t.Errorf("%q is not in %q", want, got)
		}
	}
}

// Only a rise shortly before the end tells an OOM kill: the counter is shared
// by all workers of the cgroup.
func TestOOMCounterRise(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "memory.events")
	set := func(n int) {
		t.Helper()
		text := fmt.Sprintf("low 0\noom 9\noom_kill %d\noom_group_kill 0\n", n)
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	set(3)
	w := &oomWatch{files: []string{"/no/such/file", file}}
	w.sample()
	if w.rose() {
		t.Error("rose without a kill")
	}
	set(4)
	if !w.rose() {
		t.Error("a kill was not noticed")
	}
	for range oomWindow {
		w.sample()
	}
	if w.rose() {
		t.Error("an old kill is still counted")
	}
	if (&oomWatch{}).rose() {
		t.Error("rose without a counter")
	}
}
