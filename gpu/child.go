package gpu

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"pipedeck/gpu/probe"
	"pipedeck/pipeline"
)

// maxLine bounds one answer: 8 GPUs with 100 processes each need 100 kB.
const maxLine = 8 << 20

// child is one running helper.
type child struct {
	cmd   *exec.Cmd
	in    io.WriteCloser
	lines chan []byte // closed when its stdout ends
	done  chan struct{}
	tail  *tailBuffer // the end of its stderr
	begin time.Time
	now   func() time.Time

	id    int64
	since time.Time // of the oldest question without an answer
	good  bool      // has answered well
	stuck bool      // is replaced for a GPU that hangs
	said  string
	err   error // how it ended; after done
}

// startChild runs the helper. LD_BIND_NOW would end it before main, and nothing
// of the agent's secrets is its business.
func startChild(path string, deny []string, now func() time.Time) (*child, error) {
	var args []string
	if len(deny) > 0 {
		args = append(args, "--deny", strings.Join(deny, ","))
	}
	cmd := exec.Command(path, args...) //nolint:noctx // it outlives the question that starts it
	cmd.Env = helperEnviron(os.Environ())
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	c := &child{cmd: cmd, lines: make(chan []byte, 16), done: make(chan struct{}), tail: &tailBuffer{}, begin: now(), now: now}
	cmd.Stderr = c.tail
	cmd.WaitDelay = time.Second
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	c.in = in
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	go c.listen(out)
	return c, nil
}

func (c *child) listen(out io.Reader) {
	scan := bufio.NewScanner(out)
	scan.Buffer(make([]byte, 0, 64<<10), maxLine)
	for scan.Scan() {
		c.lines <- append([]byte(nil), scan.Bytes()...)
	}
	close(c.lines)
	_, _ = io.Copy(io.Discard, out)
	c.err = c.cmd.Wait()
	close(c.done)
}

// helperEnviron is what the helper may see of the environment.
func helperEnviron(env []string) []string {
	var out []string
	for _, kv := range env {
		name, _, _ := strings.Cut(kv, "=")
		switch {
		case name == "PATH", name == "HOME", name == "LD_LIBRARY_PATH", name == "LD_PRELOAD", name == "TMPDIR", strings.HasPrefix(name, "NVIDIA_"):
			out = append(out, kv)
		}
	}
	return append(out, "LC_ALL=C")
}

// ask sends one question and waits up to patience for its answer. Answers to
// earlier questions that come late are dropped.
func (c *child) ask(ctx context.Context, patience time.Duration) (probe.Answer, error) {
	c.id++
	if c.since.IsZero() {
		c.since = c.now()
	}
	raw, err := json.Marshal(probe.Request{ID: c.id})
	if err != nil {
		return probe.Answer{}, err
	}
	if _, err := c.in.Write(append(raw, '\n')); err != nil {
		return probe.Answer{}, c.gone()
	}
	timer := time.NewTimer(patience)
	defer timer.Stop()
	for {
		select {
		case line, ok := <-c.lines:
			if !ok {
				return probe.Answer{}, c.gone()
			}
			var a probe.Answer
			if err := json.Unmarshal(line, &a); err != nil {
				c.said = strconv.Quote(pipeline.Clean(string(line[:min(len(line), 200)])))
				return a, errGarbage
			}
			if a.ID == c.id {
				c.since = time.Time{}
				c.good = c.good || a.Error == ""
				return a, nil
			}
			c.since = c.now()
		case <-timer.C:
			return probe.Answer{}, errSilent
		case <-ctx.Done():
			return probe.Answer{}, errSilent
		}
	}
}

// gone waits a moment for the end of a child whose pipes are closed already.
func (c *child) gone() error {
	select {
	case <-c.done:
	case <-time.After(time.Second):
	}
	return errEnded
}

func (c *child) facts(a probe.Answer, err error, sinceReplaced time.Duration) helperFacts {
	f := helperFacts{answer: a, err: err, since: sinceReplaced, garbage: c.said, bytes: c.memory()}
	if !c.since.IsZero() {
		f.silent = c.now().Sub(c.since)
	}
	if errors.Is(err, errEnded) {
		f.ending = c.obituary()
	}
	c.stuck = a.StuckSeconds > 0
	if c.stuck {
		f.inKernel = c.waitsInKernel()
	}
	return f
}

func (c *child) ended() bool {
	select {
	case <-c.done:
		return true
	default:
		return false
	}
}

func (c *child) pid() int { return c.cmd.Process.Pid }

// obituary says how the child ended.
func (c *child) obituary() string {
	how := "it closed its output"
	if c.ended() {
		how = "exit 0"
		if c.err != nil {
			how = c.err.Error()
		}
	}
	if said := c.tail.last(); said != "" {
		how += ": " + said
	}
	return how
}

// undefined is the dynamic loader's word when a library lacks a function.
var undefined = regexp.MustCompile(`undefined symbol: (nvml\w+)`)

// missingSymbols are functions whose lack ended the child.
func (c *child) missingSymbols() []string {
	var out []string
	for _, m := range undefined.FindAllStringSubmatch(c.tail.last(), -1) {
		out = append(out, m[1])
	}
	return out
}

// kill ends the child and waits up to patience for that. One that waits in the
// driver does not end before the driver answers.
func (c *child) kill(patience time.Duration) {
	_ = c.in.Close()
	_ = c.cmd.Process.Kill()
	// A full channel would keep the listener, and so the end, from being seen.
	go func() {
		for range c.lines {
		}
	}()
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case <-c.done:
	case <-timer.C:
	}
}

// memory is the child's resident memory, 0 where it cannot be read.
func (c *child) memory() int64 {
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/statm", c.pid()))
	if err != nil {
		return 0
	}
	f := strings.Fields(string(raw))
	if len(f) < 2 {
		return 0
	}
	pages, _ := strconv.ParseInt(f[1], 10, 64)
	return pages * int64(os.Getpagesize())
}

// waitsInKernel says whether a thread of the child cannot be ended at the
// moment.
func (c *child) waitsInKernel() bool {
	stats, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", c.pid()))
	return err == nil && slices.ContainsFunc(stats, func(path string) bool { return stateIn(path) == "D" })
}

// state is the letter of the child's state, "?" where it cannot be read.
func (c *child) state() string { return stateIn(fmt.Sprintf("/proc/%d/stat", c.pid())) }

func stateIn(path string) string {
	raw, err := os.ReadFile(path)
	if err != nil {
		return "?"
	}
	s := string(raw)
	if at := strings.LastIndexByte(s, ')'); at >= 0 && len(s) > at+2 {
		return s[at+2 : at+3]
	}
	return "?"
}

// tailBuffer keeps the end of what is written to it.
type tailBuffer struct {
	mu  sync.Mutex
	buf []byte
}

const tailBytes = 4 << 10

// Write never fails: a helper that complains much must not block.
func (t *tailBuffer) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.buf = append(t.buf, p...)
	if len(t.buf) > tailBytes {
		t.buf = append([]byte(nil), t.buf[len(t.buf)-tailBytes:]...)
	}
	return len(p), nil
}

// last is the end of what was written, cleaned, in one line.
func (t *tailBuffer) last() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	s := strings.Join(strings.Fields(string(t.buf)), " ")
	if len(s) > 300 {
		s = s[len(s)-300:]
	}
	return pipeline.Clean(s)
}
