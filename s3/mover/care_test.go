package mover_test

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"
	"pgregory.net/rapid"

	"pipedeck/pipeline"
	"pipedeck/s3/local"
	"pipedeck/s3/mover"
	"pipedeck/s3/s3test"
)

// tree reads every regular file below the world that is nobody's record.
func (w *world) tree() map[string]string {
	w.t.Helper()
	files := map[string]string{}
	err := filepath.WalkDir(w.dir, func(path string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() && (d.Name() == ".pipedeck" || d.Name() == ".pipedeck-aside") {
			if os.IsNotExist(err) {
				return nil
			}
			return filepath.SkipDir
		}
		if d.Type().IsRegular() {
			data, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			files[strings.TrimPrefix(path, w.dir+"/")] = string(data)
		}
		return nil
	})
	if err != nil {
		w.t.Fatal(err)
	}
	return files
}

// carePoints are all points that an action can come to.
func carePoints() []string {
	return append(mover.CarePoints(), local.PointNamed, local.PointRenamed, local.PointChecked)
}

// TestActionsKilledAtEveryPoint kills a mover at each point of a trash, an undo
// and a quarantine, and does it again with another one: nothing is lost,
// nothing is there twice, nothing unlisted was touched.
func TestActionsKilledAtEveryPoint(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	reached := map[string]bool{}
	t.Run("points", func(t *testing.T) {
		for _, do := range []string{"trash", "untrash", "quarantine"} {
			for _, point := range carePoints() {
				for _, skip := range []int{0, 2} {
					t.Run(fmt.Sprintf("%s/%s/%d", do, point, skip), func(t *testing.T) {
						t.Parallel()
						killed := actionKilledAt(t, do, point, skip)
						mu.Lock()
						defer mu.Unlock()
						reached[point] = reached[point] || killed
					})
				}
			}
		}
	})
	for _, point := range carePoints() {
		if !reached[point] && len(reached) > 0 {
			t.Errorf("no action was ever killed at %s", point)
		}
	}
}

func actionKilledAt(t *testing.T, do, point string, skip int) (killed bool) {
	t.Helper()
	w := newWorld(t, s3test.Options{Dir: t.TempDir()}, strings.Replace(oneOutput, "id:", "settle: 50ms\n        id:", 1))
	w.hurry = hurry
	data := func(i int) []byte {
		if do == "quarantine" {
			return tensors(uint64(i), 300)[:200]
		}
		return tensors(uint64(i), 300)
	}
	for i := range 6 {
		w.write(sample(i), data(i))
	}
	w.write("out/sub/hs_000006.safetensors", data(6))
	w.write(sample(7), tensors(7, 300)) // stays
	before := w.tree()
	w.start()
	w.await("they are counted", func() bool { return is(w.reading().LocalFiles, 8) })
	order := order{Do: do, Arg: "a-1"}
	for _, f := range w.listed() {
		if !strings.HasSuffix(f.Path, "hs_000007.safetensors") {
			order.Files = append(order.Files, f)
		}
	}
	want := map[string]string{sample(7): before[sample(7)]}
	if do == "untrash" {
		w.trash("a-1", order.Files)
		want = before
	}
	w.stop()
	c := w.spawn(point, skip)
	_, alive := c.ask(order)
	c.kill()
	w.safe()
	w.accounted(do)
	c = w.spawn("", 0)
	a, ok := c.ask(order)
	if !ok || a.Report.StayedAll != 0 {
		t.Fatalf("done again: %v, %+v", ok, a.Report)
	}
	c.kill()
	if got := w.tree(); !maps.Equal(got, want) {
		t.Errorf("left: %q, want %q", slices.Sorted(maps.Keys(got)), slices.Sorted(maps.Keys(want)))
	}
	w.safe()
	w.start()
	w.await("what is left is counted", func() bool { return is(w.reading().LocalFiles, int64(len(want))) })
	w.untrash("a-1")
	if got := w.tree(); !maps.Equal(got, before) {
		t.Errorf("back: %q, want %q", slices.Sorted(maps.Keys(got)), slices.Sorted(maps.Keys(before)))
	}
	if list, err := w.m.Trashes(t.Context()); err != nil || len(list) != 0 {
		t.Errorf("trashes = %+v, %v", list, err)
	}
	return !alive
}

// accounted: what lies in a bin is named by its list, whenever one looks.
func (w *world) accounted(do string) {
	w.t.Helper()
	kind := local.BinTrash
	if do == "quarantine" {
		kind = local.BinQuarantine
	}
	bins, err := local.Bins(w.spec.StateDir, kind)
	if err != nil {
		w.t.Fatal(err)
	}
	for _, b := range bins {
		named := map[string]local.Identity{}
		if err := b.Listed(func(e local.BinEntry) { named[e.Root+"/"+e.Path] = e.ID }); err != nil {
			w.t.Fatal(err)
		}
		_, err := b.Files(w.t.Context(), func(f local.AsideFile) {
			if id := named[f.Root+"/"+f.Rel]; !f.Entry.ID.SameIgnoringCTime(id) {
				w.t.Errorf("%s lies in the bin as %+v, its list says %+v", f.Rel, f.Entry.ID, id)
			}
		})
		if err != nil {
			w.t.Fatal(err)
		}
	}
}

