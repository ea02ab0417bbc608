package ssh

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	xssh "golang.org/x/crypto/ssh"

	"pipedeck/pipeline"
	"pipedeck/remote/client"
)

const (
	dialTimeout      = 10 * time.Second // of TCP
	handshakeTimeout = 15 * time.Second // of SSH, a passphrase's typing excluded
	askTimeout       = 5 * time.Minute  // of SSH where the operator may be asked
	keepaliveEvery   = 10 * time.Second
	keepaliveWait    = 15 * time.Second
	// openTimeout bounds opening a channel: a frozen peer answers never.
	openTimeout = 10 * time.Second
)

// Options say how to connect. Only Target is required.
type Options struct {
	Target Target
	Prompt Prompt    // nil: nobody can be asked
	Keys   *Keychain // of all nodes that share their passphrases; nil: this one's alone
	Accept Accept
	Say    func(format string, args ...any)
	// Keepalive is how often the peer is asked and how long it may not answer; the
	// zero value is 10 s and 15 s, so that a dead one is noticed within 30 s.
	Keepalive Keepalive
	Workdir   string // that a probe looks for; "" none
}

// Keepalive is how a dead peer is found.
type Keepalive struct{ Every, Wait time.Duration }

// link is one SSH connection with the hops that it goes over.
type link struct {
	target *Target
	client *xssh.Client
	hops   []*xssh.Client
	server string // the server's version line

	once  sync.Once
	dead  chan struct{}
	heard atomic.Int64 // when bytes came in last, in ns of the process's clock

	sessions atomic.Int64 // that were opened

	mu    sync.Mutex
	cause error
	stdio bool          // forwarding was found refused
	exec  chan struct{} // one exec at a time: MaxSessions may be 1
}

// dialer connects, with what it learned before.
type dialer struct {
	opts  Options
	rings map[string]*keyring    // by user and address
	used  atomic.Pointer[string] // fingerprint of the key that signed last
}

// open connects to the target over its jump hosts.
func (d *dialer) open(ctx context.Context) (*link, error) {
	l := &link{target: &d.opts.Target, dead: make(chan struct{}), exec: make(chan struct{}, 1)}
	for i := range d.opts.Target.Jumps {
		if err := d.hop(ctx, l, &d.opts.Target.Jumps[i]); err != nil {
			l.close(err)
			return nil, err
		}
	}
	if err := d.hop(ctx, l, l.target); err != nil {
		l.close(err)
		return nil, err
	}
	l.client = l.hops[len(l.hops)-1]
	l.server = string(l.client.ServerVersion())
	go l.keepAlive(d.opts.Keepalive)
	go func() { l.close(fmt.Errorf("the connection ended: %w", endOf(l.client.Wait()))) }()
	return l, nil
}

func endOf(err error) error {
	if err == nil {
		return errors.New("closed by the peer")
	}
	return err
}

// hop adds one more connection through the last one.
func (d *dialer) hop(ctx context.Context, l *link, t *Target) error {
	keys, err := newHostKeys(t, d.opts.Prompt, d.opts.Accept, d.opts.Say)
	if err != nil {
		return err
	}
	ring := d.rings[t.label()]
	if ring == nil {
		ring = newKeyring(t, d.opts.Prompt, d.opts.Keys)
		d.rings[t.label()] = ring
	}
	for n := range ring.batches() {
		var conn net.Conn
		if conn, err = reach(ctx, l, t); err != nil {
			return err
		}
		var c *xssh.Client
		if c, err = d.handshake(ctx, conn, t, keys, ring.batch(n)); err == nil {
			ring.prefer(n)
			l.hops = append(l.hops, c)
			return nil
		}
		if !refusedKeys(err) {
			break
		}
	}
	return d.explain(t, keys, ring, err)
}

// reach opens the byte stream to a hop.
func reach(ctx context.Context, l *link, t *Target) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	if len(l.hops) == 0 {
		conn, err := (&net.Dialer{KeepAlive: 15 * time.Second}).DialContext(ctx, "tcp", t.Addr())
		if err != nil {
			return nil, lost(whyUnreached(err), "cannot reach %q: %w", t.Addr(), shorter(err))
		}
		l.hear()
		return heardConn{Conn: conn, l: l}, nil
	}
	via := l.hops[len(l.hops)-1]
	conn, err := within(ctx, func() (net.Conn, error) { return via.Dial("tcp", t.Addr()) })
	if err != nil {
		return nil, lost("AllowTcpForwarding may be off on the jump host", "cannot reach %q through the jump host: %w", t.Addr(), err)
	}
	return conn, nil
}

