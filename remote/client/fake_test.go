package client_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"testing"
	"time"

	"pipedeck/pipeline"
	"pipedeck/remote/agent"
	"pipedeck/remote/agent/wire"
	"pipedeck/remote/client"
)

// fakeDeck answers every call with data that shows its arguments, or with
// fail.
type fakeDeck struct {
	mu      sync.Mutex
	fail    error
	retries int
}

var _ pipeline.Deck = (*fakeDeck)(nil)

var day = time.Date(2026, 11, 30, 10, 0, 0, 123456789, time.UTC)

func (f *fakeDeck) err() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.fail
}

func (f *fakeDeck) failWith(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.fail = err
}

func (f *fakeDeck) Snapshot(context.Context) (pipeline.Snapshot, error) {
	return bigSnapshot(8), f.err()
}

func (f *fakeDeck) Plan(_ context.Context, in pipeline.Intent) (pipeline.Plan, error) {
	return pipeline.Plan{
		ID: "p-1", Action: in.Verb, Target: in.Target, MadeAt: day, ExpiresAt: day.Add(time.Minute),
		Blocked: []string{}, Confirm: new("1204 deck"), Loss: pipeline.Loss{Files: 1307, LostFiles: 1204},
		Steps: []pipeline.Step{{N: 1, Kind: pipeline.StepStopWorkers, On: []string{"extract/0"}, TimeoutSeconds: 120}},
	}, f.err()
}

func (f *fakeDeck) Apply(_ context.Context, req pipeline.ApplyRequest) (pipeline.Action, error) {
	return pipeline.Action{ID: "a-" + req.Key, Plan: req.Plan, By: req.By, Reason: &req.Confirm, Result: pipeline.Running}, f.err()
}

func (f *fakeDeck) Action(_ context.Context, id string, wait time.Duration) (pipeline.Action, error) {
	return pipeline.Action{ID: id, Reason: new(wait.String()), Steps: []pipeline.StepResult{{N: 1, Result: pipeline.Unverified}}}, f.err()
}

func (f *fakeDeck) Coverage(_ context.Context, outputs []string, ids bool) (pipeline.CoverageReport, error) {
	report := pipeline.CoverageReport{Schema: 1, Deck: strconv.FormatBool(ids)}
	for _, name := range outputs {
		report.Outputs = append(report.Outputs, pipeline.OutputCoverage{Name: name, IDs: &pipeline.CoverageIDs{Stored: []string{"1", "2"}}})
	}
	return report, f.err()
}

func (f *fakeDeck) History(_ context.Context, limit int) ([]pipeline.JournalRecord, error) {
	return []pipeline.JournalRecord{{Seq: int64(limit), At: day, Kind: "plan", Data: map[string]any{"files": 3.0}}}, f.err()
}

func (f *fakeDeck) Events(_ context.Context, after int64, wait time.Duration) ([]pipeline.Event, error) {
	return []pipeline.Event{{Seq: after + 1, At: day, Text: wait.String(), Count: 2}}, f.err()
}

func (f *fakeDeck) Log(_ context.Context, req pipeline.LogRequest) (pipeline.LogChunk, error) {
	return pipeline.LogChunk{Data: fmt.Appendf(nil, "%+v \x00\xff", req), Cursor: req.Cursor + "+", EOF: true}, f.err()
}

func (f *fakeDeck) Failures(context.Context) ([]pipeline.Failure, error) {
	return []pipeline.Failure{{Output: "extract/hs", Path: "a", Kind: pipeline.FailureHeld, Since: day, NextTry: &day}}, f.err()
}

func (f *fakeDeck) Describe(_ context.Context, worker string) (pipeline.WorkerDetail, error) {
	return pipeline.WorkerDetail{ID: worker, Command: []string{"python3"}}, f.err()
}

func (f *fakeDeck) PlanFiles(_ context.Context, plan string, offset, limit int) (pipeline.PlanFiles, error) {
	return pipeline.PlanFiles{Plan: plan, Offset: int64(offset), Total: int64(limit), Files: []pipeline.ListedFile{{Root: "/w", Path: "a", Class: pipeline.ClassMissing}}}, f.err()
}

