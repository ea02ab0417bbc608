package mover_test

import (
	"bytes"
	"context"
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"pipedeck/pipeline"
	"pipedeck/pipeline/spec"
	"pipedeck/s3/s3test"
)

func isProblem(err error, kind pipeline.ProblemKind) bool {
	p, ok := errors.AsType[*pipeline.Problem](err)
	return ok && p.Kind == kind
}

// TestStageRecord: written once, replaced by who read it, refused to who did
// not, whatever conditions the endpoint honours.
func TestStageRecord(t *testing.T) {
	t.Parallel()
	for _, p := range []s3test.Personality{s3test.AWS(), s3test.FilOne(), s3test.OldCeph(), s3test.Filebase()} {
		t.Run(p.Name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, s3test.Options{Personality: p}, oneOutput)
			w.start()
			w.await("the bucket is known", func() bool { return is(w.reading().VerifiedFiles, 0) })
			ctx := t.Context()
			if rec, known, err := w.m.StageRecord(ctx, "extract"); rec != nil || !known || err != nil {
				t.Fatalf("at first: %+v, %v, %v", rec, known, err)
			}
			first := pipeline.StageRecord{Schema: 1, Deck: "test", Run: "r1", Stage: "extract", Inputs: "i", Command: "c", World: 4, At: time.Unix(1, 0).UTC()}
			if err := w.m.WriteStageRecord(ctx, "extract", first); err != nil {
				t.Fatal(err)
			}
			if err := w.m.WriteStageRecord(ctx, "extract", first); err != nil {
				t.Errorf("the same again, as after a lost answer: %v", err)
			}
			other := first
			other.Command = "d"
			if err := w.m.WriteStageRecord(ctx, "extract", other); !isProblem(err, pipeline.ProblemRefused) {
				t.Errorf("over one that was not read: %v", err)
			}
			got, _, err := w.m.StageRecord(ctx, "extract")
			if err != nil || got.ETag == "" {
				t.Fatalf("read %+v, %v", got, err)
			}
			other.ETag = got.ETag
			if got.ETag = ""; *got != first {
				t.Errorf("read %+v, want %+v", got, first)
			}
			w.server.SetObject("pre/r1/.pipedeck/extract.json", []byte(`{"schema":1,"deck":"foreign"}`))
			if err := w.m.WriteStageRecord(ctx, "extract", other); !isProblem(err, pipeline.ProblemRefused) {
				t.Errorf("over one that changed since: %v", err)
			}
			got, _, err = w.m.StageRecord(ctx, "extract")
			if err != nil || got.Deck != "foreign" {
				t.Fatalf("read %+v, %v", got, err)
			}
			other.ETag = got.ETag
			if err := w.m.WriteStageRecord(ctx, "extract", other); err != nil {
				t.Error(err)
			}
			if r := w.reading(); !is(r.VerifiedFiles, 0) {
				t.Errorf("the record counts as an output: %+v", r)
			}
		})
	}
}

// TestStageRecordWithoutTheStore: a node that knows the run has what it saw.
func TestStageRecordWithoutTheStore(t *testing.T) {
	t.Parallel()
	w := newWorld(t, s3test.Options{}, oneOutput)
	w.start()
	w.await("the bucket is known", func() bool { return is(w.reading().VerifiedFiles, 0) })
	rec := pipeline.StageRecord{Schema: 1, Deck: "test", Command: "c"}
	lost := w.server.Inject(s3test.Rule{Op: s3test.OpPut, Key: "pre/r1/.pipedeck/extract.json", Kind: s3test.LostAnswer, Count: 1})
	if err := w.m.WriteStageRecord(t.Context(), "extract", rec); err != nil || lost.Struck() != 1 {
		t.Fatalf("a lost answer (%d): %v", lost.Struck(), err)
	}
	w.server.Inject(s3test.Rule{Kind: s3test.Denied})
	got, known, err := w.m.StageRecord(t.Context(), "extract")
	if !isProblem(err, pipeline.ProblemUnreachable) || !known || got == nil || got.Command != "c" {
		t.Errorf("read %+v, %v, %v", got, known, err)
	}
	w.server.Clear()
	w.stop()
	w.forget()
	w.server.Inject(s3test.Rule{Kind: s3test.Denied})
	w.start()
	if got, known, err := w.m.StageRecord(t.Context(), "extract"); err == nil || known || got != nil {
		t.Errorf("a new node: %+v, %v, %v", got, known, err)
	}
}

