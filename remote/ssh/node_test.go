package ssh_test

import (
	"crypto/ed25519"
	"crypto/rand"
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	xssh "golang.org/x/crypto/ssh"
	"golang.org/x/crypto/ssh/agent"
	"golang.org/x/crypto/ssh/knownhosts"

	"pipedeck/pipeline"
	"pipedeck/remote/client"
	"pipedeck/remote/ssh"
	"pipedeck/remote/ssh/sshtest"
)

// operator is a laptop with what its user would type.
type operator struct {
	*sshtest.Laptop
	env      map[string]string
	answers  []string
	asked    []string
	headless bool
	accept   []string
	keys     *ssh.Keychain // of all nodes of this operator
	mu       sync.Mutex
}

func (o *operator) Ask(q string) (string, error) { return o.next(q) }

func (o *operator) Secret(q string) (string, error) { return o.next(q) }

func (o *operator) next(q string) (string, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.asked = append(o.asked, q)
	if len(o.answers) == 0 {
		return "", errors.New("nobody answers")
	}
	answer := o.answers[0]
	o.answers = o.answers[1:]
	return answer, nil
}

// node resolves a destination as this operator.
func (o *operator) node(t *testing.T, dest string) *ssh.Node {
	t.Helper()
	target, err := ssh.Resolve(dest, o.place())
	if err != nil {
		t.Fatal(err)
	}
	opts := ssh.Options{Target: target, Accept: ssh.Accept{Fingerprints: o.accept, Command: "ACCEPT"}, Say: t.Logf, Keys: o.keys}
	if !o.headless {
		opts.Prompt = o
	}
	n := ssh.NewNode(opts, "/nonexistent/.pipedeck")
	t.Cleanup(n.Close)
	return n
}

func (o *operator) place() ssh.Place {
	return ssh.Place{Home: o.Home, LocalUser: "operator", System: "/nonexistent", Env: func(name string) string { return o.env[name] }}
}

