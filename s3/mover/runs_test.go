package mover_test

import (
	"bytes"
	"os"
	"strings"
	"testing"
	"time"

	"pipedeck/s3/s3test"
)

// TestANewRunLeavesTheFilesOfTheOldOneAlone changes the run forth and back.
func TestANewRunLeavesTheFilesOfTheOldOneAlone(t *testing.T) {
	t.Parallel()
	w := newWorld(t, s3test.Options{}, oneOutput)
	w.writeSamples(0, 3, 300)
	w.start("extract")
	w.await("the first are moved", w.moved(3))
	if err := w.m.Pause(t.Context(), true); err != nil {
		t.Fatal(err)
	}
	w.writeSamples(3, 6, 300)
	w.await("three wait", func() bool { return w.reading().Queue.WaitingFiles == 3 })
	w.stop()

	w.spec.Run = "r2"
	w.start("extract")
	w.await("they are known as the old run's, and the pause holds", func() bool {
		r := w.reading()
		return w.m.Outputs().Paused && is(r.LocalFiles, 3) && is(r.FailedFiles, 3) && is(r.DoneIDs, 0) && is(r.VerifiedFiles, 0)
	})
	if err := w.m.Pause(t.Context(), false); err != nil {
		t.Fatal(err)
	}
	w.runOf = map[string]string{sample(10): "r2", sample(3): "r2"}
	w.write(sample(10), tensors(10, 300))
	w.write(sample(3), tensors(99, 300)) // written anew: this run's
	w.await("only the new run's are moved", func() bool {
		r := w.reading()
		return is(r.VerifiedFiles, 2) && is(r.LocalFiles, 2) && is(r.FailedFiles, 2)
	})
	for _, f := range w.m.Failures() {
		if !strings.Contains(f.Reason, `"r1"`) {
			t.Errorf("failure = %+v, want the name of the other run", f)
		}
	}
	n, _, err := w.m.WriteDoneSet(t.Context(), "extract")
	data, _ := os.ReadFile(w.path("done.txt"))
	if err != nil || n != 2 {
		t.Errorf("done-set of %d: %q, %v", n, data, err)
	}
	w.stop()

	w.spec.Run = "r1"
	w.write(sample(11), tensors(11, 300)) // while no agent ran: of the run that was current
	w.start("extract")
	w.await("the old run goes on", func() bool {
		r := w.reading()
		return is(r.VerifiedFiles, 5) && is(r.LocalFiles, 1) && is(r.FailedFiles, 1)
	})
	for _, key := range dataKeys(w.server) {
		if strings.Contains(key, "/r2/") != strings.HasSuffix(key, "10.safetensors") && !strings.HasSuffix(key, "03.safetensors") {
			t.Errorf("%s is of the wrong run", key)
		}
	}
}

func TestTheSameIDTwiceIsShownAndCountedOnce(t *testing.T) {
	t.Parallel()
	w := newWorld(t, s3test.Options{}, oneOutput)
	w.start("extract")
	w.write("out/a/hs_7.safetensors", tensors(1, 300))
	w.await("one is moved", w.moved(1))
	w.write("out/b/hs_7.safetensors", tensors(2, 300))
	w.write("out/a/hs_8.safetensors", tensors(3, 300))
	check := func() bool {
		r := w.reading()
		return w.moved(3)() && is(r.DoneIDs, 2) && strings.Contains(r.StateReason, `"7"`) && len(w.m.Failures()) == 2
	}
	w.await("all are moved, two ids are done, and the state says it", check)
	w.stop()
	w.start()
	w.await("it is known after a restart", check)
	w.stop()
	w.forget()
	w.start("extract")
	w.await("it is found again in the bucket", check)
}

// TestManifestsOverruleByTheStoresClock: this node's was set back between two.
func TestManifestsOverruleByTheStoresClock(t *testing.T) {
	t.Parallel()
	stages := strings.Replace(oneOutput, "id:", "after_upload: keep\n        id:", 1)
	w := newWorld(t, s3test.Options{}, stages)
	w.hurry = hurry
	w.write(sample(0), tensors(1, 300))
	w.start("extract")
	w.await("it is stored", func() bool { return is(w.reading().VerifiedFiles, 1) })
	w.stop()
	w.clock = func() time.Time { return stepped(time.Now(), -time.Hour) }
	second := tensors(2, 300)
	w.record(sample(0), second)
	if err := os.WriteFile(w.path(sample(0)), second, 0o644); err != nil {
		t.Fatal(err)
	}
	w.start("extract")
	w.await("the new content is stored", func() bool {
		got, _ := w.server.Object(w.key(sample(0)))
		return bytes.Equal(got, second) && w.reading().Settled
	})
	w.stop()
	w.forget()
	if err := os.Remove(w.path(sample(0))); err != nil {
		t.Fatal(err)
	}
	w.start("extract")
	w.await("it is known again", func() bool { return is(w.reading().DoneIDs, 1) })
}
