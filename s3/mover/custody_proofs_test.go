package mover_test

import (
	"strings"
	"testing"

	"pipedeck/s3/s3test"
)

// What was sent when an output is suspended is verified and in a manifest before
// the action goes on: what it wipes stays among what is done.
func TestSuspendAwaitsProofs(t *testing.T) {
	t.Parallel()
	for name, paused := range map[string]bool{"": false, "while uploads are paused": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			suspendAwaitsProofs(t, paused)
		})
	}
}

func suspendAwaitsProofs(t *testing.T, paused bool) {
	t.Helper()
	w := newWorld(t, s3test.Options{}, oneOutput)
	w.start("extract")
	w.await("the store is known", func() bool { return is(w.reading().VerifiedFiles, 0) })
	stored := func() (n int64) {
		for _, key := range w.server.Keys() {
			if strings.HasPrefix(key, "pre/r1/hs/") {
				n++
			}
		}
		return n
	}
	w.writeSamples(0, 60, 100)
	w.await("some were sent", func() bool { return stored() > 0 })
	if paused {
		if err := w.m.Pause(t.Context(), true); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.m.Suspend(t.Context(), "a-1", []string{"extract/hs"}); err != nil {
		t.Fatal(err)
	}
	if r := w.reading(); !is(r.VerifiedFiles, stored()) {
		t.Errorf("%d are in the store, verified are %v", stored(), *r.VerifiedFiles)
	}
}
