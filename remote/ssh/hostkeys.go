package ssh

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/skeema/knownhosts"
	xssh "golang.org/x/crypto/ssh"
	xknownhosts "golang.org/x/crypto/ssh/knownhosts"

	"pipedeck/pipeline"
	"pipedeck/remote/client"
)

// Prompt asks the operator at the terminal. It is nil where nobody can answer.
type Prompt interface {
	// Ask shows a question and returns the line that was typed.
	Ask(question string) (string, error)
	// Secret is Ask without an echo.
	Secret(question string) (string, error)
}

// Accept says which unknown host keys are accepted without a question.
type Accept struct {
	Fingerprints []string // SHA256:…
	Command      string   // what accepts one that follows, for the hint
}

// hostKeys judges the keys that one host shows.
type hostKeys struct {
	target *Target
	db     *knownhosts.HostKeyDB // nil: no file has an entry
	prompt Prompt
	accept Accept
	say    func(format string, args ...any)
}

func newHostKeys(t *Target, prompt Prompt, accept Accept, say func(string, ...any)) (*hostKeys, error) {
	h := &hostKeys{target: t, prompt: prompt, accept: accept, say: say}
	var files []string
	for _, name := range t.KnownHosts {
		raw, err := os.ReadFile(name)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			continue
		case err != nil:
			return nil, h.problem("make it readable", "cannot read %q: %v", name, err)
		case !hasEntries(raw):
			continue
		}
		// A file that cannot be read whole could hide that a key changed.
		if _, err := xknownhosts.New(name); err != nil {
			return nil, h.problem("correct or remove the line", "cannot read %q: %v", name, err)
		}
		files = append(files, name)
	}
	if len(files) == 0 {
		return h, nil
	}
	db, err := knownhosts.NewDB(files...)
	if err != nil {
		return nil, h.problem("", "cannot read the known hosts: %v", err)
	}
	h.db = db
	return h, nil
}

// hasEntries says whether a file holds anything but comments.
func hasEntries(raw []byte) bool {
	for line := range strings.Lines(string(raw)) {
		if line = strings.TrimSpace(line); line != "" && line[0] != '#' {
			return true
		}
	}
	return false
}

// unknownFirst is what an unknown server is asked for: the key that ssh and
// providers show first.
var unknownFirst = []string{
	xssh.KeyAlgoED25519, xssh.KeyAlgoECDSA256, xssh.KeyAlgoECDSA384, xssh.KeyAlgoECDSA521,
	xssh.KeyAlgoRSASHA512, xssh.KeyAlgoRSASHA256,
}

// onFile are the algorithms of the keys on file.
func (h *hostKeys) onFile() []string {
	if h.db == nil {
		return nil
	}
	return h.db.HostKeyAlgorithms(h.target.KeyName)
}

// algorithms are what the server is asked for: one with several keys would else
// show one that the file does not have.
func (h *hostKeys) algorithms() []string {
	if algos := h.onFile(); len(algos) > 0 {
		return algos
	}
	return unknownFirst
}

// check implements xssh.HostKeyCallback.
func (h *hostKeys) check(_ string, remote net.Addr, key xssh.PublicKey) error {
	var want []xknownhosts.KnownKey
	if h.db != nil {
		err := h.db.HostKeyCallback()(h.target.KeyName, remote, key)
		if err == nil {
			return nil
		}
		keyErr, ok := errors.AsType[*xknownhosts.KeyError](err)
		if !ok {
			return h.problem("", "its host key is refused: %v", err)
		}
		want = keyErr.Want
	}
	if len(want) > 0 {
		return h.changed(key, want)
	}
	return h.unknown(key)
}

