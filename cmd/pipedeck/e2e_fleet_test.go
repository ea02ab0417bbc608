package main

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"pipedeck/remote/ssh/sshtest"
	"pipedeck/s3/s3test"
)

// fleetDeck is a deck on two nodes, each an sshd of its own, and a third one that
// takes connections and never says a word. The second one has its own folder in
// the place of the deck's, as another machine would.
type fleetDeck struct {
	*program
	nodes [2]*sshtest.Server
}

func newFleetDeck(t *testing.T, bin string) *fleetDeck {
	t.Helper()
	d := &fleetDeck{program: newProgram(t, bin, "AWS_ACCESS_KEY_ID="+farKey, "AWS_SECRET_ACCESS_KEY="+farSecret)}
	work := filepath.Join(d.dir, "w")
	if err := os.Mkdir(work, 0o755); err != nil {
		t.Fatal(err)
	}
	d.nodes[0] = sshtest.Start(t, sshtest.Options{})
	d.nodes[1] = sshtest.Start(t, sshtest.Options{Prepare: fmt.Sprintf(`mkdir -p "$1/w"; mount --bind "$1/w" %q`, work)})
	store := s3test.Start(t, s3test.Options{Keys: []string{farKey}})
	d.env = append(d.env, "HOME="+sshtest.NewLaptop(t, d.nodes[0], d.nodes[1]).Home)
	yaml := fmt.Sprintf(farYAML, work, d.nodes[0].Dest(), store.URL(), farFiles*2)
	one := fmt.Sprintf("{name: train1, ssh: %q}", d.nodes[0].Dest())
	more := fmt.Sprintf(", {name: train2, ssh: %q}, {name: train3, ssh: %q}", d.nodes[1].Dest(), "root@"+mute(t))
	d.write(t, "pipedeck.yaml", strings.Replace(yaml, one, one+more, 1))
	return d
}

// mute is the address of a server that never answers.
func mute(t *testing.T) string {
	t.Helper()
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() }) // connections wait in its queue
	return l.Addr().String()
}

// open opens the console of all nodes in a tmux window.
func (d *fleetDeck) open(t *testing.T, cols, rows string) *window {
	t.Helper()
	w := &window{t: t, p: d.program, terminal: &terminal{tmux: needTool(t, "tmux"), socket: filepath.Join(d.dir, "tmux")}}
	command := fmt.Sprintf("cd %s && env TERM=xterm %s %s; echo $? >code", d.dir, strings.Join(d.env[4:], " "), d.bin)
	w.do(t, "new-session", "-d", "-x", cols, "-y", rows, "sh", "-c", command)
	t.Cleanup(func() { _ = exec.CommandContext(context.Background(), w.tmux, "-S", w.socket, "kill-server").Run() })
	return w
}

// testFleetConsole opens the console on two nodes. One of them is cut off and
// comes back; the other goes on all the time.
func testFleetConsole(t *testing.T, bin string) {
	d := newFleetDeck(t, bin)
	w := d.open(t, "80", "24")
	w.shows("@ 3 nodes", "2/3 LIVE", "train1", "train2", "Xtrain3", "of 2/3")
	d.must(t, "--node", "train1", "start", "extract")
	d.must(t, "--node", "train2", "start", "extract")
	w.press("n", "far @ train1", "extract/")
	w.press("l", "log of extract/")
	w.press("q", "far @ train1")
	w.press("n", "far @ train2", "extract/")
	w.press("n", "far @ train3")
	w.press("n", "@ 3 nodes")
	w.press("!", "choose a node first")
	w.press("Escape", "@ 3 nodes")

	d.nodes[1].Kill()
	w.shows("1/3 LIVE", "Xtrain2", "of 1/3", "train2 LOST", "retry in")
	w.press("g", "X>train2       LOST")
	w.press("Enter", "far @ train2", "LOST", "Retry in", "~IDLE")
	w.press("N", "far @ train1", "LIVE")
	before := w.screen()
	eventually(t, "the other node goes on", func() bool { return w.screen() != before && strings.Contains(w.screen(), "LIVE 0.") })
	w.press("Escape", "@ 3 nodes")

	d.nodes[1].Again(t)
	w.shows("2/3 LIVE", "of 2/3")
	w.press("q")
	if code := w.ends(); code != "0" {
		t.Errorf("the console ends with %s", code)
	}
}
