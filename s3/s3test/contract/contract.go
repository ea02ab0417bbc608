// Package contract holds every pipeline.Store to the same promises, whatever
// server is behind it. What a server does not do, its Profile has to say.
package contract

import (
	"bytes"
	"context"
	"crypto/md5"
	"encoding/hex"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sync/errgroup"

	"pipedeck/pipeline"
)

// Store runs the suite. newStore gives a store on an empty bucket, or on a
// prefix that nothing else writes to.
func Store(t *testing.T, newStore func(t *testing.T) pipeline.Store) {
	t.Helper()
	st := newStore(t)
	p, err := st.Profile(t.Context())
	if err != nil {
		t.Fatalf("cannot probe: %v", err)
	}
	t.Logf("profile: %+v", p)
	s := &suite{Store: st, profile: p}
	for _, row := range []struct {
		name string
		run  func(*suite, *testing.T)
	}{
		{"round trip", (*suite).roundTrip},
		{"get from an offset", (*suite).offset},
		{"missing objects", (*suite).missing},
		{"replace", (*suite).replace},
		{"wrong sums", (*suite).wrongSums},
		{"write only if absent", (*suite).onlyIfAbsent},
		{"write only over an ETag", (*suite).onlyOver},
		{"odd names", (*suite).oddNames},
		{"pages", (*suite).pages},
		{"full pages", (*suite).fullPages},
		{"multipart", (*suite).multipart},
		{"multipart given up", (*suite).aborted},
		{"multipart with a wrong part", (*suite).wrongPart},
		{"cancelled", (*suite).cancelled},
	} {
		t.Run(row.name, func(t *testing.T) { row.run(s, t) })
	}
}

type suite struct {
	pipeline.Store
	profile pipeline.StoreProfile
}

// Request is a PutRequest with the right sums.
func Request(key string, body []byte) pipeline.PutRequest {
	return pipeline.PutRequest{Key: key, Body: body, MD5: md5.Sum(body), CRC32C: crc(body)}
}

func crc(body []byte) uint32 { return crc32.Checksum(body, crc32.MakeTable(crc32.Castagnoli)) }

// Bytes are the same for the same seed.
func Bytes(seed uint64, n int) []byte {
	var s [32]byte
	s[0], s[1] = byte(seed), byte(seed>>8)
	out := make([]byte, n)
	_, _ = rand.NewChaCha8(s).Read(out) // never fails
	return out
}

func (s *suite) put(t *testing.T, key string, body []byte) pipeline.PutResult {
	t.Helper()
	res, err := s.Put(t.Context(), Request(key, body))
	if err != nil {
		t.Fatalf("put %q: %v", key, err)
	}
	return res
}

// holds fails unless the object's bytes are body.
func (s *suite) holds(t *testing.T, key string, body []byte) {
	t.Helper()
	r, obj, err := s.Get(t.Context(), key, 0)
	if err != nil {
		t.Fatalf("get %q: %v", key, err)
	}
	defer func() { _ = r.Close() }()
	got, err := io.ReadAll(r)
	if err != nil || !bytes.Equal(got, body) {
		t.Fatalf("get %q: %d bytes, err %v; want %d bytes", key, len(got), err, len(body))
	}
	if obj.Size != int64(len(body)) {
		t.Errorf("get %q: size %d, want %d", key, obj.Size, len(body))
	}
}

// list collects all pages.
func (s *suite) list(t *testing.T, req pipeline.ListRequest) (objects []pipeline.Object, pages int) {
	t.Helper()
	for {
		page, err := s.List(t.Context(), req)
		if err != nil {
			t.Fatalf("list %+v: %v", req, err)
		}
		objects, pages = append(objects, page.Objects...), pages+1
		if page.Next == "" {
			return objects, pages
		}
		req.Token = page.Next
	}
}

func keysOf(objects []pipeline.Object) []string {
	keys := make([]string, 0, len(objects))
	for _, o := range objects {
		keys = append(keys, o.Key)
	}
	return keys
}

