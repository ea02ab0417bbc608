package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"

	"github.com/spf13/cobra"

	"pipedeck/pipeline"
	"pipedeck/remote/agent"
	"pipedeck/remote/agent/wire"
)

// simulateEnv names the folder of simulated GPUs for an agent that a command
// starts; the demo sets it.
const simulateEnv = "PIPEDECK_SIMULATE_GPUS"

// agentFlags are what a keeper passes on to its agent.
type agentFlags struct{ simulate string }

func (a *app) agentCommand() *cobra.Command {
	var f agentFlags
	cmd := group(&cobra.Command{
		Use: "agent", Short: "The process on the node that owns the work",
		Example: "  pipedeck agent status\n  pipedeck agent stop",
	})
	serve := &cobra.Command{
		Use: "serve", Short: "Be the agent, in the foreground", Args: cobra.NoArgs,
		Example: "  pipedeck agent serve           for a service manager; other commands start one by themselves",
		RunE:    func(cmd *cobra.Command, _ []string) error { return a.agentServe(cmd.Context(), f) },
	}
	keep := &cobra.Command{
		Use: "keep", Short: "Keep an agent alive", Args: cobra.NoArgs, Hidden: true,
		RunE: func(cmd *cobra.Command, _ []string) error { return a.agentKeep(cmd.Context(), f) },
	}
	for _, c := range []*cobra.Command{serve, keep} {
		c.Flags().StringVar(&f.simulate, "simulate-gpus", "", "folder of simulated GPUs")
		c.Flags().BoolVar(&a.flag.here, "here", false, "this machine is the node, whatever `ssh` the spec gives it")
		c.Flags().Lookup("simulate-gpus").Hidden = true
	}
	cmd.AddCommand(serve, keep, a.agentStatusCommand(), a.agentStopCommand(), a.deployCommand(), a.undeployCommand(),
		a.dialStdioCommand(), a.farCommand())
	return cmd
}

func (a *app) agentKeep(ctx context.Context, f agentFlags) error {
	s, err := a.loadSpec()
	if err != nil {
		return err
	}
	argv := []string{"agent", "serve", "-f", a.flag.spec, "--node", s.node.Name}
	if s.far {
		argv = append(argv, "--here")
	}
	if f.simulate != "" {
		argv = append(argv, "--simulate-gpus", f.simulate)
	}
	state := wire.State{Dir: s.StateDir}
	err = agent.Keeper(ctx, agent.KeeperOptions{
		State: state, AgentArgv: argv, Log: slog.New(slog.NewTextHandler(a.err, nil)),
	})
	return a.refused(state, err)
}

// agentServe is the agent; its exit code tells the keeper why it ended.
func (a *app) agentServe(ctx context.Context, f agentFlags) error {
	s, err := a.loadSpec()
	if err != nil {
		return err
	}
	if s.node.SSH != "" {
		return pipeline.Problemf(pipeline.ProblemUsage, "on the node itself: pipedeck agent serve --here",
			"cannot be the agent of node %q: the spec reaches it at %q", s.node.Name, s.node.SSH)
	}
	err = a.serve(ctx, s, f)
	if errors.Is(err, agent.ErrStopped) {
		return exitError(agent.ExitStopped)
	}
	return a.refused(wire.State{Dir: s.StateDir}, err)
}

// refused leaves what is refused for the command that started this process.
func (a *app) refused(state wire.State, err error) error {
	if failed := wire.WriteRefusal(state.Refusal(), err); failed != nil {
		a.say("note: cannot leave a word for the command that waits: %v", failed)
	}
	return err
}

func (a *app) agentStatusCommand() *cobra.Command {
	return &cobra.Command{
		Use: "status", Short: "Say whether the agent runs; exit 3 when it does not", Args: cobra.NoArgs,
		Example: "  pipedeck agent status\n  pipedeck agent status --json",
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.agentStatus(cmd.Context())
		},
	}
}

func (a *app) agentStopCommand() *cobra.Command {
	return &cobra.Command{
		Use: "stop", Short: "End agent and keeper; workers live on", Args: cobra.NoArgs,
		Example: "  pipedeck agent stop",
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.onEach(cmd.Context(), a.agentStop)
		},
	}
}

// agentStatus says who answers on each node.
func (a *app) agentStatus(ctx context.Context) error {
	nodes, err := a.chosen()
	if err != nil {
		return err
	}
	answers := every(ctx, unopened(nodes), func(ctx context.Context, n nodeDeck) (h wire.Hello, err error) {
		c, err := a.running(ctx, n.s)
		if err != nil {
			return h, err
		}
		defer c.Close()
		return c.Hello(ctx)
	})
	var agents []statusEntry
	for _, n := range answers {
		switch {
		case n.err != nil && len(nodes) == 1:
			return n.err
		case n.err != nil:
			agents = append(agents, statusEntry{Node: n.name(), Reason: new(n.err.Error())})
		default:
			agents = append(agents, statusEntry{Node: n.name(), Hello: &n.value})
		}
	}
	if err := a.printStatus(agents); err != nil {
		return err
	}
	return reportLost(a, answers, exitOK)
}

// statusEntry is the agent of one node; null with a reason where none answers.
type statusEntry struct {
	Node   string      `json:"node"`
	Hello  *wire.Hello `json:"agent"`
	Reason *string     `json:"reason"`
}

func (a *app) printStatus(agents []statusEntry) error {
	if a.flag.json && len(agents) == 1 {
		return a.printJSON(struct {
			Schema int `json:"schema"`
			*wire.Hello
		}{pipeline.SchemaVersion, agents[0].Hello})
	}
	if a.flag.json {
		return a.printJSON(struct {
			Schema int           `json:"schema"`
			Agents []statusEntry `json:"agents"`
		}{pipeline.SchemaVersion, agents})
	}
	for _, e := range agents {
		h := e.Hello
		if h == nil {
			continue // said on stderr
		}
		if _, err := fmt.Fprintf(a.out, "agent %s of deck %s, run %s, on %s: pid %d since %s, keeper pid %d\n",
			h.Version, h.Deck, h.Run, h.Node, h.PID, h.StartedAt.Local().Format("2006-01-02 15:04:05"), h.KeeperPID); err != nil {
			return err
		}
	}
	return nil
}

func (a *app) agentStop(ctx context.Context, s specFile) error {
	say := a.teller(s)
	r, err := a.reach(s)
	if err != nil {
		return err
	}
	e, err := r.end(ctx)
	if err != nil {
		return err
	}
	switch live := strings.Join(e.Living, ", "); {
	case e.Unseen != "":
		say("agent and keeper ended; whether workers are alive is unknown: %s", e.Unseen)
	case !e.Ran && live != "":
		say("no agent runs; alive: %s", live)
	case !e.Ran:
		say("no agent runs")
	case live != "":
		say("agent and keeper ended; the next command's agent takes over what lives on: %s", live)
	default:
		say("agent and keeper ended; no worker is alive")
	}
	return nil
}
