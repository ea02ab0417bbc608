package mover_test

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"pipedeck/pipeline"
	"pipedeck/s3/s3test"
)

// TestQuarantine moves what is incomplete by its format, and nothing else.
func TestQuarantine(t *testing.T) {
	t.Parallel()
	w := newWorld(t, s3test.Options{}, strings.Replace(twoOutputs, "id: 'hs_", "settle: 200ms\n        id: 'hs_", 1))
	broken := tensors(1, 100)[:90]
	w.write(sample(1), broken)
	w.write(sample(2), tensors(2, 100))
	w.write(sample(3), tensors(3, 100)[:90])
	w.write(sample(4), tensors(4, 100)[:90])
	w.write(sample(5), nil)
	w.server.SetObject("pre/r1/hs/hs_000005.safetensors", tensors(5, 100))
	w.write("notes/cut.jsonl", []byte(`{"a":`))
	for _, rel := range []string{"notes/cut.jsonl"} {
		w.unrecord(rel)
	}
	open, err := os.OpenFile(w.path(sample(3)), os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = open.Close() }()
	w.start()
	w.await("the bucket is known", func() bool { return is(w.reading().VerifiedFiles, 1) && w.reading().LocalFiles != nil })
	var once sync.Once
	rep, err := w.m.Quarantine(t.Context(), "a-1", "extract", func(int64, int64) {
		once.Do(func() { w.write(sample(4), tensors(4, 100)) }) // becomes complete meanwhile
	})
	if err != nil || rep.Moved != 1 || rep.StayedAll != 1 || !strings.Contains(rep.Stayed[0].Reason, "open for writing") {
		t.Errorf("report = %+v, %v", rep, err)
	}
	for i, want := range map[int]bool{1: false, 2: true, 3: true, 4: true, 5: true} {
		if w.exists(sample(i)) != want {
			t.Errorf("%s is there: %v", sample(i), !want)
		}
	}
	for range 2 {
		r := w.reading()
		if !is(r.QuarantinedFiles, 1) || !w.exists("notes/cut.jsonl") {
			t.Errorf("reading = %+v", r)
		}
		found := false
		for _, f := range w.m.Failures() {
			found = found || f.Kind == pipeline.FailureQuarantined && f.Path == "hs_000001.safetensors" &&
				strings.Contains(f.Reason, "pipedeck undo a-1") && !f.Since.IsZero()
		}
		if !found {
			t.Errorf("failures = %+v", w.m.Failures())
		}
		if err := w.m.Purge(t.Context(), "a-1"); err != nil {
			t.Error(err)
		}
		w.stop()
		w.start()
		w.await("it is scanned", func() bool { return w.reading().LocalFiles != nil })
	}
	list, err := w.m.Trashes(t.Context())
	if err != nil || len(list) != 1 || !list[0].Quarantine || list[0].Left != 0 {
		t.Errorf("trashes = %+v, %v", list, err)
	}
	if rep := w.untrash("a-1"); rep.Moved != 1 || !w.same(sample(1), broken) || !is(w.reading().QuarantinedFiles, 0) {
		t.Errorf("undo: %+v", rep)
	}
}

// TestQuarantineOfDirectories: a checkpoint without its marker goes as a whole.
func TestQuarantineOfDirectories(t *testing.T) {
	t.Parallel()
	w := newWorld(t, s3test.Options{}, `
stages:
  extract:
    workers: {count: 1, command: [sleep, "1"]}
    outputs:
      ckpt: {dir: ck, match: "step-*", format: marker, marker: DONE, settle: 50ms, key: "ck/{path}", after_upload: keep}
`)
	for _, rel := range []string{"ck/step-1/w.bin", "ck/step-1/DONE", "ck/step-2/w.bin", "ck/step-2/deep/x.bin"} {
		w.write(rel, []byte(rel))
		w.unrecord(rel)
	}
	before := w.tree()
	w.start()
	rep, err := w.m.Quarantine(t.Context(), "a-1", "extract", nil)
	if err != nil || rep.Moved != 2 || rep.StayedAll != 0 || w.exists("ck/step-2") || !w.exists("ck/step-1/w.bin") {
		t.Errorf("report = %+v, %v", rep, err)
	}
	if rep := w.untrash("a-1"); rep.Moved != 2 || !maps.Equal(w.tree(), before) {
		t.Errorf("undo: %+v", rep)
	}
}

