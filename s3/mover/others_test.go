package mover_test

import (
	"os"
	"strings"
	"testing"
	"time"

	"pipedeck/s3/s3test"
)

const twoNodes = `
nodes: [{name: alpha, ssh: a@a}, {name: beta, ssh: b@b}]
` + oneOutput

// pair is a deck on two nodes, each with a disk and a ledger of its own.
func pair(t *testing.T, o s3test.Options) (alpha, beta *world) {
	t.Helper()
	alpha = newWorld(t, o, twoNodes)
	beta = worldAt(t, t.TempDir(), alpha.url, alpha.server.Bucket(), twoNodes)
	beta.server = alpha.server
	return alpha, beta
}

// done writes the done-set and returns what it says.
func (w *world) done(t *testing.T) (n int, text, lacks string) {
	t.Helper()
	n, lacks, err := w.m.WriteDoneSet(t.Context(), "extract")
	if err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(w.path("done.txt"))
	if err != nil || strings.Count(string(data), "\n") != n {
		t.Fatalf("%d ids: %v\n%s", n, err, data)
	}
	return n, string(data), lacks
}

func TestDoneSetHasWhatAnotherNodeStoredSince(t *testing.T) {
	t.Parallel()
	alpha, beta := pair(t, s3test.Options{})
	alpha.writeSamples(0, 20, 300)
	alpha.start("extract")
	alpha.await("alpha moved 20", alpha.moved(20))
	beta.start("extract")
	beta.await("beta knows them from its first start", beta.moved(20))
	alpha.writeSamples(20, 50, 300)
	alpha.await("alpha moved 50", alpha.moved(50))
	beta.writeSamples(50, 60, 300)
	beta.await("beta moved 10", beta.moved(30))
	reads := beta.server.Inject(s3test.Rule{Op: s3test.OpGet, Key: "pre/r1/.pipedeck/manifests/extract/hs/*", Kind: s3test.Slow, Delay: time.Millisecond})
	n, text, lacks := beta.done(t)
	if n != 60 || lacks != "" || !strings.Contains(text, "\n49\n") {
		t.Errorf("beta's done-set has %d, %q:\n%s", n, lacks, text)
	}
	if n, _, lacks := alpha.done(t); n != 60 || lacks != "" {
		t.Errorf("alpha's done-set has %d, %q", n, lacks)
	}
	// As stored files they count where they were stored.
	if r := beta.reading(); !is(r.VerifiedFiles, 30) || !is(r.LocalFiles, 0) {
		t.Errorf("beta says %+v", r)
	}
	t.Run("a manifest is read once", func(t *testing.T) {
		before := reads.Struck()
		if before == 0 {
			t.Error("none was read")
		}
		beta.stop()
		beta.start("extract")
		if n, _, lacks := beta.done(t); n != 60 || lacks != "" {
			t.Errorf("after a restart of its agent beta's done-set has %d, %q", n, lacks)
		}
		if after := reads.Struck(); after != before {
			t.Errorf("%d manifests were read again", after-before)
		}
		beta.server.Clear()
	})
	t.Run("and what was known stays, without the store", func(t *testing.T) {
		alpha.writeSamples(60, 70, 300)
		alpha.await("alpha moved 60 of its own", alpha.moved(60))
		beta.server.Inject(s3test.Rule{Kind: s3test.Denied})
		n, _, lacks := beta.done(t)
		if n != 60 || !strings.Contains(lacks, "other nodes") || !strings.Contains(lacks, "computed again") {
			t.Errorf("beta's done-set has %d, %q", n, lacks)
		}
		beta.server.Clear()
	})
}

// A store that says nothing holds up a start for some seconds, and no longer.
func TestDoneSetDoesNotWaitForASilentStore(t *testing.T) {
	t.Parallel()
	alpha, beta := pair(t, s3test.Options{})
	beta.hurry = 5 // two seconds
	alpha.writeSamples(0, 5, 300)
	beta.start("extract")
	beta.await("beta knows the empty bucket", func() bool { r := beta.reading(); return r.VerifiedFiles != nil })
	alpha.start("extract")
	alpha.await("alpha moved 5", alpha.moved(5))
	beta.server.Inject(s3test.Rule{Kind: s3test.Stall})
	begin := time.Now()
	n, _, lacks := beta.done(t)
	if n != 0 || !strings.Contains(lacks, "did not answer within") {
		t.Errorf("beta's done-set has %d, %q", n, lacks)
	}
	t.Logf("it waited %s: %s", time.Since(begin).Round(time.Millisecond), lacks)
	beta.server.Clear()
	beta.await("it is asked again after a while", func() bool { n, _, lacks := beta.done(t); return n == 5 && lacks == "" })
}

func TestADeckOfOneNodeAsksNobody(t *testing.T) {
	t.Parallel()
	w := newWorld(t, s3test.Options{}, oneOutput)
	w.writeSamples(0, 3, 300)
	w.start("extract")
	w.await("all are moved", w.moved(3))
	asked := w.server.Inject(s3test.Rule{Op: s3test.OpList, Kind: s3test.Slow, Delay: time.Millisecond})
	if n, _, lacks := w.done(t); n != 3 || lacks != "" {
		t.Errorf("%d, %q", n, lacks)
	}
	if n := asked.Struck(); n != 0 {
		t.Errorf("%d listings", n)
	}
}
