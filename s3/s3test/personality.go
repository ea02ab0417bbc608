package s3test

import (
	"crypto/md5"
	"encoding/hex"
	"fmt"
	"hash/crc64"
	"net/http"
	"strings"
	"time"
)

// Personality is how an endpoint differs from AWS, as data. The zero value
// with a name is AWS.
type Personality struct {
	Name string
	// Refused lists request headers that the endpoint does not take, by
	// lower-case prefix.
	Refused []Refusal
	// BadDigest is the code for a wrong Content-MD5 or checksum.
	BadDigest      string
	IgnoreMD5      bool
	IgnoreChecksum bool // takes a wrong x-amz-checksum-*
	EchoMD5        bool // answers with the client's MD5, not with that of the bytes
	IgnoreIfNone   bool
	IgnoreIfMatch  bool
	OpaqueETag     bool // the ETag is not the MD5 (SSE-KMS)
	OpaqueParts    bool // the ETag of a multipart upload is not md5(md5s)-N
	EqualParts     bool // all parts but the last must have one size
	MissingDenied  bool // 403 where AWS says 404, and for what is not implemented
	NoStartAfter   bool
	SignedOnly     bool // UNSIGNED-PAYLOAD is refused
	PercentSpace   bool // encoding-type=url writes a space as %20
	RequestsPerSec int  // over it: 503 SlowDown
	WritesPerKey   bool // more than one write per second to a key: 429
}

// Refusal is the answer to a request header of an operation.
type Refusal struct {
	Op     Op // empty: every one
	Header string
	Status int
	Code   string
}

// AWS is Amazon S3.
func AWS() Personality { return Personality{Name: "aws", BadDigest: "BadDigest"} }

// FilOne is fil.one: 403 for 404 and 501, InvalidArgument for a bad digest.
func FilOne() Personality {
	return Personality{Name: "filone", BadDigest: "InvalidArgument", MissingDenied: true, IgnoreIfNone: true, IgnoreIfMatch: true}
}

// Filebase allows about 100 requests per second.
func Filebase() Personality {
	return Personality{Name: "filebase", BadDigest: "BadDigest", RequestsPerSec: 100, IgnoreChecksum: true, SignedOnly: true}
}

// R2 is Cloudflare: one write per second and key, equal parts, ETags of its
// own for multipart uploads.
func R2() Personality {
	return Personality{Name: "r2", BadDigest: "BadDigest", OpaqueParts: true, EqualParts: true, WritesPerKey: true, Refused: []Refusal{
		{Header: "x-amz-trailer", Status: 501, Code: "NotImplemented"},
		{Op: OpPart, Header: "x-amz-checksum-sha", Status: 501, Code: "NotImplemented"},
	}}
}

// B2 is Backblaze: every checksum header is refused.
func B2() Personality {
	return Personality{Name: "b2", BadDigest: "BadDigest", Refused: []Refusal{
		{Header: "x-amz-checksum-", Status: 400, Code: "InvalidArgument"},
		{Header: "x-amz-sdk-checksum-algorithm", Status: 400, Code: "InvalidArgument"},
	}}
}

// OldCeph takes no trailers, knows no conditions and checks no checksum.
func OldCeph() Personality {
	return Personality{
		Name: "ceph", BadDigest: "BadDigest", IgnoreChecksum: true, IgnoreIfNone: true, IgnoreIfMatch: true, PercentSpace: true,
		Refused: []Refusal{{Header: "x-amz-trailer", Status: 400, Code: "XAmzContentSHA256Mismatch"}},
	}
}

// MinIO is close to AWS.
func MinIO() Personality { return Personality{Name: "minio", BadDigest: "BadDigest"} }

// Personalities are all of them, for tests that go through them.
func Personalities() []Personality {
	return []Personality{AWS(), FilOne(), Filebase(), R2(), B2(), OldCeph(), MinIO()}
}

func (p *Personality) refuses(op Op, h http.Header) *failure {
	if p.SignedOnly && h.Get("X-Amz-Content-Sha256") == "UNSIGNED-PAYLOAD" {
		return &failure{403, "SignatureDoesNotMatch", "The payload must be signed", nil}
	}
	for _, row := range p.Refused {
		if row.Op != "" && row.Op != op {
			continue
		}
		for name := range h {
			if strings.HasPrefix(strings.ToLower(name), row.Header) {
				return &failure{row.Status, row.Code, "Unsupported header '" + strings.ToLower(name) + "' received for this API call", nil}
			}
		}
	}
	return nil
}

func (p *Personality) notImplemented() *failure {
	if p.MissingDenied {
		return &failure{403, "AccessDenied", "Access Denied", nil}
	}
	return &failure{501, "NotImplemented", "This operation is not implemented", nil}
}

func (p *Personality) missing() *failure {
	if p.MissingDenied {
		return &failure{403, "AccessDenied", "Access Denied", nil}
	}
	return &failure{404, "NoSuchKey", "The specified key does not exist", nil}
}

func (p *Personality) badDigest(what string) *failure {
	code := p.BadDigest
	if code == "" {
		code = "BadDigest"
	}
	return &failure{400, code, "The " + what + " you specified did not match the calculated checksum", nil}
}

// etag is what a single PUT of data gets.
func (p *Personality) etag(data []byte) string {
	if p.OpaqueETag {
		return opaque(data)
	}
	sum := md5.Sum(data)
	return hex.EncodeToString(sum[:])
}

// partsETag is what a multipart upload of these part MD5s gets.
func (p *Personality) partsETag(sums []byte, parts int) string {
	if p.OpaqueParts || p.OpaqueETag {
		return opaque(sums) + fmt.Sprintf("-%d", parts)
	}
	sum := md5.Sum(sums)
	return fmt.Sprintf("%x-%d", sum, parts)
}

// opaque looks like an MD5 and is none.
func opaque(data []byte) string {
	n := crc64.Checksum(data, crc64.MakeTable(crc64.ISO))
	return fmt.Sprintf("%016x%016x", n, ^n)
}

// pace counts requests for the personalities that limit them.
type pace struct {
	limiter
}

// check refuses a request that comes too fast.
func (c *pace) check(p *Personality, op Op, key string, now time.Time) *failure {
	if p.RequestsPerSec > 0 && !c.request(p.RequestsPerSec, now) {
		return &failure{503, "SlowDown", "Please reduce your request rate", map[string]string{"Retry-After": "1"}}
	}
	if p.WritesPerKey && op == OpPut && !c.write(key, now) {
		return &failure{429, "TooManyRequests", "Reduce your concurrent request rate for the same object", nil}
	}
	return nil
}