// TestTrashIsPurgedForRoom: a full disk takes the oldest trash, never a
// quarantine.
func TestTrashIsPurgedForRoom(t *testing.T) {
	t.Parallel()
	w := newWorld(t, s3test.Options{}, oneOutput)
	w.hurry = hurry
	smallDisk(t, w.dir, "32M")
	w.writeSamples(0, 100, 100_000)
	w.write("out/hs_000900.safetensors", tensors(900, 100_000)[:90_000])
	w.start()
	w.await("they are counted", func() bool { return is(w.reading().LocalFiles, 101) })
	if rep, err := w.m.Quarantine(t.Context(), "a-0", "extract", nil); err != nil || rep.Moved != 1 {
		t.Fatalf("quarantine: %+v, %v", rep, err)
	}
	w.trash("a-1", w.listed())
	for i := range 100 {
		w.unrecord(sample(i))
	}
	w.fill(50_000)
	w.stuff(".")
	w.await("the trash is gone", func() bool {
		list, err := w.m.Trashes(t.Context())
		return err == nil && len(list) == 1 && list[0].Quarantine
	})
	w.stop()
}

// TestTrashOnOtherFilesystems: an output on a filesystem of its own keeps its
// trash there; scratch on a tmpfs is removed, by the same checks.
func TestTrashOnOtherFilesystems(t *testing.T) {
	t.Parallel()
	w := newWorld(t, s3test.Options{}, twoOutputs)
	smallDisk(t, w.path("out"), "8M")
	scratch, err := os.MkdirTemp("/dev/shm", "pipedeck-test-") //nolint:usetesting // a tmpfs is the point
	if err != nil {
		t.Skip(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(scratch) })
	shard := filepath.Join(scratch, "shards")
	for _, name := range []string{"a/one.bin", "a/two.bin", "hs_000007.safetensors"} {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(shard, name)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(shard, name), tensors(1, 10), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Link(filepath.Join(shard, "a/one.bin"), filepath.Join(shard, "other-name.bin")); err != nil {
		t.Fatal(err)
	}
	w.writeSamples(0, 3, 100)
	w.start()
	w.await("they are counted", func() bool { return is(w.reading().LocalFiles, 3) })
	list, err := w.m.Holdings(t.Context(), pipeline.HoldingsRequest{Outputs: []string{"extract/hs"}, Scratch: []string{shard}}, nil)
	if err != nil || !list[0].Undoable || list[1].Undoable || len(list[1].Files) != 4 {
		t.Fatalf("holdings = %+v, %v", list, err)
	}
	open, err := os.OpenFile(filepath.Join(shard, "a/two.bin"), os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	all := append(slices.Clone(list[0].Files), list[1].Files...)
	rep := w.trash("a-1", all)
	if rep.Moved != 3 || rep.Removed != 3 || rep.StayedAll != 1 {
		t.Errorf("report = %+v", rep)
	}
	_ = open.Close()
	if _, err := os.Stat(filepath.Join(shard, "a/two.bin")); err != nil {
		t.Error("an open file was removed:", err)
	}
	if rep := w.trash("a-1", all); rep.Moved != 3 || rep.Removed != 1 || rep.Gone != 3 {
		t.Errorf("done again: %+v", rep)
	}
	if left, err := os.ReadDir(shard); err != nil || len(left) != 0 {
		t.Errorf("the scratch directory holds %v, %v", left, err)
	}
	if left, err := os.ReadDir(scratch); err != nil || len(left) != 1 {
		t.Errorf("beside the scratch directory lies %v, %v", left, err)
	}
	w.stop()
	w.start() // its recovery must leave the trash alone
	w.await("it is scanned", func() bool { return is(w.reading().LocalFiles, 0) })
	if rep := w.untrash("a-1"); rep.Moved != 3 || !w.same(sample(2), tensors(2, 100)) {
		t.Errorf("undo: %+v", rep)
	}
	if w.exists("out/.pipedeck-aside") {
		t.Error("an empty aside folder stays in the output directory")
	}
	w.stop()
}
