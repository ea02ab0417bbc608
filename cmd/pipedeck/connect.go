package main

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
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
		return pipeline.Problemf(pipeline.ProblemFailed, "make the directory, or correct `workdir`",
			"cannot use the workdir %q: %v", s.Workdir, cause(err))
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

// withDeck runs f with the agent of this invocation's spec, to look at it.
func (a *app) withDeck(ctx context.Context, f func(specFile, *client.Client) error) error {
	s, err := a.loadSpec()
	if err != nil {
		return err
	}
	c, err := a.connect(ctx, s)
	if err != nil {
		return err
	}
	defer c.Close()
	a.sayOtherSpec(ctx, s, c)
	return f(s, c)
}

// sayOtherSpec tells that an agent runs another spec than this invocation's.
func (a *app) sayOtherSpec(ctx context.Context, s specFile, c *client.Client) {
	if hello, err := c.Hello(ctx); err == nil && hello.SpecHash != s.Hash {
		who := "the agent"
		if len(s.Nodes) > 1 {
			who += " of " + s.node.Name
		}
		a.say("note: %s runs another version of this spec (%s); the next start takes this one, once no worker is alive", who, filepath.Join(s.StateDir, specCopy))
	}
}

// toAct runs f with the deck's agent. What starts workers starts them by this
// invocation's spec; everything else, such as a stop, is done by the spec that
// the agent runs, with a note.
func (a *app) toAct(ctx context.Context, verb pipeline.Verb, f func(*client.Client) error) error {
	if verb != pipeline.VerbStart && verb != pipeline.VerbRestart {
		return a.withDeck(ctx, func(_ specFile, c *client.Client) error { return f(c) })
	}
	s, err := a.loadSpec()
	if err != nil {
		return err
	}
	c, err := a.connect(ctx, s)
	if err != nil {
		return err
	}
	c, err = a.sameSpec(ctx, s, c)
	if err != nil {
		return err
	}
	defer c.Close()
	return f(c)
}
