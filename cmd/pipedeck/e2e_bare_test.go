package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"pipedeck/pipeline"
	"pipedeck/remote/ssh/sshtest"
)

// testNodesNoDeploy looks at two nodes on which nothing may be installed: first
// none has an agent, then one has.
func testNodesNoDeploy(t *testing.T, bin string) {
	t.Parallel()
	tools := t.TempDir()
	writeSMI(t, tools)
	f := newFleetOn(t, bin, sshtest.Options{Env: []string{"PATH=" + tools + ":/usr/bin:/bin"}})
	isBare := func(n pipeline.NodeSnapshot) {
		t.Helper()
		if n.Agent != nil || n.Link.State != pipeline.LinkLive || n.Link.Via == nil || !strings.HasSuffix(*n.Link.Via, ", without an agent") {
			t.Errorf("node %s: %+v %+v", n.Name, n.Agent, n.Link)
		}
		if len(n.GPUs) != 1 || n.GPUs[0].UUID != "GPU-aa" || n.GPUSource.Reason == nil || len(n.Disks) == 0 || n.Disks[0].FreeBytes == nil {
			t.Errorf("node %s: %+v %+v %+v", n.Name, n.GPUs, n.GPUSource, n.Disks)
		}
		if len(n.Stages) != 1 || n.Stages[0].State != pipeline.StageUnknown {
			t.Errorf("node %s: %+v", n.Name, n.Stages)
		}
	}
	look := func(args ...string) pipeline.Snapshot {
		t.Helper()
		out, errs, code := f.run(t, append([]string{"--no-deploy"}, args...)...)
		if code != exitUnknown || strings.Contains(errs, "installing") {
			t.Fatalf("%q ends with %d: %s", args, code, errs)
		}
		return parseSnapshot(t, out, errs)
	}
	s := look("--json")
	if len(s.Nodes) != 2 || s.Health != pipeline.Stale || !strings.Contains(strings.Join(s.HealthReasons, "\n"), "node beta: without an agent: only GPUs and disks") {
		t.Fatalf("%s %q, %d nodes", s.Health, s.HealthReasons, len(s.Nodes))
	}
	isBare(s.Nodes[0])
	isBare(s.Nodes[1])
	for _, node := range f.nodes {
		if left, err := os.ReadDir(node.Home); err != nil || len(left) > 0 {
			t.Errorf("left behind: %v %v", left, err)
		}
		if left, err := os.ReadDir(filepath.Join(node.Dir, "w")); err != nil || len(left) > 0 {
			t.Errorf("left behind: %v %v", left, err)
		}
	}
	f.must(t, "--node", "alpha", "agent", "deploy")
	s = look("--json")
	if s.Nodes[0].Agent == nil || s.Nodes[0].Stages[0].State != pipeline.StageIdle {
		t.Errorf("alpha has an agent, and it says %+v", s.Nodes[0])
	}
	isBare(s.Nodes[1])
	text, errs, _ := f.run(t, "--no-deploy", "snapshot")
	if !strings.Contains(text, "node beta: link live, without an agent") || !strings.Contains(text, "node alpha: link live\n") || !strings.Contains(text, "NVIDIA") && !strings.Contains(text, "GPU 0: ok") {
		t.Errorf("the text: %s%s", text, errs)
	}
	f.watchesBare(t, isBare)
	f.endsWithoutAgent(t)
}

// endsWithoutAgent stops what does not run: beta has no program, and gets none to
// say so; alpha's agent is asked.
func (f *fleet) endsWithoutAgent(t *testing.T) {
	t.Helper()
	for _, args := range [][]string{{"stop", "extract", "--confirm", "pair"}, {"stop", "extract/4"}, {"kill", "extract", "--confirm", "pair"}, {"--node", "beta", "stop", "extract"}} {
		_, errs, code := f.run(t, args...)
		if code != exitOK || !strings.Contains(errs, "beta: nothing to do: ") || strings.Contains(errs, "installing") {
			t.Errorf("%q ends with %d: %s", args, code, errs)
		}
	}
	f.must(t, "--node", "alpha", "agent", "undeploy")
	var did struct{ Actions []nodeAction }
	out, errs, code := f.run(t, "stop", "extract", "--json")
	if err := json.Unmarshal([]byte(out), &did); err != nil || code != exitOK || len(did.Actions) != 2 || did.Actions[1].Result != pipeline.Verified || did.Actions[1].Node != "beta" {
		t.Errorf("stop ends with %d (%v): %s%s", code, err, out, errs)
	}
	for _, node := range f.nodes {
		if left, err := filepath.Glob(filepath.Join(node.Home, ".local/share/*")); err != nil || len(left) > 0 {
			t.Errorf("installed to find out: %q %v", left, err)
		}
	}
}

// watchesBare reads `--watch` until it shows an agent on alpha and none on beta.
func (f *fleet) watchesBare(t *testing.T, isBare func(pipeline.NodeSnapshot)) {
	t.Helper()
	cmd := f.command(t.Context(), "--no-deploy", "--json", "--watch", "200ms")
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait() // it is killed
	}()
	for lines := json.NewDecoder(out); ; {
		var s pipeline.Snapshot
		if err := lines.Decode(&s); err != nil {
			t.Fatal(err)
		}
		if len(s.Nodes) == 2 && s.Nodes[0].Agent != nil && len(s.Nodes[1].GPUs) > 0 {
			isBare(s.Nodes[1])
			return
		}
	}
}
