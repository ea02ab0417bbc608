package mover_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"pipedeck/pipeline"
	"pipedeck/s3/mover"
	"pipedeck/s3/s3test"
)

// twoOutputs has what Holdings must tell apart: formats that judge and one that
// cannot, and scratch.
const twoOutputs = `
stages:
  extract:
    workers: {count: 1, command: [sleep, "1"]}
    scratch: [tmp/shards]
    outputs:
      hs:
        dir: out
        match: "**/*.safetensors"
        format: safetensors
        id: 'hs_(\d+)\.safetensors'
        key: "hs/{path}"
      notes:
        dir: notes
        match: "*.jsonl"
        settle: 50ms
        key: "notes/{path}"
    done_set: {file: done.txt, form: lines}
`

// holdings asks and returns the classes by path.
func (w *world) holdings(req pipeline.HoldingsRequest) ([]pipeline.Holding, map[string]pipeline.FileClass) {
	w.t.Helper()
	var last, total int64
	list, err := w.m.Holdings(w.t.Context(), req, func(done, of int64) {
		if done < last || done > of {
			w.t.Errorf("progress went from %d to %d of %d", last, done, of)
		}
		last, total = done, of
	})
	if err != nil {
		w.t.Fatal(err)
	}
	if last != total {
		w.t.Errorf("progress ended at %d of %d", last, total)
	}
	classes := map[string]pipeline.FileClass{}
	for _, h := range list {
		for _, f := range h.Files {
			rel, err := filepath.Rel(w.dir, filepath.Join(f.Root, f.Path))
			if err != nil {
				w.t.Fatal(err)
			}
			if classes[rel] != "" {
				w.t.Errorf("%q is listed twice", rel)
			}
			classes[rel] = f.Class
		}
	}
	return list, classes
}

func outputs(names ...string) pipeline.HoldingsRequest {
	return pipeline.HoldingsRequest{Outputs: names, Fresh: true}
}

// TestHoldingsClassEachFileOnce puts one file of every kind on the disk.
func TestHoldingsClassEachFileOnce(t *testing.T) {
	t.Parallel()
	w := newWorld(t, s3test.Options{}, twoOutputs)
	one, two := tensors(1, 100), tensors(2, 100)
	w.write(sample(1), one)
	w.server.SetObject("pre/r1/hs/hs_000001.safetensors", one)
	w.write(sample(2), two)
	w.server.SetObject("pre/r1/hs/hs_000002.safetensors", tensors(3, 100))
	w.write(sample(3), tensors(3, 100))
	w.write(sample(4), tensors(4, 100)[:90])
	w.write(sample(5), nil) // a placeholder
	w.server.SetObject("pre/r1/hs/hs_000005.safetensors", tensors(5, 100))
	w.write(sample(6), nil)
	writer, err := os.OpenFile(w.path(sample(3)), os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = writer.Close() }()
	w.write(sample(7), tensors(7, 100))
	w.write("out/other.txt", []byte("no output"))
	w.write("tmp/shards/hs_000001.safetensors", one)
	w.write("tmp/shards/a/hs_000001.safetensors", one)
	w.write("tmp/shards/hs_000008.safetensors", tensors(8, 100))
	w.write("tmp/shards/weights.bin", []byte("w"))
	w.start()
	w.await("it is scanned", func() bool { return w.reading().LocalFiles != nil && w.reading().VerifiedFiles != nil })
	want := map[string]pipeline.FileClass{
		sample(1): pipeline.ClassProven, sample(2): pipeline.ClassMismatched, sample(3): pipeline.ClassBeingWritten,
		sample(4): pipeline.ClassBeingWritten, sample(6): pipeline.ClassBeingWritten, sample(7): pipeline.ClassMissing,
		"tmp/shards/hs_000001.safetensors": pipeline.ClassProven, "tmp/shards/a/hs_000001.safetensors": pipeline.ClassMissing, "tmp/shards/hs_000008.safetensors": pipeline.ClassMissing,
		"tmp/shards/weights.bin": pipeline.ClassOther,
	}
	req := pipeline.HoldingsRequest{Outputs: []string{"extract/hs"}, Scratch: []string{w.path("tmp/shards")}, Fresh: true}
	list, got := w.holdings(req)
	for rel, class := range want {
		if got[rel] != class {
			t.Errorf("%s is %q, want %q", rel, got[rel], class)
		}
	}
	if len(got) != len(want) {
		t.Errorf("listed: %v", got)
	}
	for _, h := range list {
		if !h.Complete || !h.Undoable {
			t.Errorf("%s: complete %v (%s), undoable %v", h.Name, h.Complete, h.Reason, h.Undoable)
		}
	}
	if list[0].StoredFiles < 0 || !slices.Equal(list[0].Dirs, []string{w.path("out")}) {
		t.Errorf("stored %d, dirs %q", list[0].StoredFiles, list[0].Dirs)
	}
	// What nobody proved is not proven without asking.
	req.Fresh = false
	if _, got = w.holdings(req); got[sample(1)] != pipeline.ClassMissing || got[sample(4)] != pipeline.ClassBeingWritten {
		t.Errorf("from memory: %v", got)
	}
}