func (f *fakeDeck) Strangers(_ context.Context, pids []int) ([]pipeline.Stranger, error) {
	return []pipeline.Stranger{{PID: len(pids), Argv: []string{"python3"}, GPUMem: -1}}, f.err()
}

func (f *fakeDeck) Resolve(_ context.Context, req pipeline.Resolve) (pipeline.Action, error) {
	return pipeline.Action{ID: req.Action, By: req.By, Steps: []pipeline.StepResult{}}, f.err()
}

func (f *fakeDeck) Retry(context.Context) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.retries++
	return f.fail
}

// bigSnapshot is a snapshot as a node with that many GPUs makes it.
func bigSnapshot(gpus int) pipeline.Snapshot {
	node := pipeline.NodeSnapshot{Name: "train1", Link: pipeline.Link{State: pipeline.LinkLive, AgeSeconds: new(0.0)}}
	stage := pipeline.StageSnapshot{Name: "extract", State: pipeline.StageRunning, Done: new(int64(412806))}
	for i := range gpus {
		id := fmt.Sprintf("extract/%d", i)
		node.GPUs = append(node.GPUs, pipeline.GPUSnapshot{
			Index: i, UUID: "GPU-0", Name: "NVIDIA H200", State: pipeline.GPUOK, UtilPercent: new(97.0),
			Processes: []pipeline.GPUProcess{{PID: 4711, MemBytes: new(int64(55600000000)), Worker: &id}},
		})
		stage.Workers = append(stage.Workers, pipeline.WorkerSnapshot{
			ID: id, Rank: i, GPU: new(i), State: pipeline.WorkerRunning, StateSince: &day, Log: "/workspace/.pipedeck/logs/extract.log",
		})
	}
	stage.Outputs = []pipeline.OutputSnapshot{{Name: "hidden_states", State: pipeline.OutputRunning, Coverage: &pipeline.CoverageCounts{At: day}}}
	node.Stages = []pipeline.StageSnapshot{stage}
	for i := range 50 {
		node.Events = append(node.Events, pipeline.Event{Seq: int64(i), At: day, Level: pipeline.Info, Source: "s3", Text: "retry 3 files: 503 SlowDown", Count: 1})
	}
	return pipeline.Snapshot{Schema: 1, Deck: "deck", Run: "r1", At: day, Health: pipeline.Healthy, Nodes: []pipeline.NodeSnapshot{node}}
}

// serving starts an agent in this process and returns its state directory and
// a function that ends it and waits.
func serving(tb testing.TB, deck pipeline.Deck, change func(*agent.Options)) (wire.State, func()) {
	tb.Helper()
	state := wire.State{Dir: filepath.Join(tb.TempDir(), ".pipedeck")}
	opts := agent.Options{
		SocketPath: state.Socket(), LockPath: state.AgentLock(), Deck: deck,
		Info: pipeline.AgentInfo{Version: "0.0.1", Instance: "one", PID: os.Getpid(), StartedAt: day},
	}
	if change != nil {
		change(&opts)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() {
		done <- agent.Serve(ctx, opts)
		close(done)
	}()
	end := func() {
		cancel()
		<-done
	}
	tb.Cleanup(end)
	eventually(tb, "the agent to listen", func() bool {
		return wire.ReadRecord(state.AgentLock()).State == wire.LockReady
	})
	return state, end
}

func dialled(tb testing.TB, deck pipeline.Deck) *client.Client {
	tb.Helper()
	state, _ := serving(tb, deck, nil)
	c, err := client.Dial(tb.Context(), state.Socket())
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(c.Close)
	return c
}

// eventually polls until ok, and fails the test after 10 s.
func eventually(tb testing.TB, what string, ok func() bool) {
	tb.Helper()
	for until := time.Now().Add(time.Minute); !ok(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(until) {
			tb.Fatalf("not within 10 s: %s", what)
		}
	}
}

func wantProblem(t *testing.T, err error, kind pipeline.ProblemKind, is error) *pipeline.Problem {
	t.Helper()
	var p *pipeline.Problem
	if !errors.As(err, &p) || p.Kind != kind {
		t.Fatalf("got %v, want a Problem of kind %s", err, kind)
	}
	if is != nil && !errors.Is(err, is) {
		t.Fatalf("%q is not %v", err, is)
	}
	return p
}
