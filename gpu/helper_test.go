package gpu

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"pipedeck/gpu/probe"
	"pipedeck/pipeline"
)

// oneGPU is the answer of a helper script that is well; ID is filled in.
const oneGPU = `{"id":'"$id"',"driver":"580.1","gpus":[{"index":0,"uuid":"GPU-aa","name":"NVIDIA H200","state":"ok","mem_used_bytes":7,"mem_total_bytes":100}]}`

// quick are limits for tests: everything fast but the waits for a good answer.
var quick = helperLimits{
	soft: 100 * time.Millisecond, hard: 300 * time.Millisecond, start: 20 * time.Second, begin: time.Minute, calm: time.Hour,
	first: time.Millisecond, most: 50 * time.Millisecond, reap: 20 * time.Second, poll: time.Millisecond, bytes: 1 << 30,
}

// helperScript writes a helper: a shell script that runs body for each
// question, with the question's id in $id and its number in $n.
func helperScript(t *testing.T, before, body string) func() (string, error) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "pipedeck-gpu")
	script := "#!/bin/sh\nn=0\n" + before + "\nwhile read -r line; do id=${line#*:}; id=${id%\\}}; n=$((n+1))\n" + body + "\ndone\n"
	if err := os.WriteFile(path, []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	return func() (string, error) { return path, nil }
}

const wellBody = "echo '" + oneGPU + "'"

func endHelper(t *testing.T, h *Helper) {
	t.Helper()
	t.Cleanup(func() {
		<-h.turn
		if h.child != nil {
			h.child.kill(20 * time.Second)
		}
	})
}

// readUntil reads until a reading is as wanted.
func readUntil(t *testing.T, h *Helper, what string, want func(pipeline.GPUReading, error) bool) pipeline.GPUReading {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var last string
	for ctx.Err() == nil {
		r, err := h.read(ctx)
		if want(r, err) {
			return r
		}
		last = fmt.Sprintf("%+v, %v", r, err)
		select {
		case <-ctx.Done():
		case <-time.After(time.Millisecond):
		}
	}
	t.Fatalf("%s: never; the last reading was %s", what, last)
	return pipeline.GPUReading{}
}

func isGood(r pipeline.GPUReading, err error) bool {
	return err == nil && r.Reason == "" && len(r.GPUs) == 1 && r.GPUs[0].State == pipeline.GPUOK
}

func says(word string) func(pipeline.GPUReading, error) bool {
	return func(r pipeline.GPUReading, _ error) bool { return strings.Contains(r.Reason, word) }
}

func TestHelperReads(t *testing.T) {
	t.Parallel()
	limits := quick
	limits.soft = time.Minute
	h := newHelper(helperScript(t, "", wellBody), time.Now, limits)
	endHelper(t, h)
	for range 3 {
		r, err := h.read(t.Context())
		if err != nil || !isGood(r, err) || *r.GPUs[0].MemUsedBytes != 7 || r.Kind != KindNVML {
			t.Fatalf("reading = %+v, %v", r, err)
		}
	}
}

func TestAHelperThatHangsIsReplaced(t *testing.T) {
	t.Parallel()
	mark := filepath.Join(t.TempDir(), "mark")
	// The first helper answers once and hangs; the next one is well.
	body := "if [ -e '" + mark + "' ]; then " + wellBody + "; elif [ $n = 1 ]; then " + wellBody + "; else : > '" + mark + "'; exec sleep 600; fi"
	h := newHelper(helperScript(t, "", body), time.Now, quick)
	endHelper(t, h)
	readUntil(t, h, "a first good reading", isGood)
	r := readUntil(t, h, "a reading that tells of the hang", says("has not answered"))
	if len(r.GPUs) != 1 || r.GPUs[0].State != pipeline.GPUUnknown || r.GPUs[0].MemUsedBytes != nil {
		t.Errorf("GPUs while the driver hangs = %+v", r.GPUs)
	}
	readUntil(t, h, "a good reading of the next helper", isGood)
}

