package s3test

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"time"

	"github.com/johannesboyne/gofakes3"
)

// DemoOptions shapes the demo's server.
type DemoOptions struct {
	Bucket   string // empty: "pipedeck-demo"; at least 3 characters
	MaxBytes int64  // of bodies kept; 0: 256 MiB
}

// DemoServer is gofakes3, a well-kept S3 server, over a bounded store. It takes
// any access key, checks no signature, refuses a wrong Content-MD5, honours
// If-None-Match and If-Match, and takes a wrong x-amz-checksum-crc32c: it does
// not look at that header.
type DemoServer struct {
	url    string
	bucket string
	http   *http.Server
}

// Demo serves on a free port of 127.0.0.1 until Close.
func Demo(o DemoOptions) (*DemoServer, error) {
	if o.Bucket == "" {
		o.Bucket = "pipedeck-demo"
	}
	if o.MaxBytes <= 0 {
		o.MaxBytes = 256 << 20
	}
	l, err := new(net.ListenConfig).Listen(context.Background(), "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("cannot start the demo's store: %w", err)
	}
	g := gofakes3.New(newBoundedBackend(o.Bucket, o.MaxBytes), gofakes3.WithTimeSkewLimit(0))
	d := &DemoServer{
		url: "http://" + l.Addr().String(), bucket: o.Bucket,
		http: &http.Server{Handler: g.Server(), ReadHeaderTimeout: time.Minute},
	}
	go func() { _ = d.http.Serve(l) }()
	return d, nil
}

// URL is the endpoint. Use it with path style.
func (d *DemoServer) URL() string { return d.url }

// Bucket is the name of the one bucket.
func (d *DemoServer) Bucket() string { return d.bucket }

// Close ends the server and all requests in flight.
func (d *DemoServer) Close() { _ = d.http.Close() }
