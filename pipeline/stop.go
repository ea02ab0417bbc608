package pipeline

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// gpuSlack is how far above the baseline a GPU's memory may stay: driver
// versions and other contexts move it by this much.
const gpuSlack = 256 << 20

// StopEvidence is everything that was freshly observed after a stop.
type StopEvidence struct {
	Launches []LaunchEvidence
	GPUs     []GPUEvidence // empty: the stage holds no GPU
	Now      time.Time
}

// LaunchEvidence is two looks at the process set of one launch. A zero At
// means that the look did not happen.
type LaunchEvidence struct {
	ID, Worker    string
	First, Second ProcessSet
}

// GPUEvidence is what one GPU held before the start and what two or more
// readings after the stop say of it.
type GPUEvidence struct {
	UUID          string
	BaselineBytes *int64 // nil: not known
	Reads         []GPUReading
}

// EndedBetween says that somebody of the launch was seen by the first look and
// nobody by the second: two more looks may prove what these do not.
func (l LaunchEvidence) EndedBetween() bool {
	lives := func(p Process) bool { return !isGone(p) }
	return slices.ContainsFunc(l.First.Members, lives) && !slices.ContainsFunc(l.Second.Members, lives)
}

// GPUCheckPrefix begins the name of every check on GPU memory: the driver may
// give it back some seconds after the processes are gone.
const GPUCheckPrefix = "GPU "

// JudgeStop says whether the launches are provably gone. Anything seen alive
// is a failure that names its holder; anything that could not be looked at
// makes the whole unknown.
func JudgeStop(ev StopEvidence) (Verdict, []Check) {
	checks := []Check{}
	if len(ev.Launches) == 0 {
		checks = append(checks, Check{Name: "processes", Result: NotApplicable, Observed: "no worker was launched", At: ev.Now})
	}
	for _, l := range ev.Launches {
		checks = append(checks, judgeSet(l, ev), judgeExit(l, ev.Now))
	}
	if len(ev.GPUs) == 0 {
		checks = append(checks, Check{Name: "GPU memory", Result: NotApplicable, Observed: "no GPU is held", At: ev.Now})
	}
	for _, g := range ev.GPUs {
		checks = append(checks, judgeGPU(g, ev.Now))
	}
	return worst(checks), checks
}

// worst is failed before unknown before verified.
func worst(checks []Check) Verdict {
	v := Verified
	for _, c := range checks {
		if c.Result == ActionFailed {
			return ActionFailed
		}
		if c.Result != Verified && c.Result != NotApplicable {
			v = Unverified
		}
	}
	return v
}

func judgeSet(l LaunchEvidence, ev StopEvidence) Check {
	c := Check{Name: l.Worker + ": processes gone", At: ev.Now}
	if l.First.At.IsZero() || l.Second.At.IsZero() {
		c.Result, c.Observed = Unverified, "cannot verify: the process set was not looked at twice"
		return c
	}
	c.At = l.Second.At
	var zombies []string
	for _, p := range l.Second.Members {
		if isGone(p) {
			zombies = append(zombies, fmt.Sprintf("%d (%s)", p.PID, Clean(p.Comm)))
			continue
		}
		c.Result, c.Observed = ActionFailed, nameHolders(l.Second)
		return c
	}
	for _, p := range l.First.Members {
		if !isGone(p) {
			c.Result = Unverified
			c.Observed = "cannot verify: empty only once; before, " + nameHolders(l.First)
			return c
		}
	}
	if unknown := append(append([]string{}, l.First.Unknown...), l.Second.Unknown...); len(unknown) > 0 {
		c.Result, c.Observed = Unverified, "cannot verify: "+Clean(strings.Join(unknown, "; "))
		return c
	}
	if l.Second.ShimAlive {
		// It ends with the last descendant: a set that forks faster than it can
		// be read looks empty.
		c.Result, c.Observed = Unverified, "cannot verify: nobody was seen, but the shim lives and waits for a descendant"
		return c
	}
	c.Result, c.Observed = Verified, "process set empty twice, no descendant left"
	if len(zombies) > 0 {
		c.Observed += "; zombies without threads: " + strings.Join(zombies, ", ")
	}
	return c
}

// isGone holds for a zombie whose threads are all dead: it holds no memory and
// no file, only an entry in the process table.
func isGone(p Process) bool {
	return (p.State == "Z" || p.State == "X") && p.Threads == 0
}

func nameHolders(set ProcessSet) string {
	var out []string
	for _, p := range set.Members {
		if !isGone(p) {
			out = append(out, nameHolder(p, set.User))
		}
	}
	return strings.Join(out, "; ")
}

