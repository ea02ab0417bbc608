package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"pipedeck/pipeline"
	"pipedeck/remote/agent"
	"pipedeck/remote/agent/wire"
	"pipedeck/remote/client"
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
		c.Flags().Lookup("simulate-gpus").Hidden = true
	}
	cmd.AddCommand(serve, keep, a.agentStatusCommand(), a.agentStopCommand())
	return cmd
}

func (a *app) agentKeep(ctx context.Context, f agentFlags) error {
	s, err := a.loadSpec()
	if err != nil {
		return err
	}
	argv := []string{"agent", "serve", "-f", a.flag.spec, "--node", s.node.Name}
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
	if err := s.needLocal(); err != nil {
		return err
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
			if err := s.needLocal(); err != nil {
				return err
			}
			state := wire.State{Dir: s.StateDir}
			ran, err := client.End(cmd.Context(), state)
			if err != nil {
				return err
			}
			// The processes themselves are asked: the agent may not have answered.
			live, err := livingWorkers(cmd.Context(), s.StateDir)
			switch {
			case err != nil:
				a.say("agent and keeper ended; whether workers are alive is unknown: %v", err)
			case !ran && len(live) > 0:
				a.say("no agent runs; alive: %s", strings.Join(live, ", "))
			case !ran:
				a.say("no agent runs")
			case len(live) > 0:
				a.say("agent and keeper ended; the next command's agent takes over what lives on: %s", strings.Join(live, ", "))
			default:
				a.say("agent and keeper ended; no worker is alive")
			}
			return nil
		},
	}
}

// comingBack is how long a command waits for an agent that its keeper is
// starting again.
const comingBack = 5 * time.Second

// running connects to the agent without starting one. If a keeper lives, its
// agent is on its way back.
func (a *app) running(ctx context.Context) (*client.Client, error) {
	s, err := a.loadSpec()
	if err != nil {
		return nil, err
	}
	if err := s.needLocal(); err != nil {
		return nil, err
	}
	state := wire.State{Dir: s.StateDir}
	ctx, cancel := context.WithTimeout(ctx, comingBack)
	defer cancel()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		c, err := client.Dial(ctx, state.Socket())
		if err == nil {
			return c, nil
		}
		if _, kept, heldErr := wire.Held(state.KeeperLock()); heldErr != nil || !kept {
			return nil, err
		}
		select {
		case <-ctx.Done():
			return nil, err
		case <-tick.C:
		}
	}
}
