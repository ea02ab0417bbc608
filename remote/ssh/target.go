package ssh

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"pipedeck/pipeline"
)

// Target is where a destination leads and how: what the operator's files say
// of it, resolved.
type Target struct {
	Name string // as the spec has it
	Host string // to dial
	Port string
	User string
	// KeyName is the name that known_hosts has, with the port.
	KeyName        string
	Identities     []string // private key files, in order
	Certificates   []string
	Explicit       bool // Identities were named, not guessed
	IdentitiesOnly bool
	Agent          string   // the agent's socket, "" for none
	KnownHosts     []string // accepted keys go into the first
	HashKnown      bool
	Jumps          []Target // in the order of dialling
	Notes          []string // what the files ask for and is not done
}

// Addr is what to dial.
func (t *Target) Addr() string { return net.JoinHostPort(t.Host, t.Port) }

// Place is the operator's side: whose files are read.
type Place struct {
	Home      string
	LocalUser string
	Env       func(string) string
	System    string // the system's configuration, /etc/ssh/ssh_config if empty
}

// defaultIdentities are tried when no IdentityFile is given, in ssh's order.
var defaultIdentities = []string{"id_rsa", "id_ecdsa", "id_ecdsa_sk", "id_ed25519", "id_ed25519_sk"}

// maxJumps bounds aliases that jump over each other.
const maxJumps = 8

// Resolve reads the configuration for user@host:port or an alias.
func Resolve(dest string, place Place) (Target, error) {
	return resolve(dest, place, 0)
}

func resolve(dest string, place Place, depth int) (Target, error) {
	user, host, port, err := splitDest(dest)
	if err != nil {
		return Target{}, err
	}
	r := &reader{
		host: host, user: user, localUser: place.LocalUser, home: place.Home, env: place.Env,
		values: map[string][]string{}, seen: map[string]bool{},
	}
	if user != "" {
		r.values["user"] = []string{user}
	}
	if port != "" {
		r.values["port"] = []string{port}
	}
	r.file(filepath.Join(place.Home, ".ssh", "config"), true, 0)
	r.file(firstOf(place.System, "/etc/ssh/ssh_config"), true, 0)
	if cmd := r.value("proxycommand"); cmd != "" && cmd != "none" && r.value("proxyjump") == "" {
		return Target{}, pipeline.Problemf(pipeline.ProblemUsage, "use ProxyJump, or name a host that is reached directly",
			"cannot reach %q: its ProxyCommand %q is not supported", dest, cmd)
	}
	t := Target{Name: dest, Port: firstOf(r.value("port"), "22"), User: firstOf(r.value("user"), place.LocalUser)}
	if n, err := strconv.Atoi(t.Port); err != nil || n < 1 || n > 65535 {
		return Target{}, pipeline.Problemf(pipeline.ProblemUsage, "", "cannot reach %q: %q is no port", dest, t.Port)
	}
	t.Host = host
	if name := r.value("hostname"); name != "" {
		t.Host = strings.NewReplacer("%%", "%", "%h", host, "%n", host).Replace(name)
	}
	t.KeyName = net.JoinHostPort(t.Host, t.Port)
	if alias := r.value("hostkeyalias"); alias != "" {
		t.KeyName = net.JoinHostPort(alias, "22")
	}
	r.files(&t)
	jumps, err := r.jumps(place, t, depth)
	if err != nil {
		return Target{}, err
	}
	t.Jumps = jumps
	t.Notes = r.notes
	for _, j := range jumps {
		t.Notes = append(t.Notes, j.Notes...)
	}
	return t, nil
}

// splitDest cuts [user@]host[:port]; an IPv6 address with a port is in brackets.
func splitDest(dest string) (user, host, port string, err error) {
	dest = strings.TrimPrefix(dest, "ssh://")
	rest := dest
	if i := strings.LastIndexByte(dest, '@'); i >= 0 {
		user, rest = dest[:i], dest[i+1:]
	}
	switch {
	case strings.HasPrefix(rest, "["):
		end := strings.IndexByte(rest, ']')
		if end > 0 {
			host, port = rest[1:end], strings.TrimPrefix(rest[end+1:], ":")
		}
	case strings.Count(rest, ":") == 1:
		host, port, _ = strings.Cut(rest, ":")
	default:
		host = rest // a bare IPv6 address has several
	}
	if host == "" || strings.HasPrefix(host, "-") {
		return "", "", "", pipeline.Problemf(pipeline.ProblemUsage, "user@host:port, or an alias of the SSH config",
			"cannot reach %q: it is no SSH destination", dest)
	}
	return user, host, port, nil
}

