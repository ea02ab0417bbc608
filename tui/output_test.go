package tui

import (
	"bytes"
	"io"
	"os"
	"testing"
	"time"
)

// A terminal that takes nothing blocks no write; when it reads again, the
// screen is painted anew if anything was dropped.
func TestOutputNeverBlocks(t *testing.T) {
	t.Parallel()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = r.Close(); _ = w.Close() })
	drained := make(chan bool, 100)
	o := newOutput(w, func(f func()) { f() }, func(lost bool) { drained <- lost })
	frame := bytes.Repeat([]byte("x"), 128<<10) // more than a pipe holds
	written := make(chan struct{})
	go func() {
		for range 10 * outputQueue {
			if n, err := o.Write(frame); n != len(frame) || err != nil {
				t.Errorf("Write = %d, %v", n, err)
			}
		}
		close(written)
	}()
	select {
	case <-written:
	case <-time.After(10 * time.Second):
		t.Fatal("Write waits for the terminal")
	}
	if !o.behind() {
		t.Error("nothing is behind though nothing was read")
	}
	o.flush(10 * time.Millisecond) // gives up
	go func() { _, _ = io.Copy(io.Discard, r) }()
	select {
	case lost := <-drained:
		if !lost {
			t.Error("dropped writes were not reported")
		}
	case <-time.After(10 * time.Second):
		t.Fatal("it does not go on when the terminal reads again")
	}
	o.finish(time.Second)
	<-o.done
	if _, err := o.Write(frame); err != nil {
		t.Errorf("Write after the end: %v", err)
	}
}
