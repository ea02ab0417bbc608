package store_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"pipedeck/pipeline"
	"pipedeck/s3/s3test"
	"pipedeck/s3/s3test/contract"
	"pipedeck/s3/store"
)

func wantError(t *testing.T, err error, class pipeline.StoreClass, hint string) *pipeline.StoreError {
	t.Helper()
	var e *pipeline.StoreError
	if !errors.As(err, &e) {
		t.Fatalf("error %v (%T), want class %q", err, err, class)
	}
	if e.Class != class || !strings.Contains(e.Hint, hint) {
		t.Fatalf("error %v: class %q, code %q, status %d, hint %q; want class %q, hint with %q", e, e.Class, e.Code, e.Status, e.Hint, class, hint)
	}
	return e
}

// probed is a client that knows its endpoint, so that faults strike the
// request under test and not the probe.
func probed(t *testing.T, s *s3test.Server) *store.Client {
	t.Helper()
	c := clientOf(s)
	if _, err := c.Profile(t.Context()); err != nil {
		t.Fatal(err)
	}
	s.ResetStats()
	return c
}

func TestPutFaults(t *testing.T) {
	t.Parallel()
	const anyHint = ""
	for _, row := range []struct {
		rule   s3test.Rule
		class  pipeline.StoreClass
		hint   string
		stored bool // the object is there all the same
	}{
		{s3test.Rule{Kind: s3test.ResetBefore}, pipeline.StoreTransient, anyHint, false},
		{s3test.Rule{Kind: s3test.ResetInside}, pipeline.StoreTransient, anyHint, false},
		{s3test.Rule{Kind: s3test.ResetAfter}, pipeline.StoreTransient, anyHint, false},
		{s3test.Rule{Kind: s3test.LostAnswer}, pipeline.StoreTransient, anyHint, true},
		{s3test.Rule{Kind: s3test.ErrorIn200}, pipeline.StoreTransient, anyHint, false},
		{s3test.Rule{Kind: s3test.NoETag}, pipeline.StoreIntegrity, "does not look like S3", true},
		{s3test.Rule{Kind: s3test.SlowDown, RetryAfter: "7"}, pipeline.StoreThrottled, "fewer requests", false},
		{s3test.Rule{Kind: s3test.TooMany}, pipeline.StoreThrottled, "fewer requests", false},
		{s3test.Rule{Kind: s3test.Broken}, pipeline.StoreTransient, anyHint, false},
		{s3test.Rule{Kind: s3test.Expired}, pipeline.StoreCredentials, "expired", false},
		{s3test.Rule{Kind: s3test.Denied}, pipeline.StoreConfig, "s3:PutObject", false},
		{s3test.Rule{Kind: s3test.QuotaReached}, pipeline.StoreConfig, "quota", false},
		{s3test.Rule{Kind: s3test.Moved}, pipeline.StoreConfig, `"eu-west-1"`, false},
		{s3test.Rule{Kind: s3test.SkewedClock, Skew: time.Hour}, pipeline.StoreTransient, "off by -3", false},
	} {
		t.Run(string(row.rule.Kind), func(t *testing.T) {
			t.Parallel()
			s := s3test.Start(t, s3test.Options{})
			c := probed(t, s)
			row.rule.Op, row.rule.Count = s3test.OpPut, 1
			hit := s.Inject(row.rule)
			body := contract.Bytes(1, 1<<20)
			_, err := c.Put(t.Context(), contract.Request("k", body))
			e := wantError(t, err, row.class, row.hint)
			if row.rule.RetryAfter != "" && e.RetryAfter != 7*time.Second {
				t.Errorf("retry after %v", e.RetryAfter)
			}
			if _, ok := s.Object("k"); ok != row.stored {
				t.Errorf("stored: %v, want %v", ok, row.stored)
			}
			if hit.Struck() != 1 || s.Requests()[s3test.OpPut] != 1 {
				t.Errorf("struck %d times in %v: the client must not retry by itself", hit.Struck(), s.Requests())
			}
			if _, err := c.Put(t.Context(), contract.Request("k", body)); err != nil {
				t.Errorf("the next put: %v", err)
			}
		})
	}
}