// began is what the monotonic times of this package count from.
var began = time.Now()

func (l *link) hear() { l.heard.Store(int64(time.Since(began))) }

// silent is how long nothing came in.
func (l *link) silent() time.Duration { return time.Since(began) - time.Duration(l.heard.Load()) }

// heardConn notes when bytes come in: behind a large upload on a slow line the
// answer to a keepalive is late, though the peer lives.
type heardConn struct {
	net.Conn
	l *link
}

// Read implements net.Conn.
func (c heardConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if n > 0 {
		c.l.hear()
	}
	return n, err
}

// within runs f, which knows no context, until it returns or ctx ends. A
// connection that comes late is closed.
func within[C interface{ Close() error }](ctx context.Context, f func() (C, error)) (C, error) {
	type answer struct {
		c   C
		err error
	}
	got := make(chan answer, 1)
	go func() {
		c, err := f()
		got <- answer{c, err}
	}()
	select {
	case a := <-got:
		return a.c, a.err
	case <-ctx.Done():
		go func() {
			if a := <-got; a.err == nil {
				_ = a.c.Close()
			}
		}()
		var none C
		return none, ctx.Err()
	}
}

// handshake speaks SSH on conn. A conn through a hop has no deadlines, so it is
// closed when time is up.
func (d *dialer) handshake(ctx context.Context, conn net.Conn, t *Target, keys *hostKeys, signers []xssh.Signer) (*xssh.Client, error) {
	limit := handshakeTimeout
	if d.opts.Prompt != nil {
		limit = askTimeout
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
	defer stop()
	var first *time.Timer
	check := keys.check
	if d.opts.Prompt != nil {
		// Until the server has said who it is nobody is asked anything.
		first = time.AfterFunc(handshakeTimeout, func() { _ = conn.Close() })
		defer first.Stop()
		check = func(name string, addr net.Addr, key xssh.PublicKey) error {
			first.Stop()
			return keys.check(name, addr, key)
		}
	}
	config := &xssh.ClientConfig{
		User: t.User, HostKeyCallback: check, HostKeyAlgorithms: keys.algorithms(),
		AuthCallback: func(c *xssh.ClientAuthContext) (xssh.AuthMethod, error) { return choose(c, d.witnessed(signers)) },
	}
	c, channels, requests, err := xssh.NewClientConn(conn, t.KeyName, config)
	if err != nil {
		_ = conn.Close()
		if ctx.Err() != nil {
			err = fmt.Errorf("the SSH handshake did not end in time: %w", ctx.Err())
		}
		return nil, err
	}
	return xssh.NewClient(c, channels, requests), nil
}

// witness notes which key signed: only one that the server takes is asked to.
type witness struct {
	xssh.AlgorithmSigner
	used *atomic.Pointer[string]
}

// SignWithAlgorithm implements xssh.AlgorithmSigner.
func (w witness) SignWithAlgorithm(rand io.Reader, data []byte, algorithm string) (*xssh.Signature, error) {
	w.used.Store(new(xssh.FingerprintSHA256(w.PublicKey())))
	return w.AlgorithmSigner.SignWithAlgorithm(rand, data, algorithm)
}

// witnessed wraps what can be wrapped without hiding which algorithms it has.
func (d *dialer) witnessed(signers []xssh.Signer) []xssh.Signer {
	out := make([]xssh.Signer, 0, len(signers))
	for _, s := range signers {
		_, multi := s.(xssh.MultiAlgorithmSigner)
		if as, ok := s.(xssh.AlgorithmSigner); ok && !multi {
			s = witness{as, &d.used}
		}
		out = append(out, s)
	}
	return out
}

// methodsError are the ways to log in that the server offers and that are none.
type methodsError struct{ allowed []string }

func (e *methodsError) Error() string { return "the server accepts " + strings.Join(e.allowed, ", ") }

// errKeys says that the server took none of the keys that were offered.
var errKeys = errors.New("the server accepts none of the keys")

// choose picks the next way to log in: keys, once.
func choose(c *xssh.ClientAuthContext, signers []xssh.Signer) (xssh.AuthMethod, error) {
	switch {
	case slices.Contains(c.TriedMethods, "publickey"):
		return nil, errKeys
	case !slices.Contains(c.AllowedMethods, "publickey"):
		return nil, &methodsError{allowed: c.AllowedMethods}
	case len(signers) == 0:
		return nil, errKeys
	}
	return xssh.PublicKeys(signers...), nil
}

// refusedKeys tells that other keys may do; a server that has enough of wrong
// keys cuts the connection.
func refusedKeys(err error) bool {
	return errors.Is(err, errKeys) || strings.Contains(err.Error(), "Too many authentication failures")
}

// explain makes a Problem of what ended a handshake.
func (d *dialer) explain(t *Target, keys *hostKeys, ring *keyring, err error) error {
	if p, ok := errors.AsType[*pipeline.Problem](err); ok {
		return p
	}
	if e, ok := errors.AsType[*xssh.AlgorithmNegotiationError](err); ok && strings.Contains(e.What, "host key") && len(keys.onFile()) > 0 {
		return keys.noCommon(e)
	}
	if e, ok := errors.AsType[*methodsError](err); ok {
		return denied(t, fmt.Sprintf("pipedeck logs in with keys only; put yours there with: ssh-copy-id -p %s %s@%s", t.Port, t.User, t.Host),
			"the server accepts no keys from this user, only %s", strings.Join(e.allowed, ", "))
	}
	notes := ""
	if len(ring.notes) > 0 {
		notes = "; " + strings.Join(ring.notes, "; ")
	}
	switch unusable := ring.unusable(); {
	case errors.Is(unusable, errLocked):
		return denied(t, "on a terminal you are asked for it; or ssh-add the key", "%v", unusable)
	case unusable != nil:
		return denied(t, "", "%v", unusable)
	case refusedKeys(err):
		return denied(t, "name the right key with IdentityFile in ~/.ssh/config, or ssh-add it", "the server accepts none of the keys (%s%s)", ring.tried(), notes)
	}
	return lost(whyUnreached(err), "cannot connect to %q: %w", t.label(), shorter(err))
}

// shorter drops the address that net repeats.
func shorter(err error) error {
	if op, ok := errors.AsType[*net.OpError](err); ok {
		return op.Err
	}
	return err
}

// lost is a Problem of the network: trying again may help.
func lost(hint, format string, args ...any) *pipeline.Problem {
	p := pipeline.Problemf(pipeline.ProblemUnreachable, hint, format, args...)
	p.Err = errors.Join(client.ErrLink, p.Err)
	return p
}

// keepAlive closes a connection whose peer does not answer.
func (l *link) keepAlive(k Keepalive) {
	tick := time.NewTicker(cmp.Or(k.Every, keepaliveEvery))
	defer tick.Stop()
	for {
		select {
		case <-l.dead:
			return
		case <-tick.C:
		}
		answered := make(chan error, 1)
		go func() {
			_, _, err := l.client.SendRequest("keepalive@openssh.com", true, nil)
			answered <- err
		}()
		if !l.await(answered, cmp.Or(k.Wait, keepaliveWait)) {
			return
		}
	}
}

// await waits for an answer as long as anything comes in. It is false when the
// connection is gone.
func (l *link) await(answered <-chan error, wait time.Duration) bool {
	sent := time.Now()
	for {
		timer := time.NewTimer(max(wait-min(l.silent(), time.Since(sent)), time.Millisecond))
		select {
		case <-l.dead:
			timer.Stop()
			return false
		case err := <-answered:
			timer.Stop()
			if err != nil {
				l.close(fmt.Errorf("the connection ended: %w", err))
			}
			return err == nil
		case <-timer.C:
		}
		if min(l.silent(), time.Since(sent)) >= wait {
			l.close(fmt.Errorf("the node did not answer for %s", wait))
			return false
		}
	}
}

// close ends the connection and all hops; the first cause stays.
func (l *link) close(cause error) {
	l.once.Do(func() {
		l.mu.Lock()
		l.cause = cause
		l.mu.Unlock()
		close(l.dead)
		for _, c := range slices.Backward(l.hops) {
			_ = c.Close()
		}
	})
}

func (l *link) alive() bool {
	select {
	case <-l.dead:
		return false
	default:
		return true
	}
}

// err is why the connection is gone, as a Problem.
func (l *link) err() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return lost("", "lost the connection to %q: %w", l.target.label(), endOf(l.cause))
}
