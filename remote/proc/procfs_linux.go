package proc

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// ticksPerSecond is USER_HZ, which is 100 on every Linux that Go runs on.
const ticksPerSecond = 100

// kernelThread is PF_KTHREAD in the flags of a process.
const kernelThread = 0x00200000

// procStat is what is needed of /proc/PID/stat (proc(5)).
type procStat struct {
	PID, PPID int
	PGID, SID int
	State     byte
	Kernel    bool // a kernel thread
	Comm      string
	Ticks     uint64 // field 22: start time in ticks after boot, raw
	CPU       uint64 // user and system, of reaped children too, in ticks
}

func (s procStat) is(id identity) bool { return s.PID == id.PID && s.Ticks == id.Ticks }

// dead says that the leader thread has ended. Other threads may live on.
func (s procStat) dead() bool { return s.State == 'Z' || s.State == 'X' }

var errBadStat = errors.New("malformed stat line")

// parseStat reads the line after the last ')': comm may hold any byte.
func parseStat(pid int, line []byte) (procStat, error) {
	open, end := bytes.IndexByte(line, '('), bytes.LastIndexByte(line, ')')
	if open < 0 || end < open {
		return procStat{}, errBadStat
	}
	f := strings.Fields(string(line[end+1:]))
	if len(f) < 20 || len(f[0]) != 1 {
		return procStat{}, errBadStat
	}
	s := procStat{PID: pid, State: f[0][0], Comm: string(line[open+1 : end])}
	var err error
	num := func(i int) uint64 {
		n, e := strconv.ParseUint(f[i], 10, 64)
		err = errors.Join(err, e)
		return n
	}
	s.PPID, s.PGID, s.SID = int(num(1)), int(num(2)), int(num(3))
	s.Kernel = num(6)&kernelThread != 0
	s.CPU = num(11) + num(12) + num(13) + num(14)
	s.Ticks = num(19)
	if err != nil {
		return procStat{}, errBadStat
	}
	return s, nil
}

// procFS reads one proc filesystem.
type procFS struct{ root string }

func (p procFS) path(pid int, name string) string {
	return filepath.Join(p.root, strconv.Itoa(pid), name)
}

func (p procFS) stat(pid int) (procStat, error) {
	var buf [1024]byte
	line, err := readInto(p.path(pid, "stat"), buf[:])
	if err != nil {
		return procStat{}, err
	}
	return parseStat(pid, line)
}

// readInto reads a small file with three system calls and no poller: a node
// has thousands of processes.
func readInto(path string, buf []byte) ([]byte, error) {
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	defer unix.Close(fd)
	n, err := unix.Read(fd, buf)
	if err != nil {
		return nil, err
	}
	return buf[:n], nil
}

// all reads every process. One that ends meanwhile is left out.
func (p procFS) all() (map[int]procStat, error) {
	d, err := os.Open(p.root)
	if err != nil {
		return nil, fmt.Errorf("cannot list processes: %w", err)
	}
	defer d.Close()
	names, err := d.Readdirnames(-1)
	if err != nil {
		return nil, fmt.Errorf("cannot list processes: %w", err)
	}
	out := make(map[int]procStat, len(names))
	for _, name := range names {
		pid, err := strconv.Atoi(name)
		if err != nil {
			continue
		}
		if s, err := p.stat(pid); err == nil {
			out[pid] = s
		}
	}
	return out, nil
}

// tags are what ties a process to a deck, from its environment.
type tags struct{ run, launch, deck string }

// environs are large and read by the thousand.
var environs = sync.Pool{New: func() any { return new([128 << 10]byte) }}

// tags reads the environment of a process.
func (p procFS) tags(pid int) (tags, error) {
	buf, _ := environs.Get().(*[128 << 10]byte)
	defer environs.Put(buf)
	data, err := readInto(p.path(pid, "environ"), buf[:])
	if err == nil && len(data) == len(buf) {
		data, err = os.ReadFile(p.path(pid, "environ"))
	}
	if err != nil || !bytes.Contains(data, []byte(envPrefix)) {
		return tags{}, err
	}
	var t tags
	for kv := range bytes.SplitSeq(data, []byte{0}) {
		name, value, _ := bytes.Cut(kv, []byte{'='})
		switch string(name) {
		case EnvRun:
			t.run = string(value)
		case EnvLaunch:
			t.launch = string(value)
		case EnvDeckID:
			t.deck = string(value)
		}
	}
	return t, nil
}

// liveThreads counts the threads that have not ended. A dead leader can leave
// some behind, stuck and holding GPU memory.
func (p procFS) liveThreads(pid int) (int, error) {
	dir := p.path(pid, "task")
	entries, err := os.ReadDir(dir)
	if err != nil {
		return 0, err
	}
	n := 0
	for _, e := range entries {
		var buf [1024]byte
		line, err := readInto(filepath.Join(dir, e.Name(), "stat"), buf[:])
		if err != nil {
			continue
		}
		if s, err := parseStat(0, line); err == nil && !s.dead() {
			n++
		}
	}
	return n, nil
}

// readBytes returns what a process and its reaped children read from disks.
func (p procFS) readBytes(pid int) (int64, error) {
	var buf [512]byte
	data, err := readInto(p.path(pid, "io"), buf[:])
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(data)) {
		if v, ok := strings.CutPrefix(line, "read_bytes:"); ok {
			return strconv.ParseInt(strings.TrimSpace(v), 10, 64)
		}
	}
	return 0, errBadStat
}

func (p procFS) bootID() (string, error) {
	data, err := os.ReadFile(filepath.Join(p.root, "sys/kernel/random/boot_id"))
	if err != nil {
		return "", fmt.Errorf("cannot read boot id: %w", err)
	}
	return strings.TrimSpace(string(data)), nil
}

// pidNS returns the inode of this process's pid namespace: pids of another
// one mean nothing here.
func (p procFS) pidNS() (uint64, error) {
	link, err := os.Readlink(filepath.Join(p.root, "self/ns/pid"))
	if err != nil {
		return 0, fmt.Errorf("cannot read pid namespace: %w", err)
	}
	digits := strings.TrimSuffix(strings.TrimPrefix(link, "pid:["), "]")
	n, err := strconv.ParseUint(digits, 10, 64)
	if err != nil {
		return 0, fmt.Errorf("cannot read pid namespace %q: %w", link, err)
	}
	return n, nil
}

// bootTicks is now on the clock of start ticks.
func bootTicks() uint64 {
	var ts unix.Timespec
	if unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts) != nil {
		return 0
	}
	return uint64(ts.Nano() / int64(time.Second/ticksPerSecond))
}

func seconds(ticks uint64) float64 { return float64(ticks) / ticksPerSecond }

func now() time.Time { return time.Now().UTC().Round(0) }
