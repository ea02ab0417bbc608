package mover_test

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"pipedeck/s3/s3test"
)

const jsonlOutput = `
stages:
  generate:
    workers: {count: 1, command: [sleep]}
    outputs:
      texts: {dir: out, match: "*.jsonl", format: jsonl, key: "hs/{path}", after_upload: delete, every: 1s}
`

func TestGrowingLinesAreReplacedAndFinalWhenTheStageEnds(t *testing.T) {
	t.Parallel()
	w := newWorld(t, s3test.Options{}, jsonlOutput)
	w.start("generate")
	w.m.Live("generate", true)
	if err := os.MkdirAll(w.path("out"), 0o755); err != nil {
		t.Fatal(err)
	}
	f, err := os.Create(w.path("out/a.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	stored := func() string { got, _ := w.server.Object("pre/r1/hs/a.jsonl"); return string(got) }
	add := func(text string) {
		if _, err := f.WriteString(text); err != nil {
			t.Fatal(err)
		}
	}
	add("{\"a\":1}\n{\"b\":")
	w.await("whole lines are stored", func() bool { return stored() == "{\"a\":1}\n" })
	add("2}\n")
	w.await("more lines are stored", func() bool { return stored() == "{\"a\":1}\n{\"b\":2}\n" })
	if !w.exists("out/a.jsonl") {
		t.Fatal("a file that may grow was removed")
	}
	add("{\"c\":3}\n")
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	whole := "{\"a\":1}\n{\"b\":2}\n{\"c\":3}\n"
	w.record("out/a.jsonl", []byte(whole))
	w.m.Live("generate", false)
	w.await("it is moved", func() bool { return stored() == whole && !w.exists("out/a.jsonl") && w.moved(1)() })
}

const checkpoints = `
stages:
  train:
    workers: {count: 1, command: [sleep]}
    outputs:
      ckpt: {dir: out, match: "step_*", format: marker, marker: done.json, key: "hs/{path}", after_upload: keep, every: 1h, keep_last: 2}
`

// checkpoint writes a directory whose marker comes last.
func (w *world) checkpoint(step int) {
	w.t.Helper()
	dir := fmt.Sprintf("out/step_%d/", step)
	w.write(dir+"model.bin", []byte(fmt.Sprint("weights of ", step)))
	w.write(dir+"sub/optimizer.bin", []byte(fmt.Sprint("state of ", step)))
	w.write(dir+"done.json", []byte("{}"))
	when := time.Now().Add(time.Duration(step-100) * time.Second)
	for _, name := range []string{"model.bin", "sub/optimizer.bin", "done.json"} {
		if err := os.Chtimes(w.path(dir+name), when, when); err != nil {
			w.t.Fatal(err)
		}
	}
}

func TestCheckpointsAreKeptAndRetired(t *testing.T) {
	t.Parallel()
	w := newWorld(t, s3test.Options{}, checkpoints)
	for step := 1; step <= 4; step++ {
		w.checkpoint(step)
	}
	w.write("out/step_5/model.bin", []byte("not complete"))
	w.start("train")
	w.m.Live("train", true)
	has := func(step int) bool {
		_, ok := w.server.Object(fmt.Sprintf("pre/r1/hs/step_%d/done.json", step))
		return ok
	}
	w.await("the newest is stored and the oldest have left", func() bool {
		return has(4) && has(1) && has(2) && !w.exists("out/step_1") && !w.exists("out/step_2")
	})
	if has(3) {
		t.Error("a checkpoint between was uploaded before its time")
	}
	for _, dir := range []string{"out/step_3/done.json", "out/step_4/done.json", "out/step_5/model.bin"} {
		if !w.exists(dir) {
			t.Errorf("%s is gone", dir)
		}
	}
	w.m.Live("train", false)
	w.await("all complete ones are stored when the stage ended", func() bool { return has(3) && is(w.reading().VerifiedFiles, 12) })
	if !w.exists("out/step_3/done.json") || !w.exists("out/step_4/done.json") {
		t.Error("a checkpoint to keep is gone")
	}
}

// TestHastenDoesNotWaitForTheInterval: a settle of a stage that runs.
func TestHastenDoesNotWaitForTheInterval(t *testing.T) {
	t.Parallel()
	for name, stages := range map[string]string{
		"checkpoints": checkpoints,
		"lines":       strings.ReplaceAll(strings.Replace(jsonlOutput, "every: 1s", "every: 1h", 1), "generate:", "train:"),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, s3test.Options{}, stages)
			w.hurry, w.patience = hurry, time.Minute
			lines := []byte("{\"a\":1}\n")
			for step := 1; step <= 2; step++ {
				w.checkpoint(step)
			}
			if err := os.WriteFile(w.path("out/a.jsonl"), lines, 0o644); err != nil {
				t.Fatal(err)
			}
			w.start("train")
			w.m.Live("train", true)
			w.await("what is first has gone", func() bool {
				return is(w.reading().VerifiedFiles, map[string]int64{"lines": 1, "checkpoints": 3}[name])
			})
			w.checkpoint(3)
			lines = append(lines, "{\"a\":2}\n"...)
			if err := os.WriteFile(w.path("out/a.jsonl"), lines, 0o644); err != nil {
				t.Fatal(err)
			}
			w.await("the newest waits, and what is not to be kept is gone", func() bool {
				r := w.reading()
				return name == "lines" && r.Queue.WaitingFiles == 1 || r.Queue.WaitingFiles == 3 && is(r.LocalFiles, 6) && is(r.DeletedLocalFiles, 3)
			})
			w.m.Hasten([]string{w.spec.Stages[0].Name + "/" + w.spec.Stages[0].Outputs[0].Name})
			w.await("nothing waits", func() bool { return w.reading().Settled })
			if name == "lines" {
				if got, _ := w.server.Object("pre/r1/hs/a.jsonl"); !bytes.Equal(got, lines) {
					t.Errorf("stored: %q", got)
				}
				return
			}
			for step := 1; step <= 3; step++ {
				if _, ok := w.server.Object(fmt.Sprintf("pre/r1/hs/step_%d/done.json", step)); !ok {
					t.Errorf("checkpoint %d is not stored", step)
				}
			}
		})
	}
}

