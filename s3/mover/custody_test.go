package mover_test

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"pipedeck/pipeline"
	"pipedeck/s3/s3test"
)

// listed is what Holdings says now of files, by path; none: of all.
func (w *world) listed(rels ...string) (files []pipeline.ListedFile) {
	w.t.Helper()
	list, err := w.m.Holdings(w.t.Context(), pipeline.HoldingsRequest{Outputs: []string{"extract/hs"}}, nil)
	if err != nil {
		w.t.Fatal(err)
	}
	want := map[string]bool{}
	for _, rel := range rels {
		want[w.path(rel)] = true
	}
	for _, f := range list[0].Files {
		if full := filepath.Join(f.Root, f.Path); len(rels) == 0 || want[full] {
			files = append(files, f)
			delete(want, full)
		}
	}
	if len(want) > 0 {
		w.t.Fatalf("not listed: %v", want)
	}
	return files
}

func (w *world) trash(action string, files []pipeline.ListedFile) pipeline.MoveReport {
	w.t.Helper()
	rep, err := w.m.Trash(w.t.Context(), action, files, nil)
	if err != nil {
		w.t.Fatal(err)
	}
	return rep
}

func (w *world) untrash(action string) pipeline.MoveReport {
	w.t.Helper()
	rep, err := w.m.Untrash(w.t.Context(), action, nil)
	if err != nil {
		w.t.Fatal(err)
	}
	return rep
}

// same says whether a path has exactly this content.
func (w *world) same(rel string, data []byte) bool {
	got, err := os.ReadFile(w.path(rel))
	return err == nil && string(got) == string(data)
}

func TestSuspendAwaitsWhatIsInFlight(t *testing.T) {
	t.Parallel()
	w := newWorld(t, s3test.Options{}, oneOutput)
	w.start("extract")
	w.await("the store is known", func() bool { return is(w.reading().VerifiedFiles, 0) })
	slow := w.server.Inject(s3test.Rule{Op: s3test.OpPut, Kind: s3test.Slow, Delay: 500 * time.Millisecond, Except: ".pipedeck/"})
	w.writeSamples(0, 60, 100) // more than go at once
	w.await("some are in flight", func() bool { return w.reading().Queue.InFlight > 0 })
	if err := w.m.Suspend(t.Context(), "a-1", []string{"extract/hs"}); err != nil {
		t.Fatal(err)
	}
	r := w.reading()
	if r.Queue.InFlight != 0 || r.State != pipeline.OutputPaused || !strings.Contains(r.StateReason, "a-1") {
		t.Errorf("after Suspend: %+v", r)
	}
	_ = slow
	w.server.Clear()
	puts := w.server.Requests()[s3test.OpPut]
	if puts >= 60 {
		t.Fatalf("%d PUTs: the hold came too late to show anything", puts)
	}
	w.stop()
	w.start("extract") // it outlives the agent
	w.await("it is scanned again", func() bool { return w.reading().LocalFiles != nil && w.reading().VerifiedFiles != nil })
	if r := w.reading(); r.State != pipeline.OutputPaused {
		t.Errorf("after a restart: %s, %s", r.State, r.StateReason)
	}
	before := *w.reading().LocalFiles
	w.write(sample(100), tensors(100, 100))
	w.await("the new one is counted", func() bool { return is(w.reading().LocalFiles, before+1) })
	if err := w.m.Release(t.Context(), "a-1"); err != nil {
		t.Fatal(err)
	}
	if err := w.m.Release(t.Context(), "a-nobody"); err != nil {
		t.Error("an action that suspended nothing:", err)
	}
	w.await("all are moved", w.moved(61))
}

// TestSuspendEndsUploadsInParts: a large file does not hold up an action.
func TestSuspendEndsUploadsInParts(t *testing.T) {
	t.Parallel()
	w := newWorld(t, s3test.Options{}, oneOutput)
	w.start("extract")
	w.await("the store is known", func() bool { return is(w.reading().VerifiedFiles, 0) })
	w.server.Inject(s3test.Rule{Op: s3test.OpPart, Kind: s3test.SlowDown})
	w.writeSamples(0, 1, 40_000_000)
	w.await("it is in flight", func() bool { return w.server.Requests()[s3test.OpPart] > 0 })
	if err := w.m.Suspend(t.Context(), "a-1", []string{"hs"}); err != nil {
		t.Fatal(err)
	}
	if open := w.server.Uploads(); len(open) != 0 {
		t.Errorf("left open: %v", open)
	}
	w.server.Clear()
	if err := w.m.Release(t.Context(), "a-1"); err != nil {
		t.Fatal(err)
	}
	w.await("it is moved", w.moved(1))
}

