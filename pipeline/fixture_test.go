package pipeline

import (
	"time"

	"pipedeck/pipeline/spec"
)

// dawn is when every test world begins.
var dawn = time.Date(2026, 11, 30, 10, 0, 0, 0, time.UTC)

func at(seconds float64) time.Time { return dawn.Add(time.Duration(seconds * float64(time.Second))) }

// extractSpec is a deck of one stage on four GPUs and one without.
func extractSpec() *spec.Spec {
	return &spec.Spec{
		Version: 1, Deck: "deck", Run: "r1", Workdir: "/w", StateDir: "/w/.pipedeck", Hash: "hash",
		Nodes: []spec.Node{{Name: "local", GPUs: spec.GPUSet{All: true}}}, Artifacts: []string{"scripts/*.py"},
		Stages: []spec.Stage{{
			Name: "extract", Total: 1000,
			Workers: spec.Workers{
				PerGPU: 1, Command: []string{"x"}, Stop: spec.Stop{Signal: "SIGTERM", Grace: 120 * time.Second},
				Restart:        spec.Restart{Max: 3, Backoff: 10 * time.Second},
				LoadingTimeout: 20 * time.Minute, StallAfter: 60 * time.Second,
			},
			Outputs:  []spec.Output{{Name: "hidden", Dir: "data/hidden", ID: `hs_(\d+)`, AfterUpload: spec.AfterDelete}},
			Progress: spec.Progress{JSON: "data/p_{rank}.json", Done: "processed", Skipped: "skipped"},
			DoneSet:  &spec.DoneSet{File: "data/done.txt", Form: spec.DoneLines},
		}, {
			Name: "tokenize",
			Workers: spec.Workers{
				Count: 1, Command: []string{"y"}, Stop: spec.Stop{Signal: "SIGTERM", Grace: 30 * time.Second},
				Restart: spec.Restart{Max: 3, Backoff: 10 * time.Second}, LoadingTimeout: 20 * time.Minute, StallAfter: 60 * time.Second,
			},
			Outputs: []spec.Output{{Name: "tokens", Dir: "data/tokens", AfterUpload: spec.AfterKeep}},
		}},
	}
}

// bench drives a World by hand, in virtual time.
type bench struct {
	w     *World
	wants map[string]StageWant
	seen  map[string]LaunchSeen
}

func newBench() *bench {
	return &bench{
		w:     NewWorld(extractSpec(), "local", AgentInfo{Version: "1", Instance: "i", PID: 1, SpecHash: "hash"}),
		wants: map[string]StageWant{}, seen: map[string]LaunchSeen{},
	}
}

func gpuRef(rank int) []GPURef {
	return []GPURef{{Index: rank, UUID: "GPU-" + string(rune('a'+rank))}}
}

// start wants ranks of extract running, their first launches alive since t.
func (b *bench) start(t float64, ranks int) {
	want := StageWant{Want: WantRunning, World: ranks, Since: at(t), Workers: map[int]WorkerWant{}}
	for rank := range ranks {
		id := "extract-" + string(rune('0'+rank)) + "-1"
		want.Workers[rank] = WorkerWant{Launch: id, Launches: 1, GPUs: gpuRef(rank)}
		b.seen[id] = LaunchSeen{
			ID: id, Stage: "extract", Rank: rank, World: ranks, GPUs: gpuRef(rank), State: ProcRunning,
			PID: 100 + rank, StartedAt: at(t), Log: "/w/log", ReadBytes: -1,
		}
	}
	b.wants["extract"] = want
	b.want(t)
	b.look(t)
}

func (b *bench) want(t float64) { b.w.Fold(WantsReading{At: at(t), Stages: b.wants}) }

func (b *bench) look(t float64) {
	r := LaunchesReading{At: at(t)}
	for _, l := range b.seen {
		r.Seen = append(r.Seen, l)
	}
	b.w.Fold(r)
}

// change alters a launch of a rank and looks.
func (b *bench) change(t float64, rank int, f func(*LaunchSeen)) {
	id := b.wants["extract"].Workers[rank].Launch
	l := b.seen[id]
	f(&l)
	b.seen[id] = l
	b.look(t)
}

func (b *bench) edit(t float64, rank int, f func(*WorkerWant)) {
	w := b.wants["extract"].Workers[rank]
	f(&w)
	b.wants["extract"].Workers[rank] = w
	b.want(t)
}

// progress tells the declared count of a rank.
func (b *bench) progress(t float64, rank int, done int64) {
	b.w.Fold(ProgressReading{At: at(t), Stage: "extract", Rank: rank, Done: new(done), Skipped: new(int64(0)), ChangedAt: at(t)})
}

// run advances one second at a time, telling counts of all ranks by f.
func (b *bench) run(from, to float64, ranks int, f func(t float64, rank int) int64) {
	for t := from; t <= to; t++ {
		b.look(t)
		for rank := range ranks {
			b.progress(t, rank, f(t, rank))
		}
	}
}

func (b *bench) stage(t float64) StageSnapshot {
	return b.w.Snapshot(at(t)).Nodes[0].Stages[0]
}

func (b *bench) worker(t float64, rank int) WorkerSnapshot { return b.stage(t).Workers[rank] }

func (b *bench) texts() []string {
	events := b.w.EventsAfter(0)
	out := make([]string, 0, len(events))
	for _, e := range events {
		out = append(out, e.Source+": "+e.Text)
	}
	return out
}
