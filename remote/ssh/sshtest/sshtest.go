// Package sshtest starts real sshd processes for tests: on loopback, with keys,
// configuration and home of their own.
package sshtest

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"encoding/pem"
	"fmt"
	"net"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	xssh "golang.org/x/crypto/ssh"
)

// patience is how long a condition may take on a busy machine.
const patience = 60 * time.Second

// Options shape one server. The zero value is a plain one with an ed25519 key.
type Options struct {
	Lines    []string // of sshd_config, first, so that they win
	HostKeys []string // types: ed25519, ecdsa, rsa
	Listen   string   // 127.0.0.1 if empty
	// Shell is what the login shell shall be, such as /usr/bin/fish.
	Shell string
	// Home is the node's home; a folder of the test if empty.
	Home string
	// Env is the whole environment of commands beside HOME; nil is sshd's own.
	Env []string
	// Certify signs a certificate of each host key.
	Certify xssh.Signer
	// Prepare is run by sh in a mount namespace of the server's own before it
	// starts, with the server's folder as $1; "" makes none.
	Prepare string
	// Network is where the server lives; nil is this machine's.
	Network *Network
}

// Server is one running sshd.
type Server struct {
	Port int
	Host string
	Dir  string // everything of this server; short, for sockets
	Home string // what HOME is on the node
	User string

	Keys map[string]xssh.Signer // of the host, by type
	cmd  *exec.Cmd
	args []string // that it was started with
	log  string
}

// Start starts a server that ends with the test, or skips the test where sshd
// cannot run.
func Start(tb testing.TB, o Options) *Server {
	tb.Helper()
	sshd, err := exec.LookPath("sshd")
	if err != nil {
		sshd = "/usr/sbin/sshd"
	}
	if _, err := os.Stat(sshd); err != nil {
		tb.Skip("sshd is not installed: scripts/setup installs openssh-server")
	}
	if os.Getuid() == 0 {
		if err := os.MkdirAll("/run/sshd", 0o755); err != nil {
			tb.Skipf("sshd cannot run here: %v", err)
		}
	}
	if o.Prepare != "" && exec.CommandContext(tb.Context(), "unshare", "-m", "true").Run() != nil {
		tb.Skip("mount namespaces are not allowed here")
	}
	u, err := user.Current()
	if err != nil {
		tb.Fatal(err)
	}
	// Sockets have short paths, and t.TempDir's are long.
	dir, err := os.MkdirTemp("", "pd-sshd-") //nolint:usetesting // see above
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = os.RemoveAll(dir) }) // what a node still writes is in it too
	s := &Server{Dir: dir, Home: o.Home, User: u.Username, Host: o.Listen, Keys: map[string]xssh.Signer{}, log: filepath.Join(dir, "log")}
	if s.Home == "" {
		s.Home = filepath.Join(dir, "home")
		if err := os.MkdirAll(s.Home, 0o755); err != nil {
			tb.Fatal(err)
		}
	}
	if o.Network != nil {
		s.Host = o.Network.There
	}
	if s.Host == "" {
		s.Host = "127.0.0.1"
	}
	if err := s.start(tb, sshd, o); err != nil {
		tb.Fatal(err)
	}
	return s
}

func (s *Server) start(tb testing.TB, sshd string, o Options) error {
	lines := slices.Clone(o.Lines)
	if len(o.HostKeys) == 0 {
		o.HostKeys = []string{"ed25519"}
	}
	for _, kind := range o.HostKeys {
		raw, signer := NewKey(tb, kind, "")
		s.Keys[kind] = signer
		file := filepath.Join(s.Dir, "host_"+kind)
		if err := os.WriteFile(file, raw, 0o600); err != nil {
			return err
		}
		lines = append(lines, "HostKey "+file)
		if o.Certify != nil {
			cert := &xssh.Certificate{
				Key: signer.PublicKey(), CertType: xssh.HostCert, ValidPrincipals: []string{s.Host}, ValidBefore: xssh.CertTimeInfinity,
			}
			if err := cert.SignCert(rand.Reader, o.Certify); err != nil {
				return err
			}
			if err := os.WriteFile(file+"-cert.pub", xssh.MarshalAuthorizedKey(cert), 0o600); err != nil {
				return err
			}
			lines = append(lines, "HostCertificate "+file+"-cert.pub")
		}
	}
	lines = append(lines, "AuthorizedKeysFile "+s.authorized(), "StrictModes no", "UsePAM no", "PidFile none",
		"PasswordAuthentication no", "LogLevel VERBOSE", "SetEnv HOME="+s.Home)
	if force := s.force(o); force != "" {
		lines = append(lines, "ForceCommand "+force)
	}
	if err := os.WriteFile(s.authorized(), nil, 0o600); err != nil {
		return err
	}
	var err error
	for range 5 { // somebody else may take the port in between
		if s.Port, err = freePort(s.Host, o.Network); err != nil {
			tb.Skipf("cannot listen on %q: %v", s.Host, err)
		}
		all := append(slices.Clone(lines), "Port "+strconv.Itoa(s.Port), "ListenAddress "+s.Host)
		conf := filepath.Join(s.Dir, "sshd_config")
		if err := os.WriteFile(conf, []byte(strings.Join(all, "\n")+"\n"), 0o600); err != nil {
			return err
		}
		args := []string{sshd, "-D", "-f", conf, "-E", s.log}
		if o.Prepare != "" {
			args = append([]string{"unshare", "-m", "sh", "-ec", o.Prepare + "\nshift\nexec \"$@\"", "sh", s.Dir}, args...)
		}
		if o.Network != nil {
			args = append(o.Network.enter(), args...)
		}
		if err = s.run(tb, args); err == nil {
			return nil
		}
	}
	return err
}

