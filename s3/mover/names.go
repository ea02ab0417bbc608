package mover

import (
	"context"
	"crypto/rand"
	"fmt"
	"slices"
	"strings"
	"sync"
	"unicode/utf8"

	"pipedeck/pipeline"
	"pipedeck/s3/local"
)

const (
	// samplesOf stand for all characters of their kind in a trial.
	sampleUnicode = "\u00e9e\u0301\u9375" // composed and decomposed: some stores normalise
	sampleInvalid = "\xff"
)

// names remembers which odd characters the endpoint gives back in listings as
// they were. One key that it garbles would make every listing of the output
// contradict itself.
type names struct {
	mu    sync.Mutex
	known map[string]bool
}

// oddParts returns what in a key an endpoint may not bear, once each.
func oddParts(key string) (parts []string) {
	add := func(p string) {
		if !slices.Contains(parts, p) {
			parts = append(parts, p)
		}
	}
	for i := 0; i < len(key); {
		r, n := utf8.DecodeRuneInString(key[i:])
		switch {
		case r == utf8.RuneError && n == 1:
			add(sampleInvalid)
		case r >= utf8.RuneSelf:
			add(sampleUnicode)
		case r >= 'a' && r <= 'z', r >= 'A' && r <= 'Z', r >= '0' && r <= '9', strings.ContainsRune("-._/=", r):
		default:
			add(string(r))
		}
		i += n
	}
	return parts
}

// tryName makes sure, once for each odd character, that the endpoint lists it
// as it was sent.
func (m *Mover) tryName(ctx context.Context, key string) error {
	parts := oddParts(key)
	if len(parts) == 0 {
		return nil
	}
	m.names.mu.Lock()
	defer m.names.mu.Unlock()
	for _, part := range parts {
		good, known := m.names.known[part]
		if !known {
			var err error
			if good, err = m.tryPart(ctx, part); err != nil {
				return err
			}
			m.names.known[part] = good
		}
		if !good {
			return fmt.Errorf("the store does not give names with %q back as they are: rename the file", part)
		}
	}
	return nil
}

// tryPart writes a scratch object and looks for it. An error says that the
// store could not be asked.
func (m *Mover) tryPart(ctx context.Context, part string) (good bool, err error) {
	p, err := m.profile(ctx)
	if err != nil {
		return false, err
	}
	prefix := m.prefix + ".pipedeck/probe/name-" + rand.Text() + "/"
	key := prefix + "a" + part + "b"
	body := []byte(key)
	sums := local.HashBuffer(body, false)
	_, err = m.opt.Store.Put(ctx, pipeline.PutRequest{Key: key, Body: body, MD5: sums.MD5, CRC32C: sums.CRC32C, IfNoneMatch: p.ConditionalPut})
	switch class := classOf(err); {
	case class == pipeline.StoreFile:
		return false, nil // it says so itself
	case class == pipeline.StoreConfig:
		// "invalid argument" is how some refuse a name. That nothing else is
		// wrong shows in a plain one.
		return false, m.tryPlain(ctx, prefix, err)
	case err != nil:
		return false, err
	}
	defer func() { _ = m.opt.Store.Delete(context.WithoutCancel(ctx), key) }()
	err = m.list(ctx, prefix, func(obj pipeline.Object) error {
		good = good || obj.Key == key && obj.Size == int64(len(body))
		return nil
	})
	return good, err
}

// tryPlain returns nil if the endpoint takes a plain name, else why not.
func (m *Mover) tryPlain(ctx context.Context, prefix string, why error) error {
	sums := local.HashBuffer(nil, false)
	key := prefix + "plain"
	if _, err := m.opt.Store.Put(ctx, pipeline.PutRequest{Key: key, MD5: sums.MD5, CRC32C: sums.CRC32C}); err != nil {
		return why
	}
	_ = m.opt.Store.Delete(ctx, key)
	return nil
}

// forget lets names be tried again.
func (n *names) forget() {
	n.mu.Lock()
	defer n.mu.Unlock()
	clear(n.known)
}