// TestTrashChecksAgainAfterTheMove: a writer that comes between look and move
// gets its file back.
func TestTrashChecksAgainAfterTheMove(t *testing.T) {
	t.Parallel()
	w := newWorld(t, s3test.Options{}, oneOutput)
	var writer *os.File
	var once sync.Once
	w.hook = func(point string) {
		if point == local.PointNamed {
			once.Do(func() { writer, _ = os.OpenFile(w.path(sample(0)), os.O_WRONLY, 0) })
		}
	}
	w.writeSamples(0, 1, 100)
	w.start()
	w.await("it is counted", func() bool { return is(w.reading().LocalFiles, 1) })
	rep := w.trash("a-1", w.listed())
	if writer == nil {
		t.Fatal("nobody came")
	}
	defer func() { _ = writer.Close() }()
	if rep.Moved != 0 || rep.StayedAll != 1 || !w.same(sample(0), tensors(0, 100)) {
		t.Errorf("report = %+v", rep)
	}
}

// TestActionsTouchOnlyWhatIsListed: in random trees with random changes
// between list and move, every file that was not listed, or is not the one that
// was, keeps name and content; and undo restores what was taken.
func TestActionsTouchOnlyWhatIsListed(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		w := newWorld(t, s3test.Options{}, oneOutput)
		defer func() { w.stop() }()
		names := []string{}
		for i := range rapid.IntRange(1, 12).Draw(rt, "files") {
			dir := rapid.SampledFrom([]string{"out/", "out/a/", "out/a/b/", "out/c/"}).Draw(rt, "dir")
			name := fmt.Sprintf("%shs_%06d.%s", dir, i, rapid.SampledFrom([]string{"safetensors", "safetensors", "txt"}).Draw(rt, "kind"))
			w.write(name, tensors(uint64(i), 50))
			w.unrecord(name) // this test holds more than the invariant
			names = append(names, name)
		}
		w.start()
		list, err := w.m.Holdings(t.Context(), outputs("extract/hs"), nil)
		if err != nil {
			rt.Fatal(err)
		}
		var files []pipeline.ListedFile
		for _, f := range list[0].Files {
			if rapid.Bool().Draw(rt, "listed "+f.Path) {
				files = append(files, f)
			}
		}
		for _, name := range names {
			disturb(rt, w, name)
		}
		before := w.tree()
		take := map[string]bool{}
		for _, f := range files {
			full := filepath.Join(f.Root, f.Path)
			if idOf(full) == f.ID {
				take[strings.TrimPrefix(full, w.dir+"/")] = true
			}
		}
		rep, err := w.m.Trash(t.Context(), "a-1", files, nil)
		if err != nil {
			rt.Fatal(err)
		}
		if rep.Moved != int64(len(take)) || rep.Moved+rep.Gone+rep.StayedAll != int64(len(files)) {
			rt.Errorf("report %+v, want %d moved of %d", rep, len(take), len(files))
		}
		after := w.tree()
		for name, data := range before {
			if got, there := after[name]; there == take[name] || there && got != data {
				rt.Errorf("%s: to take %v, there %v, changed %v", name, take[name], there, got != data)
			}
		}
		if _, err := w.m.Untrash(t.Context(), "a-1", nil); err != nil {
			rt.Fatal(err)
		}
		if got := w.tree(); !maps.Equal(got, before) {
			rt.Errorf("after undo: %q, want %q", slices.Sorted(maps.Keys(got)), slices.Sorted(maps.Keys(before)))
		}
	})
}

// disturb does something to a file, or nothing.
func disturb(rt *rapid.T, w *world, name string) {
	switch rapid.IntRange(0, 6).Draw(rt, "disturb "+name) {
	case 0:
		w.write(name, tensors(99, 50))
		w.unrecord(name)
	case 1:
		if err := os.Chmod(w.path(name), 0o600); err != nil {
			rt.Fatal(err)
		}
	case 2:
		if err := os.Remove(w.path(name)); err != nil {
			rt.Fatal(err)
		}
	case 3:
		if err := os.Rename(w.path(name), w.path(name)+".safetensors"); err != nil {
			rt.Fatal(err)
		}
	}
}

func idOf(path string) pipeline.FileID {
	var st unix.Stat_t
	if unix.Lstat(path, &st) != nil {
		return pipeline.FileID{}
	}
	return pipeline.FileID{Dev: st.Dev, Ino: st.Ino, Size: st.Size, MTimeNS: st.Mtim.Nano(), CTimeNS: st.Ctim.Nano()}
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
