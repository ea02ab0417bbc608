// Package s3test is an S3 server in process that knows the truth of what it
// stores, takes on the habits of real endpoints, and lies and fails on demand.
// It also starts the other servers that tests and the demo use.
package s3test

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"
)

// TB is the part of testing.TB that this package needs, so that programs can
// use it without linking the testing package.
type TB interface {
	Helper()
	Cleanup(func())
	TempDir() string
	Logf(format string, args ...any)
	Skipf(format string, args ...any)
	Fatalf(format string, args ...any)
}

// Options shapes a Server. The zero value is AWS with a bucket "bucket", any
// access key, and bodies in memory.
type Options struct {
	Bucket      string
	Keys        []string // access key ids that are let in; empty: all
	Personality Personality
	Dir         string // folder for bodies; empty: memory
	Seed        uint64 // of the faults that happen with a probability
	Now         func() time.Time
}

// Server is one bucket behind an S3 endpoint. All methods may be called while
// requests are served.
type Server struct {
	opt     Options
	endless context.Context // ends stalls when the server closes
	stop    context.CancelFunc
	http    *http.Server
	url     string

	faults faults
	stats  stats
	pace   pace

	mu      sync.Mutex
	objects objects
	uploads map[string]*upload
	seq     int
	gone    bool // the bucket does not exist
	keys    []string
}

// New makes a server that is not listening: use it as an http.Handler.
func New(o Options) *Server {
	if o.Bucket == "" {
		o.Bucket = "bucket"
	}
	if o.Personality.Name == "" {
		o.Personality = AWS()
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	ctx, stop := context.WithCancel(context.Background())
	s := &Server{
		opt: o, endless: ctx, stop: stop, objects: newObjects(o.Dir), uploads: map[string]*upload{}, keys: o.Keys,
	}
	s.faults.seed(o.Seed)
	return s
}

// Listen serves on a free port of 127.0.0.1 until Close.
func (s *Server) Listen() error {
	l, err := new(net.ListenConfig).Listen(context.Background(), "tcp", "127.0.0.1:0")
	if err != nil {
		return fmt.Errorf("cannot listen: %w", err)
	}
	s.url = "http://" + l.Addr().String()
	s.http = &http.Server{Handler: s, ReadHeaderTimeout: time.Minute}
	go func() { _ = s.http.Serve(l) }()
	return nil
}

// Close ends the server and all requests in flight.
func (s *Server) Close() {
	s.stop()
	if s.http != nil {
		_ = s.http.Close()
	}
}

// Start serves for the length of a test.
func Start(t TB, o Options) *Server {
	t.Helper()
	s := New(o)
	if err := s.Listen(); err != nil {
		t.Fatalf("%v", err)
	}
	t.Cleanup(s.Close)
	return s
}

// URL is the endpoint. Use it with path style.
func (s *Server) URL() string { return s.url }

// Bucket is the name of the one bucket.
func (s *Server) Bucket() string { return s.opt.Bucket }

// AllowKeys replaces the access key ids that are let in; none: all.
func (s *Server) AllowKeys(ids ...string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.keys = ids
}

// DropBucket makes the bucket missing, or brings it back as it was.
func (s *Server) DropBucket(gone bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.gone = gone
}

// Object returns the bytes that are really stored under key.
func (s *Server) Object(key string) ([]byte, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	o, ok := s.objects.get(key)
	if !ok {
		return nil, false
	}
	return append([]byte(nil), s.objects.data(o)...), true
}

// Keys returns all stored keys, sorted.
func (s *Server) Keys() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]string(nil), s.objects.keys...)
}

// SetObject stores bytes behind every client's back.
func (s *Server) SetObject(key string, data []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.objects.put(key, data, s.opt.Personality.etag(data), s.opt.Now())
}

// Swap is SetObject, or RemoveObject with nil, that tells in the same step what
// was there.
func (s *Server) Swap(key string, data []byte) (old []byte, had bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if o, ok := s.objects.get(key); ok {
		old, had = append([]byte(nil), s.objects.data(o)...), true
	}
	if data == nil {
		s.objects.remove(key)
	} else {
		s.objects.put(key, data, s.opt.Personality.etag(data), s.opt.Now())
	}
	return old, had
}

// RemoveObject removes an object behind every client's back.
func (s *Server) RemoveObject(key string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.objects.remove(key)
}

// Uploads returns the keys of unfinished multipart uploads, sorted.
func (s *Server) Uploads() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return sortedKeysOf(s.uploads)
}

// ServeHTTP answers one S3 request.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	c := &call{s: s, w: w, r: r, query: r.URL.Query(), now: s.opt.Now()}
	bucket, key, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/")
	c.bucket, c.key = bucket, key
	c.op = operationOf(r.Method, key, c.query)
	done := s.stats.begin(c.op)
	defer done()
	c.fault = s.faults.pick(c.op, key)
	c.header()
	if fail := c.admit(); fail != nil {
		c.fail(fail)
		return
	}
	if !c.before() {
		return
	}
	h, ok := handlers[c.op]
	if !ok {
		c.fail(s.opt.Personality.notImplemented())
		return
	}
	if fail := h(c); fail != nil {
		c.fail(fail)
	}
}

// operationOf names a request as S3 does.
func operationOf(method, key string, q map[string][]string) Op {
	has := func(name string) bool { _, ok := q[name]; return ok }
	for _, row := range routes {
		if row.method == method && row.object == (key != "") && (row.query == "" || has(row.query)) {
			return row.op
		}
	}
	return OpOther
}
