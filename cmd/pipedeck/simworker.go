package main

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	mathrand "math/rand/v2"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"pipedeck/gpu"
)

// simWorker is the demo's extractor: it loads for a while, then writes valid
// safetensors files, and stalls or crashes once where it is told to.
type simWorker struct {
	rank, world, total, size   int
	out, progress, done, log   string
	gpuDir                     string
	rate                       float64 // samples per second
	load                       time.Duration
	stallAt, crashAt           int // samples of this process after which it happens
	stallRank, crashRank       int // whom it happens to
	stallFor                   time.Duration
	processed, skipped, writes int
}

func (a *app) simWorkerCommand() *cobra.Command {
	w := &simWorker{}
	cmd := &cobra.Command{
		Use: "sim-worker", Short: "Be a simulated worker", Args: cobra.NoArgs, Hidden: true,
		RunE: func(*cobra.Command, []string) error { return w.run(a.out) },
	}
	f := cmd.Flags()
	f.IntVar(&w.rank, "rank", 0, "")
	f.IntVar(&w.world, "world-size", 1, "")
	f.IntVar(&w.total, "total", 1000, "samples of all ranks")
	f.IntVar(&w.size, "size", 16384, "bytes of one file's data")
	f.StringVar(&w.out, "out", ".", "")
	f.StringVar(&w.progress, "progress", "", "status file")
	f.StringVar(&w.done, "done", "", "done-set, one id a line")
	f.StringVar(&w.log, "written", "", "file that names every sample written, for the demo's final account")
	f.StringVar(&w.gpuDir, "gpu-dir", "", "folder of simulated GPUs; the rank is the GPU")
	f.Float64Var(&w.rate, "rate", 6, "samples per second")
	f.DurationVar(&w.load, "load", 3*time.Second, "")
	f.IntVar(&w.stallRank, "stall-rank", -1, "")
	f.IntVar(&w.crashRank, "crash-rank", -1, "")
	f.IntVar(&w.stallAt, "stall-at", 0, "")
	f.DurationVar(&w.stallFor, "stall-for", 20*time.Second, "")
	f.IntVar(&w.crashAt, "crash-at", 0, "")
	return cmd
}

// say writes a line of the log. A worker goes on when nobody reads it.
func say(out io.Writer, format string, args ...any) { _, _ = fmt.Fprintf(out, format, args...) }

const simModelBytes = 52_000_000_000

func (w *simWorker) run(out io.Writer) error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	if err := os.MkdirAll(w.out, 0o755); err != nil {
		return err
	}
	if err := w.loading(ctx, out); err != nil {
		return w.stopped(ctx, out)
	}
	done := w.readDone()
	say(out, "rank %d of %d: model loaded, %d ids in the done-set\n", w.rank, w.world, len(done))
	first, end := w.total*w.rank/w.world, w.total*(w.rank+1)/w.world
	for i := first; i < end; i++ {
		if ctx.Err() != nil {
			return w.stopped(ctx, out)
		}
		if done[i] || w.exists(i) {
			w.skipped++
			w.processed++
			continue
		}
		if err := w.sample(ctx, i); err != nil {
			return err
		}
		say(out, "%s INFO rank %d: wrote %s, %d samples of this process\n", time.Now().UTC().Format("2006-01-02 15:04:05,000"), w.rank, simName(i), w.writes)
		if err := w.mishap(ctx, out); err != nil {
			return err
		}
	}
	say(out, "rank %d: finished\n", w.rank)
	return w.report(end - first)
}

// stopped ends a worker that was asked to: 128 + SIGTERM, since work is left.
func (w *simWorker) stopped(_ context.Context, out io.Writer) error {
	say(out, "rank %d: stopped after %d samples\n", w.rank, w.writes)
	return exitError(128 + int(syscall.SIGTERM))
}

// loading takes the model into memory in steps, so that it is seen to grow.
func (w *simWorker) loading(ctx context.Context, out io.Writer) error {
	say(out, "rank %d: loading the model\n", w.rank)
	const steps = 10
	for i := 1; i <= steps; i++ {
		w.gpuLoad(int64(simModelBytes/steps*i), 3)
		if err := wait(ctx, w.load/steps); err != nil {
			return err
		}
	}
	return nil
}

