// Command pipedeck-gpu reads NVIDIA GPUs through NVML for the pipedeck agent,
// which runs it as a child: a driver that hangs or a library that lacks a
// function then costs this process and never the agent.
package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"strings"
	"sync/atomic"
	"time"

	"pipedeck/gpu/probe"
)

// version is set by the linker for a release.
var version = "0.1.0"

const usage = `usage: pipedeck-gpu [--once] [--deny SYMBOL,...] [--version]

Reads NVIDIA GPUs through NVML (libnvidia-ml.so.1). Each line on stdin, such as
{"id":1}, is answered with one JSON line on stdout: one sample of all GPUs.
The end of stdin ends it. The pipedeck agent starts it by itself when it lies
beside pipedeck, in PATH, or where PIPEDECK_GPU points.

  --once     one sample, printed; exit 0 if GPUs were read, 3 if not
  --deny     NVML functions that must not be called
  --version  print the version
`

// The exit codes.
const (
	exitOK      = 0
	exitUnknown = 3 // nothing can be read
	exitUsage   = 64
)

func main() { os.Exit(run(os.Args[1:], os.Stdin, os.Stdout, os.Stderr)) }

func run(args []string, in io.Reader, out, errs io.Writer) int {
	fs := flag.NewFlagSet("pipedeck-gpu", flag.ContinueOnError)
	fs.SetOutput(io.Discard)
	once := fs.Bool("once", false, "")
	deny := fs.String("deny", "", "")
	show := fs.Bool("version", false, "")
	switch err := fs.Parse(args); {
	case errors.Is(err, flag.ErrHelp):
		_, _ = io.WriteString(out, usage)
		return exitOK
	case err != nil || fs.NArg() > 0:
		_, _ = fmt.Fprintf(errs, "pipedeck-gpu: wrong arguments %q\n%s", args, usage)
		return exitUsage
	case *show:
		_, _ = fmt.Fprintln(out, "pipedeck-gpu "+version)
		return exitOK
	}
	s := &server{out: json.NewEncoder(out), begin: time.Now()}
	go s.open(strings.FieldsFunc(*deny, func(r rune) bool { return r == ',' }))
	if *once {
		return s.once()
	}
	return s.serve(in)
}

// server answers requests. NVML is opened beside it: that can take seconds, or
// hang.
type server struct {
	out    *json.Encoder
	begin  time.Time
	opened atomic.Pointer[openResult]
}

// openResult is how the start of NVML ended.
type openResult struct {
	sampler *probe.Sampler
	swapped func() string // why another process should take over, or ""
	code    probe.Code
	reason  string
}

func (s *server) open(deny []string) { s.opened.Store(openNVML(deny)) }

func (s *server) serve(in io.Reader) int {
	lines := bufio.NewScanner(in)
	for lines.Scan() {
		var req probe.Request
		if err := json.Unmarshal(lines.Bytes(), &req); err != nil {
			return exitUsage
		}
		a := s.answer()
		a.ID = req.ID
		if err := s.out.Encode(a); err != nil {
			return exitOK // nobody listens any more
		}
	}
	return exitOK
}

// answer makes one sample, or says why there is none.
func (s *server) answer() probe.Answer {
	o := s.opened.Load()
	switch {
	case o == nil:
		out := time.Since(s.begin)
		return probe.Answer{
			At: time.Now(), StuckSeconds: out.Seconds(),
			Error: "NVML has been starting for " + out.Round(100*time.Millisecond).String(), Code: probe.NotReady,
		}
	case o.sampler == nil:
		return probe.Answer{At: time.Now(), Code: o.code, Error: o.reason}
	}
	a := o.sampler.Sample()
	if a.Replace == "" {
		a.Replace = o.swapped()
	}
	return a
}

// onceTimeout bounds --once: NVML takes some seconds to start without
// persistence mode.
const onceTimeout = 30 * time.Second

func (s *server) once() int {
	for s.opened.Load() == nil && time.Since(s.begin) < onceTimeout {
		time.Sleep(10 * time.Millisecond)
	}
	a := s.answer()
	if err := s.out.Encode(a); err != nil || a.Error != "" || len(a.GPUs) == 0 {
		return exitUnknown
	}
	return exitOK
}
