package tui

import (
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"testing"
	"time"

	"pipedeck/pipeline"
)

// TestManual shows the console on made-up data, to look at by hand:
//
//	go test -c -o /tmp/tui.test ./tui
//	PIPEDECK_TUI=eight /tmp/tui.test -test.run TestManual -test.timeout 1h
//
// The compiled binary is needed: `go test` keeps the terminal to itself.
func TestManual(t *testing.T) {
	name := os.Getenv("PIPEDECK_TUI")
	if name == "" {
		t.Skip("set PIPEDECK_TUI to the name of a scene")
	}
	s, ok := scenes()[name]
	if !ok {
		t.Fatalf("no scene %q", name)
	}
	src := newFakeSource(s.in)
	go play(src)
	if err := Run(t.Context(), Options{Nodes: nodesOf(src, demoDeck()), Now: time.Now, By: "you@here"}); err != nil {
		t.Fatal(err)
	}
}

// play moves the figures of a scene about twice a second.
func play(src *fakeSource) {
	tick := time.NewTicker(500 * time.Millisecond)
	seq := int64(100)
	for now := range tick.C {
		in := src.in
		if len(in.snap.Nodes) == 0 || in.link.State != pipeline.LinkLive {
			continue
		}
		in = copyInput(in)
		in.snap.At = now
		n := &in.snap.Nodes[0]
		for i := range n.Stages[0].Workers {
			w := &n.Stages[0].Workers[i]
			if w.State == pipeline.WorkerRunning {
				w.SamplesPerSecond = new(5 + 3*rand.Float64())
				w.Done = new(*w.Done + 3)
			}
		}
		for i := range n.GPUs {
			if n.GPUs[i].UtilPercent != nil {
				n.GPUs[i].UtilPercent = new(90 + 10*rand.Float64())
			}
		}
		o := &n.Stages[0].Outputs[0]
		o.VerifiedFiles = new(deref(o.VerifiedFiles) + 12)
		o.Queue.WaitingFiles = 900 + rand.Int64N(300)
		o.BytesPerSecond = new(6e7 + 3e7*rand.Float64())
		if seq++; seq%8 == 0 {
			n.Events = append(n.Events, pipeline.Event{Seq: seq, At: now, Level: pipeline.Info, Source: "s3", Text: "manifest 412 written: 1,000 files", Count: 1})
		}
		src.set(in)
	}
}

func copyInput(in input) input {
	n := in.snap.Nodes[0]
	n.GPUs = append([]pipeline.GPUSnapshot(nil), n.GPUs...)
	n.Stages = append([]pipeline.StageSnapshot(nil), n.Stages...)
	n.Stages[0].Workers = append([]pipeline.WorkerSnapshot(nil), n.Stages[0].Workers...)
	n.Stages[0].Outputs = append([]pipeline.OutputSnapshot(nil), n.Stages[0].Outputs...)
	n.Events = append([]pipeline.Event(nil), n.Events...)
	in.snap.Nodes = append([]pipeline.NodeSnapshot{n}, in.snap.Nodes[1:]...)
	return in
}

// demoDeck plans and acts out everything.
func demoDeck() *fakeDeck {
	began := time.Now()
	return &fakeDeck{
		plan: func(in pipeline.Intent) (pipeline.Plan, error) { return examplePlan(in, time.Now()), nil },
		action: func(id string) pipeline.Action {
			return exampleAction(id, began)
		},
		log: func(req pipeline.LogRequest) (pipeline.LogChunk, error) {
			n := 1
			if req.Before != "" {
				n = 300
			}
			var text strings.Builder
			for i := range n {
				fmt.Fprintf(&text, "\x1b[32mINFO\x1b[0m step %d loss %.4f %s\n", i, rand.Float64(), req.Worker)
			}
			time.Sleep(min(req.Wait, 700*time.Millisecond))
			return pipeline.LogChunk{Data: []byte(text.String()), Cursor: "c", EOF: true, First: true}, nil
		},
	}
}

func examplePlan(in pipeline.Intent, now time.Time) pipeline.Plan {
	p := pipeline.Plan{
		Schema: 1, ID: "p-7f3a", Action: in.Verb, Target: in.Target, Deck: "dflash-qwen36-27b", Node: "train1",
		MadeAt: now, ExpiresAt: now.Add(time.Minute), Executable: true, Fingerprint: "f",
		Undo: pipeline.Undo{Reason: new("nothing is removed")},
		Steps: []pipeline.Step{
			{N: 1, Kind: pipeline.StepStopWorkers, On: []string{"extract/0", "extract/1", "extract/2", "extract/3"}, TimeoutSeconds: 120, Proof: "processes gone, GPU memory at baseline"},
			{N: 2, Kind: pipeline.StepDoneSet, On: []string{"extract"}, TimeoutSeconds: 60, Proof: "done-set written"},
			{N: 3, Kind: pipeline.StepStartWorkers, On: []string{"extract/0", "extract/1", "extract/2", "extract/3"}, Proof: "each process alive"},
		},
	}
	switch in.Verb {
	case pipeline.VerbWipe:
		p.Confirm = new("1204 dflash-qwen36-27b")
		p.Loss = pipeline.Loss{
			Files: 1307, Bytes: 1_600_000_000, Proven: 103, Missing: 1104, Unknown: 60, BeingWritten: 40, LostFiles: 1204,
			LostBytes: 1_440_000_000, RecomputeSeconds: new(50.0),
		}
		p.Safer = &pipeline.Safer{Action: pipeline.VerbSettle, Then: pipeline.VerbWipe, Seconds: new(19.0)}
		p.Undo = pipeline.Undo{Until: new(now.Add(10 * time.Minute))}
	case pipeline.VerbKill:
		p.Executable, p.Blocked = false, []string{"the lease is held by bob@laptop (a-13)"}
	case pipeline.VerbStop, pipeline.VerbRestart, pipeline.VerbPivot:
		p.Confirm = new("dflash-qwen36-27b")
	default: // the others take nothing away
	}
	return p
}

func exampleAction(id string, began time.Time) pipeline.Action {
	return pipeline.Action{
		ID: id, Plan: "p-7f3a", Verb: pipeline.VerbStop, Target: "extract", By: "you@here", Result: pipeline.Verified, BeganAt: began,
		EndedAt: new(began.Add(4 * time.Second)),
		Steps: []pipeline.StepResult{
			{N: 1, Kind: pipeline.StepStopWorkers, Result: pipeline.Verified, Text: "4 of 4 gone", BeganAt: &began, EndedAt: new(began.Add(time.Second)), Checks: []pipeline.Check{
				{Name: "processes", Result: pipeline.Verified, Observed: "none, twice"},
				{Name: "GPU memory", Result: pipeline.Unverified, Observed: "nvidia-smi did not answer"},
			}},
			{N: 2, Kind: pipeline.StepStartWorkers, Result: pipeline.ActionFailed, Text: "2 of 4 alive", BeganAt: &began, EndedAt: new(began.Add(4 * time.Second))},
		},
	}
}