func nameHolder(p Process, user string) string {
	who := fmt.Sprintf("pid %d (%s)", p.PID, Clean(p.Comm))
	if p.User != "" {
		who += " of " + Clean(p.User)
	}
	switch {
	case user != "" && p.User != "" && p.User != user:
		return "another user's process: " + who
	case p.State == "D":
		at := p.WaitChan
		if at == "" {
			at = "an unknown place"
		}
		return fmt.Sprintf("D state: %s waits in the kernel at %s and cannot be killed before that ends", who, Clean(at))
	case p.State == "Z" || p.State == "X":
		noun := "threads"
		if p.Threads == 1 {
			noun = "thread"
		}
		return fmt.Sprintf("zombie with %d living %s: %s", p.Threads, noun, who)
	case p.By == "leader":
		return "leader still alive: " + who
	default:
		return fmt.Sprintf("straggler: %s, found by %s", who, Clean(p.By))
	}
}

func judgeExit(l LaunchEvidence, now time.Time) Check {
	c := Check{Name: l.Worker + ": exit recorded", At: now}
	if l.Second.At.IsZero() {
		c.Result, c.Observed = Unverified, "cannot verify: not looked at"
		return c
	}
	c.At = l.Second.At
	exit := l.Second.Exit
	if exit == nil {
		exit = l.First.Exit
	}
	switch {
	case exit == nil && l.Second.ShimAlive:
		c.Result, c.Observed = Unverified, "cannot verify: the shim lives and has not recorded an exit"
	case exit == nil || exit.Code == nil:
		c.Result, c.Observed = Verified, "code unknown: no exit record"
	default:
		c.Result, c.Observed = Verified, EndText(LaunchSeen{State: ProcExited, Exit: exit})
	}
	return c
}

func judgeGPU(g GPUEvidence, now time.Time) Check {
	c := Check{Name: GPUCheckPrefix + g.UUID + ": memory at baseline", At: now, Result: Unverified}
	if len(g.Reads) < 2 {
		c.Observed = "cannot verify: the memory was not read twice"
		return c
	}
	var used [2]int64
	var last GPUSnapshot
	for i, r := range g.Reads[len(g.Reads)-2:] {
		gpu, why := readGPU(r, g.UUID)
		if why != "" {
			c.Observed = why
			return c
		}
		c.At, used[i], last = r.At, *gpu.MemUsedBytes, gpu
		c.Name = fmt.Sprintf("%s%d: memory at baseline", GPUCheckPrefix, gpu.Index)
	}
	if g.BaselineBytes == nil {
		c.Observed = "cannot verify: what the GPU held before the start is not known; it holds " + humanBytes(used[1])
		return c
	}
	before := humanBytes(*g.BaselineBytes)
	if most := max(used[0], used[1]); most > *g.BaselineBytes+gpuSlack {
		c.Result = ActionFailed
		c.Observed = fmt.Sprintf("%s in use, %s before the start; %s", humanBytes(most), before, memoryHolders(last))
		return c
	}
	c.Result = Verified
	c.Observed = fmt.Sprintf("%s in use on two reads, %s before the start", humanBytes(used[1]), before)
	if g.Reads[len(g.Reads)-1].Kind == sourceSimulated {
		c.Observed += " (simulated GPU)"
	}
	return c
}

// readGPU finds one GPU in a reading, or says why its memory is not known.
func readGPU(r GPUReading, uuid string) (GPUSnapshot, string) {
	if g := FindGPU(r.GPUs, uuid); g != nil {
		switch {
		case g.State == GPULost:
			return *g, "GPU lost: " + Clean(orElse(g.StateReason, unreached))
		case g.MemUsedBytes == nil:
			return *g, "cannot verify: " + Clean(orElse(g.StateReason, "the driver tells no memory use"))
		case !g.ownsMemory():
			return *g, "cannot verify: the operating system manages this GPU's memory, and it may stay in use after its process has ended"
		}
		return *g, ""
	}
	if r.Reason != "" {
		return GPUSnapshot{}, "cannot verify: " + Clean(r.Reason)
	}
	return GPUSnapshot{}, "cannot verify: the GPU was not in the reading"
}

// holderOf names a process on a GPU as well as it is known.
func holderOf(p GPUProcess) string {
	switch {
	case p.Worker != nil:
		return Clean(*p.Worker)
	case p.Foreign:
		return "a process outside of this container"
	case p.Name != nil && p.User != nil:
		return Clean(*p.Name) + " of " + Clean(*p.User)
	case p.Name != nil:
		return Clean(*p.Name)
	}
	return "unattributed process"
}

func memoryHolders(g GPUSnapshot) string {
	if g.Processes == nil {
		return "the driver does not name who holds it"
	}
	if len(g.Processes) == 0 {
		return "unattributed: the driver lists no process"
	}
	var out []string
	for _, p := range g.Processes {
		who := holderOf(p)
		mem := "unknown memory"
		if p.MemBytes != nil {
			mem = humanBytes(*p.MemBytes)
		}
		out = append(out, fmt.Sprintf("%s, pid %d, holds %s", who, p.PID, mem))
	}
	return strings.Join(out, "; ")
}
