package mover_test

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"pipedeck/pipeline"
	"pipedeck/s3/local"
	"pipedeck/s3/s3test"
)

func TestFilesReachTheStoreAndLeave(t *testing.T) {
	t.Parallel()
	w := newWorld(t, s3test.Options{}, oneOutput)
	w.writeSamples(0, 50, 1000)
	w.start("extract")
	w.writeSamples(50, 100, 1000)
	w.await("all are moved", w.moved(100))
	r := w.reading()
	if r.State != pipeline.OutputIdle || !r.Settled || !is(r.DoneIDs, 100) || !is(r.FailedFiles, 0) {
		t.Errorf("reading = %+v", r)
	}
	n, _, err := w.m.WriteDoneSet(t.Context(), "extract")
	if err != nil || n != 100 {
		t.Fatalf("done-set: %d, %v", n, err)
	}
	data, err := os.ReadFile(w.path("done.txt"))
	if lines := strings.Split(strings.TrimSpace(string(data)), "\n"); err != nil || len(lines) != 100 || lines[0] != "0" || lines[99] != "99" {
		t.Errorf("done-set = %q, %v", data, err)
	}
	if n := len(w.server.Overwrites()); n != 0 {
		t.Errorf("%d objects were overwritten", n)
	}
}

func TestRequestsPerFile(t *testing.T) {
	t.Parallel()
	w := newWorld(t, s3test.Options{}, oneOutput)
	for rank := range 4 {
		w.writeSamples(rank*250_000, rank*250_000+500, 100)
	}
	w.start("extract")
	w.await("all are moved", w.moved(2000))
	probes := 60 // of two clients
	// A slow machine closes more batches by their age, so the bound is loose.
	if n := w.server.TotalRequests(); n > 2000*105/100+probes {
		t.Errorf("%d requests for 2000 files: %v", n, w.server.Requests())
	}
	if n := w.server.MaxUploadsInFlight(); n > 20 {
		t.Errorf("%d uploads in flight, max_parallel is 20", n)
	}
	t.Logf("requests: %v", w.server.Requests())
}

func TestWhatIsNotStartedIsLeftAlone(t *testing.T) {
	t.Parallel()
	w := newWorld(t, s3test.Options{}, oneOutput)
	w.writeSamples(0, 5, 100)
	w.start()
	w.await("the files are counted", func() bool { return is(w.reading().LocalFiles, 5) })
	cov, err := w.m.Coverage(t.Context(), nil, true)
	if err != nil || len(cov) != 1 || cov[0].Local != 5 || cov[0].Missing != 5 || !cov[0].Complete || len(cov[0].IDs.Unproven) != 5 {
		t.Errorf("coverage = %+v, %v", cov, err)
	}
	if keys := dataKeys(w.server); len(keys) != 0 {
		t.Errorf("stored: %q", keys)
	}
}

// dataKeys are the keys of outputs.
func dataKeys(s *s3test.Server) (keys []string) {
	for _, key := range s.Keys() {
		if !strings.Contains(key, ".pipedeck/") {
			keys = append(keys, key)
		}
	}
	return keys
}

func TestLedgerIsRebuiltFromTheBucket(t *testing.T) {
	t.Parallel()
	w := newWorld(t, s3test.Options{}, oneOutput)
	w.writeSamples(0, 40, 500)
	w.start("extract")
	w.await("all are moved", w.moved(40))
	w.stop()
	w.forget()
	// Objects that no manifest names: one good, one broken.
	w.server.SetObject("pre/r1/hs/hs_000100.safetensors", tensors(100, 50))
	w.server.SetObject("pre/r1/hs/hs_000101.safetensors", tensors(101, 50)[:90])
	w.writeSamples(40, 45, 500)
	w.start("extract")
	w.await("all is known again", w.moved(46))
	n, _, err := w.m.WriteDoneSet(t.Context(), "extract")
	data, _ := os.ReadFile(w.path("done.txt"))
	if err != nil || n != 46 || !strings.Contains(string(data), "\n100\n") || strings.Contains(string(data), "101") {
		t.Errorf("done-set of %d: %v\n%s", n, err, data)
	}
	if n := len(w.server.Overwrites()); n != 0 {
		t.Errorf("%d objects were overwritten", n)
	}
}

func TestForeignObjectIsNeitherReplacedNorBelieved(t *testing.T) {
	t.Parallel()
	w := newWorld(t, s3test.Options{}, oneOutput)
	w.server.SetObject(w.key(sample(1)), []byte("somebody else's"))
	w.writeSamples(0, 3, 300)
	w.start("extract")
	w.await("the others are moved and one is mismatched", func() bool {
		r := w.reading()
		return is(r.DeletedLocalFiles, 2) && is(r.FailedFiles, 1) && is(r.LocalFiles, 1)
	})
	failures := w.m.Failures()
	if len(failures) != 1 || failures[0].Kind != pipeline.FailureMismatched || failures[0].Path != "hs_000001.safetensors" {
		t.Errorf("failures = %+v", failures)
	}
	if got, _ := w.server.Object(w.key(sample(1))); string(got) != "somebody else's" {
		t.Error("the foreign object was replaced")
	}
	cov, err := w.m.Coverage(t.Context(), []string{"hs"}, false)
	if err != nil || cov[0].Mismatched != 1 || cov[0].Local != 1 {
		t.Errorf("coverage = %+v, %v", cov, err)
	}
}

