package store

import (
	"bytes"
	"errors"
	"fmt"
	"strconv"
	"time"
	"unicode/utf8"

	"github.com/aws/smithy-go"

	"pipedeck/pipeline"
)

// page is one decoded ListObjectsV2 answer.
type page struct {
	objects   []pipeline.Object
	truncated bool
	next      string
}

var (
	errCutOff = errors.New("the listing is cut off")
	errNotXML = errors.New("the listing is not well-formed XML")
)

// scanPage decodes a listing in one pass. It knows as much XML as S3 servers
// write: elements, attributes (skipped), text, CDATA, entities, comments.
func scanPage(data []byte) (page, error) {
	// Sizes of an entry with a short key: a guess that saves growing.
	s := pageScan{
		scanner: scanner{in: data},
		arena:   make([]byte, 0, len(data)/3),
		found:   make([]found, 0, min(maxKeys, len(data)/200)),
	}
	if err := s.run(); err != nil {
		return page{}, err
	}
	return s.finish()
}

// span is a decoded text in the scan's arena.
type span struct{ from, to int }

type found struct {
	key, etag span
	size      int64
	modified  time.Time
	garbled   bool // the key is not as it is stored
}

// pageScan collects texts in one arena that becomes one string: a page costs
// a handful of allocations, not thousands.
type pageScan struct {
	scanner
	arena     []byte
	found     []found
	path      [4]string // names of open elements, by depth from 1
	raw       [4][]byte // … as they are written
	depth     int
	urlForm   bool
	truncated bool
	complete  bool
	next      string
	code, msg string
}

func (s *pageScan) run() error {
	for {
		tok, err := s.token()
		if err != nil {
			return err
		}
		switch tok.kind {
		case tokenEnd:
			if !s.complete {
				return errCutOff
			}
			return nil
		case tokenOpen:
			s.open(tok.name)
		case tokenClose:
			if err := s.close(tok.name, tok.text); err != nil {
				return err
			}
		}
	}
}

func (s *pageScan) open(name []byte) {
	s.depth++
	if s.depth < len(s.path) {
		s.path[s.depth], s.raw[s.depth] = element(name), name
	}
	if s.depth == 2 && s.path[2] == "Contents" {
		s.found = append(s.found, found{})
	}
}

// element interns the names that matter; all others are "".
func element(name []byte) string {
	switch string(name) {
	case "ListBucketResult":
		return "ListBucketResult"
	case "Error":
		return "Error"
	case "Contents":
		return "Contents"
	case "Key":
		return "Key"
	case "Size":
		return "Size"
	case "ETag":
		return "ETag"
	case "LastModified":
		return "LastModified"
	case "IsTruncated":
		return "IsTruncated"
	case "NextContinuationToken":
		return "NextContinuationToken"
	case "EncodingType":
		return "EncodingType"
	case "Code":
		return "Code"
	case "Message":
		return "Message"
	}
	return ""
}

func (s *pageScan) close(name, text []byte) error {
	if s.depth == 0 {
		return errNotXML
	}
	at := ""
	if s.depth < len(s.path) {
		at = s.path[s.depth]
		if !bytes.Equal(s.raw[s.depth], name) {
			return errNotXML
		}
	}
	var err error
	switch s.depth {
	case 3:
		if s.path[2] == "Contents" {
			err = s.field(at, text)
		}
	case 2:
		err = s.head(at, text)
	case 1:
		s.complete = true
	}
	s.depth--
	return err
}

// head takes a child of the root.
func (s *pageScan) head(at string, text []byte) error {
	switch at {
	case "IsTruncated":
		s.truncated = string(bytes.TrimSpace(text)) == "true"
	case "EncodingType":
		s.urlForm = string(bytes.TrimSpace(text)) == "url"
	case "NextContinuationToken":
		sp, err := s.keep(text)
		s.next = string(s.arena[sp.from:sp.to])
		return err
	case "Code":
		s.code = string(text)
	case "Message":
		s.msg = string(text)
	}
	return nil
}