// probes connects and looks at the node.
func (o *operator) probes(t *testing.T, dest string) {
	t.Helper()
	p, err := o.node(t, dest).Probe(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if p.Kernel != "Linux" || p.Arch == "" || p.UID < 0 {
		t.Errorf("%+v", p)
	}
}

// fails connects and returns the problem, with its hint.
func (o *operator) fails(t *testing.T, dest string, parts ...string) {
	t.Helper()
	_, err := o.node(t, dest).Probe(t.Context())
	p, ok := errors.AsType[*pipeline.Problem](err)
	if !ok || p.Kind != pipeline.ProblemUnreachable {
		t.Fatalf("%v", err)
	}
	if !errors.Is(err, client.ErrDenied) {
		t.Errorf("a retry is thought to help: %v", err)
	}
	text := p.Error() + "\n" + p.Hint
	for _, part := range parts {
		if !strings.Contains(text, part) {
			t.Errorf("no %q in:\n%s", part, text)
		}
	}
}

func TestHostKeys(t *testing.T) {
	t.Parallel()
	s := sshtest.Start(t, sshtest.Options{HostKeys: []string{"ed25519", "ecdsa", "rsa"}})
	laptop := func(t *testing.T) *operator {
		t.Helper()
		o := &operator{Laptop: sshtest.NewLaptop(t, s)}
		o.Write(t, "known_hosts", "")
		return o
	}
	shown := xssh.FingerprintSHA256(s.Keys["ed25519"].PublicKey())
	for _, kind := range []string{"ed25519", "ecdsa", "rsa"} {
		t.Run("only "+kind+" on file", func(t *testing.T) {
			t.Parallel()
			o := laptop(t)
			o.Know(t, s, kind)
			o.probes(t, s.Dest())
		})
	}
	t.Run("hashed with a port", func(t *testing.T) {
		t.Parallel()
		o := laptop(t)
		host := knownhosts.HashHostname(knownhosts.Normalize(s.Addr()))
		o.Write(t, "known_hosts", host+" "+string(xssh.MarshalAuthorizedKey(s.Keys["ed25519"].PublicKey())))
		o.probes(t, s.Dest())
	})
	t.Run("changed", func(t *testing.T) {
		t.Parallel()
		o := laptop(t)
		_, other := sshtest.NewKey(t, "ed25519", "")
		o.Write(t, "known_hosts", knownhosts.Line([]string{s.Addr()}, other.PublicKey())+"\n")
		o.fails(t, s.Dest(), "host key changed", shown, xssh.FingerprintSHA256(other.PublicKey()), "ssh-keygen -R")
	})
	t.Run("unknown, asked for and recorded", func(t *testing.T) {
		t.Parallel()
		o := laptop(t)
		o.answers = []string{"yes"}
		o.probes(t, s.Dest())
		if len(o.asked) != 1 || !strings.Contains(o.asked[0], shown) {
			t.Errorf("%q", o.asked)
		}
		o.probes(t, s.Dest())
		if len(o.asked) != 1 {
			t.Errorf("asked again: %q", o.asked)
		}
	})
	t.Run("unknown and not accepted", func(t *testing.T) {
		t.Parallel()
		o := laptop(t)
		o.answers = []string{"y"}
		o.fails(t, s.Dest(), "not accepted", shown)
	})
	t.Run("unknown and headless", func(t *testing.T) {
		t.Parallel()
		o := laptop(t)
		o.headless = true
		o.fails(t, s.Dest(), "not known", "ACCEPT "+shown)
		o.accept = []string{"SHA256:another"}
		o.fails(t, s.Dest(), "it shows ssh-ed25519 "+shown, "accepted is SHA256:another", "ACCEPT "+shown)
		o.accept = []string{shown}
		o.probes(t, s.Dest())
		o.accept = nil
		o.probes(t, s.Dest())
	})
	t.Run("no key of the type on file", func(t *testing.T) {
		t.Parallel()
		one := sshtest.Start(t, sshtest.Options{HostKeys: []string{"ecdsa"}})
		o := &operator{Laptop: sshtest.NewLaptop(t, one)}
		_, other := sshtest.NewKey(t, "ed25519", "")
		o.Write(t, "known_hosts", knownhosts.Line([]string{one.Addr()}, other.PublicKey())+"\n")
		o.fails(t, one.Dest(), "host key changed", "ecdsa-sha2-nistp256", "ssh-ed25519")
	})
}

func TestHostCertificate(t *testing.T) {
	t.Parallel()
	_, ca := sshtest.NewKey(t, "ed25519", "")
	s := sshtest.Start(t, sshtest.Options{HostKeys: []string{"ed25519", "ecdsa"}, Certify: ca})
	o := &operator{Laptop: sshtest.NewLaptop(t, s)}
	o.Write(t, "known_hosts", "@cert-authority * "+string(xssh.MarshalAuthorizedKey(ca.PublicKey())))
	o.probes(t, s.Dest())
	_, other := sshtest.NewKey(t, "ed25519", "")
	o.Write(t, "known_hosts", "@cert-authority * "+string(xssh.MarshalAuthorizedKey(other.PublicKey())))
	o.fails(t, s.Dest())
}

func TestKeys(t *testing.T) {
	t.Parallel()
	s := sshtest.Start(t, sshtest.Options{})
	t.Run("encrypted", func(t *testing.T) {
		t.Parallel()
		s := sshtest.Start(t, sshtest.Options{}) // its connections are cut
		o := &operator{Laptop: sshtest.NewLaptop(t, s)}
		raw, signer := sshtest.NewKey(t, "ed25519", "open sesame")
		s.Authorize(t, signer.PublicKey())
		file := o.Write(t, "id_ed25519", string(raw))
		o.answers = []string{"wrong", "open sesame"}
		n := o.node(t, s.Dest())
		if _, err := n.Probe(t.Context()); err != nil {
			t.Fatal(err)
		}
		if len(o.asked) != 2 || !strings.Contains(o.asked[0], file) {
			t.Errorf("%q", o.asked)
		}
		// The console is open now: a lost link comes back without a question.
		n.Quiet()
		s.KillSessions()
		for begin := time.Now(); ; time.Sleep(50 * time.Millisecond) {
			_, err := n.Probe(t.Context())
			if err == nil {
				break
			}
			if time.Since(begin) > patience { // the first may still see the cut
				t.Fatal(err)
			}
		}
		if len(o.asked) != 2 {
			t.Errorf("asked again: %q", o.asked)
		}
		o.headless = true
		o.fails(t, s.Dest(), file, "the key is encrypted and nobody can be asked", "ssh-add")
		o.headless, o.answers = false, []string{"a", "b", "c"}
		o.fails(t, s.Dest(), file, "wrong passphrase")
	})
	t.Run("rsa, named by IdentityFile", func(t *testing.T) {
		t.Parallel()
		o := &operator{Laptop: sshtest.NewLaptop(t, s)}
		raw, signer := sshtest.NewKey(t, "rsa", "")
		s.Authorize(t, signer.PublicKey())
		o.Write(t, "node key", string(raw))
		o.Write(t, "config", "Host *\n  IdentityFile \"~/.ssh/node key\"\n  IdentitiesOnly yes\n")
		o.probes(t, s.Dest())
	})
	t.Run("none fits", func(t *testing.T) {
		t.Parallel()
		o := &operator{Laptop: sshtest.NewLaptop(t)}
		o.Know(t, s)
		o.fails(t, s.Dest(), "accepts none of the keys", filepath.Join(o.Home, ".ssh", "id_ed25519"))
	})
	for _, place := range []int{0, 4, 11} {
		t.Run("12 in the agent", func(t *testing.T) {
			t.Parallel()
			o := &operator{Laptop: sshtest.NewLaptop(t)}
			o.Know(t, s)
			o.env = map[string]string{"SSH_AUTH_SOCK": agentWith(t, s, 12, place)}
			o.probes(t, s.Dest())
		})
	}
	t.Run("12 in the agent, the right one in a file", func(t *testing.T) {
		t.Parallel()
		o := &operator{Laptop: sshtest.NewLaptop(t, s)}
		o.env = map[string]string{"SSH_AUTH_SOCK": agentWith(t, s, 12, -1)}
		before := strings.Count(s.Log(), "Accepted publickey")
		o.probes(t, s.Dest())
		if strings.Count(s.Log(), "Accepted publickey") == before {
			t.Error("nobody logged in")
		}
	})
	t.Run("a dead agent", func(t *testing.T) {
		t.Parallel()
		o := &operator{Laptop: sshtest.NewLaptop(t, s), env: map[string]string{"SSH_AUTH_SOCK": "/nonexistent"}}
		o.probes(t, s.Dest())
	})
}

// agentWith serves an SSH agent with n keys, of which the server lets one in.
func agentWith(t *testing.T, s *sshtest.Server, n, right int) string {
	t.Helper()
	ring := agent.NewKeyring()
	for i := range n {
		_, key, err := ed25519.GenerateKey(rand.Reader)
		if err != nil {
			t.Fatal(err)
		}
		if err := ring.Add(agent.AddedKey{PrivateKey: key}); err != nil {
			t.Fatal(err)
		}
		if i == right {
			signer, err := xssh.NewSignerFromKey(key)
			if err != nil {
				t.Fatal(err)
			}
			s.Authorize(t, signer.PublicKey())
		}
	}
	dir, err := os.MkdirTemp("", "pd-agent-") //nolint:usetesting // sockets have short paths
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) }) // nothing but the socket is in it
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "unix", filepath.Join(dir, "sock"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() }) // ends the loop
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go func() { _ = agent.ServeAgent(ring, conn) }()
		}
	}()
	return l.Addr().String()
}

