package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"pipedeck/pipeline"
	"pipedeck/remote/client"
	"pipedeck/s3/s3test"
	"pipedeck/tui"
)

// The demo's size: 10,000 samples of 16 KiB are 160 MB in the memory of its
// store at the most, and last about seven minutes.
const (
	demoTotal = 10_000
	demoRate  = 6.0
	demoBytes = 256 << 20
)

// Times that bound the demo's end: it is gone within 3 s of a signal.
const (
	demoStopWait  = 1200 * time.Millisecond
	demoAgentWait = 700 * time.Millisecond
	demoFolder    = 500 * time.Millisecond
	demoSettle    = 8 * time.Second
)

func (a *app) demoCommand() *cobra.Command {
	var headless bool
	var length time.Duration
	cmd := &cobra.Command{
		Use:   "demo",
		Short: "Everything embedded: agent, S3 server, simulated GPUs and workers",
		Long: `Run a whole deck with nothing set up: a local agent in a temporary folder, an
S3 server in this process, 4 simulated GPUs with 4 simulated workers. One worker
stalls for a while and one crashes and is restarted. Everything else is real.
When the demo ends, its agent, workers and folder are gone.`,
		Example: "  pipedeck demo\n  pipedeck demo --headless --for 20s",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if !headless && !a.view.plain && (!isTerminal(a.in) || !isTerminal(a.out)) {
				return pipeline.Problemf(pipeline.ProblemUsage, "use --headless in a script", "cannot open the demo's console: no terminal")
			}
			keys, err := a.view.check(a.env)
			if err != nil {
				return err
			}
			return a.demo(cmd.Context(), headless, length, keys)
		},
	}
	cmd.Flags().BoolVar(&headless, "headless", false, "no console: print a final snapshot as JSON")
	a.viewFlags(cmd)
	cmd.Flags().DurationVar(&length, "for", 0, "end after this long (headless: 30s)")
	return cmd
}

// demo is one run of the demo, with all that must be gone at its end.
type demo struct {
	a      *app
	dir    string
	spec   specFile
	client *client.Client
	store  *s3test.DemoServer
}

func (a *app) demo(ctx context.Context, headless bool, length time.Duration, keys tui.KeyMap) error {
	ctx, stop := withParent(ctx)
	defer stop()
	if length == 0 && headless {
		length = 30 * time.Second
	}
	if length > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, length)
		defer cancel()
	}
	d, err := a.newDemo(ctx)
	if err != nil {
		return err
	}
	runErr := d.run(ctx, headless, keys)
	return errors.Join(runErr, d.end(ctx))
}

// withParent ends the demo when `go run` goes, which passes SIGTERM on to
// nobody. Any other parent may go: a demo in the background stays.
func withParent(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, stop := context.WithCancel(ctx)
	parent := os.Getppid()
	if !isGoRun(parent) {
		return ctx, stop
	}
	go func() {
		tick := time.NewTicker(500 * time.Millisecond)
		defer tick.Stop()
		for os.Getppid() == parent {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
		}
		stop()
	}()
	return ctx, stop
}

func isGoRun(pid int) bool {
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	if err != nil {
		return false
	}
	args := strings.Split(string(raw), "\x00")
	return len(args) > 1 && filepath.Base(args[0]) == "go" && args[1] == "run"
}

func (a *app) newDemo(ctx context.Context) (*demo, error) {
	dir, err := os.MkdirTemp("", "pipedeck-demo-")
	if err != nil {
		return nil, fmt.Errorf("cannot make the demo's folder: %w", err)
	}
	d := &demo{a: a, dir: dir}
	if err := d.begin(ctx); err != nil {
		return nil, errors.Join(err, d.end(ctx))
	}
	return d, nil
}

