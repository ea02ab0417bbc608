package tui

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"pipedeck/pipeline"
)

// t0 is the console's clock in fixtures.
func t0() time.Time { return time.Date(2026, 11, 30, 14, 2, 31, 0, time.UTC) }

// scene is one input with the state of the console around it.
type scene struct {
	in input
	ui ui
}

func scenes() map[string]scene {
	out := map[string]scene{
		"healthy":   healthy(4),
		"one_gpu":   healthy(1),
		"eight":     mixed(8),
		"sixteen":   mixed(16),
		"stalled":   stalled(),
		"crashed":   crashed(),
		"loading":   loading(),
		"no_gpu":    noGPU(),
		"idle":      idle(),
		"huge":      huge(),
		"hostile":   hostile(),
		"unknown":   unknown(),
		"held":      held(),
		"paused":    paused(),
		"connect":   withUI(input{link: pipeline.Link{State: pipeline.LinkConnecting, Reason: new("dialling /run/pipedeck.sock")}}),
		"auth":      withUI(input{link: pipeline.Link{State: pipeline.LinkAuth, Reason: new("the socket belongs to uid 0")}}),
		"version":   withUI(input{link: pipeline.Link{State: pipeline.LinkVersion, Reason: new("agent 0.2.0, console 0.1.0")}}),
		"allstates": allStates(),
	}
	out["asleep"] = asleep()
	out["fleet"], out["fleet_node"] = fleet(""), fleet("train2")
	for _, l := range []pipeline.LinkState{pipeline.LinkSlow, pipeline.LinkStale, pipeline.LinkLost} {
		s := mixed(8)
		s.in.link = pipeline.Link{State: l, AgeSeconds: new(34.2), Reason: new("no answer")}
		s.in.snap.At = t0().Add(-34200 * time.Millisecond)
		s.in.retryIn = 5 * time.Second
		out["link_"+string(l)] = s
	}
	return out
}

func withUI(in input) scene {
	u := ui{now: t0(), theme: ThemeAuto, focus: paneWorkers, history: newHistory(), events: &eventRing{}}
	h := u.history
	if len(in.snap.Nodes) > 0 {
		n := in.snap.Nodes[0]
		for _, s := range n.Stages {
			for i, w := range s.Workers {
				u.history.series[w.ID] = wave(deref(w.SamplesPerSecond), i)
			}
		}
		h.series[seriesBytes], h.series[seriesQueue], h.series[seriesRate] = wave(76e6, 3), wave(1204, 5), wave(24, 7)
		u.events.add(n)
		if rows := joinRows(n); len(rows) > 0 {
			u.selected = rows[0].key
		}
	}
	return scene{in, u}
}

// wave is a bounded, repeatable series with a gap in it.
func wave(mean float64, seed int) []float64 {
	out := make([]float64, historyKeep)
	for i := range out {
		out[i] = mean * (1 + 0.3*math.Sin(float64(i*(seed+3))/4))
		if i%50 == 49 {
			out[i] = math.NaN()
		}
	}
	return out
}

func live() pipeline.Link { return pipeline.Link{State: pipeline.LinkLive, AgeSeconds: new(0.4)} }

func gpu(i int) pipeline.GPUSnapshot {
	id := fmt.Sprintf("extract/%d", i)
	return pipeline.GPUSnapshot{
		Index: i, UUID: fmt.Sprintf("GPU-%08d", i), Name: "NVIDIA H200", State: pipeline.GPUOK,
		MemUsedBytes: new(int64(55_700_000_000)), MemTotalBytes: new(int64(150_754_820_096)),
		UtilPercent: new(float64(95 + i%5)), PowerWatts: new(512.0), TempCelsius: new(float64(61 + i)),
		Processes: []pipeline.GPUProcess{{PID: 4711 + i, MemBytes: new(int64(55_600_000_000)), Worker: &id}},
	}
}

func worker(i, n int) pipeline.WorkerSnapshot {
	return pipeline.WorkerSnapshot{
		ID: fmt.Sprintf("extract/%d", i), Rank: i, GPU: new(i), GPUUUID: new(fmt.Sprintf("GPU-%08d", i)), PID: new(4711 + i),
		State: pipeline.WorkerRunning, StateSince: new(t0().Add(-time.Hour)), Done: new(int64(103_200 + i*13)), Total: new(int64(914_000 / n)),
		SamplesPerSecond: new(6.1 + float64(i)/10), LastOutputAt: new(t0().Add(-time.Second)), MaxRestarts: 3,
		StartedAt: new(t0().Add(-5 * time.Hour)), GPUMemBytes: new(int64(55_600_000_000)),
		Log: fmt.Sprintf("/workspace/dflash/.pipedeck/logs/extract-%d.log", i),
	}
}

