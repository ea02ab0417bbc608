package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"pipedeck/pipeline"
	"pipedeck/remote/ssh/sshtest"
	"pipedeck/s3/s3test"
)

// link is the network between laptop and node: a port that can be cut.
type link struct {
	addr, to string

	mu       sync.Mutex
	listener net.Listener
	conns    []net.Conn
}

func newLink(t *testing.T, to string) *link {
	t.Helper()
	l := &link{addr: "127.0.0.1:0", to: to}
	l.restore(t)
	l.addr = l.listener.Addr().String()
	t.Cleanup(l.cut)
	return l
}

// restore brings the link back, or up for the first time.
func (l *link) restore(t *testing.T) {
	t.Helper()
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", l.addr)
	if err != nil {
		t.Fatal(err)
	}
	l.mu.Lock()
	l.listener = listener
	l.mu.Unlock()
	go func() {
		for {
			in, err := listener.Accept()
			if err != nil {
				return
			}
			out, err := net.Dial("tcp", l.to)
			if err != nil {
				_ = in.Close()
				continue
			}
			l.mu.Lock()
			l.conns = append(l.conns, in, out)
			l.mu.Unlock()
			pipe := func(a, b net.Conn) { _, _ = io.Copy(a, b); _ = a.Close(); _ = b.Close() }
			go pipe(in, out)
			go pipe(out, in)
		}
	}()
}

func (l *link) cut() {
	l.mu.Lock()
	defer l.mu.Unlock()
	_ = l.listener.Close()
	for _, c := range l.conns {
		_ = c.Close()
	}
	l.conns = nil
}

// fleet is a deck on two nodes, as an operator's laptop sees it. Both have the
// same workdir, as two rented nodes of one image do: a mount of each one's own.
type fleet struct {
	*program
	nodes []*sshtest.Server
	links []*link
	store *s3test.Server
	work  string
}

const fleetYAML = `version: 1
deck: pair
run: r1
workdir: %q
nodes:
  - {name: alpha, ssh: %q}
  - {name: beta, ssh: %q}
store: {bucket: bucket, endpoint: %q, region: us-east-1, path_style: true}
stages:
  extract:
    total: %d
    workers:
      count: %d
      command: [/bin/sh, -c, 'i=$(({rank}*%d/{world})); end=$((({rank}+1)*%d/{world})); mkdir -p out; while [ $i -lt $end ]; do if [ ! -e out/s_$i.txt ] && ! grep -qx $i done.txt; then echo "sample $i of rank {rank} of {world}" >out/.tmp-{rank}; mv out/.tmp-{rank} out/s_$i.txt; fi; i=$((i+1)); if [ $i -eq $((end-1)) ]; then while [ ! -e go ]; do sleep 0.1; done; fi; done']
      stop: {signal: SIGTERM, grace: 5s}
      stall_after: 10m
    outputs:
      o: {dir: out, match: "*.txt", format: any, settle: 1s, id: 's_(\d+)\.', key: "o/{path}", after_upload: delete}
    done_set: {file: done.txt, form: lines}
`

const (
	fleetSamples = 23
	fleetRanks   = 5
)

func newFleet(t *testing.T, bin string) *fleet {
	t.Helper()
	return newFleetOn(t, bin, sshtest.Options{})
}

// newFleetOn is newFleet on servers of these options.
func newFleetOn(t *testing.T, bin string, o sshtest.Options) *fleet {
	t.Helper()
	work, err := os.MkdirTemp("", "pd-w-") //nolint:usetesting // sockets have short paths
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(work) })
	f := &fleet{work: work, store: s3test.Start(t, s3test.Options{Keys: []string{farKey}})}
	var dests []any
	for range 2 {
		o.Prepare = `mkdir -p "$1/w" /run/lock; mount --bind "$1/w" ` + work + `; mount -t tmpfs -o mode=777 tmpfs /run/lock` // GPU slots are locked there
		s := sshtest.Start(t, o)
		t.Cleanup(func() {
			if err := endDecksBelow(s.Dir); err != nil {
				t.Error(err)
			}
		})
		l := newLink(t, s.Addr())
		f.nodes, f.links = append(f.nodes, s), append(f.links, l)
		dests = append(dests, s.User+"@"+l.addr)
	}
	laptop := sshtest.NewLaptop(t, f.nodes...)
	for i, s := range f.nodes { // the links have ports of their own
		through := *s
		_, port, _ := net.SplitHostPort(f.links[i].addr)
		through.Port, _ = strconv.Atoi(port)
		laptop.Know(t, &through)
	}
	f.program = newProgram(t, bin, "AWS_ACCESS_KEY_ID="+farKey, "AWS_SECRET_ACCESS_KEY="+farSecret)
	f.env = append(f.env, "HOME="+laptop.Home)
	args := append([]any{work}, dests...)
	f.write(t, "pipedeck.yaml", fmt.Sprintf(fleetYAML, append(args, f.store.URL(), fleetSamples, fleetRanks, fleetSamples, fleetSamples)...))
	return f
}

