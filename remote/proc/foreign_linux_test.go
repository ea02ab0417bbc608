package proc

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"pipedeck/pipeline"
)

// told is what an agent without privileges says of its attempt to stop.
type told struct {
	Sent    []pipeline.Signalled
	Verdict pipeline.Verdict
	Said    string
}

// stopMain starts a worker if there is none, kills its set and judges.
func stopMain(root string) int {
	d, ctx := deck{root: root}, context.Background()
	h := New(d.options())
	if _, err := h.find("w-0-1"); err != nil {
		l := d.launch("w-0-1", root+"/suid become-root "+root+"/pid & wait")
		if err := h.Start(ctx, l); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
	}
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); time.Sleep(10 * time.Millisecond) {
		if raw, err := os.ReadFile(root + "/pid"); err == nil && len(raw) > 0 {
			break
		}
	}
	var out told
	var err error
	ev := pipeline.LaunchEvidence{ID: "w-0-1", Worker: "w/0"}
	if out.Sent, err = h.Signal(ctx, "w-0-1", "SIGKILL", pipeline.ToSet); err == nil {
		for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); time.Sleep(10 * time.Millisecond) {
			if ev.First, err = h.Inspect(ctx, "w-0-1"); err != nil || ev.First.Exit != nil {
				break
			}
		}
	}
	if err == nil {
		ev.Second, err = h.Inspect(ctx, "w-0-1")
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	verdict, checks := pipeline.JudgeStop(pipeline.StopEvidence{Launches: []pipeline.LaunchEvidence{ev}})
	out.Verdict, out.Said = verdict, said(checks)
	_ = json.NewEncoder(os.Stdout).Encode(out)
	return 0
}

// becomeRoot is what a setuid program does that drops its caller.
func becomeRoot(file string) {
	signal.Ignore(unix.SIGTERM)
	if err := syscall.Setuid(0); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	_ = os.WriteFile(file, []byte(itoa(os.Getpid())), 0o644)
	time.Sleep(10 * time.Minute)
	os.Exit(0)
}

// An agent without privileges cannot signal another user's process. The stop
// fails and names it, and is verified once somebody else has ended it.
func TestAnotherUsersProcessOutlivesTheStop(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root")
	}
	t.Parallel()
	const nobody = 65534
	root, err := os.MkdirTemp("/tmp", "pipedeck-foreign-") //nolint:usetesting // another user must reach it
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(root) })
	for _, err := range []error{os.Chmod(root, 0o755), os.Chown(root, nobody, nobody), copyFile("/proc/self/exe", root+"/suid"), os.Chmod(root+"/suid", 0o755|os.ModeSetuid)} {
		if err != nil {
			t.Fatal(err)
		}
	}
	stop := func() told {
		t.Helper()
		cmd := exec.Command(root+"/suid", "stop", root)
		cmd.Path = root + "/test"
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}, Setpgid: true}
		cmd.Dir, cmd.Stderr = root, os.Stderr
		raw, err := cmd.Output()
		var out told
		if err == nil {
			err = json.Unmarshal(raw, &out)
		}
		if err != nil {
			t.Fatal(err)
		}
		return out
	}
	if err := copyFile("/proc/self/exe", root+"/test"); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(root+"/test", 0o755); err != nil {
		t.Fatal(err)
	}
	first := stop()
	raw := awaitFile(t, filepath.Join(root, "pid"))
	pid := awaitPID(t, filepath.Join(root, "pid"))
	t.Cleanup(func() { _ = unix.Kill(pid, unix.SIGKILL) })
	if first.Verdict != pipeline.ActionFailed || !strings.Contains(first.Said, "another user's process: pid "+raw+" (suid) of root") {
		t.Errorf("%s: %s", first.Verdict, first.Said)
	}
	t.Logf("%s", first.Said)
	denied := false
	for _, s := range first.Sent {
		denied = denied || s.PID == pid && s.Err != ""
	}
	if !denied || gone(pid) {
		t.Errorf("sent %+v, gone %t", first.Sent, gone(pid))
	}
	if err := unix.Kill(pid, unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	await(t, "its end", func() bool { return gone(pid) })
	if then := stop(); then.Verdict != pipeline.Verified {
		t.Errorf("then %s: %s", then.Verdict, then.Said)
	}
}

func copyFile(from, to string) error {
	src, err := os.Open(from)
	if err != nil {
		return err
	}
	defer src.Close()
	dst, err := os.Create(to)
	if err != nil {
		return err
	}
	if _, err := io.Copy(dst, src); err != nil {
		return err
	}
	return dst.Close()
}