// force is the ForceCommand that stands for another login shell or environment.
func (s *Server) force(o Options) string {
	inner := `"$SSH_ORIGINAL_COMMAND"`
	shell := o.Shell
	if shell == "" {
		shell = "/bin/sh"
	}
	switch {
	case o.Env != nil:
		return fmt.Sprintf("exec /usr/bin/env -i HOME=%s %s %s -c %s", s.Home, strings.Join(o.Env, " "), shell, inner)
	case o.Shell != "":
		return fmt.Sprintf("exec %s -c %s", shell, inner)
	}
	return ""
}

// run starts sshd and waits until it listens.
func (s *Server) run(tb testing.TB, args []string) error {
	cmd := exec.Command(args[0], args[1:]...)
	var said bytes.Buffer
	cmd.Stderr = &said
	// A session of its own: nothing that a test signals reaches it by chance.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		return err
	}
	ended := make(chan struct{})
	go func() { _ = cmd.Wait(); close(ended) }()
	for begin := time.Now(); time.Since(begin) < patience; time.Sleep(10 * time.Millisecond) {
		select {
		case <-ended:
			raw, _ := os.ReadFile(s.log) // what is there helps
			return fmt.Errorf("sshd ended: %s%s", said.String(), raw)
		default:
		}
		conn, err := net.DialTimeout("tcp", s.Addr(), time.Second)
		if err == nil {
			_ = conn.Close()
			s.cmd, s.args = cmd, args
			tb.Cleanup(func() {
				s.KillSessions()
				_ = cmd.Process.Kill()
				<-ended
				if tb.Failed() {
					raw, _ := os.ReadFile(s.log) // what is there helps
					tb.Logf("sshd on %d:\n%s", s.Port, raw)
				}
			})
			return nil
		}
	}
	_ = cmd.Process.Kill()
	return fmt.Errorf("sshd does not listen on %s", s.Addr())
}

func freePort(host string, other *Network) (int, error) {
	if other != nil {
		return 40022, nil // nobody else is there
	}
	l, err := (&net.ListenConfig{}).Listen(context.Background(), "tcp", net.JoinHostPort(host, "0"))
	if err != nil {
		return 0, err
	}
	defer func() { _ = l.Close() }()
	addr, ok := l.Addr().(*net.TCPAddr)
	if !ok {
		return 0, fmt.Errorf("no TCP address: %v", l.Addr())
	}
	return addr.Port, nil
}

// Addr is host:port.
func (s *Server) Addr() string { return net.JoinHostPort(s.Host, strconv.Itoa(s.Port)) }

// Dest is the destination as a spec has it.
func (s *Server) Dest() string { return s.User + "@" + s.Addr() }

func (s *Server) authorized() string { return filepath.Join(s.Dir, "authorized_keys") }

// Authorize lets a key in.
func (s *Server) Authorize(tb testing.TB, key xssh.PublicKey) {
	tb.Helper()
	f, err := os.OpenFile(s.authorized(), os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		tb.Fatal(err)
	}
	_, err = f.Write(xssh.MarshalAuthorizedKey(key))
	if closeErr := f.Close(); err != nil || closeErr != nil {
		tb.Fatal(err, closeErr)
	}
}

// Log is what sshd wrote.
func (s *Server) Log() string {
	raw, _ := os.ReadFile(s.log) // empty is an answer
	return string(raw)
}

// PID is the process that listens.
func (s *Server) PID() int { return s.cmd.Process.Pid }

