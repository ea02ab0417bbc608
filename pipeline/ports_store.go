package pipeline

import (
	"context"
	"io"
	"time"
)

// Store is an S3-compatible bucket. Implementations never retry: the caller
// decides by the error's class. Errors are *StoreError.
type Store interface {
	// Put stores one object in one request. The body is sent as it is: never
	// chunk-framed, with Content-MD5 and, where the endpoint takes it, a
	// preset checksum.
	Put(ctx context.Context, req PutRequest) (PutResult, error)
	Head(ctx context.Context, key string) (Object, error)
	Get(ctx context.Context, key string, offset int64) (io.ReadCloser, Object, error)
	List(ctx context.Context, req ListRequest) (ListPage, error)
	Delete(ctx context.Context, key string) error
	CreateMultipart(ctx context.Context, key string) (uploadID string, err error)
	UploadPart(ctx context.Context, part PartRequest) (etag string, err error)
	CompleteMultipart(ctx context.Context, req CompleteRequest) (PutResult, error)
	AbortMultipart(ctx context.Context, key, uploadID string) error
	// Profile is what the capability probe found; it probes on first use and
	// after a failed probe.
	Profile(ctx context.Context) (StoreProfile, error)
}

// PutRequest is one object to store.
type PutRequest struct {
	Key         string
	Body        []byte
	MD5         [16]byte
	CRC32C      uint32
	IfNoneMatch bool   // only if the key is absent
	IfMatch     string // only over this ETag
}

// PutResult is the endpoint's answer to a write.
type PutResult struct{ ETag string }

// PartRequest is one part of a multipart upload. Number counts from 1.
type PartRequest struct {
	Key, UploadID string
	Number        int
	Body          []byte
	MD5           [16]byte
	CRC32C        uint32
}

// CompleteRequest closes a multipart upload; ETags[i] is of part i+1.
type CompleteRequest struct {
	Key, UploadID string
	ETags         []string
	IfNoneMatch   bool
	IfMatch       string
}

// Object is one stored object as a listing or HEAD tells it. ETag is without
// quotes.
type Object struct {
	Key      string
	Size     int64
	ETag     string
	Modified time.Time
}

// ListRequest asks for one page, in key order.
type ListRequest struct {
	Prefix     string
	StartAfter string
	Token      string
	Max        int // 0 = 1,000
}

// ListPage is one page. Next is empty on the last one.
type ListPage struct {
	Objects []Object
	Next    string
}

// StoreProfile is what an endpoint was found to do.
type StoreProfile struct {
	ValidatesMD5      bool // refuses a wrong Content-MD5
	ChecksumHeader    bool // accepts a preset x-amz-checksum-crc32c
	ValidatesChecksum bool // and refuses a wrong one
	ETagIsMD5         bool // ETag of a single PUT is the MD5 of the stored bytes
	MultipartETag     bool // ETag of a multipart upload is md5(md5s)-N
	ConditionalPut    bool // honours If-None-Match: *
	ConditionalMatch  bool // honours If-Match
	ListStartAfter    bool
	SignedPayload     bool // the payload hash must be signed (unsigned is refused)
	MissingIsDenied   bool // HEAD of a missing key answers 403
}

// StoreClass says what to do about a StoreError.
type StoreClass string

// Values of StoreClass.
const (
	StoreTransient   StoreClass = "transient"     // try again
	StoreThrottled   StoreClass = "throttled"     // try again, slower
	StoreCredentials StoreClass = "credentials"   // pause all until they change
	StoreConfig      StoreClass = "configuration" // pause all, tell the operator
	StoreFile        StoreClass = "file"          // this file only
	StoreIntegrity   StoreClass = "integrity"     // bytes did not arrive as sent
	StoreMissing     StoreClass = "missing"       // no such object
	StoreExists      StoreClass = "exists"        // a condition on the key failed
)

// StoreError is a failed request to the store.
type StoreError struct {
	Op, Key    string
	Class      StoreClass
	Code       string // the endpoint's code, such as SlowDown
	Status     int    // HTTP status, 0 if none came
	RetryAfter time.Duration
	Hint       string // what the operator can do, if anything
	Err        error
}

// Error says what failed in the endpoint's words.
func (e *StoreError) Error() string {
	what := e.Code
	if what == "" && e.Err != nil {
		what = e.Err.Error()
	}
	if e.Key == "" {
		return "cannot " + e.Op + ": " + what
	}
	return "cannot " + e.Op + " \"" + e.Key + "\": " + what
}

// Unwrap returns the cause.
func (e *StoreError) Unwrap() error { return e.Err }
