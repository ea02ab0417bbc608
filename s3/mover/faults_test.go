package mover_test

import (
	"bytes"
	"os"
	"strings"
	"testing"
	"time"

	"pipedeck/pipeline"
	"pipedeck/s3/s3test"
)

func TestStormIsRiddenOut(t *testing.T) {
	t.Parallel()
	w := newWorld(t, s3test.Options{Seed: 1}, oneOutput)
	w.server.Inject(s3test.Rule{Op: s3test.OpPut, Key: "pre/r1/hs/*", Kind: s3test.SlowDown, Probability: 0.3})
	w.server.Inject(s3test.Rule{Op: s3test.OpPut, Key: "pre/r1/hs/*", Kind: s3test.Broken, Probability: 0.2})
	w.server.Inject(s3test.Rule{Op: s3test.OpPut, Key: "pre/r1/hs/*", Kind: s3test.LostAnswer, Probability: 0.1})
	w.writeSamples(0, 60, 300)
	w.start("extract")
	w.await("all are moved", w.moved(60))
}

func TestWrongCredentialsBlockAndHealByThemselves(t *testing.T) {
	t.Parallel()
	w := newWorld(t, s3test.Options{Keys: []string{"other"}}, oneOutput)
	w.writeSamples(0, 5, 300)
	w.start("extract")
	w.await("the state says why", func() bool {
		r := w.reading()
		return r.State == pipeline.OutputBlocked && r.StateReason != "" && is(r.LocalFiles, 5)
	})
	if r := w.reading(); r.VerifiedFiles != nil || r.Reason == "" {
		t.Errorf("what the bucket holds is not known, yet the reading says %+v", r)
	}
	if _, _, err := w.m.WriteDoneSet(t.Context(), "extract"); err == nil {
		t.Error("a done-set was written without knowing the bucket")
	}
	w.server.AllowKeys()
	w.await("all are moved", w.moved(5))
}

func TestCredentialsThatEndPauseEverything(t *testing.T) {
	t.Parallel()
	w := newWorld(t, s3test.Options{}, oneOutput)
	w.writeSamples(0, 3, 300)
	w.start("extract")
	w.await("the first are moved", w.moved(3))
	w.server.AllowKeys("other")
	w.writeSamples(3, 9, 300)
	w.await("the state says why", func() bool {
		r := w.reading()
		return r.State == pipeline.OutputBlocked && r.Queue.WaitingFiles == 6 && is(r.FailedFiles, 0)
	})
	w.server.AllowKeys()
	w.await("all are moved", w.moved(9))
}

func TestListingThatLags(t *testing.T) {
	t.Parallel()
	w := newWorld(t, s3test.Options{}, oneOutput)
	w.start("extract")
	w.await("the bucket is known", func() bool { return w.reading().VerifiedFiles != nil })
	w.server.Inject(s3test.Rule{Op: s3test.OpList, Kind: s3test.ListLag, Delay: 4 * time.Second})
	w.writeSamples(0, 5, 300)
	w.await("all are moved", w.moved(5))
	if n := len(w.server.Overwrites()); n != 0 {
		t.Errorf("%d overwrites because a listing was late", n)
	}
}

func TestListingsThatLie(t *testing.T) {
	t.Parallel()
	for _, kind := range []s3test.Kind{s3test.ListUnordered, s3test.ListHide, s3test.ListIgnoreStart, s3test.ListCutOff, s3test.ListEmptyPage} {
		t.Run(string(kind), func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, s3test.Options{}, oneOutput)
			w.start("extract")
			w.await("the bucket is known", func() bool { return w.reading().VerifiedFiles != nil })
			w.server.Inject(s3test.Rule{Op: s3test.OpList, Kind: kind, Count: 3})
			w.writeSamples(0, 8, 300)
			w.await("all are moved", w.moved(8))
		})
	}
}

func TestDamagedOnArrivalIsSentAgain(t *testing.T) {
	t.Parallel()
	for _, kind := range []s3test.Kind{s3test.StoreTruncated, s3test.StoreFlipped, s3test.StoreFramed} {
		t.Run(string(kind), func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, s3test.Options{}, oneOutput)
			w.server.Inject(s3test.Rule{Op: s3test.OpPut, Key: "pre/r1/hs/*", Kind: kind, Count: 1})
			w.writeSamples(0, 4, 300)
			w.start("extract")
			w.await("all are moved", w.moved(4))
			over := w.server.Overwrites()
			if len(over) != 1 || !over[0].IfMatch {
				t.Errorf("overwrites = %+v, want one, conditional on the ETag seen", over)
			}
		})
	}
}

