package ssh

import (
	"bytes"
	"crypto"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	xssh "golang.org/x/crypto/ssh"
	"golang.org/x/crypto/ssh/agent"
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
	closer io.Closer
}

// newKeyring collects the keys: those of files first, with the agent's help
// where it holds them, then the agent's others.
func newKeyring(t *Target, prompt Prompt) *keyring {
	k := &keyring{}
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
			k.addCertified(t, file, &lockedKey{file: file, raw: raw, public: public, prompt: prompt})
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
			names = append(names, fmt.Sprintf("%d more were not offered", len(k.ids)-i))
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

// errLocked says that an encrypted key is needed and nobody can be asked.
var errLocked = errors.New("the key is encrypted and nobody can be asked for its passphrase")

// lockedKey is an encrypted key. Its passphrase is asked for when the server
// takes the key, not before, and once.
type lockedKey struct {
	file   string
	raw    []byte
	public xssh.PublicKey
	prompt Prompt

	mu     sync.Mutex
	signer xssh.AlgorithmSigner
	failed error // why it could not be used though the server took it
}

// PublicKey implements xssh.Signer.
func (l *lockedKey) PublicKey() xssh.PublicKey { return l.public }

// Sign implements xssh.Signer.
func (l *lockedKey) Sign(rand io.Reader, data []byte) (*xssh.Signature, error) {
	return l.SignWithAlgorithm(rand, data, "")
}

// SignWithAlgorithm implements xssh.AlgorithmSigner.
func (l *lockedKey) SignWithAlgorithm(rand io.Reader, data []byte, algorithm string) (*xssh.Signature, error) {
	s, err := l.unlock()
	if err != nil {
		return nil, err
	}
	return s.SignWithAlgorithm(rand, data, algorithm)
}

func (l *lockedKey) unlock() (xssh.AlgorithmSigner, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.signer != nil {
		return l.signer, nil
	}
	l.signer, l.failed = l.open()
	return l.signer, l.failed
}

// open asks for the passphrase.
func (l *lockedKey) open() (xssh.AlgorithmSigner, error) {
	if l.prompt == nil {
		return nil, fmt.Errorf("cannot use key %q: %w", l.file, errLocked)
	}
	for range passphraseTries {
		phrase, err := l.prompt.Secret(fmt.Sprintf("Passphrase of %s: ", l.file))
		if err != nil {
			return nil, fmt.Errorf("cannot use key %q: %w", l.file, err)
		}
		key, err := xssh.ParseRawPrivateKeyWithPassphrase(l.raw, []byte(phrase))
		if err != nil {
			continue
		}
		cryptoSigner, ok := key.(crypto.Signer)
		if !ok {
			return nil, fmt.Errorf("cannot use key %q: it cannot sign", l.file)
		}
		signer, err := xssh.NewSignerFromSigner(cryptoSigner)
		if err != nil {
			return nil, fmt.Errorf("cannot use key %q: %w", l.file, err)
		}
		as, ok := signer.(xssh.AlgorithmSigner)
		if !ok {
			return nil, fmt.Errorf("cannot use key %q: it cannot sign", l.file)
		}
		return as, nil
	}
	return nil, fmt.Errorf("cannot use key %q: wrong passphrase", l.file)
}