func outputSeen() pipeline.OutputSnapshot {
	return pipeline.OutputSnapshot{
		Name: "hidden_states", Dir: "data/hidden_states", State: pipeline.OutputRunning,
		LocalFiles: new(int64(1307)), LocalBytes: new(int64(1_600_000_000)),
		Queue:         pipeline.Queue{WaitingFiles: 1104, WaitingBytes: 1_320_000_000, InFlight: 100, MaxParallel: 100, OldestSeconds: new(19.0)},
		VerifiedFiles: new(int64(411_602)), VerifiedBytes: new(int64(493_922_400_000)), DeletedLocalFiles: new(int64(411_499)),
		FailedFiles: new(int64(0)), QuarantinedFiles: new(int64(0)),
		FilesPerSecond: new(64.0), BytesPerSecond: new(76e6), ProducedBytesPerSecond: new(71e6),
		Coverage:    &pipeline.CoverageCounts{At: t0().Add(-8 * time.Second), Complete: true, Local: 1307, Proven: 103, Missing: 1204},
		CoverageMap: mapSeen(),
	}
}

// mapSeen is that of four ranks, each at its own place in its quarter of the
// range.
func mapSeen() *pipeline.CoverageMap {
	m := &pipeline.CoverageMap{IDsPerCell: 2048, StoredIDs: make([]int64, 447), LocalIDs: make([]int64, 447)}
	for i := range m.StoredIDs {
		switch at, done := i%112, 48+2*(i/112); {
		case at < done:
			m.StoredIDs[i] = 2048
		case at == done:
			m.StoredIDs[i], m.LocalIDs[i] = 1200, 301
		case at == 90:
			m.StoredIDs[i] = 7
		}
	}
	return m
}

func healthy(n int) scene {
	st := pipeline.StageSnapshot{
		Name: "extract", State: pipeline.StageRunning, Done: new(int64(412_806)), Skipped: new(int64(0)), FailedSamples: new(int64(0)),
		Total: new(int64(914_000)), SamplesPerSecond: new(24.1), ETASeconds: new(20797.0), Outputs: []pipeline.OutputSnapshot{outputSeen()},
	}
	node := pipeline.NodeSnapshot{
		Name: "train1", Link: live(), Agent: &pipeline.AgentInfo{Version: "0.1.0", Instance: "a1", PID: 412, StartedAt: t0().Add(-6 * time.Hour)},
		Host:      pipeline.MachineSnapshot{CPUPercent: new(31.0), MemUsedBytes: new(int64(1 << 38)), MemTotalBytes: new(int64(1 << 40)), AgeSeconds: new(0.6)},
		GPUSource: pipeline.GPUSourceInfo{Kind: "nvml", AgeSeconds: new(0.6)},
		Disks: []pipeline.DiskSnapshot{{
			Path: "/workspace", UsedBytes: new(int64(5e12)), FreeBytes: new(int64(2_100_000_000_000)),
			TotalBytes: new(int64(7e12)), FullReason: new("filling slower than 1 %/day"),
		}},
		Events: []pipeline.Event{
			{Seq: 1, At: t0().Add(-6 * time.Minute), Level: pipeline.Info, Source: "agent", Text: "agent 0.1.0 started", Count: 1},
			{Seq: 2, At: t0().Add(-5 * time.Minute), Level: pipeline.Info, Source: "ops", Text: "alice@laptop: start extract, verified in 4.1 s", Action: "a-12", Count: 1},
			{Seq: 3, At: t0().Add(-51 * time.Second), Level: pipeline.Warn, Source: "s3", Text: "503 SlowDown, backing off 2 s", Count: 3},
		},
	}
	for i := range n {
		node.GPUs = append(node.GPUs, gpu(i))
		st.Workers = append(st.Workers, worker(i, n))
	}
	node.Stages = []pipeline.StageSnapshot{st, {Name: "train", State: pipeline.StageIdle, Outputs: []pipeline.OutputSnapshot{{Name: "checkpoints", State: pipeline.OutputIdle}}}}
	return withUI(input{ok: true, link: live(), snap: pipeline.Snapshot{
		Schema: 1, Deck: "dflash-qwen36-27b", Run: "r1", At: t0(), Health: pipeline.Healthy, Nodes: []pipeline.NodeSnapshot{node},
	}})
}