func wantClass(t *testing.T, err error, class pipeline.StoreClass) {
	t.Helper()
	var e *pipeline.StoreError
	if !errors.As(err, &e) {
		t.Fatalf("error %v (%T), want a StoreError of class %q", err, err, class)
	}
	if e.Class != class {
		t.Fatalf("error %v: class %q, code %q, status %d; want class %q", e, e.Class, e.Code, e.Status, class)
	}
}

func (s *suite) roundTrip(t *testing.T) {
	t.Helper()
	for _, n := range []int{0, 1, 1<<20 + 3} {
		key, body := fmt.Sprintf("trip/%d.bin", n), Bytes(uint64(n), n)
		res := s.put(t, key, body)
		s.holds(t, key, body)
		obj, err := s.Head(t.Context(), key)
		if err != nil {
			t.Fatal(err)
		}
		listed, _ := s.list(t, pipeline.ListRequest{Prefix: key})
		if len(listed) != 1 || listed[0].Size != int64(n) || obj.Size != int64(n) {
			t.Fatalf("%d bytes: head says %+v, listing says %+v", n, obj, listed)
		}
		if obj.ETag != res.ETag || listed[0].ETag != res.ETag || strings.Contains(res.ETag, `"`) {
			t.Errorf("ETag of put %q, of head %q, of listing %q", res.ETag, obj.ETag, listed[0].ETag)
		}
		if sum := md5.Sum(body); s.profile.ETagIsMD5 && res.ETag != hex.EncodeToString(sum[:]) {
			t.Errorf("ETag %q is not the MD5 %x", res.ETag, sum)
		}
		if obj.Modified.IsZero() || listed[0].Modified.IsZero() {
			t.Errorf("no time of modification: head %v, listing %v", obj.Modified, listed[0].Modified)
		}
	}
}

func (s *suite) offset(t *testing.T) {
	t.Helper()
	body := Bytes(1, 10_000)
	s.put(t, "offset", body)
	r, obj, err := s.Get(t.Context(), "offset", 4_000)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = r.Close() }()
	got, err := io.ReadAll(r)
	if err != nil || !bytes.Equal(got, body[4_000:]) || obj.Size != 10_000 {
		t.Errorf("%d bytes from 4000, size %d, err %v", len(got), obj.Size, err)
	}
}

func (s *suite) missing(t *testing.T) {
	t.Helper()
	_, err := s.Head(t.Context(), "nobody/wrote/this")
	wantClass(t, err, pipeline.StoreMissing)
	_, _, err = s.Get(t.Context(), "nobody/wrote/this", 0)
	wantClass(t, err, pipeline.StoreMissing)
	if err := s.Delete(t.Context(), "nobody/wrote/this"); err != nil {
		t.Errorf("delete of a missing object: %v", err)
	}
	s.put(t, "gone", []byte("soon"))
	if err := s.Delete(t.Context(), "gone"); err != nil {
		t.Fatal(err)
	}
	_, err = s.Head(t.Context(), "gone")
	wantClass(t, err, pipeline.StoreMissing)
	if page, err := s.List(t.Context(), pipeline.ListRequest{Prefix: "gone"}); err != nil || len(page.Objects) != 0 || page.Next != "" {
		t.Errorf("listing of nothing: %+v, %v", page, err)
	}
}

func (s *suite) replace(t *testing.T) {
	t.Helper()
	s.put(t, "replace", []byte("old"))
	s.put(t, "replace", []byte("newer"))
	s.holds(t, "replace", []byte("newer"))
}

func (s *suite) wrongSums(t *testing.T) {
	t.Helper()
	for _, row := range []struct {
		name  string
		holds bool
		spoil func(*pipeline.PutRequest)
	}{
		{"md5", s.profile.ValidatesMD5, func(r *pipeline.PutRequest) { r.MD5[3] ^= 1 }},
		{"crc", s.profile.ValidatesChecksum, func(r *pipeline.PutRequest) { r.CRC32C ^= 1 }},
	} {
		t.Run(row.name, func(t *testing.T) {
			if !row.holds {
				t.Skip("the profile says that the endpoint does not validate it")
			}
			req := Request("spoiled-"+row.name, []byte("body"))
			row.spoil(&req)
			_, err := s.Put(t.Context(), req)
			wantClass(t, err, pipeline.StoreIntegrity)
			_, err = s.Head(t.Context(), req.Key)
			wantClass(t, err, pipeline.StoreMissing)
		})
	}
}

