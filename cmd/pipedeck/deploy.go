package main

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"pipedeck/pipeline"
	"pipedeck/remote/agent/wire"
	"pipedeck/remote/client"
)

func (a *app) deployCommand() *cobra.Command {
	var downgrade bool
	cmd := &cobra.Command{
		Use: "deploy", Short: "Install this version on the node and start or upgrade its agent", Args: cobra.NoArgs,
		Long: `Install this version on the node and start its agent, or put it in the place
of the one that runs. Workers go on: they belong to shims, not to the agent.
Refused while an action runs. If the new agent does not come up, the old one is
started again.`,
		Example: "  pipedeck agent deploy\n  pipedeck agent deploy --accept-host-key SHA256:…",
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.onEach(cmd.Context(), func(ctx context.Context, s specFile) error { return a.deploy(ctx, s, downgrade) })
		},
	}
	cmd.Flags().BoolVar(&downgrade, "downgrade", false, "also put an older version in the place of a newer one")
	cmd.Flags().StringArrayVar(&a.flag.acceptHostKeys, "accept-host-key", nil, "take an unknown host key with this fingerprint")
	return cmd
}

// farNode is a node over SSH.
func (a *app) farNode(s specFile, what string) (*far, error) {
	if s.node.SSH == "" {
		return nil, pipeline.Problemf(pipeline.ProblemUsage, "give the node `ssh: user@host:port` in the spec",
			"cannot %s %q: it is this machine, where the program is already", what, s.node.Name)
	}
	return a.overSSH(s)
}

func (a *app) deploy(ctx context.Context, s specFile, downgrade bool) error {
	f, err := a.farNode(s, "deploy to")
	if err != nil {
		return err
	}
	old, err := f.dial(ctx)
	switch {
	case err == nil:
		old.Close() // where one session is all that the node allows it is in the way
	case errors.Is(err, client.ErrVersion), errors.Is(err, client.ErrNoAgent), client.Died(err):
	default:
		return err
	}
	if err := f.install(ctx); err != nil {
		return err
	}
	req := f.request()
	req.Force = downgrade
	var did upgraded
	if err := f.node.Call(ctx, farUpgrade, req, &did); err != nil {
		return err
	}
	switch {
	case did.Was == "":
		a.say("agent %s runs on %s: pid %d, instance %s", did.Hello.Version, f.s.node.Name, did.Hello.PID, did.Hello.Instance)
	case did.Same:
		a.say("agent %s runs on %s already: pid %d", did.Hello.Version, f.s.node.Name, did.Hello.PID)
	default:
		a.say("agent %s took the place of %s on %s: pid %d, instance %s", did.Hello.Version, did.Was, f.s.node.Name, did.Hello.PID, did.Hello.Instance)
	}
	c, err := f.dial(ctx) // hands the credentials to the new one
	if err != nil {
		return err
	}
	defer c.Close()
	if c.First().Instance != did.Hello.Instance {
		return pipeline.Problemf(pipeline.ProblemUnreachable, "`pipedeck agent status` shows who answers",
			"cannot prove the deployment: instance %s answers, started was %s", c.First().Instance, did.Hello.Instance)
	}
	f.say("reached it via %s", f.node.Via())
	return nil
}

// upgraded is what became of an upgrade.
type upgraded struct {
	Was   string     `json:"was"`  // the version before, "" if no agent ran
	Same  bool       `json:"same"` // that was this very program
	Hello wire.Hello `json:"hello"`
}

// farUpgrade runs in the new program on the node: it ends the old agent once it
// knows that it can take over, and starts it again if it cannot after all.
func (a *app) farUpgrade(ctx context.Context, h here, force bool) (upgraded, error) {
	old, err := h.dial(ctx)
	if err != nil {
		hello, err := a.farUp(ctx, h)
		return upgraded{Hello: hello}, err
	}
	defer old.Close()
	was := old.First()
	done := upgraded{Was: was.Version, Hello: was}
	if mine := ownSHA256(); mine != "" && mine == was.SHA256 {
		done.Same = true
		return done, nil
	}
	if newer(was.Version, version) && !force {
		return done, pipeline.Problemf(pipeline.ProblemRefused, "use the newer console, or --downgrade",
			"cannot upgrade the agent: it is %s, this is %s", was.Version, version)
	}
	snap, err := old.Snapshot(ctx)
	if err != nil {
		return done, err
	}
	for _, n := range snap.Nodes {
		if n.Action != nil && n.Action.EndedAt == nil {
			return done, pipeline.Problemf(pipeline.ProblemRefused, "wait for it to end, then try again",
				"cannot upgrade the agent: %s of %q is running", n.Action.Verb, n.Action.Target)
		}
	}
	// The spec that runs goes on running: an upgrade changes the program only.
	running, err := os.ReadFile(filepath.Join(h.s.StateDir, specCopy))
	if err == nil {
		if h.s, err = a.farSpec(farRequest{Spec: running, Name: specCopy, Node: was.Node}); err != nil {
			return done, err
		}
	}
	if err := rehearse(h.s); err != nil {
		return done, err
	}
	env, exe := ofKeeper(was.KeeperPID), oldProgram(was.PID)
	if exe != nil {
		defer func() { _ = exe.Close() }()
	}
	if _, err := client.End(ctx, wire.State{Dir: h.s.StateDir}); err != nil {
		return done, err
	}
	hello, err := a.takeOver(ctx, h, env)
	if err == nil {
		done.Hello = hello
		return done, nil
	}
	return done, a.giveBack(ctx, h, exe, env, was, err)
}

// newer compares versions such as 0.10.2 by their numbers.
func newer(a, b string) bool {
	x, y := strings.Split(a, "."), strings.Split(b, ".")
	for i := range min(len(x), len(y)) {
		n, m := leadingNumber(x[i]), leadingNumber(y[i])
		if n != m {
			return n > m
		}
	}
	return len(x) > len(y)
}

func leadingNumber(s string) int {
	n := 0
	for _, c := range s {
		if c < '0' || c > '9' {
			break
		}
		n = n*10 + int(c-'0')
	}
	return n
}

func (a *app) undeployCommand() *cobra.Command {
	return &cobra.Command{
		Use: "undeploy", Short: "End the agent and remove the installed programs from the node", Args: cobra.NoArgs,
		Long: `End the agent and remove the programs that were installed on the node, and
nothing else: the deck's state, logs and outputs stay. Refused while a worker
lives.`,
		Example: "  pipedeck agent undeploy",
		RunE:    func(cmd *cobra.Command, _ []string) error { return a.onEach(cmd.Context(), a.undeploy) },
	}
}

func (a *app) undeploy(ctx context.Context, s specFile) error {
	f, err := a.farNode(s, "undeploy from")
	if err != nil {
		return err
	}
	var gone []string
	err = f.node.Call(ctx, farRemove, f.request(), &gone)
	if errors.Is(err, client.ErrNoAgent) {
		a.say("nothing is installed on %s", f.s.node.Name)
		return nil
	}
	if err != nil {
		return err
	}
	for _, path := range gone {
		f.say("removed %s", path)
	}
	return nil
}
