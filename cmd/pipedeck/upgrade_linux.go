package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"pipedeck/pipeline"
	"pipedeck/remote/agent"
	"pipedeck/remote/agent/wire"
	"pipedeck/remote/client"
)

// ownSHA256 is the hash of the program that runs, "" if it cannot be read.
func ownSHA256() string {
	f, err := os.Open("/proc/self/exe")
	if err != nil {
		return ""
	}
	defer func() { _ = f.Close() }()
	sum := sha256.New()
	if _, err := io.Copy(sum, f); err != nil {
		return ""
	}
	return hex.EncodeToString(sum.Sum(nil))
}

// rehearse finds out what would keep a new agent from starting.
func rehearse(s specFile) error {
	if _, err := os.Stat(s.Workdir); err != nil {
		return pipeline.Problemf(pipeline.ProblemFailed, "", "cannot upgrade the agent: workdir %q: %v", s.Workdir, cause(err))
	}
	return agent.PrepareStateDir(s.StateDir)
}

// ofKeeper is the environment of the keeper, so that an upgrade does not change
// what workers are started with; nil if it cannot be read.
func ofKeeper(pid int) []string {
	if pid <= 1 {
		return nil
	}
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", pid))
	if err != nil {
		return nil
	}
	return strings.FieldsFunc(string(raw), func(r rune) bool { return r == 0 })
}

// oldProgram keeps the program of a process at hand, also when its file is gone.
func oldProgram(pid int) *os.File {
	f, err := os.Open(fmt.Sprintf("/proc/%d/exe", pid))
	if err != nil {
		return nil
	}
	return f
}

// takeOver starts the agent of this program and has it prove itself.
func (a *app) takeOver(ctx context.Context, h here, env []string) (wire.Hello, error) {
	if env == nil {
		if err := loginEnv(); err != nil {
			return wire.Hello{}, err
		}
	}
	c, err := client.Ensure(ctx, client.EnsureOptions{
		State: h.state(), Wait: startWait,
		Spawn: func(ctx context.Context) error { return a.spawn(ctx, h.s, &spawnWith{env: env}) },
	})
	if err != nil {
		return wire.Hello{}, err
	}
	defer c.Close()
	hello, err := c.Hello(ctx)
	if err == nil && hello.SHA256 != ownSHA256() {
		err = fmt.Errorf("another program answers: %s", hello.SHA256)
	}
	return hello, err
}

// giveBack starts the old agent again after a failed upgrade.
func (a *app) giveBack(ctx context.Context, h here, exe *os.File, env []string, was wire.Hello, why error) error {
	failed := pipeline.Problemf(pipeline.ProblemFailed, "agent.log in the state directory has more", "cannot upgrade the agent: %w", why)
	if exe == nil {
		return failed
	}
	ctx = context.WithoutCancel(ctx)
	_, endErr := client.End(ctx, wire.State{Dir: h.s.StateDir})
	c, err := client.Ensure(ctx, client.EnsureOptions{
		State: h.state(), Wait: startWait,
		Spawn: func(ctx context.Context) error {
			return a.spawn(ctx, h.s, &spawnWith{env: env, exe: fmt.Sprintf("/proc/self/fd/%d", exe.Fd())})
		},
	})
	if err != nil {
		failed.Text += fmt.Sprintf("; the old one (%s) did not come back: %v", was.Version, errors.Join(endErr, err))
		return failed
	}
	c.Close()
	failed.Text += fmt.Sprintf("; the old one (%s) serves again", was.Version)
	return failed
}

// installed is the layout of what deploy puts on a node: BASE/bin/VERSION-HASH/.
var installed = regexp.MustCompile(`^[0-9A-Za-z.+_-]+-[0-9a-f]{12}$`)

// farRemoval ends the agent and removes every installed version beside this
// program, and nothing else.
func farRemoval(ctx context.Context, h here) ([]string, error) {
	live, err := livingWorkers(ctx, h.s.StateDir)
	if err != nil {
		return nil, fmt.Errorf("cannot see whether workers live: %w", err)
	}
	if len(live) > 0 {
		return nil, pipeline.Problemf(pipeline.ProblemRefused, "stop them first: `pipedeck stop STAGE`",
			"cannot undeploy: %s alive", strings.Join(live, ", "))
	}
	own, err := os.Executable()
	if err != nil {
		return nil, err
	}
	bin := filepath.Dir(filepath.Dir(own))
	if filepath.Base(bin) != "bin" || !installed.MatchString(filepath.Base(filepath.Dir(own))) {
		return nil, pipeline.Problemf(pipeline.ProblemRefused, "", "cannot undeploy: %q was not installed by deploy", own)
	}
	if _, err := client.End(ctx, wire.State{Dir: h.s.StateDir}); err != nil {
		return nil, err
	}
	return removePrograms(bin)
}

// removePrograms removes the versions below bin, then the folders that are
// empty.
func removePrograms(bin string) ([]string, error) {
	entries, err := os.ReadDir(bin)
	if err != nil {
		return nil, err
	}
	gone := []string{}
	for _, e := range entries {
		if !e.IsDir() || !installed.MatchString(e.Name()) {
			continue
		}
		dir := filepath.Join(bin, e.Name())
		files, err := os.ReadDir(dir)
		if err != nil {
			return gone, err
		}
		for _, f := range files {
			name := f.Name()
			part := strings.HasPrefix(name, ".pipedeck") && strings.HasSuffix(name, ".part")
			if name != "pipedeck" && name != "pipedeck-gpu" && !part {
				continue
			}
			if err := os.Remove(filepath.Join(dir, name)); err != nil {
				return gone, err
			}
			gone = append(gone, filepath.Join(dir, name))
		}
		_ = os.Remove(dir) // only if nothing else is in it
	}
	_ = os.Remove(bin)
	_ = os.Remove(filepath.Dir(bin))
	return gone, nil
}