// field takes a child of Contents.
func (s *pageScan) field(at string, text []byte) (err error) {
	f := &s.found[len(s.found)-1]
	switch at {
	case "Key":
		f.key, err = s.keep(text)
		// Before decodeKeys: a character of its own would come encoded.
		f.garbled = bytes.ContainsRune(s.arena[f.key.from:f.key.to], utf8.RuneError)
	case "ETag":
		f.etag, err = s.keep(text)
	case "Size":
		f.size, err = strconv.ParseInt(string(bytes.TrimSpace(text)), 10, 64)
		if err != nil || f.size < 0 {
			return fmt.Errorf("the listing holds a size of %q", text)
		}
	case "LastModified":
		f.modified, _ = time.Parse(time.RFC3339Nano, string(text))
	}
	return err
}

// keep appends text to the arena with its entities resolved.
func (s *pageScan) keep(text []byte) (span, error) {
	from := len(s.arena)
	for {
		i := bytes.IndexByte(text, '&')
		if i < 0 {
			s.arena = append(s.arena, text...)
			return span{from, len(s.arena)}, nil
		}
		s.arena = append(s.arena, text[:i]...)
		end := bytes.IndexByte(text[i:], ';')
		if end < 0 {
			return span{}, errNotXML
		}
		r, ok := entity(text[i+1 : i+end])
		if !ok {
			return span{}, errNotXML
		}
		s.arena = utf8.AppendRune(s.arena, r)
		text = text[i+end+1:]
	}
}

// entity resolves a reference, also to characters that XML forbids and S3
// keys may hold.
func entity(name []byte) (rune, bool) {
	switch string(name) {
	case "amp":
		return '&', true
	case "lt":
		return '<', true
	case "gt":
		return '>', true
	case "quot":
		return '"', true
	case "apos":
		return '\'', true
	}
	if len(name) < 2 || name[0] != '#' {
		return 0, false
	}
	digits, base := string(name[1:]), 10
	if digits[0] == 'x' || digits[0] == 'X' {
		digits, base = digits[1:], 16
	}
	n, err := strconv.ParseUint(digits, base, 21)
	return rune(n), err == nil
}

// finish turns what was collected into objects.
func (s *pageScan) finish() (page, error) {
	switch s.path[1] {
	case "ListBucketResult":
	case "Error":
		return page{}, &smithy.GenericAPIError{Code: s.code, Message: s.msg}
	default:
		return page{}, errors.New("the answer is not a listing")
	}
	if s.urlForm {
		s.decodeKeys()
	}
	text := string(s.arena)
	objects := make([]pipeline.Object, 0, len(s.found))
	for _, f := range s.found {
		if f.key.from == f.key.to {
			return page{}, errors.New("the listing holds an object without a key")
		}
		if f.garbled {
			continue // some servers write so what XML cannot: the key is another, and not where it sorts
		}
		objects = append(objects, pipeline.Object{
			Key: text[f.key.from:f.key.to], Size: f.size, ETag: unquote(text[f.etag.from:f.etag.to]), Modified: f.modified,
		})
	}
	return page{objects: objects, truncated: s.truncated, next: s.next}, nil
}

// decodeKeys undoes encoding-type=url in place: decoded keys are never longer.
// AWS and most others write a space as "+" and a plus as "%2B"; a page that
// writes "%20" leaves the plus as it is.
func (s *pageScan) decodeKeys() {
	plus := byte(' ')
	for _, f := range s.found {
		if bytes.Contains(s.arena[f.key.from:f.key.to], []byte("%20")) {
			plus = '+'
			break
		}
	}
	for i := range s.found {
		k := &s.found[i].key
		k.to = k.from + unescape(s.arena[k.from:k.to], plus)
	}
}

// unescape decodes b in place and returns its new length. A percent sign that
// begins no escape stays.
func unescape(b []byte, plus byte) int {
	n := 0
	for i := 0; i < len(b); i++ {
		c := b[i]
		switch {
		case c == '+':
			c = plus
		case c == '%' && i+2 < len(b) && isHex(b[i+1]) && isHex(b[i+2]):
			c = hexValue(b[i+1])<<4 | hexValue(b[i+2])
			i += 2
		}
		b[n] = c
		n++
	}
	return n
}

func isHex(c byte) bool {
	return '0' <= c && c <= '9' || 'a' <= c && c <= 'f' || 'A' <= c && c <= 'F'
}

func hexValue(c byte) byte {
	if c <= '9' {
		return c - '0'
	}
	return c&^0x20 - 'A' + 10
}
