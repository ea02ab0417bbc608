package mover_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"pipedeck/pipeline"
)

// order is what a test asks of a mover in a process of its own.
type order struct {
	Do  string // read, live, activate, pause, retry, clock, done_set
	Arg string
	On  bool
	N   int
	// Files are for trash.
	Files []pipeline.ListedFile
}

type answer struct {
	Err      string
	Reading  pipeline.MoverReading
	Failures []pipeline.Failure
	N        int
	Report   pipeline.MoveReport
}

// child is a mover in a process of its own, that can be killed.
type child struct {
	t     testing.TB
	cmd   *exec.Cmd
	in    *json.Encoder
	out   *json.Decoder
	pipes []*os.File
	said  bytes.Buffer
	ended chan struct{} // closed when it has
}

// spawn starts a mover that dies by SIGKILL when it comes to the point killAt
// ("" never) for the time after skip.
func (w *world) spawn(killAt string, skip int) *child {
	w.t.Helper()
	inR, inW, err := os.Pipe()
	if err != nil {
		w.t.Fatal(err)
	}
	outR, outW, err := os.Pipe()
	if err != nil {
		w.t.Fatal(err)
	}
	c := &child{
		t: w.t, in: json.NewEncoder(inW), out: json.NewDecoder(outR),
		pipes: []*os.File{inW, outR}, ended: make(chan struct{}),
	}
	// Not by its path, which another user may not be able to walk.
	c.cmd = exec.CommandContext(context.Background(), "/proc/self/exe", "-test.run=^TestHelperMover$")
	c.cmd.Env = append(os.Environ(), "MOVER_DIR="+w.dir, "MOVER_URL="+w.url, "MOVER_STAGES="+w.stages,
		"MOVER_HURRY="+strconv.Itoa(w.hurry), "MOVER_KILL_AT="+killAt, "MOVER_KILL_SKIP="+strconv.Itoa(skip))
	c.cmd.ExtraFiles = []*os.File{inR, outW}
	c.cmd.Stdout, c.cmd.Stderr = &c.said, &c.said
	// It ends with this process even if that is killed.
	c.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Credential: w.user}
	if err := c.cmd.Start(); err != nil {
		w.t.Fatal(err)
	}
	_ = inR.Close()
	_ = outW.Close()
	go func() {
		_ = c.cmd.Wait()
		close(c.ended)
	}()
	w.t.Cleanup(c.kill)
	return c
}

// ask returns false if the child is dead. It may only die by SIGKILL.
func (c *child) ask(o order) (answer, bool) {
	c.t.Helper()
	var a answer
	if c.in.Encode(o) == nil && c.out.Decode(&a) == nil {
		if a.Err != "" && o.Do != "done_set" {
			c.t.Fatalf("%s: %s", o.Do, a.Err)
		}
		return a, true
	}
	c.wait()
	return a, false
}

// wait returns when the child has died, as it should.
func (c *child) wait() {
	c.t.Helper()
	<-c.ended
	for _, p := range c.pipes {
		_ = p.Close()
	}
	if s, ok := c.cmd.ProcessState.Sys().(syscall.WaitStatus); !ok || s.Signal() != syscall.SIGKILL {
		c.t.Fatalf("the mover ended by itself: %v\n%s", c.cmd.ProcessState, c.said.String())
	}
}

func (c *child) kill() {
	_ = c.cmd.Process.Kill()
	<-c.ended
	for _, p := range c.pipes {
		_ = p.Close()
	}
}

// TestHelperMover is the child's process.
func TestHelperMover(t *testing.T) {
	dir := os.Getenv("MOVER_DIR")
	if dir == "" {
		t.Skip("only as a child of other tests")
	}
	w := worldAt(t, dir, os.Getenv("MOVER_URL"), "bucket", os.Getenv("MOVER_STAGES"))
	var err error
	if w.hurry, err = strconv.Atoi(os.Getenv("MOVER_HURRY")); err != nil {
		t.Fatal(err)
	}
	skip, err := strconv.Atoi(os.Getenv("MOVER_KILL_SKIP"))
	if err != nil {
		t.Fatal(err)
	}
	w.hook = killAt(os.Getenv("MOVER_KILL_AT"), skip)
	var ahead atomic.Int64
	w.clock = func() time.Time { return stepped(time.Now(), time.Duration(ahead.Load())*time.Second) }
	w.start()
	in, out := json.NewDecoder(os.NewFile(3, "orders")), json.NewEncoder(os.NewFile(4, "answers"))
	for {
		var o order
		if err := in.Decode(&o); err != nil {
			return
		}
		if err := out.Encode(w.obey(o, &ahead)); err != nil {
			return
		}
	}
}

func (w *world) obey(o order, ahead *atomic.Int64) answer {
	var a answer
	var err error
	ctx := context.Background()
	switch o.Do {
	case "read":
		a.Reading, a.Failures = w.m.Outputs(), w.m.Failures()
	case "live":
		w.m.Live(o.Arg, o.On)
	case "activate":
		err = w.m.Activate(ctx, o.Arg)
	case "pause":
		err = w.m.Pause(ctx, o.On)
	case "retry":
		w.m.Retry()
	case "clock":
		ahead.Store(int64(o.N))
	case "done_set":
		ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
		defer cancel()
		a.N, _, err = w.m.WriteDoneSet(ctx, o.Arg)
	case "trash":
		a.Report, err = w.m.Trash(ctx, o.Arg, o.Files, nil)
	case "untrash":
		a.Report, err = w.m.Untrash(ctx, o.Arg, nil)
	case "quarantine":
		a.Report, err = w.m.Quarantine(ctx, o.Arg, "extract", nil)
	default:
		err = fmt.Errorf("no order %q", o.Do)
	}
	if err != nil {
		a.Err = err.Error()
	}
	return a
}

// killAt is a hook that kills this process at a point.
func killAt(point string, skip int) func(string) {
	var calls atomic.Int64
	return func(at string) {
		if at == point && int(calls.Add(1)) > skip {
			_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
			select {}
		}
	}
}

// stepped is t on a machine whose wall clock was set d (whole seconds) ahead.
// Its monotonic reading goes on as if nothing was, which no function of package
// time can make: with such a reading, bits 30 to 62 of the first word are the
// wall clock's seconds.
func stepped(t time.Time, d time.Duration) time.Time {
	word := (*uint64)(unsafe.Pointer(&t)) //nolint:gosec // see above; TestSteppedClock holds it to the runtime
	*word = uint64(int64(*word) + int64(d/time.Second)<<30)
	return t
}

func TestSteppedClock(t *testing.T) {
	t.Parallel()
	now := time.Now()
	for _, d := range []time.Duration{time.Hour, -time.Hour, 0} {
		then := stepped(now, d)
		if then.Sub(now) != 0 || then.Round(0).Sub(now.Round(0)) != d {
			t.Errorf("stepped by %s: %s by the monotonic clock, %s by the wall clock", d, then.Sub(now), then.Round(0).Sub(now.Round(0)))
		}
	}
}
