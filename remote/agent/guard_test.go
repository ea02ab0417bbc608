package agent_test

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"pipedeck/pipeline"
	"pipedeck/remote/agent"
	"pipedeck/remote/agent/wire"
)

// An agent under which the state directory was taken away ends by itself, and
// its keeper with it, whatever is at the path by then.
func TestAgentEndsWithItsStateDirectory(t *testing.T) {
	t.Parallel()
	for name, take := range map[string]func(t *testing.T, dir string){
		"removed":  func(t *testing.T, dir string) { t.Helper(); must(t, os.RemoveAll(dir)) },
		"moved":    func(t *testing.T, dir string) { t.Helper(); must(t, os.Rename(dir, dir+".old")) },
		"replaced": func(t *testing.T, dir string) { t.Helper(); must(t, os.RemoveAll(dir)); must(t, os.Mkdir(dir, 0o700)) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			state := stateIn(t)
			keeper := keep(t, roleKeeper, state)
			h := awaitAgent(t, state, 0)
			take(t, state.Dir)
			ended(t, keeper)
			eventually(t, "the agent to end", func() bool {
				raw, err := os.ReadFile(procPath(h.PID, "stat"))
				return err != nil || strings.Contains(string(raw), ") Z ")
			})
			if code := keeper.ProcessState.ExitCode(); code != 1 {
				t.Errorf("the keeper ended with %d", code)
			}
			if name == "removed" {
				keep(t, roleKeeper, state)
				if again := awaitAgent(t, state, 0); again.PID == h.PID {
					t.Error("the old agent answers")
				}
			}
		})
	}
}

// Where only the keeper's file was removed its agent goes on.
func TestKeeperEndsWithItsLockAlone(t *testing.T) {
	t.Parallel()
	state := stateIn(t)
	keeper := keep(t, roleKeeper, state)
	h := awaitAgent(t, state, 0)
	must(t, os.Remove(state.KeeperLock()))
	ended(t, keeper)
	now, ok := hello(t, state)
	if !ok || now.PID != h.PID {
		t.Errorf("agent %d answers (%t), want %d", now.PID, ok, h.PID)
	}
	keep(t, roleKeeper, state) // ends the agent with the test
	eventually(t, "the new keeper", func() bool { return wire.ReadRecord(state.KeeperLock()).State == wire.LockKeeping })
	(&running{state: state}).do(t, "POST", wire.PathStop, "s", "")
}

func TestKeeperEndsWithARefusal(t *testing.T) {
	t.Parallel()
	for role, want := range map[string]wire.Record{
		roleKeepRefused: {State: wire.LockRefused, Count: 75},
		roleKeepUsage:   {State: wire.LockRefused, Count: 64},
	} {
		state := stateIn(t)
		keeper := keep(t, role, state)
		ended(t, keeper)
		rec := wire.ReadRecord(state.KeeperLock())
		want.PID = keeper.Process.Pid
		if rec != want {
			t.Errorf("%s: the lock says %+v, want %+v", role, rec, want)
		}
	}
}

// An agent whose keeper is gone before the agent could look for it lost it all
// the same: the next command brings one back.
func TestKeeperLostAtOnce(t *testing.T) {
	t.Parallel()
	state := stateIn(t)
	must(t, agent.PrepareStateDir(state.Dir))
	cmd := reexec(t, roleAgent, state, func(attr *syscall.SysProcAttr) { attr.Setsid = true })
	cmd.Env = append(cmd.Env, "PIPEDECK_KEEPER=1999999999") // no such process
	must(t, cmd.Start())
	h := awaitAgent(t, state, 0)
	if !h.KeeperLost || h.KeeperPID != 0 {
		t.Errorf("hello is %+v, want a lost keeper", h)
	}
	(&running{state: state}).do(t, "POST", wire.PathStop, "s", "")
	ended(t, cmd)
}

// Two foreground agents: the second is refused and leaves the first alone.
func TestSecondAgentIsRefused(t *testing.T) {
	t.Parallel()
	state := stateIn(t)
	keep(t, roleKeeper, state)
	h := awaitAgent(t, state, 0)
	_, err := agent.AcquireLock(state.AgentLock())
	wantProblem(t, err, pipeline.ProblemRefused, "is held by process "+itoa(h.PID))
	if now, ok := hello(t, state); !ok || now.PID != h.PID {
		t.Errorf("agent %d answers, want %d", now.PID, h.PID)
	}
}

// A process that was killed leaves its socket: the next takes its place.
func TestSocketLeftOver(t *testing.T) {
	t.Parallel()
	state := stateIn(t)
	keep(t, roleKeeper, state)
	h := awaitAgent(t, state, 0)
	kill(t, h.PID)
	if next := awaitAgent(t, state, h.PID); next.KeeperPID == 0 {
		t.Errorf("no keeper in %+v", next)
	}
	if _, err := os.Stat(filepath.Join(state.Dir, "agent.sock")); err != nil {
		t.Error(err)
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