func TestAlwaysDamagedStays(t *testing.T) {
	t.Parallel()
	w := newWorld(t, s3test.Options{}, oneOutput)
	w.server.Inject(s3test.Rule{Op: s3test.OpPut, Key: "pre/r1/hs/hs_000001.safetensors", Kind: s3test.StoreTruncated})
	w.writeSamples(0, 3, 300)
	w.start("extract")
	w.await("the others are moved and it is reported", func() bool {
		r := w.reading()
		return is(r.DeletedLocalFiles, 2) && is(r.FailedFiles, 1) && w.m.Failures()[0].Kind == pipeline.FailureMismatched
	})
	if !w.exists(sample(1)) {
		t.Error("a file that the store damages is gone")
	}
}

func TestLostObjectIsSentAgain(t *testing.T) {
	t.Parallel()
	w := newWorld(t, s3test.Options{}, oneOutput)
	w.server.Inject(s3test.Rule{Op: s3test.OpPut, Key: "pre/r1/hs/*", Kind: s3test.StoreNothing, Count: 1})
	w.writeSamples(0, 2, 300)
	w.start("extract")
	w.await("all are moved", w.moved(2))
}

func TestPersonalities(t *testing.T) {
	t.Parallel()
	for _, p := range append(s3test.Personalities(),
		s3test.Personality{Name: "opaque", OpaqueETag: true, OpaqueParts: true},
		s3test.Personality{Name: "no start-after", NoStartAfter: true}) {
		t.Run(p.Name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, s3test.Options{Personality: p}, oneOutput)
			w.server.SetObject(w.key(sample(1)), []byte("somebody else's"))
			w.writeSamples(0, 4, 300)
			w.start("extract")
			w.await("all but the foreign one are moved", func() bool {
				r := w.reading()
				return is(r.DeletedLocalFiles, 3) && is(r.FailedFiles, 1)
			})
		})
	}
}

func TestReplacedFileIsSentAnew(t *testing.T) {
	t.Parallel()
	w := newWorld(t, s3test.Options{}, strings.Replace(oneOutput, "id:", "after_upload: keep\n        id:", 1))
	first, second := tensors(1, 300), tensors(2, 300)
	w.write(sample(0), first)
	w.start("extract")
	w.await("it is stored", func() bool { return is(w.reading().VerifiedFiles, 1) })
	if r := w.reading(); !is(r.LocalFiles, 1) || !is(r.DeletedLocalFiles, 0) || !r.Settled {
		t.Errorf("kept: %+v", r)
	}
	// The same inode, rewritten: ours to replace.
	w.record(sample(0), second)
	if err := os.WriteFile(w.path(sample(0)), second, 0o644); err != nil {
		t.Fatal(err)
	}
	w.await("the new content is stored", func() bool {
		got, _ := w.server.Object(w.key(sample(0)))
		return bytes.Equal(got, second) && w.reading().Settled
	})
	// Another inode of the same name: nobody can tell whose content is right.
	w.write(sample(0), tensors(3, 300))
	w.await("it is mismatched", func() bool { return is(w.reading().FailedFiles, 1) })
}

func TestPlaceholders(t *testing.T) {
	t.Parallel()
	w := newWorld(t, s3test.Options{}, strings.Replace(oneOutput, "id:", "after_upload: placeholder\n        id:", 1))
	w.writeSamples(0, 3, 300)
	w.start("extract")
	w.await("all are moved", w.moved(3))
	for i := range 3 {
		if info, err := os.Stat(w.path(sample(i))); err != nil || info.Size() != 0 {
			t.Errorf("no placeholder: %v", err)
		}
	}
	w.stop()
	w.forget()
	w.start("extract")
	w.await("the placeholders are neither files nor lost", w.moved(3))
	cov, err := w.m.Coverage(t.Context(), nil, true)
	if err != nil || cov[0].Local != 0 || len(cov[0].IDs.Stored) != 3 {
		t.Errorf("coverage = %+v, %v", cov, err)
	}
}

// TestAPlaceholderIsOneBesideAnyObject: also if that is not what this run left
// there, and nobody remembers.
func TestAPlaceholderIsOneBesideAnyObject(t *testing.T) {
	t.Parallel()
	for _, p := range []s3test.Personality{s3test.AWS(), s3test.OldCeph()} {
		t.Run(p.Name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, s3test.Options{Personality: p},
				strings.Replace(oneOutput, "format: safetensors", "format: any\n        settle: 50ms\n        after_upload: placeholder", 1))
			w.hurry = hurry
			w.writeSamples(0, 2, 300)
			w.start("extract")
			w.await("all are moved", w.moved(2))
			w.stop()
			w.forget()
			w.unrecord(sample(1))
			w.server.SetObject(w.key(sample(1)), []byte("somebody else's"))
			w.start("extract")
			w.await("there is no local file, and none has failed", func() bool {
				r := w.reading()
				return is(r.LocalFiles, 0) && is(r.FailedFiles, 0) && is(r.VerifiedFiles, 1) && r.Settled
			})
			if got, _ := w.server.Object(w.key(sample(1))); string(got) != "somebody else's" {
				t.Errorf("the object is now %q", got)
			}
		})
	}
}