// A lost connection on a reused idle connection must not be retried by
// net/http either: the caller counts attempts.
func TestStallIsGivenUp(t *testing.T) {
	t.Parallel()
	s := s3test.Start(t, s3test.Options{})
	c := store.New(store.Options{
		Bucket: s.Bucket(), Endpoint: s.URL(), PathStyle: true, Credentials: keys("k"), StallTimeout: 3 * time.Second,
	})
	if _, err := c.Profile(t.Context()); err != nil {
		t.Fatal(err)
	}
	s.Inject(s3test.Rule{Op: s3test.OpPut, Kind: s3test.Stall, Count: 1})
	_, err := c.Put(t.Context(), contract.Request("k", []byte("body")))
	_ = wantError(t, err, pipeline.StoreTransient, "hangs")
}

// TestHeadFaults: an answer to HEAD that broke off behind its status line looks
// like an object of no bytes.
func TestHeadFaults(t *testing.T) {
	t.Parallel()
	for _, kind := range []s3test.Kind{s3test.ResetBefore, s3test.ResetAfter, s3test.ErrorIn200, s3test.Broken} {
		t.Run(string(kind), func(t *testing.T) {
			t.Parallel()
			s := s3test.Start(t, s3test.Options{})
			c := probed(t, s)
			s.SetObject("k", []byte("body"))
			for _, key := range []string{"k", "none"} {
				s.Inject(s3test.Rule{Op: s3test.OpHead, Kind: kind, Count: 1})
				_, err := c.Head(t.Context(), key)
				_ = wantError(t, err, pipeline.StoreTransient, "")
			}
			if obj, err := c.Head(t.Context(), "k"); err != nil || obj.Size != 4 {
				t.Errorf("the next HEAD: %+v, %v", obj, err)
			}
		})
	}
}

func TestGetFaults(t *testing.T) {
	t.Parallel()
	s := s3test.Start(t, s3test.Options{})
	c := probed(t, s)
	s.SetObject("k", contract.Bytes(1, 1<<20))
	s.Inject(s3test.Rule{Op: s3test.OpGet, Kind: s3test.TruncatedAnswer, Count: 1})
	r, _, err := c.Get(t.Context(), "k", 0)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = r.Close() }()
	data, err := io.ReadAll(r)
	_ = wantError(t, err, pipeline.StoreTransient, "")
	if len(data) >= 1<<20 {
		t.Errorf("%d bytes of a broken transfer", len(data))
	}
}

func TestListLies(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		kind s3test.Kind
		req  pipeline.ListRequest
	}{
		{s3test.ListDuplicate, pipeline.ListRequest{Prefix: "p/"}},
		{s3test.ListUnordered, pipeline.ListRequest{Prefix: "p/"}},
		{s3test.ListNoToken, pipeline.ListRequest{Prefix: "p/"}},
		{s3test.ListForeign, pipeline.ListRequest{Prefix: "p/"}},
		{s3test.ListCutOff, pipeline.ListRequest{Prefix: "p/"}},
		{s3test.TruncatedAnswer, pipeline.ListRequest{Prefix: "p/"}},
		{s3test.ListIgnoreStart, pipeline.ListRequest{Prefix: "p/", StartAfter: "p/2"}},
		{s3test.ErrorIn200, pipeline.ListRequest{Prefix: "p/"}},
	} {
		t.Run(string(row.kind), func(t *testing.T) {
			t.Parallel()
			s := s3test.Start(t, s3test.Options{})
			for _, key := range []string{"p/1", "p/2", "p/3", "p/4"} {
				s.SetObject(key, []byte(key))
			}
			c := clientOf(s)
			hit := s.Inject(s3test.Rule{Op: s3test.OpList, Kind: row.kind, Count: 1})
			page, err := c.List(t.Context(), row.req)
			if err == nil {
				t.Fatalf("believed %+v", page)
			}
			_ = wantError(t, err, pipeline.StoreTransient, "")
			if hit.Struck() != 1 || s.TotalRequests() != 1 {
				t.Errorf("struck %d times in %d requests", hit.Struck(), s.TotalRequests())
			}
			if page, err := c.List(t.Context(), row.req); err != nil || len(page.Objects) < 2 {
				t.Errorf("the next listing: %+v, %v", page, err)
			}
		})
	}
}

