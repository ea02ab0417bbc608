package agent_test

import (
	"encoding/json"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"pipedeck/pipeline"
	"pipedeck/remote/agent"
	"pipedeck/remote/agent/wire"
)

// keep starts a keeper as a child and ends it with the test.
func keep(t *testing.T, role string, state wire.State) *exec.Cmd {
	t.Helper()
	cmd := reexec(t, role, state, func(attr *syscall.SysProcAttr) { attr.Setsid = true })
	out, err := os.OpenFile(filepath.Join(t.TempDir(), "keeper.out"), os.O_CREATE|os.O_APPEND|os.O_RDWR, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stdout, cmd.Stderr = out, out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		_ = cmd.Wait()
		if data, err := os.ReadFile(out.Name()); err == nil && t.Failed() {
			t.Logf("keeper:\n%s\nagent.log:\n%s", data, wire.LastLines(state.Log(), 20))
		}
		_ = out.Close()
	})
	return cmd
}

// hello asks the agent who it is; ok is false while none answers.
func hello(t *testing.T, state wire.State) (h wire.Hello, ok bool) {
	t.Helper()
	status, body, err := (&running{state: state}).try(t.Context(), "GET", wire.PathHello, "", "")
	if err != nil || status != http.StatusOK {
		return h, false
	}
	if err := json.Unmarshal([]byte(body), &h); err != nil {
		t.Fatal(err)
	}
	return h, true
}

// awaitAgent waits for an agent other than process not.
func awaitAgent(t *testing.T, state wire.State, not int) wire.Hello {
	t.Helper()
	var h wire.Hello
	eventually(t, "another agent answers", func() bool {
		var ok bool
		h, ok = hello(t, state)
		return ok && h.PID != not
	})
	return h
}

func kill(t *testing.T, pid int) {
	t.Helper()
	if pid <= 1 {
		t.Fatalf("no process %d to kill", pid)
	}
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
}

// ended waits for a child of this process.
func ended(t *testing.T, cmd *exec.Cmd) {
	t.Helper()
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = cmd.Wait()
	}()
	select {
	case <-done:
	case <-time.After(10 * time.Second):
		t.Fatalf("process %d does not end", cmd.Process.Pid)
	}
}

func TestKeeperRestartsAKilledAgent(t *testing.T) {
	t.Parallel()
	state := stateIn(t)
	keeper := keep(t, roleKeeper, state)
	h := awaitAgent(t, state, 0)
	if h.KeeperPID != keeper.Process.Pid {
		t.Errorf("hello names keeper %d, want %d", h.KeeperPID, keeper.Process.Pid)
	}
	// More often than any crash-loop limit: each agent reached its socket.
	var longest time.Duration
	for range 8 {
		killed := time.Now()
		kill(t, h.PID)
		h = awaitAgent(t, state, h.PID)
		longest = max(longest, time.Since(killed))
	}
	t.Logf("the agent was away for %s at most", longest)
	if rec := wire.ReadRecord(state.KeeperLock()); rec.State != wire.LockKeeping || rec.Count != 0 {
		t.Errorf("keeper is %+v, want keeping without failures", rec)
	}
}

func TestKeeperEndsWithAStoppedAgent(t *testing.T) {
	t.Parallel()
	state := stateIn(t)
	keeper := keep(t, roleKeeper, state)
	awaitAgent(t, state, 0)
	if status, body := (&running{state: state}).do(t, "POST", wire.PathStop, "s", ""); status != http.StatusOK {
		t.Fatalf("stop answers %d %s", status, body)
	}
	ended(t, keeper)
	if code := keeper.ProcessState.ExitCode(); code != 0 {
		t.Errorf("the keeper ended with %d", code)
	}
	if _, held, err := wire.Held(state.AgentLock()); held || err != nil {
		t.Errorf("the agent's lock is held=%t (%v)", held, err)
	}
}