func TestPasswordOnly(t *testing.T) {
	t.Parallel()
	s := sshtest.Start(t, sshtest.Options{Lines: []string{"PasswordAuthentication yes", "PubkeyAuthentication no", "PermitRootLogin yes"}})
	o := &operator{Laptop: sshtest.NewLaptop(t, s)}
	o.fails(t, s.Dest(), "accepts no keys", "only password", "ssh-copy-id")
	if len(o.asked) > 0 {
		t.Errorf("asked %q", o.asked)
	}
}

func TestJumpHosts(t *testing.T) {
	t.Parallel()
	hop, end := sshtest.Start(t, sshtest.Options{}), sshtest.Start(t, sshtest.Options{Lines: []string{"AllowTcpForwarding no"}})
	o := &operator{Laptop: sshtest.NewLaptop(t, hop, end)}
	host, port, _ := strings.Cut(end.Addr(), ":")
	o.Write(t, "config", "Host inner\n HostName "+host+"\n Port "+port+"\n User "+end.User+"\n ProxyJump "+hop.Dest()+"\n")
	o.probes(t, "inner")
	if !strings.Contains(hop.Log(), "Accepted publickey") {
		t.Error("the hop was not used")
	}
	t.Run("that forward nothing", func(t *testing.T) {
		o.Write(t, "config", "Host inner\n HostName "+host+"\n Port "+port+"\n User "+end.User+"\n ProxyJump "+end.Dest()+"\n")
		_, err := o.node(t, "inner").Probe(t.Context())
		if err == nil || !strings.Contains(err.Error(), "through the jump host") {
			t.Error(err)
		}
	})
	t.Run("with a changed key", func(t *testing.T) {
		o.Write(t, "config", "Host inner\n HostName "+host+"\n Port "+port+"\n User "+end.User+"\n ProxyJump "+hop.Dest()+"\n")
		_, other := sshtest.NewKey(t, "ed25519", "")
		o.Write(t, "known_hosts", knownhosts.Line([]string{hop.Addr()}, other.PublicKey())+"\n")
		o.fails(t, "inner", "host key changed", hop.Addr())
	})
}