func TestSameObjectIsBelievedAfterVerification(t *testing.T) {
	t.Parallel()
	w := newWorld(t, s3test.Options{}, oneOutput)
	w.server.SetObject(w.key(sample(0)), tensors(0, 300))
	w.writeSamples(0, 1, 300)
	w.start("extract")
	w.await("it is moved", w.moved(1))
}

func TestHalfWrittenFilesStay(t *testing.T) {
	t.Parallel()
	w := newWorld(t, s3test.Options{}, oneOutput)
	w.start("extract")
	whole := tensors(7, 200_000)
	if err := os.MkdirAll(w.path("out"), 0o755); err != nil {
		t.Fatal(err)
	}
	f, err := os.Create(w.path(sample(7)))
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i < len(whole); i += 20_000 {
		if _, err := f.Write(whole[i:min(len(whole), i+20_000)]); err != nil {
			t.Fatal(err)
		}
		if i == 100_000 {
			w.await("it is counted while it is written", func() bool { return is(w.reading().LocalFiles, 1) })
			if got := dataKeys(w.server); len(got) != 0 {
				t.Fatalf("a half-written file was stored: %q", got)
			}
		}
		time.Sleep(10 * time.Millisecond)
	}
	w.record(sample(7), whole)
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	w.await("it is moved", w.moved(1))
	if got, _ := w.server.Object(w.key(sample(7))); !bytes.Equal(got, whole) {
		t.Error("the store holds something else")
	}
}

func TestCountsAddUpAtEveryPoll(t *testing.T) {
	t.Parallel()
	w := newWorld(t, s3test.Options{}, oneOutput)
	w.start("extract")
	w.await("the bucket is known", func() bool { return w.reading().DeletedLocalFiles != nil })
	var written atomic.Int64
	go func() {
		for i := range 200 {
			w.write(sample(i), tensors(uint64(i), 200))
			written.Add(1)
		}
	}()
	last := int64(0)
	w.await("all are moved", func() bool {
		r := w.reading()
		upper := written.Load() + 1 // one may be renamed and not counted yet
		sum := *r.LocalFiles + *r.DeletedLocalFiles
		if sum > upper || sum < last {
			t.Fatalf("local %d + gone %d = %d, after %d before, of %d written", *r.LocalFiles, *r.DeletedLocalFiles, sum, last, upper)
		}
		last = sum
		return w.moved(200)()
	})
}

func TestAnOldProofIsAskedForAgainBeforeTheFileGoes(t *testing.T) {
	t.Parallel()
	kept := strings.Replace(oneOutput, "id:", "after_upload: keep\n        id:", 1)
	w := newWorld(t, s3test.Options{}, kept)
	w.writeSamples(0, 3, 300)
	w.start("extract")
	w.await("they are stored and kept", func() bool { return is(w.reading().VerifiedFiles, 3) && w.reading().Settled })
	w.stop()
	w.server.RemoveObject(w.key(sample(1)))
	w.spec.Stages[0].Outputs[0].AfterUpload = "delete"
	w.start()
	w.await("all are moved, the lost one sent again", w.moved(3))
}

// TestAManifestNamesAFileBeforeItLeaves looks into the bucket whenever a local
// file is about to go.
func TestAManifestNamesAFileBeforeItLeaves(t *testing.T) {
	t.Parallel()
	w := newWorld(t, s3test.Options{}, oneOutput)
	w.hurry = hurry
	var asked, unnamed atomic.Int64
	w.hook = func(point string) {
		if point != local.PointRenamed {
			return
		}
		asked.Add(1)
		named := map[string]bool{}
		for _, key := range w.server.Keys() {
			if !strings.Contains(key, "/.pipedeck/manifests/") {
				continue
			}
			body, _ := w.server.Object(key)
			for i := range 20 {
				if bytes.Contains(body, []byte(filepath.Base(sample(i)))) {
					named[sample(i)] = true
				}
			}
		}
		for i := range 20 {
			if !w.exists(sample(i)) && !named[sample(i)] {
				unnamed.Add(1)
			}
		}
	}
	w.writeSamples(0, 20, 300)
	w.start("extract")
	w.await("all are moved", w.moved(20))
	if asked.Load() == 0 || unnamed.Load() > 0 {
		t.Errorf("%d looks, %d times a file was gone that no manifest names", asked.Load(), unnamed.Load())
	}
}

// TestDoneSetMissesNoFileThatLeaves asks for it again and again while files
// leave: each is complete here or stored there, at every moment.
func TestDoneSetMissesNoFileThatLeaves(t *testing.T) {
	t.Parallel()
	const files = 400
	w := newWorld(t, s3test.Options{}, oneOutput)
	w.hurry = hurry
	w.writeSamples(0, files, 300)
	w.start("extract")
	for !w.moved(files)() {
		n, _, err := w.m.WriteDoneSet(t.Context(), "extract")
		if err != nil || n != files {
			t.Fatalf("%d of %d ids are done: %v", n, files, err)
		}
	}
}