// await polls the snapshot of all nodes until it is as wanted.
func (f *fleet) await(t *testing.T, what string, ok func(pipeline.Snapshot) bool) pipeline.Snapshot {
	t.Helper()
	var last pipeline.Snapshot
	for begin := time.Now(); time.Since(begin) < 2*patience; time.Sleep(200 * time.Millisecond) {
		if last = f.snapshot(t); ok(last) {
			return last
		}
	}
	raw, _ := json.MarshalIndent(last, "", " ")
	t.Fatalf("not seen: %s\n%s", what, raw)
	return last
}

// letGo has the workers of a node finish.
func (f *fleet) letGo(t *testing.T, node int) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(f.nodes[node].Dir, "w", "go"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
}

// stored are the samples in the bucket, each with the rank that made it.
func (f *fleet) stored(t *testing.T) map[string]string {
	t.Helper()
	out := map[string]string{}
	for _, key := range f.store.Keys() {
		name, ok := strings.CutPrefix(key, "r1/o/")
		if !ok {
			continue
		}
		raw, _ := f.store.Object(key)
		out[name] = string(raw)
	}
	return out
}

func workers(n pipeline.NodeSnapshot) (ids []string, pids []int) {
	for _, w := range n.Stages[0].Workers {
		ids = append(ids, w.ID)
		if w.PID != nil {
			pids = append(pids, *w.PID)
		}
	}
	return ids, pids
}

// TestE2ENodes runs a deck over two real sshd processes.
func TestE2ENodes(t *testing.T) {
	if testing.Short() {
		t.Skip("end to end: minutes")
	}
	bin := buildStatic(t, "")
	t.Run("cut", func(t *testing.T) { testNodeCut(t, bin) })
	t.Run("together", func(t *testing.T) { testNodesTogether(t, bin) })
	t.Run("gpus", func(t *testing.T) { testNodeGPUs(t, bin) })
	t.Run("pivot with code", func(t *testing.T) { testPivotSync(t, bin) })
	t.Run("no deploy", func(t *testing.T) { testNodesNoDeploy(t, bin) })
}

// testNodeGPUs has ranks on all GPUs of both nodes: each must say how many it
// has, or have said so before.
func testNodeGPUs(t *testing.T, bin string) {
	t.Parallel()
	f := newFleet(t, bin)
	spec := filepath.Join(f.dir, "pipedeck.yaml")
	raw, err := os.ReadFile(spec)
	if err != nil {
		t.Fatal(err)
	}
	f.write(t, "pipedeck.yaml", strings.Replace(string(raw), fmt.Sprintf("count: %d", fleetRanks), "per_gpu: 1", 1))
	f.env = append(f.env, simulateEnv+"="+filepath.Join(f.work, "gpus"))
	f.links[1].cut()
	if _, errs, code := f.run(t, "--node", "alpha", "start", "extract"); code != exitUnknown || !strings.Contains(errs, "not every node says how many GPUs it has: node beta: ") || !strings.Contains(errs, "list its GPUs") {
		t.Errorf("start while beta cannot be asked ends with %d: %s", code, errs)
	}
	f.links[1].restore(t)
	f.must(t, "start", "extract")
	part := func(s pipeline.Snapshot, node int) string {
		if p := s.Nodes[node].Stages[0].Placement; p != nil {
			return p.String()
		}
		return "none"
	}
	s := f.snapshot(t)
	if part(s, 0) != "ranks 0 to 3 of 8" || part(s, 1) != "ranks 4 to 7 of 8" || len(f.pids(t)) != 8 {
		t.Errorf("alpha has %s, beta %s, pids %v", part(s, 0), part(s, 1), f.pids(t))
	}
	f.links[1].cut()
	if _, errs, code := f.run(t, "--node", "alpha", "restart", "extract", "--confirm", "pair"); code != exitOK || !strings.Contains(errs, "the ranks stay as they were: ranks 0 to 3 of 8") {
		t.Errorf("restart of alpha while beta is lost ends with %d: %s", code, errs)
	}
	if _, errs, code := f.run(t, "stop", "extract/2", "--confirm", "y"); code != exitOK {
		t.Errorf("stop of one worker while beta is lost ends with %d: %s", code, errs)
	}
	if _, errs, code := f.run(t, "start", "extract/2"); code != exitOK {
		t.Errorf("start of one worker while beta is lost ends with %d: %s", code, errs)
	}
	if s = f.snapshot(t); part(s, 0) != "ranks 0 to 3 of 8" {
		t.Errorf("alpha has %s", part(s, 0))
	}
	f.links[1].restore(t)
	f.must(t, "stop", "extract", "--confirm", "pair")
}

