package mover_test

import (
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"pipedeck/s3/local"
	"pipedeck/s3/mover"
	"pipedeck/s3/s3test"
)

// way is a kind of journey, with what its files are.
type way struct {
	name, stages string
	write        func(w *world)
	files        int64
	holds        func(w *world) // what must be so at every moment, beside safe
}

// ways take, together, a file past every point.
func ways() []way {
	six := func(w *world) { w.writeSamples(0, 6, 300) }
	nothing := func(*world) {}
	return []way{
		{"delete", oneOutput, six, 6, nothing},
		{"placeholder", strings.Replace(oneOutput, "id:", "after_upload: placeholder\n        id:", 1), six, 6, nothing},
		{"parts", oneOutput, func(w *world) { w.writeSamples(0, 1, 17_000_000) }, 1, nothing},
		{"lines", strings.ReplaceAll(strings.Replace(oneOutput, "id: 'hs_", "settle: 50ms\n        id: 'hs_", 1), "safetensors", "jsonl"), func(w *world) {
			for _, name := range []string{"out/hs_1.jsonl", "out/hs_2.jsonl"} {
				w.write(name, []byte("{\"a\":1}\n{\"a\":2}\n"))
			}
		}, 2, nothing},
		{"checkpoints", strings.NewReplacer("train:", "extract:", "keep, every: 1h, keep_last: 2", "delete").Replace(checkpoints), func(w *world) {
			w.checkpoint(1)
			w.checkpoint(2)
		}, 6, (*world).markersHold},
	}
}

// markersHold fails if a directory has its marker and not all of its files: a
// script would take it for a checkpoint.
func (w *world) markersHold() {
	w.t.Helper()
	for _, dir := range []string{"out/step_1/", "out/step_2/"} {
		whole := w.exists(dir+"model.bin") && w.exists(dir+"sub/optimizer.bin")
		if !whole && w.exists(dir+"done.json") {
			w.t.Fatalf("%s has its marker and is not whole", dir)
		}
	}
}

// TestKilledAtEveryPoint kills a mover at each point, on each way that comes
// there, when it comes there first (on the usual way also the third time), and
// lets another one finish.
func TestKilledAtEveryPoint(t *testing.T) {
	t.Parallel()
	passed := map[string]bool{}
	for _, wy := range ways() {
		for _, point := range pointsOf(t, wy) {
			passed[point] = true
			for _, skip := range []int{0, 2} {
				if skip > 0 && wy.name != "delete" {
					continue
				}
				t.Run(wy.name+"/"+point+"/"+[]string{"first", "", "third"}[skip], func(t *testing.T) {
					t.Parallel()
					if killed := killedAt(t, wy, point, skip); !killed && skip == 0 {
						t.Error("the mover did not come there")
					}
				})
			}
		}
	}
	for _, point := range mover.Points() {
		if !passed[point] {
			t.Errorf("no way comes to %s", point)
		}
	}
}

// pointsOf takes a way to its end, and returns the points on it.
func pointsOf(t *testing.T, wy way) []string {
	t.Helper()
	w := newWorld(t, s3test.Options{Dir: t.TempDir()}, wy.stages)
	w.hurry = hurry
	var mu sync.Mutex
	came := map[string]bool{}
	w.hook = func(point string) {
		mu.Lock()
		defer mu.Unlock()
		came[point] = true
	}
	wy.write(w)
	w.start("extract")
	w.m.Live("extract", false)
	w.await("all are moved", w.moved(wy.files))
	w.stop()
	return slices.Sorted(maps.Keys(came))
}

// killedAt says whether the mover came to the point.
func killedAt(t *testing.T, wy way, point string, skip int) bool {
	t.Helper()
	w := newWorld(t, s3test.Options{Dir: t.TempDir()}, wy.stages)
	w.hurry = hurry
	wy.write(w)
	c := w.spawn(point, skip)
	killed := false
	alive := func(o order) (a answer) {
		if !killed {
			a, alive := c.ask(o)
			killed = !alive
			return a
		}
		return a
	}
	alive(order{Do: "activate", Arg: "extract"})
	alive(order{Do: "live", Arg: "extract"})
	for deadline := time.Now().Add(2 * time.Minute); !killed; time.Sleep(10 * time.Millisecond) {
		w.safe()
		wy.holds(w)
		if a := alive(order{Do: "read"}); !killed && is(a.Reading.Outputs[0].DeletedLocalFiles, wy.files) {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("neither killed nor done")
		}
	}
	w.safe()
	wy.holds(w)
	c.kill()
	w.start("extract")
	w.m.Live("extract", false)
	w.await("all are moved", func() bool { wy.holds(w); return w.moved(wy.files)() })
	if left := w.aside(); len(left) > 0 {
		t.Errorf("left aside: %q", left)
	}
	if n := len(w.server.Overwrites()); n != 0 {
		t.Errorf("%d objects were overwritten", n)
	}
	if open := w.server.Uploads(); len(open) != 0 && wy.name == "parts" {
		w.await("no upload is left open", func() bool { return len(w.server.Uploads()) == 0 })
	}
	return killed
}

// aside are the files that were moved aside and not put back.
// TestHalfWrittenRootFileIsCleared: a mover was killed as it noted where files
// aside belong, and nothing is left to be put back.
func TestHalfWrittenRootFileIsCleared(t *testing.T) {
	t.Parallel()
	w := newWorld(t, s3test.Options{}, oneOutput)
	home := filepath.Join(w.spec.StateDir, "aside", "0123456789abcdef")
	if err := os.MkdirAll(filepath.Join(home, "r-0"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(home, ".tmp-root-1"), []byte("/no"), 0o600); err != nil {
		t.Fatal(err)
	}
	w.start("extract")
	w.await("it is gone", func() bool { return len(w.aside()) == 0 })
	w.writeSamples(0, 2, 100)
	w.await("all are moved", w.moved(2))
}

func (w *world) aside() (left []string) {
	_ = filepath.WalkDir(filepath.Join(w.spec.StateDir, "aside"), func(path string, e os.DirEntry, err error) error {
		if err == nil && e.Type().IsRegular() && e.Name() != "root" { // which says where a slot belongs
			left = append(left, path)
		}
		return nil // there may be no such folder
	})
	return left
}

// TestEveryPointIsListed finds the places where hooks are called in the source.
func TestEveryPointIsListed(t *testing.T) {
	t.Parallel()
	points := mover.Points()
	for _, c := range []struct {
		dir, call, name string
		listed          int
	}{
		{".", `\.hook\((\w+)\)`, `(Hook[A-Z]\w+) +=`, len(points) - len(local.Points()) + len(mover.CarePoints())},
		{"../local", `\.at\((\w+)\)`, `(Point[A-Z]\w+) +=`, len(local.Points())},
	} {
		called, named := inSource(t, c.dir, c.call), inSource(t, c.dir, c.name)
		if !slices.Equal(called, named) || len(named) != c.listed {
			t.Errorf("%s: points called %q, named %q, %d listed", c.dir, called, named, c.listed)
		}
	}
	if slices.Sort(points); len(slices.Compact(points)) != len(mover.Points()) {
		t.Error("a point is listed twice")
	}
}

// inSource returns what a pattern captures in a folder's Go files, once each.
func inSource(t *testing.T, dir, pattern string) []string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*.go"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no source in %s: %v", dir, err)
	}
	var found []string
	for _, name := range files {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range regexp.MustCompile(pattern).FindAllStringSubmatch(string(text), -1) {
			found = append(found, m[1])
		}
	}
	slices.Sort(found)
	return slices.Compact(found)
}
