package agent

import (
	"context"
	"crypto/sha256"
	"net/http"
	"sync"

	"pipedeck/pipeline"
	"pipedeck/remote/agent/wire"
)

// keyCache remembers the answers of mutating calls by idempotency key.
type keyCache struct {
	mu    sync.Mutex
	limit int
	byKey map[string]*keyed
	order []string // oldest first
}

// keyed is one mutating call, running or answered.
type keyed struct {
	request [sha256.Size]byte // of path and body
	done    chan struct{}
	answer  reply // valid once done is closed
}

func newKeyCache(limit int) *keyCache {
	return &keyCache{limit: limit, byKey: map[string]*keyed{}}
}

// claim returns the call of this key and whether the caller has to make it.
func (c *keyCache) claim(key string, request [sha256.Size]byte) (*keyed, bool, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if k, ok := c.byKey[key]; ok {
		if k.request != request {
			return nil, false, pipeline.Problemf(pipeline.ProblemRefused, "use a new key for a new request",
				"cannot repeat key %q: the first request was a different one", key)
		}
		return k, false, nil
	}
	if !c.makeRoom() {
		return nil, false, pipeline.Problemf(pipeline.ProblemRefused, "try again in a moment",
			"cannot take another request: %d are being worked on", c.limit)
	}
	k := &keyed{request: request, done: make(chan struct{})}
	c.byKey[key] = k
	c.order = append(c.order, key)
	return k, true, nil
}

// makeRoom forgets the oldest answered call when the cache is full. A call
// that still runs is never forgotten.
func (c *keyCache) makeRoom() bool {
	if len(c.order) < c.limit {
		return true
	}
	for i, key := range c.order {
		select {
		case <-c.byKey[key].done:
			delete(c.byKey, key)
			c.order = append(c.order[:i:i], c.order[i+1:]...)
			return true
		default:
		}
	}
	return false
}

// once makes a mutating call unless its key was used before. The call runs on
// after its client is gone: half an action is worse than an unheard answer.
func (s *server) once(ctx context.Context, r *request, e endpoint) (reply, error) {
	key := r.Header.Get(wire.HeaderKey)
	if key == "" || len(key) > wire.MaxKey {
		return reply{}, pipeline.Problemf(pipeline.ProblemUsage, "",
			"cannot accept the request: header %s needs 1 to %d bytes", wire.HeaderKey, wire.MaxKey)
	}
	sum := sha256.Sum256(append([]byte(r.URL.Path+"\n"), r.body...))
	k, mine, err := s.keys.claim(key, sum)
	if err != nil {
		return reply{}, err
	}
	if mine {
		go s.perform(context.WithoutCancel(ctx), k, e, r)
	}
	select {
	case <-k.done:
		return k.answer, nil
	case <-ctx.Done():
		return reply{status: http.StatusServiceUnavailable}, ctx.Err()
	}
}

// perform runs the call and publishes its answer, whatever happens in it.
func (s *server) perform(ctx context.Context, k *keyed, e endpoint, r *request) {
	defer close(k.done)
	defer func() {
		if v := recover(); v != nil {
			k.answer = s.panicked(e.path, v)
		}
	}()
	k.answer = replyOf(e.call(ctx, r))
}
