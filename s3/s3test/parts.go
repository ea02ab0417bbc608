package s3test

import (
	"crypto/md5"
	"encoding/xml"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
)

// upload is an unfinished multipart upload.
type upload struct {
	id, key string
	parts   map[int]part
}

type part struct {
	data []byte
	etag string
}

const minPart = 5 << 20 // bytes, of all parts but the last

func (c *call) create() *failure {
	c.s.mu.Lock()
	c.s.seq++
	id := fmt.Sprintf("upload-%d", c.s.seq)
	c.s.uploads[id] = &upload{id: id, key: c.key, parts: map[int]part{}}
	c.s.mu.Unlock()
	c.committed()
	c.xml(http.StatusOK, struct {
		XMLName     xml.Name `xml:"InitiateMultipartUploadResult"`
		Bucket, Key string
		UploadID    string `xml:"UploadId"`
	}{Bucket: c.bucket, Key: c.key, UploadID: id})
	return nil
}

// upload finds the request's upload; the caller holds the lock.
func (c *call) upload() (*upload, *failure) {
	u, ok := c.s.uploads[c.query.Get("uploadId")]
	if !ok || u.key != c.key {
		return nil, &failure{404, "NoSuchUpload", "The specified multipart upload does not exist", nil}
	}
	return u, nil
}

func (c *call) part() *failure {
	data, fail := c.body()
	if fail != nil {
		return fail
	}
	n, err := strconv.Atoi(c.query.Get("partNumber"))
	if err != nil || n < 1 || n > 10_000 {
		return &failure{400, "InvalidArgument", "Part number must be an integer between 1 and 10000", nil}
	}
	c.s.mu.Lock()
	u, fail := c.upload()
	etag := c.s.opt.Personality.etag(data)
	if fail == nil && !c.is(StoreNothing) {
		u.parts[n] = part{data: c.stored(data), etag: etag}
	}
	c.s.mu.Unlock()
	if fail != nil {
		return fail
	}
	c.committed()
	c.putAnswer(etag)
	return nil
}

// completion is the body of CompleteMultipartUpload.
type completion struct {
	Part []struct {
		PartNumber int
		ETag       string
	}
}

func (c *call) complete() *failure {
	var req completion
	if err := xml.NewDecoder(c.r.Body).Decode(&req); err != nil {
		return &failure{400, "MalformedXML", "The XML you provided was not well-formed", nil}
	}
	c.s.mu.Lock()
	etag, fail := c.join(req)
	c.s.mu.Unlock()
	if fail != nil {
		return fail
	}
	c.committed()
	if c.is(NoETag) {
		etag = ""
	}
	c.xml(http.StatusOK, struct {
		XMLName           xml.Name `xml:"CompleteMultipartUploadResult"`
		Bucket, Key, ETag string
	}{Bucket: c.bucket, Key: c.key, ETag: `"` + etag + `"`})
	return nil
}

// join makes the object; the caller holds the lock.
func (c *call) join(req completion) (string, *failure) {
	u, fail := c.upload()
	if fail != nil {
		return "", fail
	}
	if fail := c.condition(); fail != nil {
		return "", fail
	}
	var data, sums []byte
	for i, want := range req.Part {
		p, ok := u.parts[want.PartNumber]
		if !ok || p.etag != strings.Trim(want.ETag, `"`) {
			return "", &failure{400, "InvalidPart", "One or more of the specified parts could not be found", nil}
		}
		if fail := c.checkSize(u, req, i); fail != nil {
			return "", fail
		}
		sum := md5.Sum(p.data)
		data, sums = append(data, p.data...), append(sums, sum[:]...)
	}
	if len(req.Part) == 0 {
		return "", &failure{400, "MalformedXML", "You must specify at least one part", nil}
	}
	etag := c.s.opt.Personality.partsETag(sums, len(req.Part))
	if !c.is(StoreNothing) {
		c.replace(c.stored(data), etag)
	}
	delete(c.s.uploads, u.id)
	return etag, nil
}

// checkSize holds part i against the limits on sizes.
func (c *call) checkSize(u *upload, req completion, i int) *failure {
	size := len(u.parts[req.Part[i].PartNumber].data)
	switch {
	case i == len(req.Part)-1:
		return nil
	case size < minPart:
		return &failure{400, "EntityTooSmall", "Your proposed upload is smaller than the minimum allowed size", nil}
	case c.s.opt.Personality.EqualParts && size != len(u.parts[req.Part[0].PartNumber].data):
		return &failure{400, "InvalidPart", "All non-trailing parts must have the same length", nil}
	}
	return nil
}

func (c *call) abort() *failure {
	c.s.mu.Lock()
	u, fail := c.upload()
	if fail == nil {
		delete(c.s.uploads, u.id)
	}
	c.s.mu.Unlock()
	if fail != nil {
		return fail
	}
	c.committed()
	c.w.WriteHeader(http.StatusNoContent)
	return nil
}

func (c *call) listUploads() *failure {
	type entry struct {
		Key      string
		UploadID string `xml:"UploadId"`
	}
	c.s.mu.Lock()
	var entries []entry
	for _, id := range slices.Sorted(maps.Keys(c.s.uploads)) {
		if u := c.s.uploads[id]; strings.HasPrefix(u.key, c.query.Get("prefix")) {
			entries = append(entries, entry{u.key, id})
		}
	}
	c.s.mu.Unlock()
	c.xml(http.StatusOK, struct {
		XMLName     xml.Name `xml:"ListMultipartUploadsResult"`
		Bucket      string
		IsTruncated bool
		Upload      []entry
	}{Bucket: c.bucket, Upload: entries})
	return nil
}

func (c *call) listParts() *failure {
	type entry struct {
		PartNumber int
		ETag       string
		Size       int
	}
	c.s.mu.Lock()
	u, fail := c.upload()
	var entries []entry
	if fail == nil {
		for _, n := range slices.Sorted(maps.Keys(u.parts)) {
			entries = append(entries, entry{n, `"` + u.parts[n].etag + `"`, len(u.parts[n].data)})
		}
	}
	c.s.mu.Unlock()
	if fail != nil {
		return fail
	}
	c.xml(http.StatusOK, struct {
		XMLName     xml.Name `xml:"ListPartsResult"`
		Bucket, Key string
		UploadID    string `xml:"UploadId"`
		IsTruncated bool
		Part        []entry
	}{Bucket: c.bucket, Key: c.key, UploadID: u.id, Part: entries})
	return nil
}
