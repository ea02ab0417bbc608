package ssh

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"slices"
	"strings"
	"time"

	xssh "golang.org/x/crypto/ssh"
	"golang.org/x/crypto/ssh/agent"

	"pipedeck/pipeline"
)

const (
	// maxOffers is how many keys one connection offers: a server ends it at its
	// MaxAuthTries, six by default.
	maxOffers = 5
	// maxBatches is how many connections are spent on an agent full of keys.
	maxBatches = 3
	// passphraseTries is how often a wrong passphrase may be typed.
	passphraseTries = 3
	// agentWait bounds asking the agent for its list.
	agentWait = 5 * time.Second
)

// identity is one key that can be offered.
type identity struct {
	from   string // file or agent, for messages
	signer xssh.Signer
}

// keyring are the operator's keys for one target, kept for reconnects so that
// a passphrase is asked for once.
type keyring struct {
	ids    []identity
	notes  []string // keys that cannot be used, and why
	chain  *Keychain
	closer io.Closer
}

// newKeyring collects the keys: those of files first, with the agent's help
// where it holds them, then the agent's others.
func newKeyring(t *Target, prompt Prompt, chain *Keychain) *keyring {
	k := &keyring{chain: chain}
	held := k.agentKeys(t.Agent)
	for _, file := range t.Identities {
		k.addFile(t, file, held, prompt)
	}
	if !t.IdentitiesOnly {
		for _, s := range held {
			k.add("agent", s)
		}
	}
	return k
}

// add appends a key once.
func (k *keyring) add(from string, s xssh.Signer) {
	blob := s.PublicKey().Marshal()
	for _, id := range k.ids {
		if bytes.Equal(id.signer.PublicKey().Marshal(), blob) {
			return
		}
	}
	k.ids = append(k.ids, identity{from: from, signer: s})
}

// agentKeys lists the agent's keys. An agent that hangs or is gone is said.
func (k *keyring) agentKeys(socket string) []xssh.Signer {
	if socket == "" {
		return nil
	}
	conn, err := net.DialTimeout("unix", socket, agentWait) //nolint:noctx // it has its own limit, on this machine
	if err != nil {
		k.notes = append(k.notes, fmt.Sprintf("the SSH agent at %q does not answer: %v", socket, err))
		return nil
	}
	_ = conn.SetDeadline(time.Now().Add(agentWait))
	signers, err := agent.NewClient(conn).Signers()
	if err != nil {
		k.notes = append(k.notes, fmt.Sprintf("the SSH agent at %q does not answer: %v", socket, err))
		_ = conn.Close()
		return nil
	}
	// A key may wait for a touch: the handshake's deadline bounds that.
	_ = conn.SetDeadline(time.Time{})
	k.closer = conn
	return signers
}

// addFile adds the key of a private key file.
func (k *keyring) addFile(t *Target, file string, held []xssh.Signer, prompt Prompt) {
	raw, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		public, pubErr := publicKey(file + ".pub")
		if pubErr == nil && k.addHeld(file, public, held) {
			return
		}
		if t.Explicit {
			k.notes = append(k.notes, fmt.Sprintf("key %q: no such file", file))
		}
		return
	}
	if err != nil {
		k.notes = append(k.notes, fmt.Sprintf("key %q: %v", file, err))
		return
	}
	signer, err := xssh.ParsePrivateKey(raw)
	if missing, ok := errors.AsType[*xssh.PassphraseMissingError](err); ok {
		public := missing.PublicKey
		if public == nil {
			if public, err = publicKey(file + ".pub"); err != nil {
				k.notes = append(k.notes, fmt.Sprintf("key %q is encrypted and has no %s.pub beside it", file, file))
				return
			}
		}
		if !k.addHeld(file, public, held) {
			k.addCertified(t, file, &lockedKey{file: file, raw: raw, public: public, prompt: prompt, shared: k.chain.of(file, raw)})
		}
		return
	}
	if err != nil {
		if public, pubErr := parsePublic(raw); pubErr == nil && k.addHeld(file, public, held) {
			return // IdentityFile may name a public key whose private half the agent has
		}
		k.notes = append(k.notes, fmt.Sprintf("key %q: %v", file, err))
		return
	}
	k.addCertified(t, file, signer)
}

// addHeld adds a file's key as the agent has it.
func (k *keyring) addHeld(file string, public xssh.PublicKey, held []xssh.Signer) bool {
	for _, s := range held {
		if bytes.Equal(s.PublicKey().Marshal(), public.Marshal()) {
			k.add(file+" (agent)", s)
			return true
		}
	}
	return false
}

// addCertified adds a key, with its certificate first if there is one.
func (k *keyring) addCertified(t *Target, file string, s xssh.Signer) {
	for _, name := range append(slices.Clone(t.Certificates), file+"-cert.pub") {
		public, err := publicKey(name)
		if err != nil {
			continue
		}
		if cert, ok := public.(*xssh.Certificate); ok {
			if signer, err := xssh.NewCertSigner(cert, s); err == nil {
				k.add(name, signer)
			}
		}
	}
	k.add(file, s)
}

func publicKey(name string) (xssh.PublicKey, error) {
	raw, err := os.ReadFile(name)
	if err != nil {
		return nil, err
	}
	return parsePublic(raw)
}

func parsePublic(raw []byte) (xssh.PublicKey, error) {
	key, _, _, _, err := xssh.ParseAuthorizedKey(raw)
	return key, err
}

// batch is what the n-th connection offers; worked, the key that the server
// took the last time, comes first.
func (k *keyring) batch(n int) []xssh.Signer {
	var out []xssh.Signer
	for i := n * maxOffers; i < len(k.ids) && i < (n+1)*maxOffers; i++ {
		out = append(out, k.ids[i].signer)
	}
	return out
}

// batches is how many connections it takes to offer all keys, within reason.
func (k *keyring) batches() int {
	return max(1, min(maxBatches, (len(k.ids)+maxOffers-1)/maxOffers))
}

// prefer puts the batch that worked first, for reconnects.
func (k *keyring) prefer(n int) {
	if n > 0 {
		first := k.ids[n*maxOffers:]
		k.ids = append(slices.Clone(first), k.ids[:n*maxOffers]...)
	}
}

func (k *keyring) close() {
	if k.closer != nil {
		_ = k.closer.Close()
	}
}

// tried names what was offered, for the message of a refusal.
func (k *keyring) tried() string {
	if len(k.ids) == 0 {
		return "no key was found"
	}
	var names []string
	for i, id := range k.ids {
		if i == maxBatches*maxOffers {
			names = append(names, pipeline.Counted(len(k.ids)-i, "more was not offered", "more were not offered"))
			break
		}
		names = append(names, id.from)
	}
	counts := map[string]int{}
	var uniq []string
	for _, n := range names {
		if counts[n]++; counts[n] == 1 {
			uniq = append(uniq, n)
		}
	}
	for i, n := range uniq {
		if counts[n] > 1 {
			uniq[i] = fmt.Sprintf("%s (%d keys)", n, counts[n])
		}
	}
	return "tried " + strings.Join(uniq, ", ")
}

// unusable is why a key that the server would take was not used, nil if there
// was none.
func (k *keyring) unusable() error {
	for _, id := range k.ids {
		if l, ok := id.signer.(*lockedKey); ok {
			l.mu.Lock()
			err := l.failed
			l.mu.Unlock()
			if err != nil {
				return err
			}
		}
	}
	return nil
}