// begin starts store and agent, and the stage.
func (d *demo) begin(ctx context.Context) error {
	//nolint:contextcheck // it serves until the demo ends, not until ctx does
	server, err := s3test.Demo(s3test.DemoOptions{MaxBytes: demoBytes})
	if err != nil {
		return err
	}
	d.store = server
	exe, err := os.Executable()
	if err != nil {
		return err
	}
	for _, sub := range []string{"gpus", "work"} {
		if err := os.Mkdir(filepath.Join(d.dir, sub), 0o755); err != nil {
			return err
		}
	}
	src := demoSpec(d.dir, exe, server.URL(), server.Bucket())
	path := filepath.Join(d.dir, "pipedeck.yaml")
	if err := os.WriteFile(path, []byte(src), 0o644); err != nil {
		return err
	}
	d.spec, err = loadSpecFile(path, "")
	if err != nil {
		return err
	}
	for name, value := range map[string]string{
		"AWS_ACCESS_KEY_ID": "demo", "AWS_SECRET_ACCESS_KEY": "demo-secret", "AWS_SESSION_TOKEN": "",
		simulateEnv: filepath.Join(d.dir, "gpus"),
	} {
		// The agent inherits this process's environment, and the demo must not
		// touch the operator's own store.
		if err := os.Setenv(name, value); err != nil {
			return err
		}
	}
	d.client, err = d.a.connect(ctx, d.spec)
	if err != nil {
		return err
	}
	p, err := d.client.Plan(ctx, pipeline.Intent{Verb: pipeline.VerbStart, Target: "extract"})
	if err != nil {
		return err
	}
	_, err = d.client.Apply(ctx, pipeline.ApplyRequest{Plan: p.ID, By: operator()})
	return err
}

// run shows the demo until ctx ends or the console is left.
func (d *demo) run(ctx context.Context, headless bool, keys tui.KeyMap) error {
	if headless {
		d.a.say("demo: deck in %s; ends by itself", d.dir)
		<-ctx.Done()
		if !errors.Is(ctx.Err(), context.DeadlineExceeded) {
			d.a.say("demo: interrupted; no final account")
			return d.lost(ctx)
		}
		return d.account(ctx)
	}
	w := client.NewWatcher(func(ctx context.Context) (pipeline.Deck, error) { return d.a.connect(ctx, d.spec) }, consoleEvery, wallClock{})
	watch, stop := context.WithCancel(ctx)
	defer stop()
	go w.Run(watch)
	err := d.a.openConsole(ctx, keys, []tui.Node{{Name: d.spec.node.Name, Source: w, Deck: func() pipeline.Deck { return d.client }}})
	return errors.Join(err, d.lost(ctx))
}

// removeFolder tries for a while: a process that is ending may write a last
// file beside it.
func (d *demo) removeFolder() error {
	until := time.Now().Add(demoFolder)
	for {
		err := os.RemoveAll(d.dir)
		if err == nil {
			return nil
		}
		if time.Now().After(until) {
			return fmt.Errorf("cannot remove the demo's folder: %w", err)
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// demoSpec is the deck of the demo. Everything in it is a path that this
// process chose, so quoting as Go does is quoting as YAML does.
func demoSpec(dir, exe, endpoint, bucket string) string {
	command := []string{
		exe, "sim-worker", "--rank", "{rank}", "--world-size", "{world}", "--total", strconv.Itoa(demoTotal),
		"--rate", strconv.FormatFloat(demoRate, 'f', -1, 64), "--out", "hidden_states",
		"--progress", "progress_{rank}.json", "--done", "done.txt", "--written", "written-{rank}",
		"--gpu-dir", filepath.Join(dir, "gpus"),
		"--stall-rank", "2", "--stall-at", "60", "--stall-for", "25s", "--crash-rank", "3", "--crash-at", "40",
	}
	for i, arg := range command {
		command[i] = strconv.Quote(arg)
	}
	return fmt.Sprintf(demoYAML, filepath.Join(dir, "work"), bucket, endpoint, demoTotal, strings.Join(command, ", "))
}

const demoYAML = `version: 1
deck: demo
run: r1
workdir: %q
store:
  bucket: %q
  endpoint: %q
  region: us-east-1
  path_style: true
  credentials: node
  max_parallel: 20
  max_memory: 64MB
stages:
  extract:
    total: %d
    workers:
      per_gpu: 1
      command: [%s]
      stop: {signal: SIGTERM, grace: 2s}
      restart: {max: 3, backoff: 4s}
      gpu_memory: 52GB
      loading_timeout: 1m
      stall_after: 8s
    outputs:
      hidden_states:
        dir: hidden_states
        match: "*.safetensors"
        format: safetensors
        id: 'hs_(\d+)\.safetensors'
        key: "hidden_states/{path}"
        after_upload: delete
    progress: {json: "progress_{rank}.json", done: processed, skipped: skipped}
    done_set: {file: done.txt, form: lines}
`
