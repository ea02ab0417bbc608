package sshtest

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
)

// Network is a network namespace of its own with one cable to this machine's.
type Network struct {
	Here  string // this machine's address on the cable
	There string // the namespace's
	near  string // names of the cable's two ends
	far   string
	pid   int // of the process that holds the namespace
}

// NewNetwork makes one that is gone after the test, or skips the test where
// namespaces cannot be made.
func NewNetwork(tb testing.TB) *Network {
	tb.Helper()
	if os.Getuid() != 0 {
		tb.Skip("network namespaces are made by root only")
	}
	for _, tool := range []string{"ip", "unshare", "nsenter"} {
		if _, err := exec.LookPath(tool); err != nil {
			tb.Skipf("%s is not installed: scripts/setup installs iproute2", tool)
		}
	}
	id := rand.IntN(1 << 14)
	prefix := fmt.Sprintf("10.%d.%d.", 192+id>>8, id&255)
	n := &Network{Here: prefix + "1", There: prefix + "2", near: fmt.Sprintf("pd%xa", id), far: fmt.Sprintf("pd%xb", id)}
	n.hold(tb)
	tb.Cleanup(func() { _, _ = tool("ip", "link", "del", n.near) }) // it may be gone with the namespace
	for _, args := range [][]string{
		{"link", "add", n.near, "type", "veth", "peer", "name", n.far, "netns", strconv.Itoa(n.pid)},
		{"addr", "add", n.Here + "/24", "dev", n.near},
		{"link", "set", n.near, "up"},
	} {
		if out, err := tool("ip", args...); err != nil {
			tb.Skipf("a cable into a namespace cannot be made here: ip %s: %s", strings.Join(args, " "), out)
		}
	}
	n.there(tb, "link", "set", "lo", "up")
	n.there(tb, "addr", "add", n.There+"/24", "dev", n.far)
	n.Up(tb)
	return n
}

// hold starts the process that the namespace lives with.
func (n *Network) hold(tb testing.TB) {
	tb.Helper()
	cmd := exec.Command("unshare", "-n", "sh", "-c", "echo ready; exec sleep 86400")
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	out, err := cmd.StdoutPipe()
	if err != nil {
		tb.Fatal(err)
	}
	var said bytes.Buffer
	cmd.Stderr = &said
	if err := cmd.Start(); err != nil {
		tb.Skipf("network namespaces cannot be made here: %v", err)
	}
	tb.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	if got, err := out.Read(make([]byte, 16)); err != nil || got == 0 {
		tb.Skipf("network namespaces cannot be made here: %s", said.String())
	}
	n.pid = cmd.Process.Pid
}

// enter is what runs a command in the namespace.
func (n *Network) enter() []string { return []string{"nsenter", "-t", strconv.Itoa(n.pid), "-n"} }

func (n *Network) there(tb testing.TB, args ...string) {
	tb.Helper()
	command := append(n.enter(), "ip")
	if out, err := tool(command[0], append(command[1:], args...)...); err != nil {
		tb.Fatalf("ip %s: %v: %s", strings.Join(args, " "), err, out)
	}
}

// Down unplugs the cable at the far end: what is sent there is lost in silence.
func (n *Network) Down(tb testing.TB) { tb.Helper(); n.there(tb, "link", "set", n.far, "down") }

// Up plugs it in again.
func (n *Network) Up(tb testing.TB) { tb.Helper(); n.there(tb, "link", "set", n.far, "up") }

// Limit lets what comes from there through at a rate as tc has it, with up to
// 50 ms of it waiting; without tc the test is skipped.
func (n *Network) Limit(tb testing.TB, rate string) {
	tb.Helper()
	command := append(n.enter(), "tc", "qdisc", "add", "dev", n.far, "root", "tbf", "rate", rate, "burst", "32k", "latency", "50ms")
	if out, err := tool(command[0], command[1:]...); err != nil {
		tb.Skipf("a rate cannot be limited here: %v: %s", err, out)
	}
}

func tool(name string, args ...string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	return exec.CommandContext(ctx, name, args...).CombinedOutput()
}
