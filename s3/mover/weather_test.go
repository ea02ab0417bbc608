package mover_test

import (
	"context"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"pipedeck/pipeline"
	"pipedeck/s3/s3test"
	"pipedeck/s3/store"
)

// weather is something that stops a store, and what the operator must read.
type weather struct {
	name       string
	begin, end func(w *world)
	// reason holds words, one of which the state's reason must have.
	reason []string
}

func rule(r s3test.Rule) func(*world) { return func(w *world) { w.server.Inject(r) } }
func clearRules(w *world)             { w.server.Clear() }

func weathers() []weather {
	data := "pre/r1/hs/*"
	return []weather{
		{"access key taken away", func(w *world) { w.server.AllowKeys("other") }, func(w *world) { w.server.AllowKeys() }, []string{"access key"}},
		{"expired", rule(s3test.Rule{Kind: s3test.Expired}), clearRules, []string{"expired"}},
		{"no right", rule(s3test.Rule{Op: s3test.OpPut, Key: data, Kind: s3test.Denied}), clearRules, []string{"s3:PutObject"}},
		{"bucket gone", func(w *world) { w.server.DropBucket(true) }, func(w *world) { w.server.DropBucket(false) }, []string{"create the bucket"}},
		{"quota", rule(s3test.Rule{Op: s3test.OpPut, Key: data, Kind: s3test.QuotaReached}), clearRules, []string{"quota"}},
		{"no room", rule(s3test.Rule{Op: s3test.OpPut, Key: data, Kind: s3test.DiskFull}), clearRules, []string{"no more bytes"}},
		{"wrong region", rule(s3test.Rule{Kind: s3test.Moved}), clearRules, []string{`region "eu-west-1"`}},
		{"broken", rule(s3test.Rule{Kind: s3test.Broken}), clearRules, []string{"InternalError", "InternalServerError"}},
	}
}

// TestStoreWeather: work goes on, the queue grows, the state says why and what
// to do, and when it is over everything is uploaded without a restart.
func TestStoreWeather(t *testing.T) {
	t.Parallel()
	for _, c := range weathers() {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, s3test.Options{}, oneOutput)
			w.hurry = hurry
			w.writeSamples(0, 3, 300)
			w.start("extract")
			w.await("the first are moved", w.moved(3))
			c.begin(w)
			w.blocked(3, 9, c.reason)
			c.end(w)
			w.await("all are moved", w.moved(15))
		})
	}
}

// blocked writes samples while the store does not work, and waits for the
// state to say so.
func (w *world) blocked(from, to int, reason []string) {
	w.t.Helper()
	w.writeSamples(from, to, 300)
	w.await("the state says why", func() bool {
		r := w.reading()
		said := false
		for _, word := range reason {
			said = said || strings.Contains(r.StateReason, word)
		}
		return r.State == pipeline.OutputBlocked && said && r.Queue.WaitingFiles+r.Queue.InFlight == int64(to-from)
	})
	w.writeSamples(to, to+6, 300)
	w.await("the queue grows", func() bool {
		r := w.reading()
		return r.Queue.WaitingFiles+r.Queue.InFlight == int64(to+6-from) && is(r.LocalFiles, int64(to+6-from))
	})
}

