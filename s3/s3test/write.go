package s3test

import (
	"bytes"
	"crypto/md5"
	"crypto/sha1"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"hash/crc32"
	"io"
	"net/http"
	"strings"
)

// maxBody is the largest single PUT that the server takes.
const maxBody = 5 << 30

// put stores an object.
func (c *call) put() *failure {
	data, fail := c.body()
	if fail != nil {
		return fail
	}
	stored := c.stored(data)
	sent := c.s.opt.Personality.etag(data)
	c.s.mu.Lock()
	fail = c.condition()
	if fail == nil && !c.is(StoreNothing) {
		c.commit(stored, data)
	}
	c.s.mu.Unlock()
	if fail != nil {
		return fail
	}
	c.committed()
	c.putAnswer(sent)
	return nil
}

// commit puts bytes under the key; the caller holds the lock. claimed is what
// a hidden lie makes the server believe.
func (c *call) commit(stored, claimed []byte) {
	p := &c.s.opt.Personality
	etag := p.etag(stored)
	if c.fault != nil && c.fault.Hidden {
		etag = p.etag(claimed)
	}
	c.replace(stored, etag)
	if c.fault != nil && c.fault.Hidden {
		o, _ := c.s.objects.get(c.key)
		o.size = int64(len(claimed))
	}
}

// replace stores and keeps the log of overwrites; the caller holds the lock.
func (c *call) replace(data []byte, etag string) {
	if old, ok := c.s.objects.get(c.key); ok && !bytes.Equal(c.s.objects.data(old), data) {
		c.s.stats.overwrote(Overwrite{
			Key: c.key, Old: old.etag, New: etag, IfMatch: strings.Trim(c.r.Header.Get("If-Match"), `"`) == old.etag,
		})
	}
	c.s.objects.put(c.key, data, etag, c.now)
}

// putAnswer answers a write with its ETag, or with what the fault wants.
func (c *call) putAnswer(etag string) {
	if c.s.opt.Personality.EchoMD5 {
		if sum, err := base64.StdEncoding.DecodeString(c.r.Header.Get("Content-MD5")); err == nil && len(sum) == md5.Size {
			etag = hex.EncodeToString(sum)
		}
	}
	switch {
	case c.is(NoETag):
	case c.is(WrongETag):
		c.w.Header().Set("ETag", `"`+opaque([]byte(etag))+`"`)
	default:
		c.w.Header().Set("ETag", `"`+etag+`"`)
	}
	c.w.WriteHeader(http.StatusOK)
}

// stored is what the server keeps of a body.
func (c *call) stored(data []byte) []byte {
	switch {
	case c.is(StoreTruncated):
		return data[:len(data)/2]
	case c.is(StoreFlipped) && len(data) > 0:
		bad := bytes.Clone(data)
		bad[len(bad)/2] ^= 1
		return bad
	case c.is(StoreFramed):
		return fmt.Appendf(nil, "%x;chunk-signature=%064x\r\n%s\r\n0;chunk-signature=%064x\r\n\r\n", len(data), 1, data, 2)
	}
	return data
}

// condition checks If-None-Match and If-Match; the caller holds the lock.
func (c *call) condition() *failure {
	p := &c.s.opt.Personality
	old, exists := c.s.objects.get(c.key)
	if c.r.Header.Get("If-None-Match") == "*" && exists && !p.IgnoreIfNone {
		return &failure{412, "PreconditionFailed", "At least one of the pre-conditions you specified did not hold", nil}
	}
	match := strings.Trim(c.r.Header.Get("If-Match"), `"`)
	if match == "" || p.IgnoreIfMatch {
		return nil
	}
	if !exists {
		return p.missing()
	}
	if old.etag != match {
		return &failure{412, "PreconditionFailed", "At least one of the pre-conditions you specified did not hold", nil}
	}
	return nil
}

// body reads and checks the request's body.
func (c *call) body() ([]byte, *failure) {
	if strings.Contains(c.r.Header.Get("Content-Encoding"), "aws-chunked") {
		return nil, &failure{501, "NotImplemented", "This server takes no chunk-framed bodies", nil}
	}
	if c.r.ContentLength < 0 {
		return nil, &failure{411, "MissingContentLength", "You must provide the Content-Length HTTP header", nil}
	}
	if c.r.ContentLength > maxBody {
		return nil, &failure{400, "EntityTooLarge", "Your proposed upload exceeds the maximum allowed size", nil}
	}
	data := make([]byte, c.r.ContentLength)
	if _, err := io.ReadFull(c.r.Body, data); err != nil && !errors.Is(err, io.EOF) {
		return nil, &failure{400, "IncompleteBody", "You did not provide the number of bytes specified by Content-Length", nil}
	}
	return data, c.checkBody(data)
}

func (c *call) checkBody(data []byte) *failure {
	p := &c.s.opt.Personality
	if want := c.r.Header.Get("Content-MD5"); want != "" && !p.IgnoreMD5 {
		sum := md5.Sum(data)
		raw, err := base64.StdEncoding.DecodeString(want)
		if err != nil || len(raw) != md5.Size {
			return &failure{400, "InvalidDigest", "The Content-MD5 you specified is not valid", nil}
		}
		if !bytes.Equal(raw, sum[:]) {
			return p.badDigest("Content-MD5")
		}
	}
	if want := c.r.Header.Get("X-Amz-Content-Sha256"); len(want) == 2*sha256.Size {
		if sum := sha256.Sum256(data); hex.EncodeToString(sum[:]) != want {
			return &failure{400, "XAmzContentSHA256Mismatch", "The provided x-amz-content-sha256 does not match what was computed", nil}
		}
	}
	if p.IgnoreChecksum {
		return nil
	}
	for name, algorithm := range checksums {
		want := c.r.Header.Get(name)
		if want != "" && want != algorithm(data) {
			return p.badDigest(strings.ToLower(name))
		}
	}
	return nil
}

// checksums are the headers that the server validates.
var checksums = map[string]func([]byte) string{
	"X-Amz-Checksum-Crc32":  func(b []byte) string { return crc(b, crc32.IEEE) },
	"X-Amz-Checksum-Crc32c": func(b []byte) string { return crc(b, crc32.Castagnoli) },
	"X-Amz-Checksum-Sha1":   func(b []byte) string { return sumOf(sha1.New(), b) },
	"X-Amz-Checksum-Sha256": func(b []byte) string { return sumOf(sha256.New(), b) },
}

func crc(data []byte, poly uint32) string {
	sum := crc32.Checksum(data, crc32.MakeTable(poly))
	return base64.StdEncoding.EncodeToString(binary.BigEndian.AppendUint32(nil, sum))
}

func sumOf(h hash.Hash, data []byte) string {
	h.Write(data)
	return base64.StdEncoding.EncodeToString(h.Sum(nil))
}

// remove deletes an object, or what is not there.
func (c *call) remove() *failure {
	c.s.mu.Lock()
	c.s.objects.remove(c.key)
	c.s.mu.Unlock()
	c.committed()
	c.w.WriteHeader(http.StatusNoContent)
	return nil
}