func TestIPv6(t *testing.T) {
	t.Parallel()
	s := sshtest.Start(t, sshtest.Options{Listen: "::1"})
	o := &operator{Laptop: sshtest.NewLaptop(t, s)}
	o.probes(t, s.Dest())
}

func TestLoginShells(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct{ shell, rc, text string }{
		{"/usr/bin/fish", ".config/fish/config.fish", "echo Welcome to the rc file\necho -n no newline\necho oops >&2\n"},
		{"/bin/csh", ".cshrc", "echo Welcome to the rc file\necho -n no newline\nalias ls rm\n"},
		{"/bin/bash", ".bashrc", "echo Welcome to the rc file\n"},
	} {
		t.Run(filepath.Base(tc.shell), func(t *testing.T) {
			t.Parallel()
			if _, err := os.Stat(tc.shell); err != nil {
				t.Skipf("%s is not installed", tc.shell)
			}
			s := sshtest.Start(t, sshtest.Options{Shell: tc.shell})
			rc := filepath.Join(s.Home, tc.rc)
			if err := os.MkdirAll(filepath.Dir(rc), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(rc, []byte(tc.text), 0o644); err != nil {
				t.Fatal(err)
			}
			o := &operator{Laptop: sshtest.NewLaptop(t, s)}
			o.probes(t, s.Dest())
		})
	}
}

func TestProbeFindsWhereProgramsRun(t *testing.T) {
	t.Parallel()
	usable := func(t *testing.T, s *sshtest.Server) []string {
		t.Helper()
		o := &operator{Laptop: sshtest.NewLaptop(t, s)}
		p, err := o.node(t, s.Dest()).Probe(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		var dirs []string
		for _, b := range p.Bases {
			t.Logf("%+v", b)
			if b.Usable {
				dirs = append(dirs, b.Dir)
			}
		}
		return dirs
	}
	t.Run("home", func(t *testing.T) {
		t.Parallel()
		s := sshtest.Start(t, sshtest.Options{})
		if got := usable(t, s); len(got) == 0 || got[0] != s.Home+"/.local/share/pipedeck" {
			t.Errorf("%q", got)
		}
		if left, err := os.ReadDir(s.Home); err != nil || len(left) > 0 {
			t.Errorf("the probe leaves %v, %v", left, err)
		}
	})
	t.Run("noexec home and tmp", func(t *testing.T) {
		t.Parallel()
		s := sshtest.Start(t, sshtest.Options{Prepare: `mount -t tmpfs -o noexec tmpfs "$1/home"; mount -t tmpfs -o noexec tmpfs /dev/shm; mount --bind -o noexec /tmp /tmp; mount -o remount,bind,noexec /tmp`})
		for _, dir := range usable(t, s) {
			if !strings.HasPrefix(dir, "/var/lib/") && !strings.HasPrefix(dir, "/opt/") {
				t.Errorf("%q is noexec", dir)
			}
		}
	})
	t.Run("read-only home", func(t *testing.T) {
		t.Parallel()
		s := sshtest.Start(t, sshtest.Options{Prepare: `mount -t tmpfs -o ro tmpfs "$1/home"`})
		for _, dir := range usable(t, s) {
			if strings.HasPrefix(dir, s.Home) {
				t.Errorf("%q is read-only", dir)
			}
		}
	})
	t.Run("empty PATH", func(t *testing.T) {
		t.Parallel()
		s := sshtest.Start(t, sshtest.Options{Env: []string{"PATH="}})
		if got := usable(t, s); len(got) == 0 {
			t.Error("nowhere")
		}
	})
}