func TestKeeperForwardsTermAndIgnoresHup(t *testing.T) {
	t.Parallel()
	state := stateIn(t)
	keeper := keep(t, roleKeeper, state)
	h := awaitAgent(t, state, 0)
	if err := keeper.Process.Signal(syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
	// The keeper is alive after the signal if it restarts an agent.
	kill(t, h.PID)
	awaitAgent(t, state, h.PID)
	if err := keeper.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	ended(t, keeper)
	if _, held, err := wire.Held(state.AgentLock()); held || err != nil {
		t.Errorf("the keeper ended before its agent: held=%t (%v)", held, err)
	}
}

func TestKeeperBacksOffFromAnAgentThatDies(t *testing.T) {
	t.Parallel()
	state := stateIn(t)
	keep(t, roleKeepDying, state)
	var rec wire.Record
	eventually(t, "the second failure", func() bool {
		rec = wire.ReadRecord(state.KeeperLock())
		return rec.State == wire.LockBackoff && rec.Count >= 2
	})
	if lines := wire.LastLines(state.Log(), 1); lines != "cannot open the ledger: it is broken" {
		t.Errorf("last line of agent.log is %q", lines)
	}
	// With 200 ms doubling, the sixth failure is 6.2 s after the first; a
	// nudge for each makes it immediate.
	eventually(t, "nudges to shorten the wait", func() bool {
		if err := agent.Keeper(t.Context(), agent.KeeperOptions{State: state}); err != nil {
			t.Fatal(err)
		}
		return wire.ReadRecord(state.KeeperLock()).Count >= 6
	})
}

func TestKeeperTakesOverAnOrphanedAgent(t *testing.T) {
	t.Parallel()
	state := stateIn(t)
	first := keep(t, roleKeeper, state)
	h := awaitAgent(t, state, 0)
	kill(t, first.Process.Pid)
	ended(t, first)
	eventually(t, "the agent to notice", func() bool {
		now, ok := hello(t, state)
		return ok && now.PID == h.PID && now.KeeperLost && now.KeeperPID == 0
	})
	second := keep(t, roleKeeper, state)
	eventually(t, "the second keeper", func() bool {
		return wire.ReadRecord(state.KeeperLock()).PID == second.Process.Pid
	})
	kill(t, h.PID)
	h = awaitAgent(t, state, h.PID)
	if h.KeeperPID != second.Process.Pid {
		t.Errorf("the new agent names keeper %d, want %d", h.KeeperPID, second.Process.Pid)
	}
}

func TestKeeperOfAnOrphanEndsWhenThatIsStopped(t *testing.T) {
	t.Parallel()
	state := stateIn(t)
	first := keep(t, roleKeeper, state)
	awaitAgent(t, state, 0)
	kill(t, first.Process.Pid)
	ended(t, first)
	second := keep(t, roleKeeper, state)
	eventually(t, "the second keeper", func() bool {
		rec := wire.ReadRecord(state.KeeperLock())
		return rec.PID == second.Process.Pid && rec.State == wire.LockKeeping
	})
	(&running{state: state}).do(t, "POST", wire.PathStop, "s", "")
	ended(t, second)
	if _, ok := hello(t, state); ok {
		t.Error("an agent answers after the stop")
	}
}

func TestSpawnDetaches(t *testing.T) {
	t.Parallel()
	state := stateIn(t)
	spawn := func() error {
		return agent.Spawn(t.Context(), agent.SpawnOptions{
			State: state, Dir: "/", Env: roleEnv(roleKeeper, state),
		})
	}
	leak, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = leak.Close() }()
	if _, err := leak.Seek(0, 0); err != nil {
		t.Fatal(err)
	}
	// As if a `flock` around the command had left its file open.
	if _, _, errno := syscall.Syscall(syscall.SYS_FCNTL, leak.Fd(), syscall.F_SETFD, 0); errno != 0 {
		t.Fatal(errno)
	}
	results := make(chan error, 2)
	for range cap(results) {
		go func() { results <- spawn() }()
	}
	for range cap(results) {
		if err := <-results; err != nil {
			t.Fatal(err)
		}
	}
	h := awaitAgent(t, state, 0)
	t.Cleanup(func() { (&running{state: state}).do(t, "POST", wire.PathStop, "s", "") })
	eventually(t, "the keeper", func() bool {
		h, _ = hello(t, state)
		return h.KeeperPID > 1
	})
	for name, pid := range map[string]int{"keeper": h.KeeperPID, "agent": h.PID} {
		if sid := session(t, pid); sid != pid {
			t.Errorf("the %s is in session %d, want its own %d", name, sid, pid)
		}
		if cwd, err := os.Readlink(procPath(pid, "cwd")); err != nil || cwd != "/" {
			t.Errorf("the %s works in %q (%v), want /", name, cwd, err)
		}
	}
	fds, err := os.ReadDir(procPath(h.KeeperPID, "fd"))
	if err != nil {
		t.Fatal(err)
	}
	for _, fd := range fds {
		target, err := os.Readlink(procPath(h.KeeperPID, "fd/"+fd.Name()))
		if err == nil && target == os.DevNull && fd.Name() != "0" {
			t.Errorf("the keeper inherited descriptor %s", fd.Name())
		}
	}
}

func TestSpawnRefusesABadStateDirectory(t *testing.T) {
	t.Parallel()
	state := stateIn(t)
	if err := os.WriteFile(state.Dir, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	err := agent.Spawn(t.Context(), agent.SpawnOptions{State: state, Env: []string{}})
	wantProblem(t, err, pipeline.ProblemRefused, "not a directory")
}

func TestKeeperRotatesALargeLog(t *testing.T) {
	t.Parallel()
	state := stateIn(t)
	if err := os.Mkdir(state.Dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(state.Log(), []byte(strings.Repeat("old line\n", 1<<20)), 0o600); err != nil {
		t.Fatal(err)
	}
	keep(t, roleKeeper, state)
	awaitAgent(t, state, 0)
	now, err1 := os.Stat(state.Log())
	old, err2 := os.Stat(state.Log() + ".1")
	if err1 != nil || err2 != nil || now.Size() > 1<<20 || old.Size() != 9<<20 {
		t.Errorf("after the start: %v %v, %v %v", now, err1, old, err2)
	}
}

func procPath(pid int, rest string) string {
	return filepath.Join("/proc", itoa(pid), rest)
}
