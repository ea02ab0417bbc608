package s3test_test

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/credentials"
	"golang.org/x/sync/errgroup"

	"pipedeck/pipeline"
	"pipedeck/s3/s3test"
	"pipedeck/s3/s3test/contract"
	"pipedeck/s3/store"
)

func client(t *testing.T, s *s3test.Server) *store.Client {
	t.Helper()
	c := store.New(store.Options{
		Bucket: s.Bucket(), Endpoint: s.URL(), PathStyle: true,
		Credentials: credentials.NewStaticCredentialsProvider("key", "secret", ""),
	})
	if _, err := c.Profile(t.Context()); err != nil {
		t.Fatal(err)
	}
	s.ResetStats()
	return c
}

func TestLiesAboutStoredBytes(t *testing.T) {
	t.Parallel()
	body := contract.Bytes(1, 10_000)
	good := contract.Request("k", body)
	goodETag := fmt.Sprintf("%x", good.MD5)
	for _, row := range []struct {
		kind   s3test.Kind
		hidden bool
		size   int64 // as HEAD tells it; -1: missing
		told   bool  // HEAD shows another ETag than that of the sent bytes
	}{
		{s3test.StoreTruncated, false, 5_000, true},
		{s3test.StoreTruncated, true, 10_000, false},
		{s3test.StoreFlipped, false, 10_000, true},
		{s3test.StoreFlipped, true, 10_000, false},
		{s3test.StoreFramed, false, 10_175, true},
		{s3test.StoreNothing, false, -1, true},
	} {
		t.Run(fmt.Sprintf("%s hidden=%v", row.kind, row.hidden), func(t *testing.T) {
			t.Parallel()
			s := s3test.Start(t, s3test.Options{})
			c := client(t, s)
			s.Inject(s3test.Rule{Op: s3test.OpPut, Kind: row.kind, Hidden: row.hidden, Count: 1})
			res, err := c.Put(t.Context(), good)
			if err != nil || res.ETag != goodETag {
				t.Fatalf("the lie is in the store, not in the answer: %+v, %v", res, err)
			}
			if truth, _ := s.Object("k"); bytes.Equal(truth, body) {
				t.Error("the server stored what was sent")
			}
			obj, err := c.Head(t.Context(), "k")
			if row.size < 0 {
				if err == nil {
					t.Error("the object is there")
				}
				return
			}
			if err != nil || obj.Size != row.size || (obj.ETag != goodETag) != row.told {
				t.Errorf("head: %+v, %v", obj, err)
			}
		})
	}
}

func TestWrongETagInAnswer(t *testing.T) {
	t.Parallel()
	s := s3test.Start(t, s3test.Options{})
	c := client(t, s)
	s.Inject(s3test.Rule{Op: s3test.OpPut, Kind: s3test.WrongETag, Count: 1})
	req := contract.Request("k", []byte("x"))
	res, err := c.Put(t.Context(), req)
	if err != nil || res.ETag == fmt.Sprintf("%x", req.MD5) {
		t.Errorf("%+v, %v", res, err)
	}
}

func TestLaggingAndHidingLists(t *testing.T) {
	t.Parallel()
	s := s3test.Start(t, s3test.Options{})
	c := client(t, s)
	s.SetObject("a", nil)
	s.SetObject("b", nil)
	s.Age("a", time.Hour)
	for _, row := range []struct {
		rule s3test.Rule
		want []string
	}{
		{s3test.Rule{Kind: s3test.ListLag, Delay: time.Minute}, []string{"a"}},
		{s3test.Rule{Kind: s3test.ListHide}, []string{"b"}},
		{s3test.Rule{Kind: s3test.Slow, Delay: time.Millisecond}, []string{"a", "b"}},
	} {
		row.rule.Op, row.rule.Count = s3test.OpList, 1
		s.Inject(row.rule)
		page, err := c.List(t.Context(), pipeline.ListRequest{})
		if err != nil {
			t.Fatal(err)
		}
		keys := make([]string, 0, len(page.Objects))
		for _, o := range page.Objects {
			keys = append(keys, o.Key)
		}
		if !slices.Equal(keys, row.want) {
			t.Errorf("%s: %q", row.rule.Kind, keys)
		}
	}
}

func TestRules(t *testing.T) {
	t.Parallel()
	outcomes := func(seed uint64, r s3test.Rule) string {
		s := s3test.Start(t, s3test.Options{Seed: seed})
		c := client(t, s)
		s.Inject(r)
		var out strings.Builder
		for i := range 40 {
			mark := "."
			if _, err := c.Head(t.Context(), fmt.Sprintf("data/%02d", i%4)); isCode(err, "InternalError") {
				mark = "x"
			}
			out.WriteString(mark)
		}
		return out.String()
	}
	if got := outcomes(1, s3test.Rule{Kind: s3test.Broken, Op: s3test.OpPut}); got != "........................................" {
		t.Errorf("another operation: %s", got)
	}
	if got := outcomes(1, s3test.Rule{Kind: s3test.Broken, Skip: 2, Count: 3}); got[:8] != "..xxx..." {
		t.Errorf("skip 2, count 3: %s", got)
	}
	if got := outcomes(1, s3test.Rule{Kind: s3test.Broken, Key: "data/*3"}); got[:8] != "...x...x" {
		t.Errorf("by key: %s", got)
	}
	half := s3test.Rule{Kind: s3test.Broken, Probability: 0.5}
	if a, b, c := outcomes(1, half), outcomes(1, half), outcomes(2, half); a != b || a == c {
		t.Errorf("seed 1: %s and %s, seed 2: %s", a, b, c)
	}
}

