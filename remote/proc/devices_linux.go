package proc

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// gpusOf tells of some processes, from the devices that they have open, which
// GPU they use, as far as that is certain: with several open they may hold
// memory on one of them only. The memory is -1, unknown, or 0 where none of
// them has a GPU open.
func (p procFS) gpusOf(pids []int) (uuids []string, mem int64) {
	uuids = []string{}
	open := make(map[int]bool)
	known := true
	for _, pid := range pids {
		ok := p.devices(pid, open)
		known = known && ok
	}
	if !known || len(open) > 0 {
		mem = -1
	}
	if !known || len(open) != 1 {
		return uuids, mem
	}
	for minor := range open {
		if uuid := p.gpuUUID(minor); uuid != "" {
			uuids = append(uuids, uuid)
		}
	}
	return uuids, mem
}

// devices adds the numbers of the GPUs that a process has open, and says
// whether it could look.
func (p procFS) devices(pid int, open map[int]bool) bool {
	dir := p.path(pid, "fd")
	fds, err := os.ReadDir(dir)
	if err != nil {
		return os.IsNotExist(err) // it has ended
	}
	for _, fd := range fds {
		to, err := os.Readlink(filepath.Join(dir, fd.Name()))
		if err != nil {
			continue // closed meanwhile
		}
		if digits, ok := strings.CutPrefix(to, "/dev/nvidia"); ok {
			if minor, err := strconv.Atoi(digits); err == nil {
				open[minor] = true
			}
		}
	}
	return true
}

// gpuUUID asks the driver's own files, "" where it does not tell.
func (p procFS) gpuUUID(minor int) string {
	files, _ := filepath.Glob(filepath.Join(p.root, "driver/nvidia/gpus/*/information"))
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			continue
		}
		uuid, number := "", -1
		for line := range strings.Lines(string(data)) {
			name, value, _ := strings.Cut(line, ":")
			value = strings.TrimSpace(value)
			switch strings.TrimSpace(name) {
			case "GPU UUID":
				uuid = value
			case "Device Minor":
				if n, err := strconv.Atoi(value); err == nil {
					number = n
				}
			}
		}
		if number == minor && strings.HasPrefix(uuid, "GPU-") && !strings.Contains(uuid, "?") {
			return uuid
		}
	}
	return ""
}
