package proc

import (
	"context"
	"fmt"
	"os/exec"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"pipedeck/pipeline"
)

// BenchmarkObserve looks at 8 running workers, as the agent does twice a
// second; every 2 s a look reads all processes of the machine, which
// BenchmarkScan measures.
func BenchmarkObserve(b *testing.B) {
	d := deck{root: b.TempDir()}
	h := d.host()
	for rank := range 8 {
		l := d.launch(fmt.Sprintf("w-%d-1", rank), "exec sleep 600")
		l.Rank = rank
		if err := h.Start(context.Background(), l); err != nil {
			b.Fatal(err)
		}
		b.Cleanup(func() { _, _ = h.Signal(context.Background(), l.ID, "SIGKILL", pipeline.ToSet) })
	}
	for b.Loop() {
		if _, err := h.Observe(context.Background()); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkScan reads all processes once.
func BenchmarkScan(b *testing.B) {
	f := procFS{root: "/proc"}
	n := 0
	for b.Loop() {
		all, err := f.all()
		if err != nil {
			b.Fatal(err)
		}
		n = len(all)
	}
	b.ReportMetric(float64(b.Elapsed().Microseconds())/float64(b.N*n), "µs/process")
}

// BenchmarkStrangers looks for strays among 5,000 more processes, as `adopt`
// and `reap` do when they list candidates.
func BenchmarkStrangers(b *testing.B) {
	const crowd = `
import os, signal, sys
signal.signal(signal.SIGCHLD, signal.SIG_IGN)
for i in range(5000):
    if os.fork() == 0:
        os.close(1)
        signal.pause()
        os._exit(0)
print("ready", flush=True)
sys.stdin.read()
os.killpg(0, signal.SIGKILL)
`
	cmd := exec.Command("python3", "-c", crowd)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	in, err := cmd.StdinPipe()
	if err != nil {
		b.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		b.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		b.Skip(err)
	}
	b.Cleanup(func() { in.Close(); _ = cmd.Wait() })
	if _, err := out.Read(make([]byte, 16)); err != nil {
		b.Fatal(err)
	}
	d := deck{root: b.TempDir()}
	h := d.host()
	began := cpuTime(b)
	for b.Loop() {
		if _, err := h.Strangers(context.Background(), nil); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric((cpuTime(b)-began).Seconds()*1e3/float64(b.N), "cpu-ms/op")
}

// cpuTime is what this process has used so far: others may be busy too.
func cpuTime(b *testing.B) time.Duration {
	b.Helper()
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