func TestListLoopIsNoticed(t *testing.T) {
	t.Parallel()
	s := s3test.Start(t, s3test.Options{})
	for _, key := range []string{"1", "2", "3"} {
		s.SetObject(key, nil)
	}
	c := clientOf(s)
	page, err := c.List(t.Context(), pipeline.ListRequest{Max: 1})
	if err != nil || page.Next == "" {
		t.Fatal(page, err)
	}
	s.Inject(s3test.Rule{Op: s3test.OpList, Kind: s3test.ListLoop})
	_, err = c.List(t.Context(), pipeline.ListRequest{Max: 1, Token: page.Next})
	_ = wantError(t, err, pipeline.StoreTransient, "contradicts")
	s.Clear()
	s.Inject(s3test.Rule{Op: s3test.OpList, Kind: s3test.ListEmptyPage, Count: 1})
	page, err = c.List(t.Context(), pipeline.ListRequest{Max: 1})
	if err != nil || len(page.Objects) != 0 || page.Next == "" {
		t.Errorf("an empty page with more to come: %+v, %v", page, err)
	}
}

func TestCompleteFaults(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		kind   s3test.Kind
		class  pipeline.StoreClass
		stored bool
	}{
		{s3test.ErrorIn200, pipeline.StoreTransient, false},
		{s3test.TruncatedAnswer, pipeline.StoreTransient, true},
		{s3test.LostAnswer, pipeline.StoreTransient, true},
		{s3test.NoETag, pipeline.StoreTransient, true},
	} {
		t.Run(string(row.kind), func(t *testing.T) {
			t.Parallel()
			s := s3test.Start(t, s3test.Options{})
			c := probed(t, s)
			id, err := c.CreateMultipart(t.Context(), "k")
			if err != nil {
				t.Fatal(err)
			}
			req := contract.Request("k", []byte("part"))
			etag, err := c.UploadPart(t.Context(), pipeline.PartRequest{Key: "k", UploadID: id, Number: 1, Body: req.Body, MD5: req.MD5})
			if err != nil {
				t.Fatal(err)
			}
			s.Inject(s3test.Rule{Op: s3test.OpComplete, Kind: row.kind, Framed: true, Count: 1})
			_, err = c.CompleteMultipart(t.Context(), pipeline.CompleteRequest{Key: "k", UploadID: id, ETags: []string{etag}})
			_ = wantError(t, err, row.class, "")
			if _, ok := s.Object("k"); ok != row.stored {
				t.Errorf("stored: %v", ok)
			}
		})
	}
}

func TestProbeIsTriedAgainAfterFaults(t *testing.T) {
	t.Parallel()
	for _, kind := range []s3test.Kind{s3test.Broken, s3test.ResetInside, s3test.LostAnswer, s3test.ListNoToken} {
		t.Run(string(kind), func(t *testing.T) {
			t.Parallel()
			s := s3test.Start(t, s3test.Options{})
			c := clientOf(s)
			for skip := range 4 {
				s.Inject(s3test.Rule{Kind: kind, Skip: 2 * skip, Count: 1})
				if p, err := c.Profile(t.Context()); err == nil && !p.ETagIsMD5 {
					t.Fatalf("a fault became a profile: %+v", p)
				}
				s.Clear()
			}
			p, err := c.Profile(t.Context())
			if err != nil || !p.ValidatesMD5 || !p.ConditionalPut || !p.ListStartAfter {
				t.Errorf("%+v, %v", p, err)
			}
		})
	}
}

