package main

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/dustin/go-humanize"

	"pipedeck/gpu"
	"pipedeck/pipeline"
	"pipedeck/remote/agent"
	"pipedeck/s3/store"
)

// Levels below which the node's resources are worth a warning.
const (
	fewOpenFiles  = 4096
	littleDisk    = 10 << 30
	littleShm     = 1 << 30
	clockTolerant = 30 * time.Second
	checkPatience = 30 * time.Second
)

// checkNode looks at the machine: its disks, limits and the programs that the
// stages run.
func checkNode(ctx context.Context, rep *checkReport, s specFile) {
	if st, err := os.Stat(s.Workdir); err != nil || !st.IsDir() {
		rep.add("node", "workdir", checkFail, fmt.Sprintf("%q is no directory", s.Workdir), "make it, or correct `workdir`")
	} else {
		rep.add("node", "workdir", checkOK, s.Workdir, "")
	}
	if err := agent.CheckStateDir(s.StateDir); err != nil {
		rep.add("node", "state directory", checkFail, err.Error(), "set `state_dir` to a path on a local disk")
	} else {
		rep.add("node", "state directory", checkOK, s.StateDir+" is on a local filesystem", "")
	}
	checkDisks(ctx, rep, s)
	checkFiles(rep)
	checkPrograms(rep, s)
}

func checkDisks(ctx context.Context, rep *checkReport, s specFile) {
	ctx, cancel := context.WithTimeout(ctx, checkPatience)
	defer cancel()
	for _, d := range gpu.New(nil, time.Now).Disks(ctx, append(pathsOf(s), "/dev/shm")) {
		checkDisk(rep, d)
	}
}

// pathsOf are the places where the deck keeps anything.
func pathsOf(s specFile) []string {
	paths := []string{s.Workdir, s.StateDir}
	for i := range s.Stages {
		st := &s.Stages[i]
		for j := range st.Outputs {
			for _, d := range st.Outputs[j].Dirs(st, 1) {
				paths = append(paths, s.Abs(d))
			}
		}
		for _, d := range st.Scratch {
			paths = append(paths, filepath.Dir(s.Abs(d)))
		}
	}
	return paths
}

func checkDisk(rep *checkReport, d pipeline.DiskReading) {
	name := "disk of " + d.Path
	if d.FreeBytes == nil || d.TotalBytes == nil {
		rep.add("node", name, checkUnknown, d.Reason, "")
		return
	}
	text := fmt.Sprintf("%s free of %s (%s)", humanize.Bytes(uint64(*d.FreeBytes)), humanize.Bytes(uint64(*d.TotalBytes)), d.Filesystem)
	least := int64(littleDisk)
	if d.Path == "/dev/shm" {
		least = littleShm
	}
	if *d.FreeBytes < least {
		rep.add("node", name, checkWarn, text, "free some space, or point the deck elsewhere")
		return
	}
	rep.add("node", name, checkOK, text, "")
}

func checkFiles(rep *checkReport) {
	var lim syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &lim); err != nil {
		rep.add("node", "open files", checkUnknown, err.Error(), "")
		return
	}
	text := fmt.Sprintf("up to %d", lim.Max)
	if lim.Max < fewOpenFiles {
		rep.add("node", "open files", checkWarn, text, "raise the hard limit (`ulimit -Hn`): 100 uploads need several hundred")
		return
	}
	rep.add("node", "open files", checkOK, text, "")
}

// checkPrograms looks for what the stages start, in the PATH that an agent
// started from here would have.
func checkPrograms(rep *checkReport, s specFile) {
	var seen []string
	for _, st := range s.Stages {
		name := st.Workers.Command[0]
		if slices.Contains(seen, name) || strings.Contains(name, "{") {
			continue
		}
		seen = append(seen, name)
		if strings.Contains(name, "/") && !filepath.IsAbs(name) {
			name = s.Abs(name)
		}
		path, err := exec.LookPath(name)
		if err != nil {
			rep.add("node", "program "+name, checkFail, "not found in PATH", "install it, or start pipedeck from the environment that has it")
			continue
		}
		rep.add("node", "program "+name, checkOK, path, "")
	}
}