// testNodeCut loses the link to one of two nodes: the other goes on to its end,
// and what the lost one did meanwhile counts when it is back.
func testNodeCut(t *testing.T, bin string) {
	t.Parallel()
	f := newFleet(t, bin)
	_, errs, code := f.run(t, "start", "extract")
	if code != exitOK {
		t.Fatalf("start ends with %d: %s", code, errs)
	}
	for _, want := range []string{"verified 3 of 3 workers", "verified 2 of 2 workers", `alpha: start "extract": verified`, `beta: start "extract": verified`} {
		if !strings.Contains(errs, want) {
			t.Errorf("no %q in:\n%s", want, errs)
		}
	}
	s := f.await(t, "both run", func(s pipeline.Snapshot) bool {
		return len(s.Nodes) == 2 && s.Nodes[0].Stages[0].State == pipeline.StageRunning && s.Nodes[1].Stages[0].State == pipeline.StageRunning
	})
	alpha, _ := workers(s.Nodes[0])
	beta, _ := workers(s.Nodes[1])
	if got := strings.Join(append(alpha, beta...), " "); got != "extract/0 extract/1 extract/2 extract/3 extract/4" || len(alpha) != 3 {
		t.Errorf("alpha has %q, beta %q", alpha, beta)
	}
	f.links[1].cut()
	f.letGo(t, 0)
	s = f.await(t, "alpha done while beta is lost", func(s pipeline.Snapshot) bool {
		return s.Nodes[0].Stages[0].State == pipeline.StageDone && verified(s.Nodes[0]) > 0
	})
	if l := s.Nodes[1].Link; l.State != pipeline.LinkLost || l.Reason == nil || s.Nodes[0].Link.State != pipeline.LinkLive || s.ExitCode() != exitUnknown {
		t.Errorf("links %+v and %+v, health %s", s.Nodes[0].Link, l, s.Health)
	}
	if st := s.Nodes[1].Stages[0]; st.Done != nil || st.State != pipeline.StageUnknown || st.DoneReason == nil {
		t.Errorf("of the lost node is told: %+v", st)
	}
	for _, args := range [][]string{{"stop", "extract", "--confirm", "pair"}, {"kill", "extract", "--confirm", "pair"}, {"pause"}} {
		if _, errs, code := f.run(t, args...); code != exitUnknown || !strings.Contains(errs, "node beta: ") || !strings.Contains(errs, "--node alpha") || !strings.Contains(errs, "nothing was done") {
			t.Errorf("%q ends with %d: %s", args, code, errs)
		}
	}
	if _, errs, code := f.run(t, "--node", "alpha", "settle", "extract/o"); code != exitOK {
		t.Errorf("settle of the node that is there ends with %d: %s", code, errs)
	}
	if out, errs, code := f.run(t, "logs", "extract/1"); code != exitOK {
		t.Errorf("logs of a node that is there: %d %s %s", code, out, errs)
	}
	f.letGo(t, 1)
	f.links[1].restore(t)
	f.await(t, "both done and every sample stored", func(s pipeline.Snapshot) bool {
		return s.Nodes[0].Stages[0].State == pipeline.StageDone && s.Nodes[1].Stages[0].State == pipeline.StageDone && len(f.stored(t)) == fleetSamples
	})
	f.complete(t)
}

// complete holds the bucket against what the ranks should have made.
func (f *fleet) complete(t *testing.T) {
	t.Helper()
	stored := f.stored(t)
	for i := range fleetSamples {
		rank := -1
		for r := range fleetRanks {
			if i >= r*fleetSamples/fleetRanks && i < (r+1)*fleetSamples/fleetRanks {
				rank = r
			}
		}
		want := fmt.Sprintf("sample %d of rank %d of %d\n", i, rank, fleetRanks)
		if got := stored[fmt.Sprintf("s_%d.txt", i)]; got != want {
			t.Errorf("sample %d: stored is %q, want %q", i, got, want)
		}
	}
}