func TestProfileIsShared(t *testing.T) {
	t.Parallel()
	s := s3test.Start(t, s3test.Options{})
	c := clientOf(s)
	errs := make(chan error)
	for range 50 {
		go func() { _, err := c.Profile(context.WithoutCancel(t.Context())); errs <- err }()
	}
	for range 50 {
		if err := <-errs; err != nil {
			t.Error(err)
		}
	}
	if n := s.TotalRequests(); n > 16 {
		t.Errorf("%d requests for one probe", n)
	}
}

func TestEndpointProblems(t *testing.T) {
	t.Parallel()
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	closed := "http://" + l.Addr().String()
	_ = l.Close()
	s := s3test.Start(t, s3test.Options{Keys: []string{"good"}})
	for _, row := range []struct {
		name     string
		endpoint string
		bucket   string
		key      string
		class    pipeline.StoreClass
		hint     string
	}{
		{"refused", closed, "bucket", "good", pipeline.StoreTransient, "nothing listens"},
		{"no such host", "http://nowhere.invalid", "bucket", "good", pipeline.StoreTransient, "cannot be resolved"},
		{"plain http behind https", strings.Replace(s.URL(), "http:", "https:", 1), "bucket", "good", pipeline.StoreConfig, "does not speak TLS"},
		{"wrong key", s.URL(), "bucket", "bad", pipeline.StoreCredentials, "does not know this access key"},
		{"no bucket", s.URL(), "other", "good", pipeline.StoreConfig, "create the bucket"},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			c := store.New(store.Options{Bucket: row.bucket, Endpoint: row.endpoint, PathStyle: true, Credentials: keys(row.key)})
			_, err := c.Put(t.Context(), contract.Request("k", []byte("x")))
			_ = wantError(t, err, row.class, row.hint)
			_, err = c.List(t.Context(), pipeline.ListRequest{})
			_ = wantError(t, err, row.class, row.hint)
			items := c.Probe(t.Context())
			if items[len(items)-1].Result != store.CheckUnknown {
				t.Errorf("check: %+v", items)
			}
		})
	}
}

func TestProbeItems(t *testing.T) {
	t.Parallel()
	for _, p := range s3test.Personalities() {
		t.Run(p.Name, func(t *testing.T) {
			t.Parallel()
			s := s3test.Start(t, s3test.Options{Personality: p})
			items := clientOf(s).Probe(t.Context())
			if len(items) != 7 {
				t.Fatalf("%d items: %+v", len(items), items)
			}
			for _, i := range items {
				if i.Result != store.CheckOK && i.Name != "conditional writes" {
					t.Errorf("%+v", i)
				}
			}
			if left := s.Keys(); len(left) != 0 {
				t.Errorf("left %q", left)
			}
		})
	}
	t.Run("a store that damages", func(t *testing.T) {
		t.Parallel()
		s := s3test.Start(t, s3test.Options{})
		s.Inject(s3test.Rule{Op: s3test.OpPut, Key: "deck/r1/.pipedeck/probe/*-trip", Kind: s3test.StoreFlipped, Hidden: true})
		items := clientOf(s).Probe(t.Context())
		if items[3].Result != store.CheckFail || !strings.Contains(items[3].Hint, "do not trust") {
			t.Errorf("%+v", items[3])
		}
	})
}

func TestPlainHeadersOnly(t *testing.T) {
	t.Parallel()
	s := s3test.Start(t, s3test.Options{}) // refuses aws-chunked
	c := probed(t, s)
	body := contract.Bytes(3, 3<<20)
	if _, err := c.Put(t.Context(), contract.Request("k", body)); err != nil {
		t.Fatal(err)
	}
	if got, _ := s.Object("k"); !bytes.Equal(got, body) {
		t.Error("stored other bytes")
	}
}