func TestWhatEndsAHelper(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct{ name, before, body, reason string }{
		{"segfault", "", "kill -SEGV $$", "segmentation fault"},
		{"exit", "", "echo driver gone >&2; exit 3", "exit status 3: driver gone"},
		{"ends at once", "exit 9", ":", "exit status 9"},
		{"garbage", "", "echo '\033[31mhello'", "said \"␛hello\""},
		{"half a line", "", "printf '{\"id\":'; exit 0", "said"},
		{"no library", "", `echo '{"id":'"$id"',"code":12,"error":"libnvidia-ml.so.1 was not found"}'`, "libnvidia-ml.so.1 was not found"},
		{"driver not loaded", "", `echo '{"id":'"$id"',"code":9,"error":"the NVIDIA driver is not loaded"}'`, "not loaded"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			limits := quick
			limits.soft, limits.hard = time.Minute, time.Hour
			h := newHelper(helperScript(t, tc.before, tc.body), time.Now, limits)
			endHelper(t, h)
			r, err := h.read(t.Context())
			if !errors.Is(err, errElsewhere) || !strings.Contains(strings.ToLower(r.Reason), tc.reason) {
				t.Errorf("reading = %+v, %v; want the reason %q and another source", r, err, tc.reason)
			}
		})
	}
}

// A function that the library lacks ends the process; the next one is told.
func TestAMissingFunctionIsDenied(t *testing.T) {
	t.Parallel()
	body := "case \"$args\" in *nvmlDeviceGetFoo_v9*) " + wellBody + ";; *) echo 'pipedeck-gpu: symbol lookup error: pipedeck-gpu: undefined symbol: nvmlDeviceGetFoo_v9' >&2; exit 127;; esac"
	limits := quick
	limits.soft = time.Minute
	h := newHelper(helperScript(t, "args=\"$*\"", body), time.Now, limits)
	endHelper(t, h)
	r, err := h.read(t.Context())
	if !errors.Is(err, errElsewhere) || !strings.Contains(r.Reason, "nvmlDeviceGetFoo_v9") {
		t.Fatalf("first reading = %+v, %v", r, err)
	}
	readUntil(t, h, "a good reading without the function", isGood)
}

// A driver upgrade: the answer counts, and another process gives the next one.
func TestAnUpgradedDriverGetsANewHelper(t *testing.T) {
	t.Parallel()
	mark := filepath.Join(t.TempDir(), "mark")
	old := strings.Replace(oneGPU, `"driver"`, `"replace":"the NVML library was replaced on disk","driver"`, 1)
	body := "if [ -e '" + mark + "' ]; then echo '" + strings.Replace(oneGPU, "580.1", "590.1", 1) + "'; else : > '" + mark + "'; echo '" + old + "'; fi"
	limits := quick
	limits.soft = time.Minute
	h := newHelper(helperScript(t, "", body), time.Now, limits)
	endHelper(t, h)
	if r, err := h.read(t.Context()); !isGood(r, err) {
		t.Fatalf("the reading of the old driver = %+v, %v", r, err)
	}
	if h.child != nil {
		t.Error("the helper of the old driver is still there")
	}
	if r, err := h.read(t.Context()); !isGood(r, err) {
		t.Errorf("the reading of the new driver = %+v, %v", r, err)
	}
}

func TestAGPUThatLeavesTheListIsLost(t *testing.T) {
	t.Parallel()
	two := strings.Replace(oneGPU, `}]}`, `},{"index":1,"uuid":"GPU-bb","name":"X","state":"ok"}]}`, 1)
	body := "if [ $n = 1 ]; then echo '" + two + "'; else " + wellBody + "; fi"
	limits := quick
	limits.soft = time.Minute
	h := newHelper(helperScript(t, "", body), time.Now, limits)
	endHelper(t, h)
	if r, err := h.read(t.Context()); err != nil || len(r.GPUs) != 2 {
		t.Fatalf("first reading = %+v, %v", r, err)
	}
	for range 2 {
		r, err := h.read(t.Context())
		if err != nil || len(r.GPUs) != 2 || r.GPUs[1].UUID != "GPU-bb" || r.GPUs[1].State != pipeline.GPULost || r.GPUs[1].StateReason == nil {
			t.Fatalf("reading = %+v, %v", r, err)
		}
	}
}

