package main

import (
	"context"
	"errors"
	"sync"
	"time"

	"pipedeck/pipeline"
	"pipedeck/pipeline/spec"
	"pipedeck/remote/agent"
	"pipedeck/remote/agent/wire"
	"pipedeck/remote/client"
	"pipedeck/s3/store"
)

// forwardEvery is how often an open console looks whether its credentials are
// others by now.
const forwardEvery = 15 * time.Second

// forwards says whether the agent of this deck takes its credentials from who
// connects: on another machine the operator's chain is not there.
func (s specFile) forwards() bool { return s.Store.Credentials == spec.CredentialsForward }

// forwarder hands the operator's credentials to the agents of one invocation.
type forwarder struct {
	chain *store.Chain

	mu   sync.Mutex
	said string // the last complaint, said once
}

// hand gives the agent the credentials of this machine unless it has them.
func (f *forwarder) hand(ctx context.Context, c *client.Client, has *wire.CredentialState) error {
	if has == nil {
		return nil
	}
	keys, err := f.chain.Retrieve(ctx)
	if err != nil {
		return err
	}
	creds := wire.Credentials{AccessKeyID: keys.AccessKeyID, SecretAccessKey: keys.SecretAccessKey, SessionToken: keys.SessionToken}
	if keys.CanExpire {
		creds.Expires = &keys.Expires
	}
	if creds.ID() == has.ID {
		return nil
	}
	return c.Forward(ctx, creds)
}

// once hands the credentials over and says what went wrong: without them
// everything but uploads works.
func (f *forwarder) once(ctx context.Context, c *client.Client, say func(string, ...any)) {
	has := c.First().Credentials
	err := f.hand(ctx, c, has)
	none, missing := errors.AsType[*store.NoCredentialsError](err)
	var text string
	switch {
	case err == nil || ctx.Err() != nil:
		return
	case missing && has.ID != "":
		return // it goes on with what it was given before
	case missing:
		text = "no credentials to hand to the agent, uploads wait: " + none.Error()
	default:
		text = "cannot hand credentials to the agent: " + err.Error()
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.said != text {
		f.said = text
		say("note: %s", text)
	}
}

// keep hands over what changes while a console is open.
func (f *forwarder) keep(ctx context.Context, c *client.Client) {
	tick := time.NewTicker(forwardEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		// The agent may be another by now, with another memory.
		if hello, err := c.Hello(ctx); err == nil {
			_ = f.hand(ctx, c, hello.Credentials) // tried again at the next tick
		}
	}
}

// taker is the agent's side: it keeps the credentials in memory and has the
// keeper do so too.
type taker struct {
	keys  *store.Forwarded
	vault *agent.Vault
	taken func() // what waits for credentials can go on

	mu    sync.Mutex
	state wire.CredentialState
}

// newTaker begins with what the keeper remembers of an earlier agent.
func newTaker(keys *store.Forwarded, vault *agent.Vault) *taker {
	t := &taker{keys: keys, vault: vault}
	if c := vault.Load(); c.AccessKeyID != "" {
		t.put(c)
	}
	return t
}

func (t *taker) put(c wire.Credentials) {
	var expires time.Time
	if c.Expires != nil {
		expires = *c.Expires
	}
	t.keys.Set(c.AccessKeyID, c.SecretAccessKey, c.SessionToken, expires)
	t.mu.Lock()
	defer t.mu.Unlock()
	t.state = wire.CredentialState{ID: c.ID(), Expires: c.Expires}
}

// Take implements agent.CredentialTaker.
func (t *taker) Take(c wire.Credentials) {
	t.put(c)
	t.vault.Store(c)
	if t.taken != nil {
		t.taken()
	}
}

// reading is what health is judged by; nil where nothing is taken.
func (t *taker) reading() func() pipeline.CredentialReading {
	if t == nil {
		return nil
	}
	return func() pipeline.CredentialReading {
		s := t.State()
		return pipeline.CredentialReading{Given: s.ID != "", EndsAt: s.Expires}
	}
}

// State implements agent.CredentialTaker.
func (t *taker) State() wire.CredentialState {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.state
}
