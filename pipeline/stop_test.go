package pipeline

import (
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func gone() LaunchEvidence {
	return LaunchEvidence{
		ID: "extract-0-1", Worker: "extract/0", First: ProcessSet{At: at(1), Exit: &Exit{Code: new(143), Signal: "SIGTERM"}},
		Second: ProcessSet{At: at(2), Exit: &Exit{Code: new(143), Signal: "SIGTERM"}},
	}
}

func gpuAt(used ...*int64) GPUEvidence {
	ev := GPUEvidence{UUID: "GPU-a", BaselineBytes: new(int64(600e6))}
	for i, u := range used {
		ev.Reads = append(ev.Reads, GPUReading{At: at(float64(i)), Kind: "nvml", GPUs: []GPUSnapshot{{Index: 3, UUID: "GPU-a", State: GPUOK, MemUsedBytes: u}}})
	}
	return ev
}

func TestJudgeStop(t *testing.T) {
	t.Parallel()
	low, high := new(int64(610e6)), new(int64(58e9))
	with := func(change func(*StopEvidence)) StopEvidence {
		ev := StopEvidence{Launches: []LaunchEvidence{gone()}, GPUs: []GPUEvidence{gpuAt(low, low)}, Now: at(3)}
		change(&ev)
		return ev
	}
	members := func(ps ...Process) StopEvidence {
		return with(func(ev *StopEvidence) { ev.Launches[0].Second.Members, ev.Launches[0].Second.User = ps, "root" })
	}
	for _, tc := range []struct {
		name    string
		ev      StopEvidence
		verdict Verdict
		says    string
	}{
		{"clean", with(func(*StopEvidence) {}), Verified, "process set empty twice"},
		{"clean without GPUs", with(func(ev *StopEvidence) { ev.GPUs = nil }), Verified, "no GPU is held"},
		{"nothing launched", StopEvidence{Now: at(3)}, Verified, "no worker was launched"},
		{"exit code told", with(func(*StopEvidence) {}), Verified, "ended by SIGTERM (code 143)"},
		{"no exit record", with(func(ev *StopEvidence) { ev.Launches[0].First.Exit, ev.Launches[0].Second.Exit = nil, nil }), Verified, "code unknown"},
		{"shim still at work", with(func(ev *StopEvidence) {
			ev.Launches[0].First.Exit, ev.Launches[0].Second = nil, ProcessSet{At: at(2), ShimAlive: true}
		}), Unverified, "the shim lives"},
		{"shim waits for somebody", with(func(ev *StopEvidence) { ev.Launches[0].Second.ShimAlive = true }), Unverified, "waits for a descendant"},
		{"dead zombie", members(Process{PID: 5, State: "Z", Comm: "python3"}), Verified, "zombies without threads: 5 (python3)"},
		{"zombie leader with threads", members(Process{PID: 5, State: "Z", Threads: 3, Comm: "python3"}), ActionFailed, "zombie with 3 living threads"},
		{"leader alive", members(Process{PID: 5, State: "S", Threads: 1, By: "leader"}), ActionFailed, "leader still alive: pid 5"},
		{"straggler", members(Process{PID: 6, State: "S", Threads: 1, By: "session", Comm: "x\x1b[m"}), ActionFailed, "straggler: pid 6 (x␛), found by session"},
		{"whose", members(Process{PID: 6, State: "R", Threads: 1, By: "session", Comm: "x", User: "root"}), ActionFailed, "straggler: pid 6 (x) of root, found by session"},
		{"D state", members(Process{PID: 7, State: "D", Threads: 1, By: "leader", WaitChan: "nvidia_close"}), ActionFailed, "D state: pid 7 () waits in the kernel at nvidia_close"},
		{"another user", members(Process{PID: 8, State: "S", Threads: 1, By: "environment", User: "eve"}), ActionFailed, "another user's process: pid 8 () of eve"},
		{"alive at first, gone then", with(func(ev *StopEvidence) {
			ev.Launches[0].First.Members = []Process{{PID: 5, State: "S", Threads: 1, By: "leader"}}
		}), Unverified, "empty only once"},
		{"looked once", with(func(ev *StopEvidence) { ev.Launches[0].First = ProcessSet{} }), Unverified, "not looked at twice"},
		{"hidden processes", with(func(ev *StopEvidence) { ev.Launches[0].Second.Unknown = []string{"pid 9: permission denied"} }), Unverified, "cannot verify: pid 9"},
		{"memory held", with(func(ev *StopEvidence) { ev.GPUs[0] = gpuAt(high, high) }), ActionFailed, "58.0 GB in use, 600.0 MB before the start; the driver does not name"},
		{"memory held by another", with(func(ev *StopEvidence) {
			ev.GPUs[0] = gpuAt(high, high)
			ev.GPUs[0].Reads[1].GPUs[0].Processes = []GPUProcess{{PID: 77, MemBytes: high}}
		}), ActionFailed, "unattributed process, pid 77, holds 58.0 GB"},
		{"memory held, nobody listed", with(func(ev *StopEvidence) {
			ev.GPUs[0] = gpuAt(high, high)
			ev.GPUs[0].Reads[1].GPUs[0].Processes = []GPUProcess{}
		}), ActionFailed, "unattributed: the driver lists no process"},
		{"memory free on one read", with(func(ev *StopEvidence) { ev.GPUs[0] = gpuAt(high, low) }), ActionFailed, "58.0 GB in use"},
		{"one read only", with(func(ev *StopEvidence) { ev.GPUs[0] = gpuAt(low) }), Unverified, "not read twice"},
		{"memory unknown", with(func(ev *StopEvidence) { ev.GPUs[0] = gpuAt(low, nil) }), Unverified, "tells no memory use"},
		{"no baseline", with(func(ev *StopEvidence) { ev.GPUs[0].BaselineBytes = nil }), Unverified, "before the start is not known"},
		{"GPU lost", with(func(ev *StopEvidence) { ev.GPUs[0].Reads[1].GPUs[0].State = GPULost }), Unverified, "GPU lost"},
		{"source gone", with(func(ev *StopEvidence) { ev.GPUs[0].Reads[1] = GPUReading{Kind: "none", Reason: "timed out"} }), Unverified, "cannot verify: timed out"},
		{"simulated", with(func(ev *StopEvidence) { ev.GPUs[0].Reads[1].Kind = "simulated" }), Verified, "(simulated GPU)"},
	} {
		verdict, checks := JudgeStop(tc.ev)
		var said []string
		for _, c := range checks {
			said = append(said, c.Name+": "+c.Observed)
		}
		if verdict != tc.verdict || !strings.Contains(strings.Join(said, "\n"), tc.says) {
			t.Errorf("%s: %s\n%s", tc.name, verdict, strings.Join(said, "\n"))
		}
	}
}

// No evidence that leaves anything open is ever verified.
func TestJudgeStopNeverGuesses(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		ev := StopEvidence{Now: at(9)}
		sound := true
		for range rapid.IntRange(1, 4).Draw(t, "launches") {
			l := gone()
			switch rapid.IntRange(0, 5).Draw(t, "flaw") {
			case 1:
				l.Second, sound = ProcessSet{}, false
			case 2:
				l.First.Unknown, sound = []string{"?"}, false
			case 3:
				l.First.Members, sound = []Process{{PID: 1, State: "R", Threads: 1}}, false
			case 5:
				l.Second.ShimAlive, sound = true, false
			case 4:
				l.Second.Members, sound = []Process{{PID: 1, State: "Z", Threads: 1}}, false
			}
			ev.Launches = append(ev.Launches, l)
		}
		verdict, checks := JudgeStop(ev)
		if (verdict == Verified) != sound {
			t.Fatalf("%s, sound %v: %+v", verdict, sound, checks)
		}
		for _, c := range checks {
			if c.Name == "" || c.Observed == "" || c.At.IsZero() {
				t.Fatalf("a check without its evidence: %+v", c)
			}
		}
	})
}