func TestLeaveLeavesFilesAlone(t *testing.T) {
	t.Parallel()
	w := newWorld(t, s3test.Options{}, oneOutput)
	w.start("extract")
	w.writeSamples(0, 3, 100)
	w.await("all are moved", w.moved(3))
	if err := w.m.Leave(t.Context(), "extract"); err != nil {
		t.Fatal(err)
	}
	w.writeSamples(3, 6, 100)
	w.await("they are counted", func() bool { return is(w.reading().LocalFiles, 3) && w.reading().State == pipeline.OutputIdle })
	w.stop()
	w.start()
	w.await("they are counted", func() bool { return is(w.reading().LocalFiles, 3) && is(w.reading().VerifiedFiles, 3) })
	if err := w.m.Activate(t.Context(), "extract"); err != nil {
		t.Fatal(err)
	}
	w.await("all are moved", w.moved(6))
}

// TestTrashAndBack: what was listed goes, all else stays, counts and done-set
// follow, and undo brings everything back as it was.
func TestTrashAndBack(t *testing.T) {
	t.Parallel()
	w := newWorld(t, s3test.Options{}, oneOutput)
	w.start("extract")
	w.writeSamples(0, 3, 100)
	w.await("three are moved", w.moved(3))
	if err := w.m.Suspend(t.Context(), "a-1", []string{"extract/hs"}); err != nil {
		t.Fatal(err)
	}
	w.writeSamples(3, 6, 100)
	w.write("out/deep/er/hs_000006.safetensors", tensors(6, 100))
	w.write("out/notes.txt", []byte("no output"))
	old := time.Date(2020, 1, 2, 3, 4, 5, 6, time.UTC)
	if err := os.Chtimes(w.path(sample(3)), old, old); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(w.path(sample(3)), 0o640); err != nil {
		t.Fatal(err)
	}
	w.await("they are counted", func() bool { return is(w.reading().LocalFiles, 4) && is(w.reading().DoneIDs, 7) })
	files := w.listed()
	rep := w.trash("a-1", files)
	if rep.Moved != 4 || rep.StayedAll != 0 || rep.Gone != 0 || rep.MovedBytes != 4*int64(len(tensors(3, 100))) {
		t.Errorf("report = %+v", rep)
	}
	if w.exists(sample(3)) || w.exists("out/deep") || !w.exists("out/notes.txt") || !w.exists("out") {
		t.Error("not the listed files, and only these, are gone")
	}
	r := w.reading()
	if !is(r.LocalFiles, 0) || !is(r.DeletedLocalFiles, 3) || !is(r.VerifiedFiles, 3) || !is(r.DoneIDs, 3) {
		t.Errorf("reading = %+v", r)
	}
	if again := w.trash("a-1", files); again.Moved != 4 || again.Gone != 0 || again.StayedAll != 0 {
		t.Errorf("done again: %+v", again)
	}
	n, _, err := w.m.WriteDoneSet(t.Context(), "extract")
	if err != nil || n != 3 {
		t.Errorf("done-set of %d, %v", n, err)
	}
	for _, e := range w.m.Outputs().Events {
		if strings.Contains(e.Text, "vanished") {
			t.Errorf("event: %s", e.Text)
		}
	}
	list, err := w.m.Trashes(t.Context())
	if err != nil || len(list) != 1 || list[0].Action != "a-1" || list[0].Files != 4 || list[0].Quarantine || list[0].Left <= 9*time.Minute {
		t.Errorf("trashes = %+v, %v", list, err)
	}
	w.write(sample(4), tensors(44, 100)) // a new one takes a name
	if rep := w.untrash("a-1"); rep.Moved != 3 || rep.StayedAll != 1 || !strings.HasSuffix(rep.Stayed[0].Path, "hs_000004.safetensors") {
		t.Errorf("undo: %+v", rep)
	}
	info, err := os.Stat(w.path(sample(3)))
	if err != nil || !info.ModTime().Equal(old) || info.Mode().Perm() != 0o640 || !w.same(sample(4), tensors(44, 100)) {
		t.Errorf("came back as %v, %v", info, err)
	}
	if err := os.Rename(w.path(sample(4)), w.path(sample(40))); err != nil {
		t.Fatal(err)
	}
	w.record(sample(40), tensors(44, 100))
	w.record(sample(4), tensors(4, 100))
	if rep := w.untrash("a-1"); rep.Moved != 1 || rep.StayedAll != 0 {
		t.Errorf("undo once more: %+v", rep)
	}
	if _, err := os.Stat(filepath.Join(w.spec.StateDir, "trash")); !os.IsNotExist(err) {
		t.Error("an empty trash stays:", err)
	}
	if err := w.m.Release(t.Context(), "a-1"); err != nil {
		t.Fatal(err)
	}
	w.await("all are moved", w.moved(8))
}

