package proc

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
)

// oomWindow is how many samples of the counter are kept: the teardown of a
// large process takes seconds after the kill.
const oomWindow = 10

// oomWatch follows the kernel's counter of OOM kills in the cgroup that shim
// and worker share. An exit by SIGKILL alone does not tell an OOM kill.
type oomWatch struct {
	mu    sync.Mutex
	files []string
	seen  []int64
}

func newOOMWatch() *oomWatch {
	w := &oomWatch{}
	data, err := os.ReadFile("/proc/self/cgroup")
	if err == nil {
		w.files = oomFiles(string(data))
	}
	w.sample()
	return w
}

// oomFiles names the counter files of the cgroups in a /proc/PID/cgroup. In a
// container the path is often seen from outside and the own group is the root.
func oomFiles(cgroups string) []string {
	var files []string
	for line := range strings.Lines(cgroups) {
		f := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if len(f) != 3 {
			continue
		}
		switch f[1] {
		case "":
			for _, root := range []string{"/sys/fs/cgroup", "/sys/fs/cgroup/unified"} {
				files = append(files, filepath.Join(root, f[2], "memory.events"), filepath.Join(root, "memory.events"))
			}
		case "memory":
			const root = "/sys/fs/cgroup/memory"
			files = append(files, filepath.Join(root, f[2], "memory.oom_control"), filepath.Join(root, "memory.oom_control"))
		}
	}
	return files
}

func (w *oomWatch) count() (int64, bool) {
	for _, file := range w.files {
		data, err := os.ReadFile(file)
		if err != nil {
			continue
		}
		for line := range strings.Lines(string(data)) {
			if v, ok := strings.CutPrefix(line, "oom_kill "); ok {
				n, err := strconv.ParseInt(strings.TrimSpace(v), 10, 64)
				return n, err == nil
			}
		}
	}
	return 0, false
}

func (w *oomWatch) sample() {
	n, ok := w.count()
	if !ok {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.seen = append(w.seen, n)
	if len(w.seen) > oomWindow {
		w.seen = w.seen[1:]
	}
}

// rose says whether the counter went up within the window.
func (w *oomWatch) rose() bool {
	n, ok := w.count()
	w.mu.Lock()
	defer w.mu.Unlock()
	return ok && len(w.seen) > 0 && n > w.seen[0]
}