func TestTheRuleForHelpers(t *testing.T) {
	t.Parallel()
	l := defaultLimits
	for _, tc := range []struct {
		name  string
		facts helperFacts
		want  helperAct
	}{
		{"well", helperFacts{}, helperKeep},
		{"silent for a moment", helperFacts{err: errSilent, silent: 3 * time.Second}, helperWait},
		{"silent for long", helperFacts{err: errSilent, silent: 11 * time.Second}, helperHung},
		{"ended", helperFacts{err: errEnded}, helperReplace},
		{"garbage", helperFacts{err: errGarbage}, helperReplace},
		{"starting", helperFacts{answer: probe.Answer{Code: probe.NotReady, Error: "starting", StuckSeconds: 20}}, helperWait},
		{"never starts", helperFacts{answer: probe.Answer{Code: probe.NotReady, Error: "starting", StuckSeconds: 41}}, helperHung},
		{"eats memory", helperFacts{bytes: 2 << 30}, helperReplace},
		{"error", helperFacts{answer: probe.Answer{Error: "x", Code: probe.VersionMismatch}}, helperReplace},
		{"upgraded", helperFacts{answer: probe.Answer{Replace: "x"}}, helperReplaceLater},
		{"one GPU hangs", helperFacts{answer: probe.Answer{StuckSeconds: 11}, since: time.Hour}, helperReplaceLater},
		{"one GPU hangs again", helperFacts{answer: probe.Answer{StuckSeconds: 11}, since: time.Minute}, helperKeep},
		{"one GPU hangs in the kernel", helperFacts{answer: probe.Answer{StuckSeconds: 11}, since: time.Hour, inKernel: true}, helperKeep},
	} {
		if got, why := judgeHelper(tc.facts, l); got != tc.want || (got != helperKeep && why == "") {
			t.Errorf("%s: act %d (%q), want %d", tc.name, got, why, tc.want)
		}
	}
}

func TestTheChainSaysWhyItFellBack(t *testing.T) {
	t.Parallel()
	none := func() (string, error) { return "", errors.New("not found") }
	c := &Chain{
		helper: newHelper(none, time.Now, quick), who: processNames{proc: t.TempDir()},
		smi: smiWith(answers{{match: "--query-gpu=", out: twoGPUs}, {match: "--query-compute-apps"}}),
	}
	r := c.Read(t.Context())
	if r.Kind != KindSMI || len(r.GPUs) != 2 || !strings.Contains(r.Reason, "pipedeck-gpu was not found") {
		t.Errorf("reading = %+v", r)
	}
	c.smi = NewSMI(filepath.Join(t.TempDir(), "nvidia-smi"), time.Now)
	if r = c.Read(t.Context()); r.Kind == KindNVML || len(r.GPUs) != 0 || !strings.Contains(r.Reason, "nvidia-smi") || !strings.Contains(r.Reason, "pipedeck-gpu") {
		t.Errorf("reading without any source = %+v", r)
	}
}

func TestTheHelpersEnvironment(t *testing.T) {
	t.Parallel()
	got := strings.Join(helperEnviron([]string{"PATH=/bin", "LD_BIND_NOW=1", "AWS_SECRET_ACCESS_KEY=x", "LD_LIBRARY_PATH=/l", "NVIDIA_VISIBLE_DEVICES=all"}), " ")
	if got != "PATH=/bin LD_LIBRARY_PATH=/l NVIDIA_VISIBLE_DEVICES=all LC_ALL=C" {
		t.Errorf("environment = %q", got)
	}
}

func TestProcessesAreNamed(t *testing.T) {
	t.Parallel()
	proc := t.TempDir()
	link := func(to, name string) {
		t.Helper()
		if err := os.MkdirAll(filepath.Dir(filepath.Join(proc, name)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(to, filepath.Join(proc, name)); err != nil {
			t.Fatal(err)
		}
	}
	for pid, comm := range map[string]string{"10": "python3", "11": "sh"} {
		write(t, filepath.Join(proc, pid, "comm"), comm+"\n")
		write(t, filepath.Join(proc, pid, "status"), "Name:\tx\nUid:\t4294967294\t0\t0\t0\n")
	}
	link("/dev/nvidia0", "10/fd/7")
	gpus := func() []pipeline.GPUSnapshot {
		return []pipeline.GPUSnapshot{{Processes: []pipeline.GPUProcess{{PID: 10}, {PID: 11}, {PID: 12}}}}
	}
	link(hostPIDs, "self/ns/pid")
	on := gpus()
	processNames{proc: proc}.fill(on)
	p := on[0].Processes
	if *p[0].Name != "python3" || *p[0].User != "4294967294" || *p[1].Name != "sh" || p[2].Name != nil || p[1].Foreign || p[2].Foreign {
		t.Errorf("on the host: %+v", p)
	}
	if err := os.Remove(filepath.Join(proc, "self/ns/pid")); err != nil {
		t.Fatal(err)
	}
	link("pid:[4026532999]", "self/ns/pid")
	in := gpus()
	processNames{proc: proc}.fill(in)
	p = in[0].Processes
	if p[0].Foreign || *p[0].Name != "python3" || !p[1].Foreign || p[1].Name != nil || !p[2].Foreign {
		t.Errorf("in a container: %+v", p)
	}
}