// changed refuses a key that differs from the one on file.
func (h *hostKeys) changed(key xssh.PublicKey, want []xknownhosts.KnownKey) error {
	var known []string
	for _, w := range want {
		known = append(known, fmt.Sprintf("%s %s (%s:%d)", w.Key.Type(), xssh.FingerprintSHA256(w.Key), w.Filename, w.Line))
	}
	return h.problem(
		fmt.Sprintf("somebody may be listening in. If the provider gave this address to another machine: ssh-keygen -R %s -f %s",
			quoteShell(knownhosts.Normalize(h.target.KeyName)), quoteShell(want[0].Filename)),
		"its host key changed: it shows %s %s, on file is %s", key.Type(), xssh.FingerprintSHA256(key), strings.Join(known, ", "))
}

// unknown asks whether a key that no file has is the right one.
func (h *hostKeys) unknown(key xssh.PublicKey) error {
	shown := xssh.FingerprintSHA256(key)
	if slices.Contains(h.accept.Fingerprints, shown) {
		return h.record(key)
	}
	other := ""
	if len(h.accept.Fingerprints) > 0 {
		other = ", accepted is " + strings.Join(h.accept.Fingerprints, ", ")
	}
	if h.prompt == nil {
		return h.problem(
			fmt.Sprintf("compare it with what the provider shows, then: %s %s", h.accept.Command, shown),
			"its host key is not known: it shows %s %s%s", key.Type(), shown, other)
	}
	answer, err := h.prompt.Ask(fmt.Sprintf("The host key of %s is not known%s.\n%s %s\nType yes if it is the right one: ",
		knownhosts.Normalize(h.target.KeyName), other, key.Type(), shown))
	if err != nil || strings.TrimSpace(answer) != "yes" {
		return h.problem("", "its host key was not accepted: %s %s", key.Type(), shown)
	}
	return h.record(key)
}

// record adds an accepted key to the first known_hosts file.
func (h *hostKeys) record(key xssh.PublicKey) error {
	if len(h.target.KnownHosts) == 0 {
		return nil
	}
	name := h.target.KnownHosts[0]
	host := knownhosts.Normalize(h.target.KeyName)
	if h.target.HashKnown {
		host = xknownhosts.HashHostname(host)
	}
	line := host + " " + strings.TrimSpace(string(xssh.MarshalAuthorizedKey(key))) + "\n"
	if err := appendLine(name, line); err != nil {
		h.say("note: cannot record the host key in %q: %v", name, err)
		return nil
	}
	h.say("recorded the host key of %s in %s", knownhosts.Normalize(h.target.KeyName), name)
	return nil
}

// appendLine adds a line to a file that may lack its last newline.
func appendLine(name, line string) error {
	if err := os.MkdirAll(filepath.Dir(name), 0o700); err != nil {
		return err
	}
	raw, err := os.ReadFile(name)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if len(raw) > 0 && raw[len(raw)-1] != '\n' {
		line = "\n" + line
	}
	f, err := os.OpenFile(name, os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o600)
	if err != nil {
		return err
	}
	_, err = f.WriteString(line)
	return errors.Join(err, f.Close())
}

// noCommon explains a server that has no key of a type on file.
func (h *hostKeys) noCommon(err *xssh.AlgorithmNegotiationError) error {
	return h.problem(
		"if the machine was set up anew: ssh-keygen -R "+quoteShell(knownhosts.Normalize(h.target.KeyName)),
		"its host key changed: on file are keys for %s, it has %s",
		strings.Join(err.SupportedAlgorithms, " "), strings.Join(err.RequestedAlgorithms, " "))
}

func (h *hostKeys) problem(hint, format string, args ...any) error {
	return denied(h.target, hint, format, args...)
}

// denied is a Problem of host key or login: trying again cannot help.
func denied(t *Target, hint, format string, args ...any) error {
	p := pipeline.Problemf(pipeline.ProblemUnreachable, hint, "cannot connect to %q: "+format, append([]any{t.label()}, args...)...)
	p.Err = client.ErrDenied
	return p
}

// label names a target in messages.
func (t *Target) label() string { return t.User + "@" + net.JoinHostPort(t.Host, t.Port) }

// quoteShell quotes for a POSIX shell where that is needed.
func quoteShell(s string) string {
	if s != "" && strings.Trim(s, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789/._-:@+,") == "" {
		return s
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}