// TestHoldingsFromMemoryBelieveProofsOnly: kept files are proven until they
// change.
func TestHoldingsFromMemoryBelieveProofsOnly(t *testing.T) {
	t.Parallel()
	w := newWorld(t, s3test.Options{}, strings.Replace(oneOutput, "id:", "after_upload: keep\n        id:", 1))
	w.writeSamples(0, 3, 100)
	w.start("extract")
	w.await("all are stored", func() bool { return is(w.reading().VerifiedFiles, 3) })
	if err := w.m.Pause(t.Context(), true); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(w.path(sample(2)), 0o600); err != nil { // only its ctime
		t.Fatal(err)
	}
	for range 2 {
		list, got := w.holdings(pipeline.HoldingsRequest{Outputs: []string{"hs"}})
		if got[sample(0)] != pipeline.ClassProven || got[sample(2)] != pipeline.ClassMissing || list[0].StoredFiles != 3 {
			t.Errorf("from memory: %v, stored %d", got, list[0].StoredFiles)
		}
		w.stop()
		w.start()
	}
}

// TestHoldingsDoubt: what could not be asked is unknown, and the holding says why.
func TestHoldingsDoubt(t *testing.T) {
	t.Parallel()
	w := newWorld(t, s3test.Options{}, oneOutput)
	w.writeSamples(0, 3, 100)
	w.start()
	w.await("it is known", func() bool { return is(w.reading().VerifiedFiles, 0) })
	w.server.Inject(s3test.Rule{Op: s3test.OpList, Kind: s3test.Denied})
	list, got := w.holdings(outputs("extract/hs"))
	if list[0].Complete || list[0].Reason == "" || got[sample(1)] != pipeline.ClassUnknown || len(got) != 3 {
		t.Errorf("complete %v, reason %q, files %v", list[0].Complete, list[0].Reason, got)
	}
}

// TestHoldingsInFlightAreMissing, also when the store has them already.
func TestHoldingsInFlightAreMissing(t *testing.T) {
	t.Parallel()
	w := newWorld(t, s3test.Options{}, oneOutput)
	put, goOn := make(chan struct{}), make(chan struct{})
	w.hook = func(point string) {
		if point == mover.HookObjectPut {
			close(put)
			<-goOn
		}
	}
	w.writeSamples(0, 1, 100)
	w.start("extract")
	<-put
	_, got := w.holdings(outputs("extract/hs"))
	if _, there := w.server.Object(w.key(sample(0))); !there || got[sample(0)] != pipeline.ClassMissing {
		t.Errorf("in the store %v, listed as %v", there, got)
	}
	close(goOn)
	w.await("it is moved", w.moved(1))
}

// TestHoldingsOfAnotherRun are never proven.
func TestHoldingsOfAnotherRun(t *testing.T) {
	t.Parallel()
	w := newWorld(t, s3test.Options{}, oneOutput)
	w.writeSamples(0, 1, 100)
	w.start()
	w.await("it is counted", func() bool { return is(w.reading().LocalFiles, 1) })
	w.stop()
	w.spec.Run = "r2"
	w.server.SetObject("pre/r2/hs/hs_000000.safetensors", tensors(0, 100))
	w.start()
	list, got := w.holdings(outputs("extract/hs"))
	if got[sample(0)] != pipeline.ClassUnknown || !list[0].Complete {
		t.Errorf("files %v, complete %v", got, list[0].Complete)
	}
}
