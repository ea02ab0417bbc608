package gpu

import (
	"io/fs"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

func TestMachineFromFixtures(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	m := machine{proc: filepath.Join(dir, "proc"), cgroup: filepath.Join(dir, "cgroup")}
	write(t, filepath.Join(m.proc, "stat"), "cpu  100 0 100 800 0 0 0 0 0 0\ncpu0 1 1 1 1\n")
	write(t, filepath.Join(m.proc, "meminfo"), "MemTotal: 1000 kB\nMemFree: 1 kB\nMemAvailable: 400 kB\n")
	write(t, filepath.Join(m.proc, "loadavg"), "3.14 2.0 1.0 1/2 3\n")
	r := m.read(time.Now())
	if r.CPUPercent != nil || r.Reason == "" {
		t.Errorf("CPU after one reading = %v, reason %q", r.CPUPercent, r.Reason)
	}
	if *r.MemTotalBytes != 1000*1024 || *r.MemUsedBytes != 600*1024 || *r.Load1 != 3.14 {
		t.Errorf("reading = %+v", r)
	}
	write(t, filepath.Join(m.proc, "stat"), "cpu  130 0 120 850 0 0 0 0 0 0\n")
	write(t, filepath.Join(m.cgroup, "memory.max"), "500000\n")
	write(t, filepath.Join(m.cgroup, "memory.current"), "1234\n")
	r = m.read(time.Now())
	if r.CPUPercent == nil || *r.CPUPercent != 50 {
		t.Errorf("CPU = %v, want 50", r.CPUPercent)
	}
	if *r.MemTotalBytes != 500000 || *r.MemUsedBytes != 1234 {
		t.Errorf("memory in a container = %d of %d", *r.MemUsedBytes, *r.MemTotalBytes)
	}
	write(t, filepath.Join(m.cgroup, "memory.max"), "max\n")
	if r = m.read(time.Now()); *r.MemTotalBytes != 1000*1024 {
		t.Errorf("memory without a limit = %d", *r.MemTotalBytes)
	}
}

func TestMachineWithoutProcIsUnknown(t *testing.T) {
	t.Parallel()
	m := machine{proc: t.TempDir(), cgroup: t.TempDir()}
	r := m.read(time.Now())
	if r.CPUPercent != nil || r.MemTotalBytes != nil || r.Load1 != nil || r.Reason == "" {
		t.Errorf("reading = %+v", r)
	}
}

func TestDisksNameEachFilesystemOnce(t *testing.T) {
	t.Parallel()
	s := New(nil, time.Now)
	dir := t.TempDir()
	got := s.Disks(t.Context(), []string{dir, filepath.Join(dir, "not", "made", "yet"), "/dev/shm"})
	if len(got) != 2 || got[0].Path != dir || got[1].Path != "/dev/shm" || got[1].Filesystem != "tmpfs" {
		t.Fatalf("disks = %+v", got)
	}
	for _, d := range got {
		if d.FreeBytes == nil || *d.FreeBytes > *d.TotalBytes || *d.UsedBytes < 0 {
			t.Errorf("disk = %+v", d)
		}
	}
}

func TestAHungFilesystemDelaysNoOther(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		d := newDisks()
		var asked atomic.Int32
		d.ask = func(path string) (diskStat, error) {
			switch path {
			case "/hung":
				asked.Add(1)
				<-release
			case "/gone":
				return diskStat{}, fs.ErrNotExist
			}
			return diskStat{device: 1, total: 10, free: 5, used: 5}, nil
		}
		for range 2 {
			got := d.read(t.Context(), time.Now, []string{"/hung", "/ok", "/gone"})
			if len(got) != 3 || got[0].Reason == "" || got[1].FreeBytes == nil || got[2].Reason == "" {
				t.Errorf("disks = %+v", got)
			}
		}
		if n := asked.Load(); n != 1 {
			t.Errorf("the hung filesystem was asked %d times", n)
		}
		close(release)
		synctest.Wait()
	})
}

func TestSimulatedGPUHoldsMemoryOnlyWhileItsWorkerLives(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	alive := true
	s := &Simulated{Dir: dir, Count: 2, Now: time.Now, Alive: func(int) bool { return alive }}
	if err := WriteLoad(dir, 1, Load{PID: 42, MemBytes: 7, UtilPercent: 90, PowerWatts: 400, TempCelsius: 60}); err != nil {
		t.Fatal(err)
	}
	r := s.Read(t.Context())
	if *r.GPUs[0].MemUsedBytes != 0 || *r.GPUs[1].MemUsedBytes != 7 || len(r.GPUs[1].Processes) != 1 {
		t.Errorf("GPUs = %+v", r.GPUs)
	}
	alive = false
	if r = s.Read(t.Context()); *r.GPUs[1].MemUsedBytes != 0 || len(r.GPUs[1].Processes) != 0 {
		t.Errorf("after its worker ended: %+v", r.GPUs[1])
	}
	if SimUUID(dir, 0) == SimUUID(t.TempDir(), 0) {
		t.Error("two folders share a UUID")
	}
	if WriteLoad(filepath.Join(dir, "none"), 0, Load{}) == nil {
		t.Error("a load was written into a folder that does not exist")
	}
}
