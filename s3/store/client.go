// Package store talks to one S3-compatible bucket: it implements
// pipeline.Store without retries, finds out what the endpoint really does, and
// says of every failure what class it is and what the operator can do.
package store

import (
	"context"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	v4 "github.com/aws/aws-sdk-go-v2/aws/signer/v4"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/smithy-go/logging"
	"github.com/aws/smithy-go/middleware"
	"golang.org/x/sync/singleflight"

	"pipedeck/pipeline"
)

// Options names a bucket and how to reach it. Zero durations take defaults.
type Options struct {
	Bucket    string
	Endpoint  string // URL; empty: AWS
	Region    string // empty: us-east-1, which non-AWS endpoints take
	PathStyle bool
	// Credentials defaults to LoadCredentials(nil).
	Credentials aws.CredentialsProvider
	// ScratchPrefix is where probe objects are written and removed again, such
	// as "PREFIX/RUN/.pipedeck/probe/".
	ScratchPrefix string

	ConnectTimeout  time.Duration // 10 s
	ResponseTimeout time.Duration // from the end of the request to the answer's headers; 60 s
	StallTimeout    time.Duration // without a byte moved; 30 s

	// Dial opens connections; nil: the system's resolver and network.
	Dial func(ctx context.Context, network, addr string) (net.Conn, error)
}

// Client is one connection pool to one bucket. Make two for two independent
// paths to the same bucket.
type Client struct {
	opt  Options
	api  *s3.Client
	http *http.Client

	buffers sync.Pool // of *bytes.Buffer, for listings
	profile atomic.Pointer[pipeline.StoreProfile]
	probing singleflight.Group
}

var _ pipeline.Store = (*Client)(nil)

// New makes a client. It neither reads credentials nor opens a connection:
// both happen with the first request.
func New(o Options) *Client {
	o = o.withDefaults()
	hc := newHTTPClient(o)
	so := s3.Options{
		Region:           o.Region,
		Credentials:      o.Credentials,
		HTTPClient:       hc,
		UsePathStyle:     o.PathStyle,
		Retryer:          aws.NopRetryer{},
		RetryMaxAttempts: 1,
		Logger:           logging.Nop{},
		// The checksums are ours, in plain headers: the SDK's own would frame
		// the body as aws-chunked, which some endpoints store as it is.
		RequestChecksumCalculation:   aws.RequestChecksumCalculationWhenRequired,
		ResponseChecksumValidation:   aws.ResponseChecksumValidationWhenRequired,
		ContinueHeaderThresholdBytes: -1,
		DisableS3ExpressSessionAuth:  aws.Bool(true),
	}
	if o.Endpoint != "" {
		so.BaseEndpoint = aws.String(o.Endpoint)
	}
	return &Client{opt: o, api: s3.New(so), http: hc}
}

func (o Options) withDefaults() Options {
	if o.Region == "" {
		o.Region = "us-east-1"
	}
	if o.Credentials == nil {
		o.Credentials = LoadCredentials(nil)
	}
	o.ConnectTimeout = orDefault(o.ConnectTimeout, 10*time.Second)
	o.ResponseTimeout = orDefault(o.ResponseTimeout, time.Minute)
	o.StallTimeout = orDefault(o.StallTimeout, 30*time.Second)
	return o
}

func orDefault(d, def time.Duration) time.Duration {
	if d <= 0 {
		return def
	}
	return d
}

// Close drops idle connections. Requests in flight go on.
func (c *Client) Close() { c.http.CloseIdleConnections() }

// unsignedPayload leaves the body's SHA-256 out of the signature. The signed
// Content-MD5 header protects the body, at the cost of one hash, not two.
func unsignedPayload(o *s3.Options) {
	o.APIOptions = append(o.APIOptions, func(st *middleware.Stack) error {
		_, err := st.Finalize.Swap((&v4.UnsignedPayload{}).ID(), &v4.UnsignedPayload{})
		return err
	})
}

// signedPayload puts the body's SHA-256 into the signature, also over TLS.
func signedPayload(o *s3.Options) {
	o.APIOptions = append(o.APIOptions, func(st *middleware.Stack) error {
		_, err := st.Finalize.Swap((&v4.ComputePayloadSHA256{}).ID(), &v4.ComputePayloadSHA256{})
		return err
	})
}

func payloadMode(signed bool) func(*s3.Options) {
	if signed {
		return signedPayload
	}
	return unsignedPayload
}

// minRate is the slowest useful transfer, in bytes per second: a request that
// would take longer than its size at this rate is given up.
const minRate = 64 << 10

func deadlineFor(size int) time.Duration {
	return 10*time.Second + time.Duration(size)*time.Second/minRate
}

// withDeadline bounds one attempt that moves size bytes.
func withDeadline(ctx context.Context, size int) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, deadlineFor(size))
}
