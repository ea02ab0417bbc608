package store_test

import (
	"testing"

	"github.com/aws/aws-sdk-go-v2/credentials"

	"pipedeck/pipeline"
	"pipedeck/s3/s3test"
	"pipedeck/s3/s3test/contract"
	"pipedeck/s3/store"
)

func keys(id string) credentials.StaticCredentialsProvider {
	return credentials.NewStaticCredentialsProvider(id, "secret", "")
}

func clientOf(s *s3test.Server) *store.Client {
	return store.New(store.Options{
		Bucket: s.Bucket(), Endpoint: s.URL(), PathStyle: true, Credentials: keys("key"), ScratchPrefix: "deck/r1/.pipedeck/probe/",
	})
}

func TestProfileOfEveryPersonality(t *testing.T) {
	t.Parallel()
	aws := pipeline.StoreProfile{
		ValidatesMD5: true, ChecksumHeader: true, ValidatesChecksum: true, ETagIsMD5: true, MultipartETag: true,
		ConditionalPut: true, ConditionalMatch: true, ListStartAfter: true,
	}
	change := func(f func(*pipeline.StoreProfile)) pipeline.StoreProfile { p := aws; f(&p); return p }
	want := map[string]pipeline.StoreProfile{
		"aws":   aws,
		"minio": aws,
		"filone": change(func(p *pipeline.StoreProfile) {
			p.ConditionalPut, p.ConditionalMatch, p.MissingIsDenied = false, false, true
		}),
		"filebase": change(func(p *pipeline.StoreProfile) { p.ValidatesChecksum, p.SignedPayload = false, true }),
		"r2":       change(func(p *pipeline.StoreProfile) { p.MultipartETag = false }),
		"b2":       change(func(p *pipeline.StoreProfile) { p.ChecksumHeader, p.ValidatesChecksum = false, false }),
		"ceph": change(func(p *pipeline.StoreProfile) {
			p.ValidatesChecksum, p.ConditionalPut, p.ConditionalMatch = false, false, false
		}),
	}
	for _, p := range s3test.Personalities() {
		t.Run(p.Name, func(t *testing.T) {
			t.Parallel()
			s := s3test.Start(t, s3test.Options{Personality: p})
			c := clientOf(s)
			got, err := c.Profile(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if got != want[p.Name] {
				t.Errorf("profile\n got %+v\nwant %+v", got, want[p.Name])
			}
			if left := s.Keys(); len(left) != 0 {
				t.Errorf("the probe left %q", left)
			}
			if left := s.Uploads(); len(left) != 0 {
				t.Errorf("the probe left uploads of %q", left)
			}
			if n := s.TotalRequests(); n > 18 {
				t.Errorf("the probe took %d requests: %v", n, s.Requests())
			}
			t.Logf("%d requests", s.TotalRequests())
		})
	}
}

func TestContract(t *testing.T) {
	t.Parallel()
	for _, p := range s3test.Personalities() {
		if p.RequestsPerSec > 0 || p.WritesPerKey {
			continue // their limits are tested with the profile
		}
		t.Run("s3test "+p.Name, func(t *testing.T) {
			t.Parallel()
			contract.Store(t, func(t *testing.T) pipeline.Store {
				t.Helper()
				return clientOf(s3test.Start(t, s3test.Options{Personality: p}))
			})
		})
	}
	t.Run("s3test on disk", func(t *testing.T) {
		t.Parallel()
		contract.Store(t, func(t *testing.T) pipeline.Store {
			t.Helper()
			return clientOf(s3test.Start(t, s3test.Options{Dir: t.TempDir()}))
		})
	})
	t.Run("demo", func(t *testing.T) {
		t.Parallel()
		contract.Store(t, func(t *testing.T) pipeline.Store {
			t.Helper()
			d, err := s3test.Demo(s3test.DemoOptions{})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(d.Close)
			return store.New(store.Options{Bucket: d.Bucket(), Endpoint: d.URL(), PathStyle: true, Credentials: keys("demo"), ScratchPrefix: "p/"})
		})
	})
	t.Run("versitygw", func(t *testing.T) {
		t.Parallel()
		contract.Store(t, func(t *testing.T) pipeline.Store {
			t.Helper()
			g := s3test.Versitygw(t)
			return store.New(store.Options{
				Bucket: g.Bucket, Endpoint: g.Endpoint, PathStyle: true, ScratchPrefix: "p/",
				Credentials: credentials.NewStaticCredentialsProvider(g.AccessKey, g.SecretKey, ""),
			})
		})
	})
}
