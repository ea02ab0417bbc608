package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const pivotSyncYAML = `version: 1
deck: pair
run: r1
workdir: %q
nodes: [{name: alpha, ssh: %q}, {name: beta, ssh: %q}]
store: {bucket: bucket, endpoint: %q, region: us-east-1, path_style: true}
sync: [{from: code, to: src}]
stages:
  extract:
    workers:
      count: 2
      command: [/bin/sh, -c, 'mkdir -p out; sh src/hello >out/{rank}.txt; cat out/{rank}.txt; exec sleep 3600']
      stop: {signal: SIGTERM, grace: 5s}
    outputs: {o: {dir: out, match: "*.txt", format: any, settle: 1s, key: "o/{path}"}}
  train:
    workers:
      count: 2
      command: [/bin/sh, -c, 'mkdir -p models; sh src/hello >models/{rank}.txt; cat models/{rank}.txt; exec sleep 3600']
      stop: {signal: SIGTERM, grace: 5s}
    outputs: {m: {dir: models, match: "*.txt", format: any, settle: 1s, key: "m/{path}"}}
`

// testPivotSync pivots with code that changed: on all nodes, on one, and from
// the console. What is pushed is shown first, and recorded.
func testPivotSync(t *testing.T, bin string) {
	t.Parallel()
	f := newFleet(t, bin)
	user := f.nodes[0].User + "@"
	f.write(t, "pipedeck.yaml", fmt.Sprintf(pivotSyncYAML, f.work, user+f.links[0].addr, user+f.links[1].addr, f.store.URL()))
	if err := os.Mkdir(filepath.Join(f.dir, "code"), 0o755); err != nil {
		t.Fatal(err)
	}
	f.code(t, "one")
	f.must(t, "start", "extract")

	f.code(t, "two")
	plan := f.must(t, "plan", "pivot", "train")
	if strings.Count(plan, "pushed first: changed src/hello") != 2 {
		t.Errorf("the plans say nothing of the code:\n%s", plan)
	}
	f.has(t, 0, "one")
	_, errs, code := f.run(t, "pivot", "train", "--confirm", "train")
	if code != exitOK || !strings.Contains(errs, "pushed 1 of 1 file to alpha") || !strings.Contains(errs, "pushed 1 of 1 file to beta") {
		t.Fatalf("pivot ends with %d: %s", code, errs)
	}
	hash := f.runs(t, "train", 0, "two")
	if other := f.runs(t, "train", 1, "two"); other != hash {
		t.Errorf("alpha runs %s, beta %s", hash, other)
	}
	if raw, ok := f.store.Object("r1/.pipedeck/train.json"); !ok || !strings.Contains(string(raw), hash) {
		t.Errorf("the record in the bucket lacks %s: %s", hash, raw)
	}
	if out := f.must(t, "history", "--json"); strings.Count(out, "pivot train, code "+hash) != 2 || strings.Count(out, "planned (code "+hash) != 2 {
		t.Errorf("the journals: %s", out)
	}

	f.code(t, "three")
	_, errs, code = f.run(t, "--node", "beta", "pivot", "extract", "--confirm", "extract")
	if code != exitOK || !strings.Contains(errs, "sync: changed: src/hello") || !strings.Contains(errs, "pushed 1 of 1") {
		t.Fatalf("pivot of one node ends with %d: %s", code, errs)
	}
	f.runs(t, "extract", 1, "three")
	f.has(t, 0, "two")

	w := consoleOf(t, f.program)
	w.shows("2/2 LIVE")
	w.press("n", "pair @ alpha", "LIVE 0.")
	w.press(": "+keysOf("pivot extract")+" Enter", "PIVOT extract", "pushed first: changed src/hello", "type exactly:  extract")
	t.Log(w.screen())
	f.has(t, 0, "two")
	w.confirm("extract")
	w.shows("PIVOT extract   verified")
	t.Log(w.screen())
	w.do(t, "send-keys", "C-c")
	f.runs(t, "extract", 0, "three")
	f.must(t, "stop", "extract", "--confirm", "pair")
}

// code writes the code on the laptop.
func (f *fleet) code(t *testing.T, word string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(f.dir, "code", "hello"), []byte("echo hello "+word+"\n"), 0o644); err != nil {
		t.Fatal(err)
	}
}

// has looks at the code of a node.
func (f *fleet) has(t *testing.T, node int, word string) {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join(f.nodes[node].Dir, "w", "src", "hello"))
	if err != nil || string(raw) != "echo hello "+word+"\n" {
		t.Errorf("node %d has %q, %v; not %q", node, raw, err, word)
	}
}

// runs looks whether a stage of a node runs this code, and returns its hash.
func (f *fleet) runs(t *testing.T, stage string, node int, word string) string {
	t.Helper()
	f.has(t, node, word)
	for _, st := range f.snapshot(t).Nodes[node].Stages {
		if st.Name != stage || len(st.Workers) == 0 {
			continue
		}
		w := st.Workers[0]
		if w.Code == nil || w.PID == nil {
			t.Fatalf("%s on node %d: %+v", stage, node, w)
		}
		if out := f.must(t, "logs", w.ID); !strings.Contains(out, "hello "+word) {
			t.Errorf("%s says %s", w.ID, out)
		}
		return *w.Code
	}
	t.Fatalf("no worker of %s on node %d", stage, node)
	return ""
}