func (s *scene) workers() []pipeline.WorkerSnapshot { return s.in.snap.Nodes[0].Stages[0].Workers }

func (s *scene) event(l pipeline.Level, source, text string) {
	n := &s.in.snap.Nodes[0]
	n.Events = append(n.Events, pipeline.Event{Seq: int64(len(n.Events) + 1), At: t0().Add(-12 * time.Second), Level: l, Source: source, Text: text, Count: 1})
	s.ui.events.add(*n)
}

func (s *scene) health(h pipeline.Health, why ...string) {
	s.in.snap.Health, s.in.snap.HealthReasons = h, why
}

func stall(w *pipeline.WorkerSnapshot) {
	w.State, w.StateReason, w.SamplesPerSecond = pipeline.WorkerStalled, new("no output for 41 s, 11,436 samples left"), new(0.0)
}

func crash(w *pipeline.WorkerSnapshot) {
	w.State, w.StateReason, w.PID = pipeline.WorkerExited, new("exit 137 (SIGKILL); restart in 8 s"), nil
	w.ExitCode, w.SamplesPerSecond, w.Restarts = new(137), nil, 1
}

func stalled() scene {
	s := healthy(4)
	stall(&s.workers()[2])
	s.in.snap.Nodes[0].GPUs[2].UtilPercent = new(0.0)
	s.health(pipeline.Degraded, "worker extract/2: stalled 41 s")
	s.event(pipeline.Warn, "extract/2", "no output for 31 s (stall_after 30 s)")
	return s
}

func crashed() scene {
	s := healthy(4)
	crash(&s.workers()[3])
	g := &s.in.snap.Nodes[0].GPUs[3]
	g.UtilPercent, g.MemUsedBytes, g.Processes = new(0.0), new(int64(0)), []pipeline.GPUProcess{}
	s.health(pipeline.Degraded, "worker extract/3: exited 137")
	s.event(pipeline.Error, "extract/3", "exit 137 (SIGKILL); restart in 8 s (1 of 3)")
	return s
}

func mixed(n int) scene {
	s := healthy(n)
	stall(&s.workers()[3])
	crash(&s.workers()[6])
	s.health(pipeline.Degraded, "worker extract/6: exited 137", "worker extract/3: stalled 41 s")
	o := &s.in.snap.Nodes[0].Stages[0].Outputs[0]
	o.FailedFiles = new(int64(3))
	s.event(pipeline.Error, "extract/6", "exit 137 (SIGKILL); restart in 8 s (1 of 3)")
	return s
}

func loading() scene {
	s := healthy(4)
	for i := range s.workers() {
		w := &s.workers()[i]
		w.State, w.StateReason, w.Done, w.SamplesPerSecond = pipeline.WorkerLoading, new("12 s: GPU memory grows"), new(int64(0)), nil
		w.RateReason, w.LastOutputAt = new("no output yet"), nil
		s.in.snap.Nodes[0].GPUs[i].UtilPercent = new(float64(17 - i*4))
		s.ui.history.series[w.ID] = nil
	}
	st := &s.in.snap.Nodes[0].Stages[0]
	st.State, st.Done, st.SamplesPerSecond, st.ETASeconds, st.ETAReason = pipeline.StageStarting, new(int64(0)), nil, nil, new("no output yet")
	o := &st.Outputs[0]
	zero := new(int64(0))
	o.LocalFiles, o.LocalBytes, o.VerifiedFiles, o.FilesPerSecond, o.BytesPerSecond = zero, zero, zero, new(0.0), new(0.0)
	o.ProducedBytesPerSecond, o.Queue, o.Coverage = new(0.0), pipeline.Queue{MaxParallel: 100}, &pipeline.CoverageCounts{At: t0(), Complete: true}
	return s
}

func noGPU() scene {
	s := healthy(2)
	n := &s.in.snap.Nodes[0]
	n.GPUs, n.GPUSource = nil, pipeline.GPUSourceInfo{Kind: "none", Reason: new("nvidia-smi: not found")}
	for i := range s.workers() {
		s.workers()[i].GPU, s.workers()[i].GPUUUID, s.workers()[i].GPUMemBytes = nil, nil, nil
	}
	return s
}

