// Command console measures what the console costs: bytes written to the
// terminal, CPU of one core, and the time from a key press to its screen. It
// runs the real binary on a real deck (8 simulated workers, an S3 server in
// this process), and btop and nvtop in the same kind of terminal where they
// are installed.
package main

import (
	"bufio"
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"pipedeck/bench/term"
	"pipedeck/s3/s3test"
)

// The terminal that all are measured in.
const width, height = 120, 40

func main() {
	bin := flag.String("bin", "bin/pipedeck", "the program")
	length := flag.Duration("for", time.Minute, "how long each is measured")
	warm := flag.Duration("warm", 20*time.Second, "how long each runs before")
	files := flag.Int("files", 0, "measure instead on an output directory of so many files, while the agent finds them")
	flag.Parse()
	if err := run(*bin, *length, *warm, *files); err != nil {
		fmt.Fprintln(os.Stderr, "console:", err)
		os.Exit(1)
	}
}

func run(bin string, length, warm time.Duration, files int) (err error) {
	bin, err = filepath.Abs(bin)
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "pd-bench-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	server, err := s3test.Demo(s3test.DemoOptions{})
	if err != nil {
		return err
	}
	d := deck{bin: bin, dir: dir}
	if err := d.make(server); err != nil {
		return err
	}
	if files > 0 {
		return d.many(files)
	}
	if err := d.do("start", "extract"); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, d.end()) }()
	if err := d.fillLog(); err != nil {
		return err
	}
	load, _ := os.ReadFile("/proc/loadavg")
	fmt.Printf("terminal %dx%d, %v each, load before %s\n\n", width, height, length, strings.Join(strings.Fields(string(load))[:1], " "))
	fmt.Println("| program | bytes/s | CPU of a core | key to screen, median | slowest of 20 |")
	fmt.Println("| --- | --- | --- | --- | --- |")
	for _, p := range programs(d) {
		if _, err := exec.LookPath(p.argv[0]); err != nil {
			fmt.Printf("| %s | not installed | | | |\n", p.name)
			continue
		}
		f, err := p.measure(length, warm)
		if err != nil {
			return fmt.Errorf("%s: %w", p.name, err)
		}
		fmt.Printf("| %s | %.0f | %.2f %% | %s | %s |\n", p.name, f.bytes, f.cpu, f.median, f.slowest)
	}
	return nil
}

// program is what is measured, and the key that opens and closes a screen by
// which the answer to a key is seen.
type program struct {
	name         string
	argv         []string
	ready        string
	open, opened string
	shut         string
	quit         string
	dir          string
	env          []string
}

func programs(d deck) []program {
	return []program{
		{"pipedeck", []string{d.bin}, "8/8 workers", "?", "next pane", "\x1b", "q", d.dir, d.env()},
		{"pipedeck, opening a log of 900,000 lines", []string{d.bin}, "8/8 workers", "l", "following", "q", "q", d.dir, d.env()},
		{"btop", []string{"btop"}, "cpu", "", "", "", "q", d.dir, nil},
		{"nvtop", []string{"nvtop"}, "GPU", "", "", "", "q", d.dir, nil},
	}
}

// figures are what one program cost.
type figures struct {
	bytes, cpu      float64
	median, slowest string
}

func (p program) measure(length, warm time.Duration) (figures, error) {
	cmd := exec.Command(p.argv[0], p.argv[1:]...)
	cmd.Dir, cmd.Env = p.dir, append(os.Environ(), append([]string{"TERM=xterm-256color", "NO_COLOR=", "LANG=C.UTF-8"}, p.env...)...)
	t, err := term.Open(cmd, width, height)
	if err != nil {
		return figures{}, err
	}
	defer t.Close(p.quit)
	if _, err := t.AwaitText(p.ready, time.Minute); err != nil {
		return figures{}, err
	}
	time.Sleep(warm)
	bytes, ticks, began := t.Bytes(), cpuTicks(cmd.Process.Pid), time.Now()
	time.Sleep(length)
	took := time.Since(began).Seconds()
	f := figures{
		bytes: float64(t.Bytes()-bytes) / took, cpu: float64(cpuTicks(cmd.Process.Pid)-ticks) / ticksPerSecond / took * 100,
		median: "-", slowest: "-",
	}
	if p.open == "" {
		return f, nil
	}
	var times []time.Duration
	for range 20 {
		took, err := p.press(t)
		if err != nil {
			return f, err
		}
		times = append(times, took)
	}
	f.median, f.slowest = spread(times)
	return f, nil
}

// press opens a screen by a key and closes it again; it returns how long the
// opening took.
func (p program) press(t *term.Terminal) (time.Duration, error) {
	if err := t.Type(p.open); err != nil {
		return 0, err
	}
	took, err := t.AwaitText(p.opened, 10*time.Second)
	if err != nil {
		return 0, err
	}
	if err := t.Type(p.shut); err != nil {
		return 0, err
	}
	_, err = t.AwaitText(p.ready, 10*time.Second)
	return took, err
}

func spread(times []time.Duration) (median, slowest string) {
	slices.Sort(times)
	return times[len(times)/2].Round(time.Millisecond).String(), times[len(times)-1].Round(time.Millisecond).String()
}

// countLimit is how long the agent may take to count the files of a large directory.
const countLimit = 5 * time.Minute

