package main

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"pipedeck/pipeline"
	"pipedeck/remote/ssh/sshtest"
)

// puts counts the uploads of each object in front of a store.
type puts struct {
	url   string
	store http.Handler

	mu       sync.Mutex
	tried    map[string]int
	accepted map[string]int
}

// countPuts listens where a node in that network can reach it.
func countPuts(t *testing.T, store http.Handler, n *sshtest.Network) *puts {
	t.Helper()
	host := "127.0.0.1"
	if n != nil {
		host = n.Here
	}
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", host+":0")
	if err != nil {
		t.Fatal(err)
	}
	p := &puts{url: "http://" + l.Addr().String(), store: store, tried: map[string]int{}, accepted: map[string]int{}}
	srv := &http.Server{Handler: p, ReadHeaderTimeout: time.Minute}
	go func() { _ = srv.Serve(l) }() // it ends with the cleanup
	t.Cleanup(func() { _ = srv.Close() })
	return p
}

// answer keeps the status of an answer.
type answer struct {
	http.ResponseWriter
	status int
}

// WriteHeader implements http.ResponseWriter.
func (a *answer) WriteHeader(status int) {
	a.status = status
	a.ResponseWriter.WriteHeader(status)
}

// ServeHTTP implements http.Handler.
func (p *puts) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	a := &answer{ResponseWriter: w, status: http.StatusOK}
	p.store.ServeHTTP(a, r)
	if r.Method != http.MethodPut {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.tried[r.URL.Path]++
	if a.status == http.StatusOK {
		p.accepted[r.URL.Path]++
	}
}

// of counts the uploads below a path, and names what was accepted twice.
func (p *puts) of(below string) (tried int, twice []string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for path, n := range p.tried {
		if strings.Contains(path, below) {
			tried += n
			if p.accepted[path] > 1 {
				twice = append(twice, path)
			}
		}
	}
	return tried, twice
}

// console opens a real console in a terminal, as the laptop's owner does.
func (d *farDeck) console(t *testing.T) *window {
	t.Helper()
	w := &window{t: t, p: d.program}
	w.terminal = &terminal{tmux: needTool(t, "tmux"), socket: filepath.Join(d.dir, "tmux")}
	var command strings.Builder
	fmt.Fprintf(&command, "cd %s; env -i", d.dir)
	for _, kv := range slices.Concat(d.env, []string{"TERM=screen-256color"}) {
		fmt.Fprintf(&command, " '%s'", kv)
	}
	fmt.Fprintf(&command, " %s; echo $? >%s", d.bin, filepath.Join(d.dir, "code"))
	w.do(t, "new-session", "-d", "-x", "160", "-y", "40", "sh", "-c", command.String())
	t.Cleanup(func() { _ = exec.CommandContext(context.Background(), w.tmux, "-S", w.socket, "kill-server").Run() })
	return w
}

// testLinkDown unplugs a node for longer than a dead peer is waited for: SSH and
// the store are both away.
func testLinkDown(t *testing.T, bin string) {
	const files, away = 150, 40 * time.Second
	network := sshtest.NewNetwork(t)
	d := newFarDeck(t, bin, sshtest.Options{Network: network})
	d.write(t, "pipedeck.yaml", fmt.Sprintf(cutYAML, d.work, d.node.Dest(), d.puts.url, files*4, files))
	d.must(t, "start", "extract")
	before := fmt.Sprintf("%+v", recordedLaunches(filepath.Join(d.work, ".pipedeck")))
	w := d.watch(t)
	w.sees(t, "at first", live)
	screen := d.console(t)
	screen.shows("LIVE", "extract/3")
	d.await(t, "an uploaded file", func(n pipeline.NodeSnapshot) bool { return verified(n) > 0 })

	network.Down(t)
	unplugged := time.Now()
	w.sees(t, "soon after the cut", func(n pipeline.NodeSnapshot) bool { return n.Link.State == pipeline.LinkStale })
	screen.shows("STALE")
	w.sees(t, "later", func(n pipeline.NodeSnapshot) bool { return n.Link.State == pipeline.LinkLost && n.Link.Reason != nil })
	screen.shows("LOST", "Retry in")
	for time.Since(unplugged) < away {
		time.Sleep(200 * time.Millisecond)
		if last, at := w.newest(); live(last.Nodes[0]) || last.Health != pipeline.Stale || time.Since(at) > 10*time.Second {
			t.Fatalf("%s after the cut: %s, link %+v, written %s ago", time.Since(unplugged), last.Health, last.Nodes[0].Link, time.Since(at))
		}
		if shown := screen.screen(); strings.Contains(shown, "LIVE") {
			t.Fatalf("%s after the cut the console shows\n%s", time.Since(unplugged), shown)
		}
	}
	network.Up(t)
	plugged := time.Now()
	w.sees(t, "after the cut", live)
	screen.shows("LIVE")
	t.Logf("away for %s, seen again after %s", plugged.Sub(unplugged).Round(time.Second), time.Since(plugged).Round(time.Second))

	d.awaitFor(t, 5*patience, "all files proven", func(n pipeline.NodeSnapshot) bool { return verified(n) == files*4 })
	if now := fmt.Sprintf("%+v", recordedLaunches(filepath.Join(d.work, ".pipedeck"))); now != before {
		t.Errorf("the workers are %s, were %s", now, before)
	}
	d.allOnce(t, files)
	t.Logf("the open console went through %v", w.order())
	d.must(t, "stop", "extract", "--confirm", "far")
}

// testNoWorkdir starts on a node that lacks the workdir: nothing is uploaded.
func testNoWorkdir(t *testing.T, bin string) {
	d := newFarDeck(t, bin, sshtest.Options{})
	if err := os.Remove(d.work); err != nil {
		t.Fatal(err)
	}
	_, errs, code := d.run(t, "start", "extract")
	if code != exitFailed || !strings.Contains(errs, "cannot use the workdir") || strings.Contains(errs, "uploading") {
		t.Errorf("start ends with %d: %s", code, errs)
	}
}