func TestPauseHoldsUploads(t *testing.T) {
	t.Parallel()
	w := newWorld(t, s3test.Options{}, oneOutput)
	w.start("extract")
	if err := w.m.Pause(t.Context(), true); err != nil {
		t.Fatal(err)
	}
	w.writeSamples(0, 3, 300)
	w.await("they wait", func() bool {
		r := w.reading()
		return r.State == pipeline.OutputPaused && r.Queue.WaitingFiles == 3
	})
	w.stop()
	w.start()
	w.await("they wait after a restart", func() bool {
		return w.m.Outputs().Paused && w.reading().Queue.WaitingFiles == 3
	})
	if keys := dataKeys(w.server); len(keys) != 0 {
		t.Errorf("stored while paused: %q", keys)
	}
	if err := w.m.Pause(t.Context(), false); err != nil {
		t.Fatal(err)
	}
	w.await("all are moved", w.moved(3))
}

func TestLargeFilesGoInParts(t *testing.T) {
	t.Parallel()
	w := newWorld(t, s3test.Options{}, oneOutput)
	w.server.Inject(s3test.Rule{Op: s3test.OpPart, Kind: s3test.Broken, Count: 2})
	w.server.Inject(s3test.Rule{Op: s3test.OpComplete, Kind: s3test.LostAnswer, Count: 1})
	w.writeSamples(0, 2, 40<<20)
	w.start("extract")
	w.await("all are moved", w.moved(2))
	if open := w.server.Uploads(); len(open) != 0 {
		t.Errorf("uploads left open: %q", open)
	}
	w.stop()
	w.forget()
	w.start("extract")
	w.await("they are known again", w.moved(2))
}

// TestDeniedIsNotMissing: where a missing key is denied, a denied HEAD of an
// object that is there must not pass for a free key.
func TestDeniedIsNotMissing(t *testing.T) {
	t.Parallel()
	w := newWorld(t, s3test.Options{Personality: s3test.FilOne()}, oneOutput)
	key := w.key(sample(1))
	w.server.SetObject(key, []byte("somebody else's"))
	w.server.Inject(s3test.Rule{Op: s3test.OpHead, Key: key, Kind: s3test.Denied})
	w.writeSamples(0, 3, 300)
	w.start("extract")
	w.await("the others are moved and one is mismatched", func() bool {
		r := w.reading()
		return is(r.DeletedLocalFiles, 2) && is(r.FailedFiles, 1)
	})
	if got, _ := w.server.Object(key); string(got) != "somebody else's" {
		t.Error("the foreign object was replaced")
	}
}

// TestVanishedWhereMissingIsDenied: an object that goes before it was verified
// is found missing there, too, and sent again.
func TestVanishedWhereMissingIsDenied(t *testing.T) {
	t.Parallel()
	w := newWorld(t, s3test.Options{Personality: s3test.FilOne()}, oneOutput)
	w.hurry = hurry
	w.server.Inject(s3test.Rule{Op: s3test.OpPut, Key: "pre/r1/hs/*", Kind: s3test.StoreNothing, Count: 1})
	w.writeSamples(0, 2, 300)
	w.start("extract")
	w.await("all are moved", w.moved(2))
}

// TestDamagedManifestIsWrittenAnew: where conditions are honoured its name is
// taken for good, and elsewhere nothing but the mover keeps it from being
// replaced, also when the damage was not seen at once.
func TestDamagedManifestIsWrittenAnew(t *testing.T) {
	t.Parallel()
	manifests := "pre/r1/.pipedeck/manifests/*/*/*"
	for _, c := range []struct {
		name  string
		rules []s3test.Rule
	}{
		{"seen at once", []s3test.Rule{{Op: s3test.OpPut, Key: manifests, Kind: s3test.StoreTruncated, Count: 2}}},
		{"seen later", []s3test.Rule{
			{Op: s3test.OpPut, Key: manifests, Kind: s3test.StoreTruncated, Count: 1},
			{Op: s3test.OpHead, Key: manifests, Kind: s3test.Broken, Count: 1},
		}},
		{"never there", []s3test.Rule{{Op: s3test.OpPut, Key: manifests, Kind: s3test.ResetBefore, Count: 2}}},
	} {
		for _, p := range []s3test.Personality{s3test.AWS(), s3test.OldCeph(), s3test.FilOne()} {
			t.Run(c.name+" at "+p.Name, func(t *testing.T) {
				t.Parallel()
				w := newWorld(t, s3test.Options{Personality: p}, oneOutput)
				w.hurry = hurry
				for _, r := range c.rules {
					w.server.Inject(r)
				}
				w.writeSamples(0, 3, 300)
				w.start("extract")
				w.await("all are moved", w.moved(3))
				if n := len(w.server.Overwrites()); n != 0 {
					t.Errorf("%d overwrites", n)
				}
				w.stop()
				w.forget()
				w.start("extract")
				w.await("all is known again", w.moved(3))
			})
		}
	}
}
