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
			c, err := a.running(cmd.Context())
			if err != nil {
				return err
			}
			defer c.Close()
			h, err := c.Hello(cmd.Context())
			if err != nil {
				return err
			}
			if a.flag.json {
				return a.printJSON(struct {
					Schema int `json:"schema"`
					wire.Hello
				}{pipeline.SchemaVersion, h})
			}
			_, err = fmt.Fprintf(a.out, "agent %s of deck %s, run %s, on %s: pid %d since %s, keeper pid %d\n",
				h.Version, h.Deck, h.Run, h.Node, h.PID, h.StartedAt.Local().Format("2006-01-02 15:04:05"), h.KeeperPID)
			return err
		},
	}
}

func (a *app) agentStopCommand() *cobra.Command {
	return &cobra.Command{
		Use: "stop", Short: "End agent and keeper; workers live on", Args: cobra.NoArgs,
		Example: "  pipedeck agent stop",
		RunE: func(cmd *cobra.Command, _ []string) error {
			s, err := a.loadSpec()
			if err != nil {
				return err
			}
			r, err := a.reach(s)
			if err != nil {
				return err
			}
			e, err := r.end(cmd.Context())
			if err != nil {
				return err
			}
			switch live := strings.Join(e.Living, ", "); {
			case e.Unseen != "":
				a.say("agent and keeper ended; whether workers are alive is unknown: %s", e.Unseen)
			case !e.Ran && live != "":
				a.say("no agent runs; alive: %s", live)
			case !e.Ran:
				a.say("no agent runs")
			case live != "":
				a.say("agent and keeper ended; the next command's agent takes over what lives on: %s", live)
			default:
				a.say("agent and keeper ended; no worker is alive")
			}
			return nil
		},
	}
}