func (w *simWorker) gpuLoad(mem int64, util float64) {
	if w.gpuDir == "" {
		return
	}
	// A missing reading shows as an idle GPU; the work does not depend on it.
	_ = gpu.WriteLoad(w.gpuDir, w.rank, gpu.Load{
		PID: os.Getpid(), MemBytes: mem, UtilPercent: util,
		PowerWatts: 78 + 4.5*util, TempCelsius: 34 + util/4,
	})
}

func (w *simWorker) path(i int) string {
	return filepath.Join(w.out, simName(i))
}

func simName(i int) string { return fmt.Sprintf("hs_%06d.safetensors", i) }

func (w *simWorker) exists(i int) bool {
	_, err := os.Stat(w.path(i))
	return err == nil
}

func (w *simWorker) readDone() map[int]bool {
	done := map[int]bool{}
	raw, err := os.ReadFile(w.done)
	if err != nil {
		return done
	}
	for line := range strings.Lines(string(raw)) {
		var id int
		if _, err := fmt.Sscan(line, &id); err == nil {
			done[id] = true
		}
	}
	return done
}

// sample computes one sample: it takes its time and writes its file under a
// temporary name, as good scripts do.
func (w *simWorker) sample(ctx context.Context, i int) error {
	jitter := 0.8 + 0.4*mathrand.Float64()
	_ = wait(ctx, time.Duration(jitter/w.rate*float64(time.Second))) // a stop waits for the sample at hand
	tmp := w.path(i) + ".tmp"
	if err := os.WriteFile(tmp, simFile(i, w.size), 0o644); err != nil {
		return err
	}
	if err := os.Rename(tmp, w.path(i)); err != nil {
		return err
	}
	w.processed++
	w.writes++
	w.gpuLoad(simModelBytes+int64(mathrand.IntN(2_000_000_000)), 92+7*mathrand.Float64())
	if err := w.noteWritten(i); err != nil {
		return err
	}
	return w.report(w.total*(w.rank+1)/w.world - w.total*w.rank/w.world)
}

func (w *simWorker) noteWritten(i int) error {
	if w.log == "" {
		return nil
	}
	f, err := os.OpenFile(w.log, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	if _, err := fmt.Fprintln(f, i); err != nil {
		return err
	}
	return f.Close()
}

func (w *simWorker) report(total int) error {
	if w.progress == "" {
		return nil
	}
	raw, err := json.Marshal(map[string]int{"processed": w.processed, "skipped": 0, "failed": 0, "total": total})
	if err != nil {
		return err
	}
	tmp := w.progress + ".tmp"
	if err := os.WriteFile(tmp, raw, 0o644); err != nil {
		return err
	}
	return os.Rename(tmp, w.progress)
}

// mishap stalls or crashes once. A crash leaves a mark, so that the worker
// that is started in its place lives.
func (w *simWorker) mishap(ctx context.Context, out io.Writer) error {
	if w.rank == w.stallRank && w.writes == w.stallAt {
		say(out, "rank %d: waiting for a lock\n", w.rank)
		w.gpuLoad(simModelBytes, 0)
		_ = wait(ctx, w.stallFor)
		say(out, "rank %d: going on\n", w.rank)
	}
	mark := filepath.Join(filepath.Dir(w.out), fmt.Sprintf("crashed-%d", w.rank))
	if w.rank != w.crashRank || w.writes != w.crashAt {
		return nil
	}
	if _, err := os.Stat(mark); err == nil {
		return nil
	}
	if err := os.WriteFile(mark, nil, 0o644); err != nil {
		return err
	}
	say(out, "rank %d: RuntimeError: CUDA error: an illegal memory access was encountered\n", w.rank)
	return exitError(1)
}

// simFile is a valid safetensors file of one F16 tensor, the same for an index
// on every run.
func simFile(index, size int) []byte {
	size -= size % 2
	head := fmt.Sprintf(`{"__metadata__":{"index":"%d"},"hidden_states":{"dtype":"F16","shape":[%d],"data_offsets":[0,%d]}}`, index, size/2, size)
	for len(head)%8 != 0 {
		head += " "
	}
	b := binary.LittleEndian.AppendUint64(nil, uint64(len(head)))
	b = append(b, head...)
	r := mathrand.New(mathrand.NewPCG(uint64(index), 1))
	for range size / 2 {
		b = binary.LittleEndian.AppendUint16(b, uint16(r.Uint32()))
	}
	return b
}

func wait(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-t.C:
		return nil
	}
}
