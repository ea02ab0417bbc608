package store

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"time"
)

// idleConns is how many connections are kept for reuse: with fewer than there
// are workers, every request pays for a new TLS handshake.
const idleConns = 128

// newHTTPClient makes a pool of its own. HTTP/1.1 only: one slow upload on a
// shared HTTP/2 connection holds up all the others.
func newHTTPClient(o Options) *http.Client {
	dial := o.Dial
	if dial == nil {
		dial = (&net.Dialer{Timeout: o.ConnectTimeout, KeepAlive: 30 * time.Second}).DialContext
	}
	tr := &http.Transport{
		Proxy:                 http.ProxyFromEnvironment,
		DialContext:           dial,
		MaxIdleConns:          idleConns,
		MaxIdleConnsPerHost:   idleConns,
		IdleConnTimeout:       60 * time.Second,
		TLSHandshakeTimeout:   o.ConnectTimeout,
		ResponseHeaderTimeout: o.ResponseTimeout,
		WriteBufferSize:       16 << 10,
		ReadBufferSize:        32 << 10,
		TLSNextProto:          map[string]func(string, *tls.Conn) http.RoundTripper{},
		DisableCompression:    true,
	}
	return &http.Client{
		Transport: tr,
		// A redirect is the operator's to fix: following it would sign for the
		// wrong host.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

var errStalled = errors.New("no byte moved for too long")

// watchdog cancels a request that moves no bytes.
type watchdog struct {
	timer *time.Timer
	stall time.Duration
}

func newWatchdog(ctx context.Context, stall time.Duration) (context.Context, *watchdog, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	w := &watchdog{stall: stall, timer: time.AfterFunc(stall, func() { cancel(errStalled) })}
	return ctx, w, func() {
		w.timer.Stop()
		cancel(nil)
	}
}

func (w *watchdog) moved() { w.timer.Reset(w.stall) }

// body is a request's payload that tells the watchdog what was sent.
type body struct {
	bytes.Reader
	dog *watchdog
}

func newBody(b []byte, dog *watchdog) *body {
	r := &body{dog: dog}
	r.Reset(b)
	return r
}

// Read hides bytes.Reader's WriteTo, which would send everything in one write
// that the watchdog cannot see into.
func (b *body) Read(p []byte) (int, error) {
	b.dog.moved()
	return b.Reader.Read(p)
}

// WriteTo copies in pieces, each seen by the watchdog.
func (b *body) WriteTo(w io.Writer) (int64, error) {
	return io.Copy(w, struct{ io.Reader }{b})
}

// answerBody is a response's payload: it feeds the watchdog and ends with it.
type answerBody struct {
	io.ReadCloser
	ctx    context.Context
	key    string
	dog    *watchdog
	cancel context.CancelFunc
}

func (a *answerBody) Read(p []byte) (int, error) {
	n, err := a.ReadCloser.Read(p)
	a.dog.moved()
	if err != nil && !errors.Is(err, io.EOF) {
		err = classify(a.ctx, "get", a.key, err)
	}
	return n, err
}

func (a *answerBody) Close() error {
	err := a.ReadCloser.Close()
	a.cancel()
	return err
}