func idle() scene {
	s := healthy(4)
	n := &s.in.snap.Nodes[0]
	st := &n.Stages[0]
	st.State, st.Workers, st.SamplesPerSecond, st.ETASeconds = pipeline.StageIdle, nil, nil, nil
	st.Done, st.DoneReason = nil, new("never started here")
	st.Outputs[0] = pipeline.OutputSnapshot{Name: "hidden_states", State: pipeline.OutputIdle, Reason: new("not started")}
	for i := range n.GPUs {
		n.GPUs[i].Processes, n.GPUs[i].UtilPercent, n.GPUs[i].MemUsedBytes = []pipeline.GPUProcess{}, new(0.0), new(int64(600_000_000))
	}
	s.ui.selected = "gpu 0"
	return s
}

// asleep is an idle deck after a run: everything stopped, nothing local.
// fleet is a deck of four nodes: one is well, one has a stalled worker, one is
// lost, one was never heard of.
func fleet(tab string) scene {
	s := healthy(4)
	bad, lost, unseen := stalled(), healthy(2), pipeline.NodeSnapshot{Name: "train4", Link: pipeline.Link{State: pipeline.LinkConnecting, Reason: new("dialling train4")}}
	nodes := []pipeline.NodeSnapshot{s.in.snap.Nodes[0], bad.in.snap.Nodes[0], lost.in.snap.Nodes[0], unseen}
	nodes[1].Name, nodes[2].Name = "train2", "train3"
	nodes[2].Link = pipeline.Link{State: pipeline.LinkLost, AgeSeconds: new(34.2), Reason: new("no route to host")}
	snap := s.in.snap
	snap.Nodes, snap.Health, snap.HealthReasons = nodes, pipeline.Degraded, []string{"train3: lost for 34 s"}
	out := withUI(input{ok: true, link: live(), snap: snap})
	out.ui.tab, out.ui.fleetAt = tab, "train3"
	return out
}

func asleep() scene {
	s := healthy(2)
	st := &s.in.snap.Nodes[0].Stages[0]
	st.State, st.SamplesPerSecond, st.ETASeconds, st.ETAReason = pipeline.StageStopped, nil, nil, new("not running")
	for i := range s.workers() {
		w := &s.workers()[i]
		w.State, w.PID, w.SamplesPerSecond, w.ExitCode = pipeline.WorkerDone, nil, nil, new(0)
	}
	return s
}

func held() scene {
	s := idle()
	g := &s.in.snap.Nodes[0].GPUs[1]
	g.Processes, g.MemUsedBytes = []pipeline.GPUProcess{{PID: 31337, MemBytes: new(int64(58 << 30))}}, new(int64(58<<30))
	l := &s.in.snap.Nodes[0].GPUs[2]
	l.State, l.StateReason, l.UtilPercent, l.MemUsedBytes, l.TempCelsius, l.Processes = pipeline.GPULost, new("GPU is lost (Xid 79)"), nil, nil, nil, nil
	return s
}

func paused() scene {
	s := healthy(4)
	n := &s.in.snap.Nodes[0]
	n.UploadsPaused = true
	o := &n.Stages[0].Outputs[0]
	o.State, o.StateReason, o.Queue.InFlight = pipeline.OutputPaused, new("paused by alice@laptop"), 0
	n.Disks[0].FullInSeconds, n.Disks[0].FullReason = new(9000.0), nil
	n.Action = &pipeline.Action{
		ID: "a-13", Verb: pipeline.VerbRestart, Target: "extract/2", By: "bob@laptop", Result: pipeline.Running, BeganAt: t0().Add(-12 * time.Second),
		Steps: []pipeline.StepResult{
			{N: 1, Kind: pipeline.StepStopWorkers, Result: pipeline.Running, Text: "1 of 1 draining", BeganAt: new(t0().Add(-11 * time.Second))},
			{N: 2, Kind: pipeline.StepStartWorkers, Result: pipeline.Running},
		},
	}
	return s
}