func (s *suite) onlyIfAbsent(t *testing.T) {
	t.Helper()
	if !s.profile.ConditionalPut {
		t.Skip("the profile says that the endpoint does not honour If-None-Match")
	}
	req := Request("once", []byte("first"))
	req.IfNoneMatch = true
	if _, err := s.Put(t.Context(), req); err != nil {
		t.Fatal(err)
	}
	req = Request("once", []byte("second"))
	req.IfNoneMatch = true
	_, err := s.Put(t.Context(), req)
	wantClass(t, err, pipeline.StoreExists)
	s.holds(t, "once", []byte("first"))
}

func (s *suite) onlyOver(t *testing.T) {
	t.Helper()
	if !s.profile.ConditionalMatch {
		t.Skip("the profile says that the endpoint does not honour If-Match")
	}
	first := s.put(t, "over", []byte("first"))
	req := Request("over", []byte("second"))
	req.IfMatch = first.ETag
	if _, err := s.Put(t.Context(), req); err != nil {
		t.Fatal(err)
	}
	req = Request("over", []byte("third"))
	req.IfMatch = first.ETag
	_, err := s.Put(t.Context(), req)
	wantClass(t, err, pipeline.StoreExists)
	s.holds(t, "over", []byte("second"))
}

func (s *suite) oddNames(t *testing.T) {
	t.Helper()
	names := []string{
		"a b", "a+b", "a%20b", "a%b", "a#b", "a?b", "a&b=c", "a;b", "a:b", "a,b", "a'b", `a"b`, "(a)", "[a]", "{a}", "<a>", "a@b",
		"a$b", "a!b", "a*b", "a=b", "a~b", "a|b", "a^b", "a`b", "-a", ".a", "a.", "ä", "a\u0308", "日本", "🚀", "sub/dir/a b+c%",
	}
	want := make([]string, 0, len(names))
	for i, name := range names {
		key := "odd/" + name
		s.put(t, key, Bytes(uint64(i), 100+i))
		want = append(want, key)
	}
	slices.Sort(want)
	got, _ := s.list(t, pipeline.ListRequest{Prefix: "odd/"})
	if !slices.Equal(keysOf(got), want) {
		t.Errorf("listed\n got %q\nwant %q", keysOf(got), want)
	}
	for i, name := range names {
		s.holds(t, "odd/"+name, Bytes(uint64(i), 100+i))
	}
}

func (s *suite) fill(t *testing.T, prefix string, n int) []string {
	t.Helper()
	keys := make([]string, 0, n)
	var g errgroup.Group
	g.SetLimit(16)
	for i := range n {
		key := fmt.Sprintf("%s%06d", prefix, i)
		keys = append(keys, key)
		g.Go(func() error {
			_, err := s.Put(t.Context(), Request(key, []byte(key)))
			return err
		})
	}
	if err := g.Wait(); err != nil {
		t.Fatal(err)
	}
	return keys
}

func (s *suite) pages(t *testing.T) {
	t.Helper()
	keys := s.fill(t, "pages/", 25)
	s.put(t, "pages-not", []byte("x"))
	got, pages := s.list(t, pipeline.ListRequest{Prefix: "pages/", Max: 10})
	if !slices.Equal(keysOf(got), keys) || pages != 3 {
		t.Errorf("%d pages: %q", pages, keysOf(got))
	}
	if !s.profile.ListStartAfter {
		t.Skip("the profile says that the endpoint does not honour start-after")
	}
	got, _ = s.list(t, pipeline.ListRequest{Prefix: "pages/", StartAfter: keys[6], Max: 10})
	if !slices.Equal(keysOf(got), keys[7:]) {
		t.Errorf("after %q: %q", keys[6], keysOf(got))
	}
	got, _ = s.list(t, pipeline.ListRequest{Prefix: "pages/", StartAfter: "pages/000006x"})
	if !slices.Equal(keysOf(got), keys[7:]) {
		t.Errorf("after a key that is not there: %q", keysOf(got))
	}
}