// many opens the console on an output directory of n files that no agent has
// seen yet, and presses keys until the agent has counted them all.
func (d deck) many(n int) (err error) {
	out := filepath.Join(d.dir, "work", "out")
	if err := os.MkdirAll(out, 0o755); err != nil {
		return err
	}
	content := []byte("\x02\x00\x00\x00\x00\x00\x00\x00{}") // the smallest safetensors file
	for i := range n {
		if err := os.WriteFile(filepath.Join(out, fmt.Sprintf("hs_%09d.safetensors", i)), content, 0o644); err != nil {
			return err
		}
	}
	p := programs(d)[0]
	p.ready = "1 WORKERS"
	cmd := exec.Command(p.argv[0])
	cmd.Dir, cmd.Env = p.dir, append(os.Environ(), append([]string{"TERM=xterm-256color", "LANG=C.UTF-8"}, p.env...)...)
	began := time.Now()
	t, err := term.Open(cmd, width, height)
	if err != nil {
		return err
	}
	defer func() {
		t.Close(p.quit)
		err = errors.Join(err, d.do("agent", "stop"))
	}()
	if _, err := t.AwaitText(p.ready, time.Minute); err != nil {
		return err
	}
	first := time.Since(began)
	var times []time.Duration
	all := grouped(n) + " files"
	for !strings.Contains(t.Text(), all) {
		if time.Since(began) > countLimit {
			return fmt.Errorf("the agent did not count %s within %v:\n%s", all, countLimit, t.Text())
		}
		took, err := p.press(t)
		if err != nil {
			return err
		}
		times = append(times, took)
	}
	counted := time.Since(began)
	for range 20 {
		took, err := p.press(t)
		if err != nil {
			return err
		}
		times = append(times, took)
	}
	median, slowest := spread(times)
	fmt.Printf("%s: console up after %v, all counted after %v, %d keys meanwhile and after: median %s, 99 of 100 within %v, slowest %s\n",
		all, first.Round(time.Millisecond), counted.Round(time.Second), len(times), median, times[len(times)*99/100].Round(time.Millisecond), slowest)
	return nil
}

// grouped writes a number as the console does.
func grouped(n int) string {
	s := strconv.Itoa(n)
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

// ticksPerSecond is what /proc counts CPU time in, on every Linux that Go
// runs on.
const ticksPerSecond = 100

// cpuTicks is the CPU time of a process so far, user and system.
func cpuTicks(pid int) int64 {
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0
	}
	f := strings.Fields(string(raw[strings.LastIndexByte(string(raw), ')')+1:]))
	if len(f) < 13 {
		return 0
	}
	user, _ := strconv.ParseInt(f[11], 10, 64)
	system, _ := strconv.ParseInt(f[12], 10, 64)
	return user + system
}

// deck is a deck of eight simulated workers in a folder of its own.
type deck struct{ bin, dir string }

func (d deck) env() []string {
	return []string{"AWS_ACCESS_KEY_ID=bench", "AWS_SECRET_ACCESS_KEY=bench-secret", "PIPEDECK_SIMULATE_GPUS=" + filepath.Join(d.dir, "gpus")}
}

const specYAML = `version: 1
deck: bench
run: r1
workdir: %q
store: {bucket: %q, endpoint: %q, region: us-east-1, path_style: true, credentials: node, max_parallel: 20, max_memory: 64MB}
stages:
  extract:
    total: 1000000
    workers:
      per_gpu: 2
      command: [%q, sim-worker, --rank, "{rank}", --world-size, "{world}", --total, "1000000", --rate, "6", --out, out,
        --progress, "progress_{rank}.json", --done, done.txt, --gpu-dir, %q]
      stop: {signal: SIGTERM, grace: 2s}
    outputs:
      hidden_states: {dir: out, match: "*.safetensors", format: safetensors, id: 'hs_(\d+)\.safetensors', key: "hs/{path}", after_upload: delete}
    progress: {json: "progress_{rank}.json", done: processed, skipped: skipped}
    done_set: {file: done.txt, form: lines}
`

func (d deck) make(server *s3test.DemoServer) error {
	gpus, work := filepath.Join(d.dir, "gpus"), filepath.Join(d.dir, "work")
	text := fmt.Sprintf(specYAML, work, server.Bucket(), server.URL(), d.bin, gpus)
	return errors.Join(os.Mkdir(gpus, 0o755), os.Mkdir(work, 0o755),
		os.WriteFile(filepath.Join(d.dir, "pipedeck.yaml"), []byte(text), 0o644))
}

// fillLog makes the log of the first worker a long one.
func (d deck) fillLog() error {
	f, err := os.OpenFile(filepath.Join(d.dir, "work", ".pipedeck", "logs", "extract-0.log"), os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	w := bufio.NewWriter(f)
	for i := range 900_000 {
		_, _ = fmt.Fprintf(w, "2026-11-30T10:00:00Z INFO sample %d written, loss 0.1234\n", i)
	}
	return errors.Join(w.Flush(), f.Close())
}

// end stops workers and agent; one that cannot be stopped is said.
func (d deck) end() error {
	return errors.Join(d.do("stop", "extract", "--confirm", "bench"), d.do("agent", "stop"))
}

func (d deck) do(args ...string) error {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, d.bin, args...)
	cmd.Dir, cmd.Env = d.dir, append(os.Environ(), d.env()...)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%q: %w: %s", args, err, out)
	}
	return nil
}