func TestWhoHoldsMemory(t *testing.T) {
	t.Parallel()
	for want, p := range map[string]GPUProcess{
		"extract/0, pid 7":                           {PID: 7, Worker: new("extract/0"), Name: new("python3")},
		"python3 of eve, pid 7, holds 50.0 GB":       {PID: 7, Name: new("python3"), User: new("eve"), MemBytes: new(int64(50e9))},
		"python3, pid 7":                             {PID: 7, Name: new("python3")},
		"a process outside of this container, pid 7": {PID: 7, Foreign: true},
		"unattributed process, pid 7":                {PID: 7},
	} {
		if got := memoryHolders(GPUSnapshot{Processes: []GPUProcess{p}}); !strings.HasPrefix(got, want) {
			t.Errorf("holder %q, want %q", got, want)
		}
	}
}

// Where the operating system owns the memory, free memory proves nothing.
func TestMemoryThatProvesNothing(t *testing.T) {
	t.Parallel()
	for kind, want := range map[string]Verdict{MemDevice: Verified, MemNUMA: Unverified, MemUnified: Unverified} {
		r := GPUReading{At: at(1), Kind: "nvml", GPUs: []GPUSnapshot{{UUID: "GPU-a", State: GPUOK, MemUsedBytes: new(int64(0)), More: &GPUMore{MemKind: kind}}}}
		c := judgeGPU(GPUEvidence{UUID: "GPU-a", BaselineBytes: new(int64(0)), Reads: []GPUReading{r, r}}, at(2))
		if c.Result != want {
			t.Errorf("%s memory: %+v", kind, c)
		}
	}
}
