package proc

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestSaidOutOfMemory(t *testing.T) {
	t.Parallel()
	const line = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 20.00 GiB."
	old := "an older launch: " + line + "\n"
	for _, tc := range []struct {
		name, log string
		from      int64
		want      string
	}{
		{"nothing", "Traceback\nRuntimeError: no\n", 0, ""},
		{"the last line", "Traceback\n" + line + "\n", 0, line},
		{"followed by others", line + "\nbye\n", 0, line},
		{"of an older launch", old + "Traceback\n", int64(len(old)), ""},
		{"after a rotation", line + "\n", 1 << 20, line},
		{"long ago", line + "\n" + strings.Repeat("x\n", 20<<10), 0, ""},
		{"endless", "OutOfMemoryError" + strings.Repeat("y", 1000), 0, "OutOfMemoryError" + strings.Repeat("y", oomSaid-len("OutOfMemoryError"))},
	} {
		path := filepath.Join(t.TempDir(), "log")
		if err := os.WriteFile(path, []byte(tc.log), 0o600); err != nil {
			t.Fatal(err)
		}
		if got := saidOutOfMemory(path, tc.from); got != tc.want {
			t.Errorf("%s: %q, want %q", tc.name, got, tc.want)
		}
	}
	if got := saidOutOfMemory(filepath.Join(t.TempDir(), "none"), 0); got != "" {
		t.Errorf("of no log: %q", got)
	}
}
