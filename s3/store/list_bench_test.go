package store

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/s3"

	"pipedeck/pipeline"
)

// BenchmarkList compares a page of 1,000 objects read by this package with the
// same page read by the SDK alone, both over loopback.
func BenchmarkList(b *testing.B) {
	body := listingOf(1000)
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/xml")
		_, _ = w.Write(body)
	}))
	b.Cleanup(srv.Close)
	c := New(Options{Bucket: "bucket", Endpoint: srv.URL, PathStyle: true, Credentials: credentials.NewStaticCredentialsProvider("k", "s", "")})
	b.Run("ours", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			page, err := c.List(b.Context(), pipeline.ListRequest{Prefix: "deck/"})
			if err != nil || len(page.Objects) != 1000 {
				b.Fatal(len(page.Objects), err)
			}
		}
	})
	b.Run("sdk", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			out, err := c.api.ListObjectsV2(b.Context(), &s3.ListObjectsV2Input{Bucket: &c.opt.Bucket})
			if err != nil || len(out.Contents) != 1000 {
				b.Fatal(len(out.Contents), err)
			}
		}
	})
	b.Run("decode only", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if _, err := scanPage(body); err != nil {
				b.Fatal(err)
			}
		}
	})
}
