package gpu

import (
	"os"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"

	"pipedeck/pipeline"
)

// hostPIDs is the inode of the host's own pid namespace, which the kernel
// fixes (PROC_PID_INIT_INO).
const hostPIDs = "pid:[4026531836]"

// processNames says who the processes on a GPU are. proc is /proc, or a folder
// of fixtures.
type processNames struct{ proc string }

// fill names the processes. NVML tells the host's pids: inside of a container
// they are taken for processes of this machine only if the one with that pid
// here has an NVIDIA device open.
func (n processNames) fill(gpus []pipeline.GPUSnapshot) {
	inside := false
	if ns, err := os.Readlink(filepath.Join(n.proc, "self/ns/pid")); err == nil {
		inside = ns != hostPIDs
	}
	for i := range gpus {
		for j := range gpus[i].Processes {
			p := &gpus[i].Processes[j]
			dir := filepath.Join(n.proc, strconv.Itoa(p.PID))
			if inside && !usesGPU(dir) {
				p.Foreign = true
				continue
			}
			n.name(dir, p)
		}
	}
}

func (n processNames) name(dir string, p *pipeline.GPUProcess) {
	if raw, err := os.ReadFile(filepath.Join(dir, "comm")); err == nil {
		p.Name = new(pipeline.Clean(strings.TrimSpace(string(raw))))
	}
	raw, err := os.ReadFile(filepath.Join(dir, "status"))
	if err != nil {
		return
	}
	for line := range strings.Lines(string(raw)) {
		uid, ok := strings.CutPrefix(line, "Uid:")
		if !ok {
			continue
		}
		if f := strings.Fields(uid); len(f) > 0 {
			p.User = new(f[0])
			if u, err := user.LookupId(f[0]); err == nil {
				p.User = new(u.Username)
			}
		}
		return
	}
}

// usesGPU says whether a process has an NVIDIA device open, as far as it may
// be seen.
func usesGPU(dir string) bool {
	fds, err := os.ReadDir(filepath.Join(dir, "fd"))
	if err != nil {
		return false
	}
	for _, fd := range fds {
		to, err := os.Readlink(filepath.Join(dir, "fd", fd.Name()))
		if err == nil && strings.HasPrefix(to, "/dev/nvidia") {
			return true
		}
	}
	return false
}
