package ssh

import (
	"crypto"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"sync"

	xssh "golang.org/x/crypto/ssh"
)

// errLocked says that an encrypted key is needed and nobody can be asked.
var errLocked = errors.New("the key is encrypted and nobody can be asked for its passphrase")

// Keychain holds the encrypted keys that were opened, for several nodes and
// their jump hosts: the passphrase of a file is asked for once. The zero value is
// an empty one.
type Keychain struct {
	mu   sync.Mutex
	keys map[string]*openedKey
}

// openedKey is one encrypted file. Its lock is held while somebody is asked, so
// that everybody else who needs it waits for the answer.
type openedKey struct {
	mu     sync.Mutex
	signer xssh.AlgorithmSigner // nil until the right passphrase came
}

// of is the key of a file with this content: another content is another key.
func (k *Keychain) of(file string, raw []byte) *openedKey {
	k.mu.Lock()
	defer k.mu.Unlock()
	sum := sha256.Sum256(raw)
	name := file + "\x00" + string(sum[:])
	if k.keys[name] == nil {
		if k.keys == nil {
			k.keys = map[string]*openedKey{}
		}
		k.keys[name] = &openedKey{}
	}
	return k.keys[name]
}

// lockedKey is an encrypted key as one hop offers it. Its passphrase is asked for
// when the server takes the key, not before.
type lockedKey struct {
	file   string
	raw    []byte
	public xssh.PublicKey
	shared *openedKey

	mu     sync.Mutex
	prompt Prompt
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
	l.shared.mu.Lock()
	defer l.shared.mu.Unlock()
	if l.shared.signer == nil {
		l.shared.signer, l.failed = l.open()
	} else {
		l.failed = nil
	}
	return l.shared.signer, l.failed
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

// quiet makes it ask nobody any more; once it is opened it stays so.
func (l *lockedKey) quiet() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.prompt = nil
}
