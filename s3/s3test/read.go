package s3test

import (
	"bytes"
	"encoding/base64"
	"encoding/xml"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
)

// get answers GET and HEAD of an object.
func (c *call) get() *failure {
	p := &c.s.opt.Personality
	c.s.mu.Lock()
	o, ok := c.s.objects.get(c.key)
	var data []byte
	if ok && c.op == OpGet {
		data = c.s.objects.data(o)
	}
	c.s.mu.Unlock()
	if !ok {
		return p.missing()
	}
	h := c.w.Header()
	h.Set("ETag", `"`+c.shownETag(o)+`"`)
	h.Set("Last-Modified", o.modified.UTC().Format(http.TimeFormat))
	h.Set("Accept-Ranges", "bytes")
	h.Set("Content-Type", "binary/octet-stream")
	if c.op == OpHead {
		h.Set("Content-Length", strconv.FormatInt(o.size, 10))
		c.w.WriteHeader(http.StatusOK)
		return nil
	}
	status := http.StatusOK
	if spec := c.r.Header.Get("Range"); spec != "" {
		from, to, ok := byteRange(spec, len(data))
		if !ok {
			return &failure{416, "InvalidRange", "The requested range is not satisfiable", nil}
		}
		h.Set("Content-Range", fmt.Sprintf("bytes %d-%d/%d", from, to-1, len(data)))
		data, status = data[from:to], http.StatusPartialContent
	}
	c.answer(status, data)
	return nil
}

func (c *call) shownETag(o *object) string {
	if c.is(WrongETag) {
		return opaque([]byte(o.etag))
	}
	return o.etag
}

// byteRange reads "bytes=from-" and "bytes=from-last".
func byteRange(spec string, size int) (from, to int, ok bool) {
	a, b, found := strings.Cut(strings.TrimPrefix(spec, "bytes="), "-")
	from, err := strconv.Atoi(a)
	if !found || err != nil || from >= size {
		return 0, 0, false
	}
	if b == "" {
		return from, size, true
	}
	last, err := strconv.Atoi(b)
	return from, min(last+1, size), err == nil && last >= from
}

// listing is one page before it is written.
type listing struct {
	prefix, after, token, next string
	max                        int
	urlForm                    bool
	truncated                  bool
	objects                    []object
}

// list answers ListObjectsV2.
func (c *call) list() *failure {
	l := listing{prefix: c.query.Get("prefix"), max: 1000, urlForm: c.query.Get("encoding-type") == "url", token: c.query.Get("continuation-token")}
	if n, err := strconv.Atoi(c.query.Get("max-keys")); err == nil && n >= 0 {
		l.max = min(n, 1000)
	}
	if !c.s.opt.Personality.NoStartAfter && !c.is(ListIgnoreStart) {
		l.after = c.query.Get("start-after")
	}
	if l.token != "" {
		last, err := base64.URLEncoding.DecodeString(l.token)
		if err != nil {
			return &failure{400, "InvalidArgument", "The continuation token provided is incorrect", nil}
		}
		l.after = string(last)
	}
	c.s.mu.Lock()
	c.page(&l)
	c.s.mu.Unlock()
	c.distort(&l)
	data := l.xml(c.s.opt.Bucket, c.s.opt.Personality.PercentSpace)
	if c.is(ListCutOff) {
		data = data[:len(data)*2/3]
	}
	c.w.Header().Set("Content-Type", "application/xml")
	c.answer(http.StatusOK, data)
	return nil
}

// page collects objects; the caller holds the lock.
func (c *call) page(l *listing) {
	keys := c.s.objects.keys
	i, _ := slices.BinarySearch(keys, max(l.prefix, l.after))
	for ; i < len(keys) && strings.HasPrefix(keys[i], l.prefix); i++ {
		o := c.s.objects.byKey[keys[i]]
		if o.key <= l.after || c.is(ListLag) && c.now.Sub(o.modified) < c.fault.Delay {
			continue
		}
		if len(l.objects) == l.max {
			l.truncated = true
			break
		}
		shown := *o
		shown.etag = c.shownETag(o)
		l.objects = append(l.objects, shown)
	}
	if l.truncated && len(l.objects) > 0 {
		l.next = tokenAfter(l.objects[len(l.objects)-1].key)
	}
}

// distort turns a right page into the one that the fault wants.
func (c *call) distort(l *listing) {
	if c.fault == nil {
		return
	}
	if twist, ok := twists[c.fault.Kind]; ok {
		twist(l)
	}
}

// twists are the kinds that change a page after it was collected.
var twists = map[Kind]func(*listing){
	ListDuplicate: func(l *listing) {
		if len(l.objects) > 0 {
			l.objects = slices.Insert(l.objects, 0, l.objects[0])
		}
	},
	ListUnordered: func(l *listing) {
		if n := len(l.objects); n > 1 {
			l.objects[0], l.objects[n-1] = l.objects[n-1], l.objects[0]
		}
	},
	ListEmptyPage: func(l *listing) {
		l.objects, l.truncated, l.next = nil, true, tokenAfter(l.after)
	},
	ListNoToken: func(l *listing) {
		l.truncated, l.next = true, ""
	},
	ListLoop: func(l *listing) {
		l.truncated, l.next = true, l.token
		if l.next == "" {
			l.next = tokenAfter(l.after)
		}
	},
	ListForeign: func(l *listing) {
		l.objects = append(l.objects, object{key: "\U0010ffff/foreign", etag: opaque(nil)})
	},
	ListHide: func(l *listing) {
		l.objects = l.objects[min(1, len(l.objects)):]
	},
}

// tokenAfter is the continuation token of a page that begins after key; it is
// never empty.
func tokenAfter(key string) string {
	return base64.URLEncoding.EncodeToString([]byte(max(key, "\x00")))
}

func (l *listing) xml(bucket string, percentSpace bool) []byte {
	var b bytes.Buffer
	text := func(tag, value string) {
		b.WriteString("<" + tag + ">")
		_ = xml.EscapeText(&b, []byte(value))
		b.WriteString("</" + tag + ">")
	}
	key := func(k string) string {
		if !l.urlForm {
			return k
		}
		k = strings.ReplaceAll(url.QueryEscape(k), "%2F", "/")
		if percentSpace {
			k = strings.ReplaceAll(k, "+", "%20")
		}
		return k
	}
	b.WriteString(xml.Header + `<ListBucketResult xmlns="http://s3.amazonaws.com/doc/2006-03-01/">`)
	text("Name", bucket)
	text("Prefix", key(l.prefix))
	text("KeyCount", strconv.Itoa(len(l.objects)))
	text("MaxKeys", strconv.Itoa(l.max))
	if l.urlForm {
		text("EncodingType", "url")
	}
	text("IsTruncated", strconv.FormatBool(l.truncated))
	if l.next != "" {
		text("NextContinuationToken", l.next)
	}
	for i := range l.objects {
		o := &l.objects[i]
		b.WriteString("<Contents>")
		text("Key", key(o.key))
		text("LastModified", o.modified.UTC().Format("2006-01-02T15:04:05.000Z"))
		text("ETag", `"`+o.etag+`"`)
		text("Size", strconv.FormatInt(o.size, 10))
		text("StorageClass", "STANDARD")
		b.WriteString("</Contents>")
	}
	b.WriteString("</ListBucketResult>")
	return b.Bytes()
}

// Age makes an object look older, for listings that lag.
func (s *Server) Age(key string, by time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if o, ok := s.objects.get(key); ok {
		o.modified = o.modified.Add(-by)
	}
}