// checkGPUs looks at the GPUs, and whether the spec needs any.
func checkGPUs(ctx context.Context, rep *checkReport, s specFile) {
	ctx, cancel := context.WithTimeout(ctx, checkPatience)
	defer cancel()
	r := gpu.NewChain(time.Now).Read(ctx)
	needed := ""
	for _, st := range s.Stages {
		if st.Workers.PerGPU > 0 || st.Workers.GPUs.All {
			needed = st.Name
			break
		}
	}
	switch {
	case len(r.GPUs) > 0:
		text, todo := fmt.Sprintf("%s lists %s", r.Kind, pipeline.Counted(len(r.GPUs), "GPU", "GPUs")), ""
		if r.Reason != "" {
			text += "; " + r.Reason
			todo = "nvidia-smi tells less and takes longer: `make gpu` builds pipedeck-gpu"
		}
		rep.add("gpus", "source", checkOK, text, todo)
	case needed != "":
		rep.add("gpus", "source", checkFail, fmt.Sprintf("none: %s; stage %q needs GPUs", r.Reason, needed), "install the NVIDIA driver, or use `count` instead of `per_gpu`")
	default:
		rep.add("gpus", "source", checkOK, "none, and no stage needs one: "+r.Reason, "")
	}
	for _, g := range r.GPUs {
		checkGPU(rep, g)
	}
}

func checkGPU(rep *checkReport, g pipeline.GPUSnapshot) {
	name := fmt.Sprintf("GPU %d", g.Index)
	if g.State != pipeline.GPUOK {
		reason := string(g.State)
		if g.StateReason != nil {
			reason += ": " + *g.StateReason
		}
		rep.add("gpus", name, checkFail, reason, "reset the GPU or leave it out with `nodes[].gpus`")
		return
	}
	text := g.Name
	if g.MemUsedBytes != nil && g.MemTotalBytes != nil {
		text += fmt.Sprintf(", %s of %s in use", humanize.Bytes(uint64(*g.MemUsedBytes)), humanize.Bytes(uint64(*g.MemTotalBytes)))
	}
	rep.add("gpus", name, checkOK, text, "")
}

// checkStore tries the bucket.
func checkStore(ctx context.Context, rep *checkReport, s specFile) {
	ctx, cancel := context.WithTimeout(ctx, checkPatience)
	defer cancel()
	checkClock(ctx, rep, s.Store.Endpoint)
	c := store.New(storeOptions(s, store.LoadCredentials(nil)))
	defer c.Close()
	for _, it := range c.Probe(ctx) {
		rep.add("store", it.Name, it.Result, it.Text, it.Hint)
	}
}

// checkClock compares this clock with the endpoint's: a request signed with a
// clock that is minutes off is refused.
func checkClock(ctx context.Context, rep *checkReport, endpoint string) {
	if endpoint == "" {
		endpoint = "https://s3.amazonaws.com"
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodHead, endpoint, nil)
	if err != nil {
		rep.add("node", "clock", checkUnknown, err.Error(), "")
		return
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		rep.add("node", "clock", checkUnknown, "the endpoint's clock could not be asked", "")
		return
	}
	_ = resp.Body.Close() // nothing was read from it
	at, err := http.ParseTime(resp.Header.Get("Date"))
	if err != nil {
		rep.add("node", "clock", checkUnknown, "the endpoint tells no time", "")
		return
	}
	off := time.Since(at).Round(time.Second)
	text := fmt.Sprintf("%s apart from the endpoint's", off.Abs())
	if off.Abs() > clockTolerant {
		rep.add("node", "clock", checkWarn, text, "set the clock: requests may be refused")
		return
	}
	rep.add("node", "clock", checkOK, text, "")
}
