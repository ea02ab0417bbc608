package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/user"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"pipedeck/pipeline"
	"pipedeck/remote/agent/wire"
	"pipedeck/remote/client"
	"pipedeck/remote/ssh"
	"pipedeck/s3/store"
)

// far is a node over SSH.
type far struct {
	a    *app
	s    specFile
	node *ssh.Node
	fwd  *forwarder
	last atomic.Pointer[string] // what was said last of this node
}

// farNodes are the nodes over SSH of one invocation.
type farNodes struct {
	mu    sync.Mutex
	known map[string]*far
	keys  ssh.Keychain // whose passphrases were asked for
}

func (n *farNodes) all() []*far {
	n.mu.Lock()
	defer n.mu.Unlock()
	return slices.Collect(maps.Values(n.known))
}

// overSSH resolves the destination of a node, once for each in an invocation.
func (a *app) overSSH(s specFile) (*far, error) {
	key := s.node.SSH + "\x00" + s.StateDir
	a.nodes.mu.Lock()
	defer a.nodes.mu.Unlock()
	if f, ok := a.nodes.known[key]; ok {
		f.s = s
		return f, nil
	}
	target, err := ssh.Resolve(s.node.SSH, a.place())
	if err != nil {
		return nil, err
	}
	f := &far{a: a, s: s, fwd: &forwarder{chain: store.LoadCredentials(nil)}}
	for _, note := range target.Notes {
		f.say("note: %s", note)
	}
	opts := ssh.Options{Target: target, Accept: a.accept(s), Say: f.say, Workdir: s.Workdir, Keys: &a.nodes.keys}
	if isTerminal(a.in) && isTerminal(a.err) {
		opts.Prompt = terminalPrompt{in: a.in, out: a.err, a: a}
	}
	f.node = ssh.NewNode(opts, s.StateDir)
	if a.nodes.known == nil {
		a.nodes.known = map[string]*far{}
	}
	a.nodes.known[key] = f
	return f, nil
}

// say is app.say with the node's name, where there are several.
func (f *far) say(format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	f.last.Store(&text)
	if len(f.s.Nodes) > 1 {
		text = f.s.node.Name + ": " + text
	}
	f.a.say("%s", text)
}

// accept is how unknown host keys are accepted where nobody can be asked.
func (a *app) accept(s specFile) ssh.Accept {
	command := []string{"pipedeck"}
	if a.flag.spec != "pipedeck.yaml" {
		command = append(command, "-f", a.flag.spec)
	}
	if a.flag.node != "" || len(s.Nodes) > 1 {
		command = append(command, "--node", s.node.Name)
	}
	command = append(command, "agent deploy --accept-host-key")
	return ssh.Accept{Fingerprints: a.flag.acceptHostKeys, Command: strings.Join(command, " ")}
}

// closeNodes ends the SSH connections of this invocation.
func (a *app) closeNodes() {
	for _, f := range a.nodes.all() {
		f.node.Close()
	}
}

// place is whose SSH configuration counts: $HOME, else the passwd entry.
func (a *app) place() ssh.Place {
	p := ssh.Place{Home: a.env("HOME"), LocalUser: a.env("USER"), Env: a.env}
	if u, err := user.Current(); err == nil {
		if p.Home == "" {
			p.Home = u.HomeDir
		}
		if p.LocalUser == "" {
			p.LocalUser = u.Username
		}
	}
	return p
}

func (f *far) dial(ctx context.Context) (*client.Client, error) {
	c, err := client.DialTunnel(ctx, client.Tunnel{
		Where: f.s.node.Name + " (" + f.s.node.SSH + ")", Dial: f.node.Dial, Bulk: f.node.DialBulk, Via: f.node.Via,
	})
	if err != nil {
		return nil, err
	}
	f.node.Prefer(c.First().Version, c.First().SHA256)
	f.fwd.once(ctx, c, f.say)
	return c, nil
}

// ensure connects, and installs and starts what is not there.
func (f *far) ensure(ctx context.Context) (*client.Client, error) {
	c, err := f.ensured(ctx)
	if err == nil {
		f.a.owners.Store(c, f)
	}
	return c, err
}

func (f *far) ensured(ctx context.Context) (*client.Client, error) {
	c, err := f.dial(ctx)
	if err == nil && !c.First().KeeperLost {
		f.sayVersion(c.First())
		return c, nil
	}
	if err == nil {
		c.Close()
	} else if !errors.Is(err, client.ErrNoAgent) && !client.Died(err) {
		return nil, err
	}
	if f.a.flag.noDeploy {
		return nil, pipeline.Problemf(pipeline.ProblemUnreachable, "leave --no-deploy out, or look with `pipedeck check --no-deploy`",
			"cannot use %q: no agent answers, and nothing may be installed or started there", f.s.node.Name)
	}
	if err := f.install(ctx); err != nil {
		return nil, err
	}
	if _, err := f.start(ctx); err != nil {
		return nil, err
	}
	return f.dial(ctx)
}