func (s *suite) fullPages(t *testing.T) {
	t.Helper()
	keys := s.fill(t, "full/", 1_010)
	got, pages := s.list(t, pipeline.ListRequest{Prefix: "full/"})
	if !slices.Equal(keysOf(got), keys) || pages != 2 {
		t.Errorf("%d keys in %d pages", len(got), pages)
	}
}

// parts uploads bodies as parts and returns their ETags and MD5s.
func (s *suite) parts(t *testing.T, key, id string, bodies ...[]byte) (etags []string, sums []byte) {
	t.Helper()
	for i, b := range bodies {
		sum := md5.Sum(b)
		etag, err := s.UploadPart(t.Context(), pipeline.PartRequest{
			Key: key, UploadID: id, Number: i + 1, Body: b, MD5: sum, CRC32C: crc(b),
		})
		if err != nil {
			t.Fatalf("part %d: %v", i+1, err)
		}
		etags, sums = append(etags, etag), append(sums, sum[:]...)
	}
	return etags, sums
}

func (s *suite) multipart(t *testing.T) {
	t.Helper()
	const key = "multi/file.bin"
	body := Bytes(9, 5<<20+1_000)
	id, err := s.CreateMultipart(t.Context(), key)
	if err != nil {
		t.Fatal(err)
	}
	etags, sums := s.parts(t, key, id, body[:5<<20], body[5<<20:])
	res, err := s.CompleteMultipart(t.Context(), pipeline.CompleteRequest{Key: key, UploadID: id, ETags: etags})
	if err != nil {
		t.Fatal(err)
	}
	s.holds(t, key, body)
	obj, err := s.Head(t.Context(), key)
	if err != nil || obj.Size != int64(len(body)) {
		t.Errorf("head says %+v, %v", obj, err)
	}
	if want := fmt.Sprintf("%x-2", md5.Sum(sums)); s.profile.MultipartETag && (res.ETag != want || obj.ETag != want) {
		t.Errorf("ETag of complete %q, of head %q, want %q", res.ETag, obj.ETag, want)
	}
}

func (s *suite) aborted(t *testing.T) {
	t.Helper()
	const key = "multi/given-up"
	id, err := s.CreateMultipart(t.Context(), key)
	if err != nil {
		t.Fatal(err)
	}
	etags, _ := s.parts(t, key, id, []byte("part"))
	if err := s.AbortMultipart(t.Context(), key, id); err != nil {
		t.Fatal(err)
	}
	if err := s.AbortMultipart(t.Context(), key, id); err != nil {
		t.Errorf("a second abort: %v", err)
	}
	if _, err := s.CompleteMultipart(t.Context(), pipeline.CompleteRequest{Key: key, UploadID: id, ETags: etags}); err == nil {
		t.Error("a given-up upload could be completed")
	}
	_, err = s.Head(t.Context(), key)
	wantClass(t, err, pipeline.StoreMissing)
}

func (s *suite) wrongPart(t *testing.T) {
	t.Helper()
	const key = "multi/wrong"
	id, err := s.CreateMultipart(t.Context(), key)
	if err != nil {
		t.Fatal(err)
	}
	etags, _ := s.parts(t, key, id, []byte("part"))
	etags[0] = strings.Repeat("0", 32)
	if _, err := s.CompleteMultipart(t.Context(), pipeline.CompleteRequest{Key: key, UploadID: id, ETags: etags}); err == nil {
		t.Error("completed with an ETag that no part has")
	}
	if err := s.AbortMultipart(t.Context(), key, id); err != nil {
		t.Error(err)
	}
}

func (s *suite) cancelled(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := s.Put(ctx, Request("cancelled", []byte("x")))
	wantClass(t, err, pipeline.StoreTransient)
	if !errors.Is(err, context.Canceled) {
		t.Errorf("%v is not context.Canceled", err)
	}
	_, err = s.List(ctx, pipeline.ListRequest{Prefix: "x"})
	if !errors.Is(err, context.Canceled) {
		t.Errorf("%v is not context.Canceled", err)
	}
}