// TestDescribeInputs: the hash follows content and names, and nothing else.
func TestDescribeInputs(t *testing.T) {
	t.Parallel()
	w := newWorld(t, s3test.Options{}, strings.Replace(oneOutput, "workers:", "inputs: [data/tok, \"cfg/*.json\", missing]\n    workers:", 1))
	big := bytes.Repeat([]byte("0123456789abcdef"), 512<<10)
	put := func(rel string, data []byte) {
		t.Helper()
		w.write(rel, data)
		w.unrecord(rel)
	}
	put("data/tok/a.bin", big)
	put("data/tok/deep/b.bin", []byte("b"))
	put("cfg/x.json", []byte("{}"))
	put("cfg/x.txt", []byte("no input"))
	w.start()
	hash := func() string {
		t.Helper()
		rec, err := w.m.DescribeInputs(t.Context(), "extract")
		if err != nil || rec.Inputs == "" || rec.Command == "" {
			t.Fatalf("described %+v, %v", rec, err)
		}
		return rec.Inputs
	}
	one := hash()
	now := time.Now()
	if err := os.Chtimes(w.path("data/tok/a.bin"), now, now); err != nil {
		t.Fatal(err)
	}
	put("cfg/x.txt", []byte("still none"))
	if hash() != one {
		t.Error("it changed without the content")
	}
	w.stop()
	w.start()
	if hash() != one {
		t.Error("it changed with the agent")
	}
	seen := map[string]bool{one: true}
	for _, change := range []func(){
		func() { put("data/tok/deep/b.bin", []byte("c")) },
		func() { put("missing", []byte("there now")) },
		func() {
			if err := os.Rename(w.path("cfg/x.json"), w.path("cfg/y.json")); err != nil {
				t.Fatal(err)
			}
		},
		func() { put("data/tok/a.bin", append(bytes.Clone(big[:len(big)-1]), 'x')) },
	} {
		change()
		if h := hash(); seen[h] {
			t.Error("a change does not show")
		} else {
			seen[h] = true
		}
	}
	rec, err := w.m.DescribeInputs(t.Context(), "extract")
	if err != nil {
		t.Fatal(err)
	}
	w.spec.Stages[0].Workers.Env = append(w.spec.Stages[0].Workers.Env, spec.EnvVar{Name: "A", Value: "b"})
	if other, err := w.m.DescribeInputs(t.Context(), "extract"); err != nil || other.Command == rec.Command || other.Inputs != rec.Inputs {
		t.Errorf("with another environment: %+v, %v", other, err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	put("cfg/z.json", big)
	if _, err := w.m.DescribeInputs(ctx, "extract"); err == nil {
		t.Error("it did not wait, and says nothing")
	}
	hash()
}

func TestProbeStore(t *testing.T) {
	t.Parallel()
	w := newWorld(t, s3test.Options{}, oneOutput)
	w.start()
	w.await("the bucket is known", func() bool { return is(w.reading().VerifiedFiles, 0) })
	if err := w.m.ProbeStore(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, kind := range []s3test.Kind{s3test.StoreFlipped, s3test.StoreNothing, s3test.Denied} {
		w.server.Inject(s3test.Rule{Op: s3test.OpPut, Kind: kind})
		if err := w.m.ProbeStore(t.Context()); err == nil {
			t.Errorf("%v: nothing was noticed", kind)
		}
		w.server.Clear()
	}
	for _, key := range w.server.Keys() {
		if strings.Contains(key, "after-start") {
			t.Errorf("left in the bucket: %s", key)
		}
	}
}