// testNodesTogether acts on both nodes with one confirmation, and on none where
// one refuses.
func testNodesTogether(t *testing.T, bin string) {
	t.Parallel()
	f := newFleet(t, bin)
	f.must(t, "start", "extract")
	if _, errs, code := f.run(t, "restart", "extract"); code != exitRefused || !strings.Contains(errs, `together ask for "pair"`) {
		t.Errorf("restart without confirmation ends with %d: %s", code, errs)
	}
	before := f.pids(t)
	if _, errs, code := f.run(t, "restart", "extract", "--confirm", "pair"); code != exitOK || !strings.Contains(errs, `alpha: restart "extract": verified`) || !strings.Contains(errs, `beta: restart "extract": verified`) {
		t.Errorf("restart ends with %d: %s", code, errs)
	}
	if after := f.pids(t); len(after) != fleetRanks || slices.ContainsFunc(after, func(pid int) bool { return slices.Contains(before, pid) }) {
		t.Errorf("pids %v after a restart of %v", after, before)
	}
	f.refusedLease(t)

	var doc jointPlan
	if err := json.Unmarshal([]byte(f.must(t, "plan", "stop", "extract", "--json")), &doc); err != nil {
		t.Fatal(err)
	}
	if len(doc.Plans) != 2 || doc.Plans[0].Node != "alpha" || doc.Plans[1].Node != "beta" || doc.Confirm == nil || *doc.Confirm != "pair" {
		t.Fatalf("%+v", doc)
	}
	if _, errs, code := f.run(t, "apply", doc.Plans[1].ID, doc.Plans[0].ID); code != exitRefused {
		t.Errorf("apply without confirmation ends with %d: %s", code, errs)
	}
	out, errs, code := f.run(t, "apply", doc.Plans[1].ID, doc.Plans[0].ID, "--confirm", "pair", "--json")
	var did struct{ Actions []nodeAction }
	if err := json.Unmarshal([]byte(out), &did); err != nil || code != exitOK || len(did.Actions) != 2 || did.Actions[0].Node != "alpha" || did.Actions[1].Result != pipeline.Verified {
		t.Errorf("apply ends with %d (%v): %s%s", code, err, out, errs)
	}
	for _, n := range f.snapshot(t).Nodes {
		if _, pids := workers(n); len(pids) > 0 || n.Stages[0].State != pipeline.StageStopped {
			t.Errorf("node %s: %s, pids %v", n.Name, n.Stages[0].State, pids)
		}
	}
	f.must(t, "start", "extract")
	f.letGo(t, 0)
	f.letGo(t, 1)
	f.await(t, "every sample stored", func(pipeline.Snapshot) bool { return len(f.stored(t)) == fleetSamples })
	f.complete(t)
}

// refusedLease has another operator act on the second node: nothing may happen
// on the first, whose lease is given back.
func (f *fleet) refusedLease(t *testing.T) {
	t.Helper()
	a := &app{in: strings.NewReader(""), out: io.Discard, err: io.Discard, env: func(name string) string {
		for _, pair := range slices.Backward(f.env) { // the last counts
			if value, ok := strings.CutPrefix(pair, name+"="); ok {
				return value
			}
		}
		return ""
	}}
	defer a.closeNodes()
	a.flag.spec = filepath.Join(f.dir, "pipedeck.yaml")
	nodes, err := a.chosen()
	if err != nil {
		t.Fatal(err)
	}
	open := a.eachNode(t.Context(), nodes, reach.ensure)
	defer closeAll(open)
	hold := func(i int) (release func()) {
		t.Helper()
		if open[i].err != nil {
			t.Fatal(open[i].err)
		}
		p, err := open[i].c.Plan(t.Context(), pipeline.Intent{Verb: pipeline.VerbStop, Target: "extract"})
		if err != nil {
			t.Fatal(err)
		}
		if err := open[i].c.Hold(t.Context(), pipeline.ApplyRequest{Plan: p.ID, Confirm: "pair", By: "somebody@else"}); err != nil {
			t.Fatalf("the lease of %s is not free: %v", open[i].name(), err)
		}
		return func() {
			if err := open[i].c.Release(t.Context(), p.ID); err != nil {
				t.Error(err)
			}
		}
	}
	pids := func() string { return fmt.Sprint(f.pids(t)) }
	before := pids()
	release := hold(1)
	_, errs, code := f.run(t, "stop", "extract", "--confirm", "pair")
	if code != exitRefused || !strings.Contains(errs, "node beta: ") || !strings.Contains(errs, "somebody@else") || !strings.Contains(errs, "nothing was begun on any node") {
		t.Errorf("a stop beside another action ends with %d: %s", code, errs)
	}
	if after := pids(); after != before {
		t.Errorf("pids %s after a refused stop of %s", after, before)
	}
	release()
	hold(0)()
}

// pids are the living workers of both nodes.
func (f *fleet) pids(t *testing.T) []int {
	t.Helper()
	var out []int
	for _, n := range f.snapshot(t).Nodes {
		_, pids := workers(n)
		out = append(out, pids...)
	}
	return out
}