// Sessions are the processes of this server's connections.
func (s *Server) Sessions() []int {
	if s.cmd == nil {
		return nil
	}
	var out []int
	parents := map[int]bool{s.cmd.Process.Pid: true}
	names, _ := filepath.Glob("/proc/[0-9]*/stat") // the pattern is well formed
	for range 4 {                                  // a connection is sshd below sshd
		for _, name := range names {
			raw, err := os.ReadFile(name)
			head, rest, ok := strings.Cut(string(raw), ") ")
			fields := strings.Fields(rest)
			if err != nil || !ok || len(fields) < 2 || !strings.Contains(head, "(sshd") {
				continue
			}
			pid, _ := strconv.Atoi(filepath.Base(filepath.Dir(name))) // the glob asked for digits
			parent, _ := strconv.Atoi(fields[1])                      // 0 is nobody's
			if parents[parent] && !parents[pid] {
				parents[pid] = true
				out = append(out, pid)
			}
		}
	}
	return out
}

// KillSessions cuts every connection.
func (s *Server) KillSessions() {
	for _, pid := range s.Sessions() {
		_ = syscall.Kill(pid, syscall.SIGKILL) // gone is as good
	}
}

// Signal sends a signal to the server and its connections, also to one that is
// being made: the server first, then whoever is below it until nobody is new.
func (s *Server) Signal(sig syscall.Signal) {
	_ = syscall.Kill(s.PID(), sig) // gone is as good
	for sent := map[int]bool{}; ; {
		fresh := false
		for _, pid := range s.Sessions() {
			if !sent[pid] {
				sent[pid], fresh = true, true
				_ = syscall.Kill(pid, sig)
			}
		}
		if !fresh {
			return
		}
	}
}

// Kill ends the server and its connections, as a node does whose power is cut.
func (s *Server) Kill() {
	s.Signal(syscall.SIGSTOP) // nobody new; its connections are known by who their parent is
	s.KillSessions()
	_ = syscall.Kill(s.PID(), syscall.SIGKILL) // gone is as good
}

// Again starts a killed server anew, on the same port.
func (s *Server) Again(tb testing.TB) {
	tb.Helper()
	if err := s.run(tb, s.args); err != nil {
		tb.Fatal(err)
	}
}

// Laptop is an operator's home.
type Laptop struct{ Home string }

// NewLaptop makes a home with a key that the servers let in and whose host keys
// it knows.
func NewLaptop(tb testing.TB, servers ...*Server) *Laptop {
	tb.Helper()
	l := &Laptop{Home: tb.TempDir()}
	raw, signer := NewKey(tb, "ed25519", "")
	l.Write(tb, "id_ed25519", string(raw))
	for _, s := range servers {
		s.Authorize(tb, signer.PublicKey())
		l.Know(tb, s)
	}
	return l
}

// Write writes a file below .ssh.
func (l *Laptop) Write(tb testing.TB, name, text string) string {
	tb.Helper()
	file := filepath.Join(l.Home, ".ssh", name)
	if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
		tb.Fatal(err)
	}
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		tb.Fatal(err)
	}
	return file
}

// Know adds the server's keys of some types, all if none are named.
func (l *Laptop) Know(tb testing.TB, s *Server, kinds ...string) {
	tb.Helper()
	var text strings.Builder
	for kind, key := range s.Keys {
		if len(kinds) == 0 || slices.Contains(kinds, kind) {
			fmt.Fprintf(&text, "[%s]:%d %s", s.Host, s.Port, xssh.MarshalAuthorizedKey(key.PublicKey()))
		}
	}
	old, _ := os.ReadFile(filepath.Join(l.Home, ".ssh", "known_hosts")) // none is fine
	l.Write(tb, "known_hosts", string(old)+text.String())
}

var (
	rsaOnce sync.Once
	rsaKey  *rsa.PrivateKey
	errRSA  error
)

// NewKey makes a private key in OpenSSH's form, encrypted if a phrase is given.
func NewKey(tb testing.TB, kind, phrase string) ([]byte, xssh.Signer) {
	tb.Helper()
	var key any
	var err error
	switch kind {
	case "ed25519":
		_, key, err = ed25519.GenerateKey(rand.Reader)
	case "ecdsa":
		key, err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	case "rsa":
		rsaOnce.Do(func() { rsaKey, errRSA = rsa.GenerateKey(rand.Reader, 2048) })
		key, err = rsaKey, errRSA
	default:
		tb.Fatalf("no such type of key: %q", kind)
	}
	if err != nil {
		tb.Fatal(err)
	}
	var block *pem.Block
	if phrase == "" {
		block, err = xssh.MarshalPrivateKey(key, "test")
	} else {
		block, err = xssh.MarshalPrivateKeyWithPassphrase(key, "test", []byte(phrase))
	}
	if err != nil {
		tb.Fatal(err)
	}
	signer, err := xssh.NewSignerFromKey(key)
	if err != nil {
		tb.Fatal(err)
	}
	return pem.EncodeToMemory(block), signer
}