// isCode looks at the status too: a HEAD has no body to carry a code.
func isCode(err error, code string) bool {
	var e *pipeline.StoreError
	return errors.As(err, &e) && (e.Code == code || e.Status == 500)
}

func TestTruthAndCounts(t *testing.T) {
	t.Parallel()
	s := s3test.Start(t, s3test.Options{Dir: t.TempDir()})
	c := client(t, s)
	s.Inject(s3test.Rule{Op: s3test.OpPut, Kind: s3test.Slow, Delay: 50 * time.Millisecond})
	var g errgroup.Group
	for i := range 8 {
		g.Go(func() error {
			_, err := c.Put(t.Context(), contract.Request(fmt.Sprintf("k%d", i), []byte("first")))
			return err
		})
	}
	if err := g.Wait(); err != nil {
		t.Fatal(err)
	}
	if n := s.MaxUploadsInFlight(); n < 2 || n > 8 {
		t.Errorf("%d uploads in flight at most", n)
	}
	if n := s.Requests()[s3test.OpPut]; n != 8 {
		t.Errorf("%d puts", n)
	}
	for _, body := range []string{"first", "other"} {
		if _, err := c.Put(t.Context(), contract.Request("k0", []byte(body))); err != nil {
			t.Fatal(err)
		}
	}
	over := s.Overwrites()
	if len(over) != 1 || over[0].Key != "k0" || over[0].IfMatch {
		t.Errorf("overwrites: %+v", over)
	}
	if got, ok := s.Object("k0"); !ok || string(got) != "other" {
		t.Errorf("%q, %v", got, ok)
	}
	if keys := s.Keys(); len(keys) != 8 || keys[0] != "k0" {
		t.Errorf("%q", keys)
	}
}

func TestCredentialsBucketAndWeather(t *testing.T) {
	t.Parallel()
	s := s3test.Start(t, s3test.Options{})
	c := client(t, s)
	class := func() pipeline.StoreClass {
		_, err := c.List(t.Context(), pipeline.ListRequest{})
		if e, ok := errors.AsType[*pipeline.StoreError](err); ok {
			return e.Class
		}
		return ""
	}
	s.AllowKeys("somebody")
	if got := class(); got != pipeline.StoreCredentials {
		t.Errorf("a key that is not let in: %q", got)
	}
	s.AllowKeys()
	s.DropBucket(true)
	if got := class(); got != pipeline.StoreConfig {
		t.Errorf("no bucket: %q", got)
	}
	s.DropBucket(false)
	if got := class(); got != "" {
		t.Errorf("all is well again: %q", got)
	}
}

func TestDemoIsBounded(t *testing.T) {
	t.Parallel()
	d, err := s3test.Demo(s3test.DemoOptions{MaxBytes: 1 << 20})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(d.Close)
	c := store.New(store.Options{
		Bucket: d.Bucket(), Endpoint: d.URL(), PathStyle: true,
		Credentials: credentials.NewStaticCredentialsProvider("key", "secret", ""),
	})
	first := contract.Request("d/r/.pipedeck/manifest", []byte("kept"))
	if _, err := c.Put(t.Context(), first); err != nil {
		t.Fatal(err)
	}
	for i := range 5 {
		if _, err := c.Put(t.Context(), contract.Request(fmt.Sprintf("d/r/out/%d", i), contract.Bytes(uint64(i), 400<<10))); err != nil {
			t.Fatal(err)
		}
	}
	page, err := c.List(t.Context(), pipeline.ListRequest{Prefix: "d/r/out/"})
	if err != nil || len(page.Objects) != 5 {
		t.Fatalf("%+v, %v", page, err)
	}
	for i, o := range page.Objects {
		want := contract.Request("", contract.Bytes(uint64(i), 400<<10))
		if o.Size != 400<<10 || o.ETag != fmt.Sprintf("%x", want.MD5) {
			t.Errorf("%+v", o)
		}
	}
	read := func(key string) error {
		r, _, err := c.Get(t.Context(), key, 0)
		if err == nil {
			_ = r.Close()
		}
		return err
	}
	if read("d/r/out/0") == nil || read("d/r/out/4") != nil || read(first.Key) != nil {
		t.Error("want the oldest body dropped, the newest and the manifest kept")
	}
}

func TestVersitygwCountsRequests(t *testing.T) {
	t.Parallel()
	g := s3test.Versitygw(t)
	c := store.New(store.Options{
		Bucket: g.Bucket, Endpoint: g.Endpoint, PathStyle: true,
		Credentials: credentials.NewStaticCredentialsProvider(g.AccessKey, g.SecretKey, ""),
	})
	if _, err := c.Head(t.Context(), "none"); err == nil {
		t.Fatal("found what nobody wrote")
	}
	n, err := g.Requests()
	if err != nil || n["HEAD"] != 1 {
		t.Errorf("%v, %v", n, err)
	}
}
