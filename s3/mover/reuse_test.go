package mover_test

import (
	"os"
	"slices"
	"syscall"
	"testing"

	"pipedeck/s3/s3test"
)

// A file that has left gives its inode number to the next one. That one may
// not replace the object, whose bytes are nowhere else any more.
func TestAnInodeGivenOutAgainReplacesNothing(t *testing.T) {
	t.Parallel()
	w := newWorld(t, s3test.Options{}, oneOutput)
	w.start("extract")
	first := tensors(1, 300)
	w.write(sample(0), first)
	inode := inodeOf(t, w.path(sample(0)))
	w.await("the first is moved", w.moved(1))
	second := tensors(2, 300)
	w.write(sample(0), second)
	if inodeOf(t, w.path(sample(0))) != inode {
		t.Log("this filesystem gave another inode: the easy case")
	}
	w.await("the second is mismatched", func() bool { return is(w.reading().FailedFiles, 1) })
	if got, _ := w.server.Object(w.key(sample(0))); !slices.Equal(got, first) {
		t.Error("the object of a file that has left was overwritten")
	}
	if got, err := os.ReadFile(w.path(sample(0))); err != nil || !slices.Equal(got, second) {
		t.Errorf("the second file: %v", err)
	}
}

func inodeOf(t *testing.T, path string) uint64 {
	t.Helper()
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		t.Fatal("no inode")
	}
	return st.Ino
}

// A name that vanishes while its upload waits for the proof and is written
// again is one key, however often.
func TestAKeyThatComesBackCountsOnce(t *testing.T) {
	t.Parallel()
	w := newWorld(t, s3test.Options{}, oneOutput)
	w.start("extract")
	for round := range 6 {
		for i := range 4 {
			w.write(sample(i), tensors(uint64(i), 300))
		}
		seen := w.server.Requests()[s3test.OpPut]
		w.await("some are sent", func() bool { return w.server.Requests()[s3test.OpPut] > seen || round > 0 })
		if round == 5 {
			break
		}
		for i := range 4 {
			if err := os.Remove(w.path(sample(i))); err != nil && !os.IsNotExist(err) {
				t.Fatal(err)
			}
		}
	}
	w.await("all are moved, each counted once", w.moved(4))
}
