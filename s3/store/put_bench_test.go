package store_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"testing"

	"pipedeck/s3/s3test/contract"
	"pipedeck/s3/store"
)

// BenchmarkPut sends 1.2 MB files to a server that only counts bytes, so that
// what is seen is mostly the client. The hashes are made once: the mover makes
// them while it reads.
func BenchmarkPut(b *testing.B) {
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		w.Header().Set("ETag", `"e"`)
	}))
	b.Cleanup(srv.Close)
	c := store.NewProbed(store.Options{Bucket: "bucket", Endpoint: srv.URL, PathStyle: true, Credentials: keys("k")})
	req := contract.Request("deck/r1/hidden_states/sample_000000001.safetensors", contract.Bytes(1, 1_200_000))
	b.SetBytes(int64(len(req.Body)))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := c.Put(b.Context(), req); err != nil {
			b.Fatal(err)
		}
	}
}
