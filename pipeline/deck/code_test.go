package deck

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"path"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"pipedeck/pipeline"
	"pipedeck/pipeline/engine"
)

// push leaves code on the node as a console does.
func (w *world) push(t *testing.T, text string) pipeline.CodeRecord {
	t.Helper()
	sum := sha256.Sum256([]byte(text))
	rec := pipeline.CodeRecord{By: "me@laptop", Files: []pipeline.CodeFile{{To: "src/a", Size: int64(len(text)), SHA256: hex.EncodeToString(sum[:])}}}
	rec.Hash = pipeline.CodeHash(rec.Files)
	raw, err := json.Marshal(rec)
	if err != nil {
		t.Fatal(err)
	}
	w.files.put(path.Join(w.sp.Workdir, "src/a"), []byte(text))
	w.files.put(path.Join(w.sp.StateDir, pipeline.CodeRecordName), raw)
	return rec
}

func (f *memFiles) put(p string, data []byte) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.files[p] = data
}

func TestStartWaitsForItsCode(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "count: 1", 0)
		want := w.push(t, "one")
		d, end := w.agent(t)
		defer end()
		p, err := d.Plan(t.Context(), pipeline.Intent{Verb: pipeline.VerbStart, Target: "extract", Code: &pipeline.Code{Hash: want.Hash, Files: 1}})
		if err != nil {
			t.Fatal(err)
		}
		refusals := map[string]func(){
			"nothing was pushed": func() { w.files.put(path.Join(w.sp.StateDir, pipeline.CodeRecordName), []byte("{}")) },
			"other code":         func() { w.push(t, "two") },
			"edited on the node": func() { w.push(t, "one"); w.files.put(path.Join(w.sp.Workdir, "src/a"), []byte("by hand")) },
		}
		for name, change := range refusals {
			change()
			_, err := d.Apply(t.Context(), pipeline.ApplyRequest{Plan: p.ID})
			if prob, ok := errors.AsType[*pipeline.Problem](err); !ok || prob.Needs != pipeline.NeedsCode || prob.Plan == nil {
				t.Errorf("%s: %v", name, err)
			}
		}
		if got := w.host.launches(); len(got) > 0 {
			t.Errorf("launched %v", got)
		}
		w.push(t, "one")
		a, err := d.Apply(t.Context(), pipeline.ApplyRequest{Plan: p.ID})
		for err == nil && a.EndedAt == nil {
			a, err = d.Action(t.Context(), a.ID, time.Minute)
		}
		if err != nil || a.Result != pipeline.Verified || !strings.Contains(a.Steps[0].Text, want.Hash) {
			t.Fatalf("%+v %v", a, err)
		}
		snap, err := d.Snapshot(t.Context())
		if code := snap.Nodes[0].Stages[0].Workers[0].Code; err != nil || code == nil || *code != want.Hash {
			t.Errorf("it runs with %v, %v", code, err)
		}
	})
}

func TestCodePushedBySomebodyElseInBetweenEndsTheStart(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "count: 1", 0)
		want := w.push(t, "one")
		d, end := w.agent(t)
		defer end()
		w.push(t, "two")
		p := pipeline.Plan{Intent: pipeline.Intent{Code: &pipeline.Code{Hash: want.Hash}}}
		out := d.checkCode(t.Context(), engine.Job{Plan: p})
		if out.Result != pipeline.ActionFailed || !strings.Contains(out.Text, "pushed by me@laptop") {
			t.Errorf("%+v", out)
		}
	})
}
