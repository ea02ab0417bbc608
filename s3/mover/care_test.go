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
