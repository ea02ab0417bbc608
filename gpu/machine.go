package gpu

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"pipedeck/pipeline"
)

// machine reads CPU and memory from procfs, whose root is a field so that a
// folder of fixtures can take its place.
type machine struct {
	proc, cgroup string
	busy, total  uint64 // of the reading before, in ticks
}

func (m *machine) read(now time.Time) pipeline.MachineReading {
	r := pipeline.MachineReading{At: now}
	var why []string
	note := func(err error) {
		if err != nil {
			why = append(why, err.Error())
		}
	}
	var err error
	r.CPUPercent, err = m.cpu()
	note(err)
	r.MemUsedBytes, r.MemTotalBytes, err = m.memory()
	note(err)
	r.Load1, err = m.load()
	note(err)
	r.Reason = strings.Join(why, "; ")
	return r
}

// cpu is the busy share of all cores since the reading before, in percent.
func (m *machine) cpu() (*float64, error) {
	raw, err := os.ReadFile(filepath.Join(m.proc, "stat"))
	if err != nil {
		return nil, fmt.Errorf("cpu: %w", err)
	}
	busy, total, err := parseStat(string(raw))
	if err != nil {
		return nil, err
	}
	db, dt, first := busy-m.busy, total-m.total, m.total == 0
	m.busy, m.total = busy, total
	if first || dt == 0 || db > dt {
		return nil, errors.New("cpu: needs two readings")
	}
	p := 100 * float64(db) / float64(dt)
	return &p, nil
}

// parseStat reads the first line of /proc/stat: idle and iowait are the
// fourth and fifth number, guest time is already in user time.
func parseStat(stat string) (busy, total uint64, err error) {
	line, _, _ := strings.Cut(stat, "\n")
	f := strings.Fields(line)
	if len(f) < 6 || f[0] != "cpu" {
		return 0, 0, fmt.Errorf("cpu: cannot read %q", line)
	}
	var idle uint64
	for i, s := range f[1:min(len(f), 9)] {
		n, err := strconv.ParseUint(s, 10, 64)
		if err != nil {
			return 0, 0, fmt.Errorf("cpu: cannot read %q", line)
		}
		total += n
		if i == 3 || i == 4 {
			idle += n
		}
	}
	return total - idle, total, nil
}

// memory is what is in use and what there is. In a container with a limit of
// its own, the limit counts: that is where the OOM killer strikes.
func (m *machine) memory() (used, total *int64, err error) {
	raw, err := os.ReadFile(filepath.Join(m.proc, "meminfo"))
	if err != nil {
		return nil, nil, fmt.Errorf("memory: %w", err)
	}
	t, a, err := parseMeminfo(string(raw))
	if err != nil {
		return nil, nil, err
	}
	u := t - a
	if limit, current, ok := m.limit(); ok && limit < t {
		t, u = limit, current
	}
	return &u, &t, nil
}

func parseMeminfo(s string) (total, available int64, err error) {
	for line := range strings.Lines(s) {
		f := strings.Fields(line)
		if len(f) < 2 {
			continue
		}
		kb, convErr := strconv.ParseInt(f[1], 10, 64)
		if convErr != nil {
			continue
		}
		switch f[0] {
		case "MemTotal:":
			total = kb * 1024
		case "MemAvailable:":
			available = kb * 1024
		}
	}
	if total == 0 || available > total {
		return 0, 0, errors.New("memory: cannot read meminfo")
	}
	return total, available, nil
}

// limit is the memory limit of this control group (version 2), if it has one.
func (m *machine) limit() (limit, current int64, ok bool) {
	l, err1 := readInt(filepath.Join(m.cgroup, "memory.max"))
	c, err2 := readInt(filepath.Join(m.cgroup, "memory.current"))
	return l, c, err1 == nil && err2 == nil
}

func readInt(path string) (int64, error) {
	raw, err := os.ReadFile(path)
	if err != nil {
		return 0, err
	}
	return strconv.ParseInt(strings.TrimSpace(string(raw)), 10, 64)
}

func (m *machine) load() (*float64, error) {
	raw, err := os.ReadFile(filepath.Join(m.proc, "loadavg"))
	if err != nil {
		return nil, fmt.Errorf("load: %w", err)
	}
	first, _, _ := strings.Cut(string(raw), " ")
	v, err := strconv.ParseFloat(first, 64)
	if err != nil {
		return nil, fmt.Errorf("load: cannot read %q", first)
	}
	return &v, nil
}