// TestTrashTakesOnlyWhatWasListed: a file that changed, is open, or was
// replaced stays, with the reason.
func TestTrashTakesOnlyWhatWasListed(t *testing.T) {
	t.Parallel()
	w := newWorld(t, s3test.Options{}, oneOutput)
	w.writeSamples(0, 6, 100)
	w.start()
	w.await("they are counted", func() bool { return is(w.reading().LocalFiles, 6) })
	files := w.listed()
	f, err := os.OpenFile(w.path(sample(0)), os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	w.write(sample(1), tensors(11, 100)) // replaced
	if err := os.Chmod(w.path(sample(2)), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(w.path(sample(3))); err != nil {
		t.Fatal(err)
	}
	w.unrecord(sample(3))
	w.write(sample(9), tensors(9, 100)) // came later
	rep := w.trash("a-1", files)
	if rep.Moved != 2 || rep.Gone != 1 || rep.StayedAll != 3 {
		t.Errorf("report = %+v", rep)
	}
	for i, want := range map[int]bool{0: true, 1: true, 2: true, 4: false, 5: false, 9: true} {
		if w.exists(sample(i)) != want {
			t.Errorf("%s is there: %v", sample(i), !want)
		}
	}
	for _, s := range rep.Stayed {
		if s.Reason == "" {
			t.Errorf("%s stays without a reason", s.Path)
		}
	}
	w.untrash("a-1")
}

func TestTrashIsPurgedByBootClock(t *testing.T) {
	t.Parallel()
	w := newWorld(t, s3test.Options{}, oneOutput)
	boot, up := "one", time.Hour
	w.boot = func() (string, time.Duration) { return boot, up }
	w.writeSamples(0, 2, 100)
	w.start()
	w.await("they are counted", func() bool { return is(w.reading().LocalFiles, 2) })
	w.trash("a-1", w.listed())
	left := func() time.Duration {
		t.Helper()
		list, err := w.m.Trashes(context.Background())
		if err != nil || len(list) != 1 {
			t.Fatalf("trashes = %+v, %v", list, err)
		}
		return list[0].Left
	}
	if up += 4 * time.Minute; left() != 6*time.Minute {
		t.Errorf("left after 4 minutes: %s", left())
	}
	boot, up = "two", time.Second
	if left() != 10*time.Minute {
		t.Errorf("left after a reboot: %s", left())
	}
	if up += 11 * time.Minute; left() != 0 {
		t.Errorf("left after 11 minutes: %s", left())
	}
	if err := w.m.Purge(t.Context(), "a-1"); err != nil {
		t.Fatal(err)
	}
	if list, err := w.m.Trashes(t.Context()); err != nil || len(list) != 0 {
		t.Errorf("trashes = %+v, %v", list, err)
	}
	if rep := w.untrash("a-1"); rep.Moved != 0 || w.exists(sample(0)) {
		t.Errorf("undo after the purge: %+v", rep)
	}
	w.unrecord(sample(0))
	w.unrecord(sample(1))
}