// files fills in keys, agent and known hosts.
func (r *reader) files(t *Target) {
	r.keys(t)
	t.Agent = r.agent(*t)
	t.HashKnown = strings.EqualFold(r.value("hashknownhosts"), "yes")
	t.KnownHosts = append(
		r.knownHosts(*t, "userknownhostsfile", "~/.ssh/known_hosts", "~/.ssh/known_hosts2"),
		r.knownHosts(*t, "globalknownhostsfile", "/etc/ssh/ssh_known_hosts", "/etc/ssh/ssh_known_hosts2")...)
}

func (r *reader) keys(t *Target) {
	t.IdentitiesOnly = strings.EqualFold(r.value("identitiesonly"), "yes")
	for _, name := range r.values["identityfile"] {
		if strings.EqualFold(name, "none") {
			continue
		}
		if full, ok := r.expand(*t, "IdentityFile", name); ok {
			t.Identities = append(t.Identities, full)
		}
	}
	t.Explicit = len(r.values["identityfile"]) > 0
	if !t.Explicit {
		for _, name := range defaultIdentities {
			t.Identities = append(t.Identities, filepath.Join(r.home, ".ssh", name))
		}
	}
	for _, name := range r.values["certificatefile"] {
		if full, ok := r.expand(*t, "CertificateFile", name); ok {
			t.Certificates = append(t.Certificates, full)
		}
	}
}

// agent is the socket of the agent to ask; "" is none.
func (r *reader) agent(t Target) string {
	name := r.value("identityagent")
	switch {
	case name == "" || name == "SSH_AUTH_SOCK":
	case strings.EqualFold(name, "none"):
		return ""
	case strings.HasPrefix(name, "$") && !strings.HasPrefix(name, "${"):
		return r.env(name[1:])
	default:
		if full, ok := r.expand(t, "IdentityAgent", name); ok {
			return full
		}
	}
	return r.env("SSH_AUTH_SOCK")
}

func (r *reader) knownHosts(t Target, key string, usual ...string) (files []string) {
	names := r.values[key]
	if len(names) == 0 {
		names = usual
	}
	for _, name := range names {
		if full, ok := r.expand(t, key, name); ok && !strings.EqualFold(name, "none") {
			files = append(files, full)
		}
	}
	return files
}

// expand fills in ~, ${NAME} and the tokens of a file name.
func (r *reader) expand(t Target, key, name string) (string, bool) {
	full, bad := r.tokens(t, r.tilde(name))
	if bad != "" {
		r.note("%s %q: %s is not supported; it is not used", key, name, bad)
		return "", false
	}
	full = os.Expand(full, func(v string) string { return r.env(v) })
	if !filepath.IsAbs(full) {
		full = filepath.Join(r.home, ".ssh", full)
	}
	return full, true
}

// tokens replaces %x; bad names one that it cannot.
func (r *reader) tokens(t Target, text string) (full, bad string) {
	var b strings.Builder
	for i := 0; i < len(text); i++ {
		if text[i] != '%' || i+1 == len(text) {
			b.WriteByte(text[i])
			continue
		}
		i++
		switch text[i] {
		case '%':
			b.WriteByte('%')
		case 'd':
			b.WriteString(r.home)
		case 'h':
			b.WriteString(t.Host)
		case 'n':
			b.WriteString(r.host)
		case 'p':
			b.WriteString(t.Port)
		case 'r':
			b.WriteString(t.User)
		case 'u':
			b.WriteString(r.localUser)
		case 'i':
			b.WriteString(strconv.Itoa(os.Getuid()))
		case 'l', 'L':
			host, err := os.Hostname()
			if err != nil {
				return "", "%" + text[i:i+1]
			}
			if text[i] == 'L' {
				host, _, _ = strings.Cut(host, ".")
			}
			b.WriteString(host)
		default:
			return "", "%" + text[i:i+1]
		}
	}
	return b.String(), ""
}

// jumps resolves ProxyJump: each hop by its own lines of the configuration.
func (r *reader) jumps(place Place, t Target, depth int) ([]Target, error) {
	text := r.value("proxyjump")
	if text == "" || strings.EqualFold(text, "none") {
		return nil, nil
	}
	if depth >= maxJumps {
		return nil, pipeline.Problemf(pipeline.ProblemUsage, "", "cannot reach %q: ProxyJump leads over more than %d hosts", t.Name, maxJumps)
	}
	text, bad := r.tokens(t, text)
	if bad != "" {
		return nil, pipeline.Problemf(pipeline.ProblemUsage, "", "cannot reach %q: ProxyJump uses %s, which is not supported", t.Name, bad)
	}
	var out []Target
	for i, dest := range strings.Split(text, ",") {
		hop, err := resolve(strings.TrimSpace(dest), place, depth+1)
		if err != nil {
			return nil, fmt.Errorf("jump host of %q: %w", t.Name, err)
		}
		if i > 0 {
			hop.Jumps = nil // reached through the hop before it
		}
		out = append(out, append(hop.Jumps, hop)...)
	}
	for i := range out {
		out[i].Jumps = nil
	}
	return out, nil
}