func huge() scene {
	s := healthy(4)
	st := &s.in.snap.Nodes[0].Stages[0]
	big := new(int64(math.MaxInt64))
	st.Total, st.Done, st.SamplesPerSecond, st.ETASeconds = big, big, new(math.MaxFloat64), new(math.MaxFloat64)
	o := &st.Outputs[0]
	o.LocalFiles, o.LocalBytes, o.VerifiedFiles, o.VerifiedBytes, o.FailedFiles = big, big, new(int64(math.MaxInt64-1)), big, big
	o.QuarantinedFiles, o.BytesPerSecond, o.FilesPerSecond, o.ProducedBytesPerSecond = big, new(math.Inf(1)), new(math.NaN()), new(math.MaxFloat64)
	o.Queue = pipeline.Queue{WaitingFiles: math.MaxInt64, WaitingBytes: math.MaxInt64, InFlight: math.MaxInt64, MaxParallel: math.MaxInt64, OldestSeconds: new(math.MaxFloat64)}
	o.Coverage = &pipeline.CoverageCounts{At: time.Time{}, Local: math.MaxInt64, Proven: math.MinInt64, Missing: math.MaxInt64, Unknown: math.MaxInt64}
	for i := range s.workers() {
		w := &s.workers()[i]
		w.Done, w.Total, w.SamplesPerSecond, w.Restarts, w.PID = new(int64(-5)), big, new(1e300), math.MaxInt, new(math.MaxInt)
		g := &s.in.snap.Nodes[0].GPUs[i]
		g.MemUsedBytes, g.UtilPercent, g.PowerWatts, g.TempCelsius, g.Index = big, new(1e9), new(-1e9), new(math.NaN()), math.MaxInt-i
	}
	return s
}

func hostile() scene {
	s := healthy(4)
	evil := "\x1b[2J\x1b]0;owned\x07\u202egnp.exe \u4f60\u597d\U0001f525\ufe0f a\u0301\u0301\u0301\u0301\u0301\u0301\r\nrm -rf /\t\xff\xfe"
	s.in.snap.Deck = evil
	n := &s.in.snap.Nodes[0]
	n.Name = strings.Repeat("node", 40)
	s.health(pipeline.Degraded, evil)
	w := s.workers()
	w[0].ID, w[0].StateReason, w[0].State = "extract/"+evil, &evil, pipeline.WorkerStalled
	w[1].ID = strings.Repeat("漢字", 60)
	n.Stages[0].Name = evil
	o := &n.Stages[0].Outputs[0]
	o.Name, o.State, o.StateReason = evil, pipeline.OutputBlocked, &evil
	n.Action = &pipeline.Action{Verb: pipeline.Verb(evil), Target: evil, By: evil, Steps: []pipeline.StepResult{{N: 1, BeganAt: new(t0()), Text: evil}}}
	s.event(pipeline.Level(evil), evil, evil)
	return s
}

func unknown() scene {
	s := healthy(2)
	n := &s.in.snap.Nodes[0]
	n.Agent, n.Disks, n.GPUSource = nil, nil, pipeline.GPUSourceInfo{Kind: "nvidia-smi", AgeSeconds: new(14.0), Reason: new("no answer for 14 s")}
	n.GPUs[1] = pipeline.GPUSnapshot{Index: 1, UUID: "GPU-00000001", State: pipeline.GPUUnknown, StateReason: new("no answer")}
	st := &n.Stages[0]
	st.Done, st.Total, st.SamplesPerSecond, st.ETASeconds = nil, nil, nil, nil
	st.Outputs[0] = pipeline.OutputSnapshot{Name: "hidden_states", State: pipeline.OutputUnknown, Reason: new("the bucket was not read yet")}
	st.Workers[1] = pipeline.WorkerSnapshot{ID: "extract/1", Rank: 1, GPU: new(1), State: pipeline.WorkerUnknown}
	return s
}

func allStates() scene {
	states := []pipeline.WorkerState{
		pipeline.WorkerInit, pipeline.WorkerLoading, pipeline.WorkerRunning, pipeline.WorkerIdle, pipeline.WorkerWaiting,
		pipeline.WorkerDraining, pipeline.WorkerStalled, pipeline.WorkerExited, pipeline.WorkerFailed, pipeline.WorkerOOM,
		pipeline.WorkerLost, pipeline.WorkerDone, pipeline.WorkerUnknown,
	}
	s := healthy(len(states))
	for i, st := range states {
		w := &s.workers()[i]
		w.State = st
		if slices.Contains([]pipeline.WorkerState{pipeline.WorkerExited, pipeline.WorkerFailed, pipeline.WorkerOOM}, st) {
			w.ExitCode, w.PID = new(137), nil
		}
	}
	s.health(pipeline.Failed, "worker extract/8: failed 137")
	return s
}