// sayVersion tells of an agent of another build, once: it goes on as it is.
func (f *far) sayVersion(h wire.Hello) {
	if h.Version == version {
		return
	}
	way := "`pipedeck agent deploy` makes it the same, workers go on"
	if newer(h.Version, version) {
		way = "update this program"
	}
	f.say("note: the agent on %s is version %s, this is %s; %s", f.s.node.Name, h.Version, version, way)
}

// install puts this version's program on the node.
func (f *far) install(ctx context.Context) error {
	probe, err := f.node.Probe(ctx)
	if err != nil {
		return err
	}
	if probe.NoWorkdir { // before minutes of an upload, not after
		return noWorkdir(f.s.Workdir, "there is no such directory on "+f.s.node.Name)
	}
	p, err := f.a.programFor(probe.Arch)
	if err != nil {
		return err
	}
	if off := probe.ClockOffset.Abs(); off > clockTolerant {
		f.say("note: the clock of %s is %s apart from this one; the store may refuse its requests", f.s.node.Name, off)
	}
	show := &uploadLine{f: f}
	defer show.end()
	return f.node.Install(ctx, p, probe, show.tell)
}

// start has the installed program start the agent for this spec.
func (f *far) start(ctx context.Context) (wire.Hello, error) {
	var hello wire.Hello
	err := f.node.Call(ctx, farUp, f.request(), &hello)
	if err == nil {
		f.say("agent %s runs on %s: pid %d, instance %s", hello.Version, f.s.node.Name, hello.PID, hello.Instance)
	}
	return hello, err
}

func (f *far) request() farRequest {
	return farRequest{
		Spec: f.s.Source, Name: filepath.Base(f.a.flag.spec), Node: f.s.node.Name, StateDir: f.s.StateDir,
		Simulate: f.a.env(simulateEnv),
	}
}

func (f *far) back(ctx context.Context) bool {
	var kept bool
	err := f.node.Call(ctx, farKept, f.request(), &kept)
	return err == nil && kept
}

func (f *far) end(ctx context.Context) (ended, error) {
	var e ended
	err := f.node.Call(ctx, farEnd, f.request(), &e)
	if errors.Is(err, client.ErrNoAgent) { // nothing was ever installed
		return ended{}, nil
	}
	return e, err
}

func (f *far) alone() { f.node.Quiet() }

// programFor finds this version's programs for an architecture: the running
// one where it fits, else what `make dist` made.
func (a *app) programFor(arch string) (ssh.Program, error) {
	p := ssh.Program{Version: version}
	file, err := programFile("pipedeck", arch)
	if err != nil {
		return p, err
	}
	main, err := ssh.NewFile("pipedeck", file)
	if err != nil {
		return p, fmt.Errorf("cannot read the program: %w", err)
	}
	p.Files = append(p.Files, main)
	if file, err := programFile("pipedeck-gpu", arch); err == nil {
		if helper, err := ssh.NewFile("pipedeck-gpu", file); err == nil {
			p.Files = append(p.Files, helper)
		}
	}
	return p, nil
}

// uploadLine shows how far an upload is: on a terminal in one line, elsewhere
// and of several nodes at its begin.
type uploadLine struct {
	f     *far
	shown time.Time
	name  string
	open  bool
}

func (u *uploadLine) tell(name string, done, total int64) {
	if name != u.name {
		u.end()
		u.name = name
		u.f.say("uploading %s (%d MB)", name, (total+500_000)/1_000_000)
	}
	if len(u.f.s.Nodes) > 1 || !isTerminal(u.f.a.err) || time.Since(u.shown) < 200*time.Millisecond && done < total {
		return
	}
	u.shown, u.open = time.Now(), true
	_, _ = fmt.Fprintf(u.f.a.err, "\r  %d %%", done*100/max(total, 1)) // there is nobody else to tell
}

func (u *uploadLine) end() {
	if u.open {
		_, _ = fmt.Fprintln(u.f.a.err)
		u.open = false
	}
}

// programFile is the path of a program for linux/ARCH.
func programFile(name, arch string) (string, error) {
	own, err := os.Executable()
	if err != nil {
		return "", fmt.Errorf("cannot find this program: %w", err)
	}
	var tried []string
	for _, file := range programPlaces(name, arch, own) {
		if st, err := os.Stat(file); err == nil && st.Mode().IsRegular() {
			return file, nil
		}
		tried = append(tried, file)
	}
	return "", pipeline.Problemf(pipeline.ProblemFailed, "`make dist` builds it",
		"cannot install %s for linux/%s: looked for %q", name, arch, tried)
}