const withArtifacts = `
artifacts: ["scripts/*.py", "data/tok/**"]
stages:
  extract:
    workers: {count: 1, command: [sleep]}
    outputs:
      hs: {dir: out, match: "*.safetensors", format: safetensors, key: "hs/{path}"}
`

func TestArtifactsAreStoredAndFollowChanges(t *testing.T) {
	t.Parallel()
	w := newWorld(t, s3test.Options{}, withArtifacts)
	put := func(rel, text string) {
		if err := os.MkdirAll(filepath.Dir(w.path(rel)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(w.path(rel)+".tmp", []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(w.path(rel)+".tmp", w.path(rel)); err != nil {
			t.Fatal(err)
		}
	}
	put("scripts/a.py", "one")
	put("data/tok/x/y.bin", "two")
	put("data/other.bin", "not an artifact")
	w.start()
	stored := func(rel string) string { got, _ := w.server.Object("pre/r1/" + rel); return string(got) }
	w.await("they are stored", func() bool {
		a := w.m.Outputs().Artifacts
		return stored("scripts/a.py") == "one" && stored("data/tok/x/y.bin") == "two" && is(a.VerifiedFiles, 2) && a.Settled
	})
	put("scripts/a.py", "another inode, and ours by the recorded hash")
	w.m.QueueArtifacts()
	w.await("the change is stored", func() bool { return stored("scripts/a.py") == "another inode, and ours by the recorded hash" })
	if stored("data/other.bin") != "" || !w.exists("scripts/a.py") {
		t.Error("artifacts: too much was stored, or a file is gone")
	}
}

// A settle that begins just after a file was written does not end before it:
// neither an older scan nor a file's youth makes it look as if all were stored.
func TestASettleSeesWhatWasJustWritten(t *testing.T) {
	t.Parallel()
	w := newWorld(t, s3test.Options{}, withArtifacts)
	w.start("extract")
	w.await("nothing is there", func() bool { return w.m.Outputs().Artifacts.Settled && w.reading().Settled })
	w.writeSamples(0, 3, 300)
	if err := os.Mkdir(w.path("scripts"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(w.path("scripts/a.py"), []byte("one"), 0o644); err != nil {
		t.Fatal(err)
	}
	w.m.Hasten([]string{"artifacts", "extract/hs"})
	w.await("the artifacts are settled", func() bool { return w.m.Outputs().Artifacts.Settled })
	if got, _ := w.server.Object("pre/r1/scripts/a.py"); string(got) != "one" {
		t.Errorf("it is settled, and the store has %q", got)
	}
	w.await("the output is settled", func() bool { return w.reading().Settled })
	if !is(w.reading().VerifiedFiles, 3) {
		t.Errorf("it is settled, and %d files are verified", *w.reading().VerifiedFiles)
	}
}

func TestOddFilesBlockNothing(t *testing.T) {
	t.Parallel()
	w := newWorld(t, s3test.Options{}, oneOutput)
	names := []string{
		"out/a b+c%d#e'f\"(g).safetensors", "out/-dash.safetensors", "out/é.safetensors",
		"out/line\nbreak.safetensors", "out/sub/dir/x.safetensors",
	}
	for i, name := range names {
		w.write(name, tensors(uint64(i), 100))
	}
	w.write("out/empty.safetensors", nil)
	if err := os.Symlink("/etc/passwd", w.path("out/link.safetensors")); err != nil {
		t.Fatal(err)
	}
	linked := tensors(99, 100)
	w.write("out/two.safetensors", linked)
	if err := os.Link(w.path("out/two.safetensors"), w.path("out/names.other")); err != nil {
		t.Fatal(err)
	}
	w.start("extract")
	w.await("the good ones are moved, the others are explained", func() bool {
		r := w.reading()
		return is(r.DeletedLocalFiles, int64(len(names))) && is(r.VerifiedFiles, int64(len(names))+1) && len(w.m.Failures()) == 2
	})
}

// What stays on the disk was proven once, perhaps long ago: a settle asks for
// it again, also an agent that only knows it from the ledger.
func TestASettleAsksAgainForWhatIsKept(t *testing.T) {
	t.Parallel()
	for _, restart := range []bool{false, true} {
		t.Run(fmt.Sprintf("another agent %v", restart), func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, s3test.Options{}, strings.Replace(oneOutput, "id:", "after_upload: keep\n        id:", 1))
			w.hurry = hurry
			w.writeSamples(0, 5, 300)
			w.start("extract")
			w.await("they are stored", func() bool { return is(w.reading().VerifiedFiles, 5) && w.reading().Settled })
			want, _ := w.server.Object(w.key(sample(1)))
			w.server.RemoveObject(w.key(sample(1)))
			w.server.SetObject(w.key(sample(2)), []byte("somebody's"))
			if restart {
				w.stop()
				w.start()
			}
			w.m.Hasten([]string{"extract/hs"})
			w.await("what was removed is stored again, what was changed waits for the operator", func() bool {
				got, _ := w.server.Object(w.key(sample(1)))
				return bytes.Equal(got, want) && is(w.reading().FailedFiles, 1) && w.reading().Coverage.Proven == 4
			})
			if got, _ := w.server.Object(w.key(sample(2))); string(got) != "somebody's" || w.reading().Settled {
				t.Errorf("stored: %q, settled %v", got, w.reading().Settled)
			}
		})
	}
}
