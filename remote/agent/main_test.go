package agent_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"pipedeck/pipeline"
	"pipedeck/remote/agent"
	"pipedeck/remote/agent/wire"
)

// The test binary plays the other processes too, told by the environment.
const (
	roleVar  = "PIPEDECK_TEST_ROLE"
	stateVar = "PIPEDECK_TEST_STATE"

	roleAgent       = "agent"         // serves until it is told to end
	roleDying       = "dying-agent"   // says why and ends at once
	roleRefusing    = "refusing"      // refuses and says why
	roleUsage       = "usage"         // ends with 64 without leaving a word
	roleKeeper      = "keeper"        // keeps roleAgent
	roleKeepRefused = "keep-refusing" // keeps roleRefusing
	roleKeepUsage   = "keep-usage"    // keeps roleUsage
	roleKeepDying   = "keep-dying"    // keeps roleDying
	roleDialAsOther = "dial-as-other" // says hello and prints the answer
)

func TestMain(m *testing.M) {
	state := wire.State{Dir: os.Getenv(stateVar)}
	switch role := os.Getenv(roleVar); role {
	case "":
		os.Exit(m.Run())
	case roleAgent:
		os.Exit(beAgent(state))
	case roleDying:
		fmt.Println("cannot open the ledger: it is broken")
		os.Exit(2)
	case roleRefusing:
		_ = wire.WriteRefusal(state.Refusal(), pipeline.Problemf(pipeline.ProblemRefused, "use the old bucket", "cannot open the ledger: it is of another bucket"))
		os.Exit(75)
	case roleUsage:
		fmt.Println("spec.yaml:3:1: unknown key")
		os.Exit(64)
	case roleKeepRefused:
		os.Exit(beKeeper(state, roleRefusing))
	case roleKeepUsage:
		os.Exit(beKeeper(state, roleUsage))
	case roleKeeper:
		os.Exit(beKeeper(state, roleAgent))
	case roleKeepDying:
		os.Exit(beKeeper(state, roleDying))
	case roleDialAsOther:
		os.Exit(beOther(state))
	default:
		fmt.Println("no such role:", role)
		os.Exit(64)
	}
}

func beAgent(state wire.State) int {
	ctx, cancel := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer cancel()
	lock, err := agent.AcquireLock(state.AgentLock())
	if err != nil {
		_ = wire.WriteRefusal(state.Refusal(), err)
		fmt.Println(err)
		return 75
	}
	go agent.Guard(ctx, lock, func(p *pipeline.Problem) { fmt.Println(p.Text); os.Exit(75) })
	o := options(state, &fakeDeck{})
	o.Lock, o.Keeper = lock, agent.TakeKeeper()
	err = agent.Serve(ctx, o)
	if errors.Is(err, agent.ErrStopped) {
		return agent.ExitStopped
	}
	if err != nil {
		fmt.Println(err)
		return 1
	}
	return 0
}

func beKeeper(state wire.State, role string) int {
	var env []string
	for _, e := range os.Environ() {
		if !strings.HasPrefix(e, roleVar+"=") {
			env = append(env, e)
		}
	}
	err := agent.Keeper(context.Background(), agent.KeeperOptions{
		State: state, Env: append(env, roleVar+"="+role),
		Log: slog.New(slog.NewTextHandler(os.Stdout, nil)),
	})
	if err != nil {
		fmt.Println(err)
		return 1
	}
	return 0
}

func beOther(state wire.State) int {
	client := http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", state.Socket())
	}}}
	req, err := http.NewRequestWithContext(context.Background(), http.MethodGet, "http://agent"+wire.PathHello, nil)
	if err != nil {
		fmt.Println(err)
		return 1
	}
	resp, err := client.Do(req)
	if err != nil {
		fmt.Println(err)
		return 1
	}
	defer func() { _ = resp.Body.Close() }()
	fmt.Println(resp.StatusCode)
	_, _ = io.Copy(os.Stdout, resp.Body)
	return 0
}

// roleEnv is the environment of the test binary in a role.
func roleEnv(role string, state wire.State) []string {
	return append(os.Environ(), roleVar+"="+role, stateVar+"="+state.Dir)
}

// reexec is the test binary in a role, not started yet.
func reexec(t *testing.T, role string, state wire.State, change func(*syscall.SysProcAttr)) *exec.Cmd {
	t.Helper()
	cmd := exec.CommandContext(context.WithoutCancel(t.Context()), "/proc/self/exe")
	cmd.Env = roleEnv(role, state)
	cmd.SysProcAttr = &syscall.SysProcAttr{}
	change(cmd.SysProcAttr)
	return cmd
}

func itoa(n int) string { return strconv.Itoa(n) }

// session is the session of a process, from /proc.
func session(t *testing.T, pid int) int {
	t.Helper()
	data, err := os.ReadFile(procPath(pid, "stat"))
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(data), ") ")
	fields := strings.Fields(rest)
	sid, err := strconv.Atoi(fields[3])
	if err != nil {
		t.Fatal(err)
	}
	return sid
}