// TestCredentialsFileIsReadAnew: wrong keys in the file, then the right ones.
func TestCredentialsFileIsReadAnew(t *testing.T) {
	t.Parallel()
	w := newWorld(t, s3test.Options{Keys: []string{"right"}}, oneOutput)
	w.hurry = hurry
	file := filepath.Join(w.dir, "credentials")
	keys := func(id string) {
		t.Helper()
		if err := os.WriteFile(file, []byte("[default]\naws_access_key_id = "+id+"\naws_secret_access_key = secret\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	keys("wrong")
	w.creds = store.LoadCredentials(func(name string) string {
		return map[string]string{"AWS_SHARED_CREDENTIALS_FILE": file, "AWS_CONFIG_FILE": file + ".none", "HOME": w.dir}[name]
	})
	w.writeSamples(0, 4, 300)
	w.start("extract")
	w.await("the state says why", func() bool {
		r := w.reading()
		return r.State == pipeline.OutputBlocked && strings.Contains(r.StateReason, "access key")
	})
	keys("right")
	w.await("all are moved", w.moved(4))
}

// TestNoSuchHost: the name does not resolve from the start, then it does, then
// not again.
func TestNoSuchHost(t *testing.T) {
	t.Parallel()
	w := newWorld(t, s3test.Options{}, oneOutput)
	w.hurry = hurry
	host := strings.TrimPrefix(w.url, "http://")
	w.url = "http://store.example.invalid"
	var known atomic.Bool
	w.dial = func(ctx context.Context, network, addr string) (net.Conn, error) {
		if !known.Load() {
			return nil, &net.OpError{Op: "dial", Net: network, Err: &net.DNSError{Err: "no such host", Name: addr, IsNotFound: true}}
		}
		return new(net.Dialer).DialContext(ctx, network, host)
	}
	w.writeSamples(0, 3, 300)
	w.start("extract")
	w.await("the state says why", func() bool {
		r := w.reading()
		return r.State == pipeline.OutputBlocked && strings.Contains(r.StateReason, "no such host")
	})
	known.Store(true)
	w.await("the first are moved", w.moved(3))
	known.Store(false)
	w.server.Inject(s3test.Rule{Kind: s3test.ResetBefore}) // what is connected breaks off, too
	w.blocked(3, 9, []string{"no such host", "EOF", "reset"})
	w.server.Clear()
	known.Store(true)
	w.await("all are moved", w.moved(15))
}

// TestServerDownThenUp closes the port and opens it again.
func TestServerDownThenUp(t *testing.T) {
	t.Parallel()
	server := s3test.New(s3test.Options{})
	t.Cleanup(server.Close)
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := l.Addr().String()
	w := worldAt(t, t.TempDir(), "http://"+addr, "bucket", oneOutput)
	w.server, w.hurry = server, hurry
	serve := func(l net.Listener) *http.Server {
		s := &http.Server{Handler: server, ReadHeaderTimeout: time.Minute}
		go func() { _ = s.Serve(l) }()
		t.Cleanup(func() { _ = s.Close() })
		return s
	}
	front := serve(l)
	w.writeSamples(0, 3, 300)
	w.start("extract")
	w.await("the first are moved", w.moved(3))
	_ = front.Close()
	w.blocked(3, 9, []string{"connection refused"})
	if l, err = new(net.ListenConfig).Listen(t.Context(), "tcp", addr); err != nil {
		t.Skipf("another process took the port: %v", err)
	}
	serve(l)
	w.await("all are moved", w.moved(15))
}

// TestClockOffIsCorrected: the endpoint's clock is taken for right.
func TestClockOffIsCorrected(t *testing.T) {
	t.Parallel()
	w := newWorld(t, s3test.Options{}, oneOutput)
	w.hurry = hurry
	w.server.Inject(s3test.Rule{Kind: s3test.SkewedClock, Skew: time.Hour})
	w.writeSamples(0, 3, 300)
	w.start("extract")
	w.await("all are moved", w.moved(3))
}

// TestSlowEndpoint: it works, slowly; that is no failure.
func TestSlowEndpoint(t *testing.T) {
	t.Parallel()
	w := newWorld(t, s3test.Options{}, oneOutput)
	w.hurry = hurry
	w.start("extract")
	w.await("the bucket is known", func() bool { return w.reading().VerifiedFiles != nil })
	w.server.Inject(s3test.Rule{Kind: s3test.Slow, Delay: 700 * time.Millisecond})
	w.writeSamples(0, 60, 300)
	w.await("a queue stands", func() bool {
		r := w.reading()
		return r.State == pipeline.OutputRunning && r.Queue.InFlight == 20 && r.Queue.WaitingFiles > 20 && is(r.FailedFiles, 0)
	})
	w.await("all are moved", w.moved(60))
}
