package main

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"pipedeck/pipeline"
	"pipedeck/remote/agent"
	"pipedeck/remote/agent/wire"
	"pipedeck/remote/client"
)

// startWait is how long a command waits for an agent that it starts: a busy
// node takes seconds for what takes a tenth of one elsewhere.
const startWait = 15 * time.Second

// specCopy is the spec that the agent runs, in the state directory.
const specCopy = "spec.yaml"

// connect returns a client of the deck's agent, starting one if none runs.
func (a *app) connect(ctx context.Context, s specFile) (*client.Client, error) {
	r, err := a.reach(s)
	if err != nil {
		return nil, err
	}
	return r.ensure(ctx)
}

// spawnWith says what an agent is started with instead of this process's own.
type spawnWith struct {
	env []string
	exe string
}

// spawn leaves the spec for the agent and starts its keeper. The agent runs the
// copy: editing the file does not change a running deck.
func (a *app) spawn(ctx context.Context, s specFile, with *spawnWith) error {
	if _, err := os.Stat(s.Workdir); err != nil {
		return noWorkdir(s.Workdir, cause(err).Error())
	}
	if err := agent.PrepareStateDir(s.StateDir); err != nil {
		return err
	}
	copied := filepath.Join(s.StateDir, specCopy)
	// On a full disk an agent can come back, if the spec is the same.
	if old, err := os.ReadFile(copied); err != nil || !bytes.Equal(old, s.Source) {
		if err := writeFile(copied, s.Source); err != nil {
			return fmt.Errorf("cannot keep the spec for the agent: %w", err)
		}
	}
	argv := []string{"agent", "keep", "-f", copied, "--node", s.node.Name}
	if s.far {
		argv = append(argv, "--here")
	}
	if dir := cmp.Or(a.flag.simulate, a.env(simulateEnv)); dir != "" {
		argv = append(argv, "--simulate-gpus", dir)
	}
	opts := agent.SpawnOptions{State: wire.State{Dir: s.StateDir}, Argv: argv, Dir: s.Workdir}
	if with != nil {
		opts.Env, opts.Exe = with.env, with.exe
	}
	return agent.Spawn(ctx, opts)
}

func noWorkdir(dir, why string) error {
	return pipeline.Problemf(pipeline.ProblemFailed, "make the directory, or correct `workdir`", "cannot use the workdir %q: %s", dir, why)
}

// writeFile replaces a small file in one step.
func writeFile(path string, data []byte) error {
	tmp, err := os.CreateTemp(filepath.Dir(path), filepath.Base(path)+".*.tmp")
	if err != nil {
		return err
	}
	_, err = tmp.Write(data)
	err = errors.Join(err, tmp.Sync(), tmp.Close())
	if err == nil {
		err = os.Rename(tmp.Name(), path)
	}
	if err != nil {
		return errors.Join(err, os.Remove(tmp.Name()))
	}
	return nil
}

// withDeck runs f with the agent of this invocation's node, to look at it.
func (a *app) withDeck(ctx context.Context, f func(specFile, *client.Client) error) error {
	s, err := a.loadSpec()
	if err != nil {
		return err
	}
	n := a.eachNode(ctx, []specFile{s}, reach.ensure)[0]
	if n.err != nil {
		return n.err
	}
	defer n.c.Close()
	a.sayOtherSpec(ctx, s, n.c)
	return f(s, n.c)
}

// sayOtherSpec tells that an agent runs another spec than this invocation's.
func (a *app) sayOtherSpec(ctx context.Context, s specFile, c *client.Client) {
	if hello, err := c.Hello(ctx); err == nil && hello.SpecHash != s.Hash {
		a.teller(s)("note: the agent runs another version of this spec (%s); the next start takes this one, once no worker is alive", filepath.Join(s.StateDir, specCopy))
	}
}

// toAct plans and applies an intent on this invocation's nodes. What starts
// workers starts them by this invocation's spec; everything else, such as a
// stop, is done by the spec that the agent runs, with a note.
func (a *app) toAct(ctx context.Context, in pipeline.Intent, o actOptions) error {
	nodes, err := a.chosen()
	if err != nil {
		return err
	}
	if len(nodes) > 1 {
		return a.actAll(ctx, nodes, in, o)
	}
	open, idle, err := a.idle(a.eachNode(ctx, nodes, a.openFor(in, o)), in)
	if err != nil {
		return err
	}
	if len(open) == 0 {
		return a.endIdle(idle, in)
	}
	n := open[0]
	if n.err != nil {
		return n.err
	}
	defer func() { n.c.Close() }()
	if n.c, err = a.rightSpec(ctx, n, in.Verb); err != nil {
		return err
	}
	if len(in.PIDs) == 0 && (in.Verb == pipeline.VerbAdopt || in.Verb == pipeline.VerbReap) {
		return a.candidates(ctx, n.c, in.Verb)
	}
	if err := a.placeOne(ctx, n.s, n.c, &in, reach.ensure); err != nil {
		return err
	}
	p, err := a.plan(ctx, n.c, in, a.say)
	if err != nil {
		return err
	}
	if o.dry {
		return a.showPlan(p)
	}
	return a.actPlanned(ctx, n, p, o)
}

// rightSpec makes sure that what starts workers does so by this spec. On an
// error the client stays as it was.
func (a *app) rightSpec(ctx context.Context, n nodeDeck, verb pipeline.Verb) (*client.Client, error) {
	if verb != pipeline.VerbStart && verb != pipeline.VerbRestart {
		a.sayOtherSpec(ctx, n.s, n.c)
		return n.c, nil
	}
	c, err := a.sameSpec(ctx, n.s, n.c)
	if err != nil {
		return n.c, err
	}
	return c, nil
}

// sameSpec makes sure that an action is decided on this spec: an agent that
// runs another version is started anew if nothing lives under it, and is left
// alone otherwise.
func (a *app) sameSpec(ctx context.Context, s specFile, c *client.Client) (*client.Client, error) {
	hello, err := c.Hello(ctx)
	if err != nil || hello.SpecHash == s.Hash {
		return c, err
	}
	snap, err := c.Snapshot(ctx)
	if err != nil {
		return nil, err
	}
	if busy := busyWith(snap); busy != "" {
		return nil, pipeline.Problemf(pipeline.ProblemRefused,
			"stop the workers first; the next start takes this spec",
			"cannot act on %q: the agent runs another version of it and %s", a.flag.spec, busy)
	}
	r, err := a.reach(s)
	if err != nil {
		return nil, err
	}
	c.Close() // where a node allows one session it would be in the way
	if _, err := r.end(ctx); err != nil {
		return nil, err
	}
	return r.ensure(ctx)
}

// busyWith says what lives under an agent, or "".
func busyWith(snap pipeline.Snapshot) string {
	for _, n := range snap.Nodes {
		if n.Action != nil && n.Action.EndedAt == nil {
			return fmt.Sprintf("%s of %q is running", n.Action.Verb, n.Action.Target)
		}
	}
	switch live := alive(snap); len(live) {
	case 0:
		return ""
	case 1:
		return live[0] + " lives"
	default:
		return strings.Join(live, ", ") + " live"
	}
}

// alive names the workers that have a process.
func alive(snap pipeline.Snapshot) []string {
	var ids []string
	for _, n := range snap.Nodes {
		for _, st := range n.Stages {
			for _, w := range st.Workers {
				if w.PID != nil {
					ids = append(ids, w.ID)
				}
			}
		}
	}
	return ids
}
