package s3test

import (
	"encoding/xml"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
)

// call is one request on its way through the server.
type call struct {
	s           *Server
	w           http.ResponseWriter
	r           *http.Request
	query       url.Values
	bucket, key string
	op          Op
	now         time.Time
	fault       *Rule // what goes wrong with it; nil: nothing
}

// failure is an S3 error answer.
type failure struct {
	Status  int
	Code    string
	Message string
	Header  map[string]string
}

func (c *call) fail(f *failure) {
	// Unread bodies would make net/http close the connection under a client
	// that is still sending.
	_, _ = io.Copy(io.Discard, c.r.Body)
	for name, value := range f.Header {
		c.w.Header().Set(name, value)
	}
	c.xml(f.Status, struct {
		XMLName xml.Name `xml:"Error"`
		Code    string
		Message string
		Key     string `xml:",omitempty"`
	}{Code: f.Code, Message: f.Message, Key: c.key})
}

// header sets what every answer carries.
func (c *call) header() {
	h := c.w.Header()
	h.Set("X-Amz-Request-Id", strconv.FormatInt(c.now.UnixNano(), 36))
	at := c.now
	if c.is(SkewedClock) {
		at = at.Add(c.fault.Skew)
	}
	h.Set("Date", at.UTC().Format(http.TimeFormat))
}

func (c *call) xml(status int, v any) {
	c.w.Header().Set("Content-Type", "application/xml")
	if c.r.Method == http.MethodHead {
		c.w.WriteHeader(status)
		return
	}
	data, err := xml.Marshal(v)
	if err != nil {
		status, data = http.StatusInternalServerError, []byte(err.Error())
	}
	c.answer(status, append([]byte(xml.Header), data...))
}

// answer sends a body, whole or as the fault wants it.
func (c *call) answer(status int, data []byte) {
	c.w.Header().Set("Content-Length", strconv.Itoa(len(data)))
	if c.is(TruncatedAnswer) {
		if c.fault.Framed {
			c.w.Header().Set("Content-Length", strconv.Itoa(len(data)/2))
		}
		data = data[:len(data)/2]
	}
	c.w.WriteHeader(status)
	if c.r.Method != http.MethodHead {
		_, _ = c.w.Write(data)
	}
	if c.is(TruncatedAnswer) && !c.fault.Framed {
		c.reset()
	}
}

// reset breaks the connection under the client.
func (c *call) reset() {
	if f, ok := c.w.(http.Flusher); ok {
		f.Flush()
	}
	panic(http.ErrAbortHandler)
}

// admit checks who asks, for what, and how the personality takes it.
func (c *call) admit() *failure {
	c.s.mu.Lock()
	keys, gone := c.s.keys, c.s.gone
	c.s.mu.Unlock()
	id := accessKey(c.r)
	switch {
	case id == "":
		return &failure{403, "AccessDenied", "Anonymous access is forbidden", nil}
	case len(keys) > 0 && !slices.Contains(keys, id):
		return &failure{403, "InvalidAccessKeyId", "The access key id does not exist", nil}
	case c.bucket != c.s.opt.Bucket || gone:
		return &failure{404, "NoSuchBucket", "The specified bucket does not exist", nil}
	case c.is(SkewedClock) && c.skew().Abs() > 15*time.Minute:
		return &failure{403, "RequestTimeTooSkewed", "The difference between the request time and the server's time is too large", nil}
	}
	p := &c.s.opt.Personality
	if f := p.refuses(c.op, c.r.Header); f != nil {
		return f
	}
	return c.s.pace.check(p, c.op, c.key, c.now)
}

// skew is how far the request's signing time is from the server's clock.
func (c *call) skew() time.Duration {
	at, err := time.Parse("20060102T150405Z", c.r.Header.Get("X-Amz-Date"))
	if err != nil {
		return 0
	}
	return at.Sub(c.now.Add(c.fault.Skew))
}

// accessKey reads the key id from "AWS4-HMAC-SHA256 Credential=ID/…".
func accessKey(r *http.Request) string {
	_, rest, ok := strings.Cut(r.Header.Get("Authorization"), "Credential=")
	if !ok {
		return ""
	}
	id, _, _ := strings.Cut(rest, "/")
	return id
}

func (c *call) headBucket() *failure {
	c.w.Header().Set("X-Amz-Bucket-Region", "us-east-1")
	c.w.WriteHeader(http.StatusOK)
	return nil
}
