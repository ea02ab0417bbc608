package store

import (
	"bytes"
	"context"
	"crypto/md5"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"hash/crc32"
	"slices"
	"time"

	"pipedeck/pipeline"
)

const (
	probeTimeout  = 2 * time.Minute
	throttlePause = 1100 * time.Millisecond
)

// Profile returns what the endpoint was found to do, probing it on the first
// call. Callers at the same time share one probe; a failed one is not kept.
func (c *Client) Profile(ctx context.Context) (pipeline.StoreProfile, error) {
	if p := c.profile.Load(); p != nil {
		return *p, nil
	}
	// The probe outlives the caller that happened to be first: others wait
	// for it too, and it removes its objects.
	ch := c.probing.DoChan("profile", func() (any, error) {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), probeTimeout)
		defer cancel()
		p, err := c.runProbe(ctx)
		if err == nil {
			c.profile.Store(&p)
		}
		return p, err
	})
	select {
	case r := <-ch:
		if r.Err != nil {
			return pipeline.StoreProfile{}, r.Err
		}
		return r.Val.(pipeline.StoreProfile), nil
	case <-ctx.Done():
		return pipeline.StoreProfile{}, &pipeline.StoreError{Op: "probe", Class: pipeline.StoreTransient, Err: ctx.Err()}
	}
}

// prober finds out what an endpoint does with 1 KiB objects of its own.
type prober struct {
	c       *Client
	base    string // prefix of this probe's keys
	data    []byte
	form    form
	found   pipeline.StoreProfile
	written []string
}

func (c *Client) runProbe(ctx context.Context) (pipeline.StoreProfile, error) {
	p := newProber(c)
	defer p.cleanUp(ctx)
	for _, step := range []func(context.Context) error{
		p.plainPut, p.wrongMD5, p.wrongChecksum, p.missing, p.conditions, p.listing, p.multipart,
	} {
		if err := step(ctx); err != nil {
			return pipeline.StoreProfile{}, err
		}
	}
	return p.found, nil
}

func newProber(c *Client) *prober {
	var id [8]byte
	_, _ = rand.Read(id[:]) // never fails
	name := hex.EncodeToString(id[:])
	return &prober{c: c, base: c.opt.ScratchPrefix + name + "-", data: bytes.Repeat([]byte(name), 64)}
}

func (p *prober) request(name string) pipeline.PutRequest {
	return pipeline.PutRequest{
		Key: p.base + name, Body: p.data, MD5: md5.Sum(p.data),
		CRC32C: crc32.Checksum(p.data, crc32.MakeTable(crc32.Castagnoli)),
	}
}

// put writes an object of the probe. An endpoint that takes one write per
// second and key (R2) is given that second.
func (p *prober) put(ctx context.Context, req pipeline.PutRequest) (pipeline.PutResult, error) {
	if !slices.Contains(p.written, req.Key) {
		p.written = append(p.written, req.Key)
	}
	res, err := p.c.put(ctx, req, p.form)
	var e *pipeline.StoreError
	if !errors.As(err, &e) || e.Class != pipeline.StoreThrottled {
		return res, err
	}
	select {
	case <-ctx.Done():
		return res, err
	case <-time.After(max(e.RetryAfter, throttlePause)):
		return p.c.put(ctx, req, p.form)
	}
}

// lie writes an object with a sum that does not fit, under a name of its own.
func (p *prober) lie(ctx context.Context, req pipeline.PutRequest) (res pipeline.PutResult, refusal bool, err error) {
	res, err = p.put(ctx, req)
	refusal, err = refused(err)
	if refusal {
		p.written = slices.DeleteFunc(p.written, func(key string) bool { return key == req.Key })
	}
	return res, refusal, err
}

// refused tells an endpoint's refusal from a failure that says nothing of its
// abilities; the latter ends the probe.
func refused(err error) (bool, error) {
	var e *pipeline.StoreError
	if err == nil {
		return false, nil
	}
	if errors.As(err, &e) && e.Status >= 400 && e.Class != pipeline.StoreTransient && e.Class != pipeline.StoreThrottled ||
		errors.As(err, &e) && e.Status == 501 {
		return true, nil
	}
	return false, err
}

// final says that no other form of the request can help.
func final(err error) bool {
	var e *pipeline.StoreError
	if !errors.As(err, &e) || e.Status == 0 {
		return true
	}
	switch e.Code {
	case "NoSuchBucket", "InvalidAccessKeyId", "ExpiredToken", "InvalidToken", "PermanentRedirect", "RequestTimeTooSkewed":
		return true
	case "NotImplemented":
		return false
	}
	return e.Class == pipeline.StoreTransient || e.Class == pipeline.StoreThrottled
}

// plainPut finds the strongest form that the endpoint takes.
func (p *prober) plainPut(ctx context.Context) error {
	var err error
	for _, f := range []form{{checksum: true}, {}, {checksum: true, signed: true}, {signed: true}} {
		p.form = f
		if _, err = p.put(ctx, p.request("a")); err == nil {
			p.found.ChecksumHeader, p.found.SignedPayload = f.checksum, f.signed
			return nil
		}
		if final(err) {
			return err
		}
	}
	return err
}

// wrongMD5 asks whether the endpoint holds the body against Content-MD5. One
// that takes the lie and answers with it has ETags that prove nothing.
func (p *prober) wrongMD5(ctx context.Context) error {
	req := p.request("md5")
	req.MD5[0] ^= 0xff
	sum := md5.Sum(p.data)
	res, refusal, err := p.lie(ctx, req)
	p.found.ValidatesMD5 = refusal
	p.found.ETagIsMD5 = refusal || res.ETag == hex.EncodeToString(sum[:])
	return err
}

func (p *prober) wrongChecksum(ctx context.Context) error {
	if !p.form.checksum {
		return nil
	}
	req := p.request("crc")
	req.CRC32C ^= 1
	_, refusal, err := p.lie(ctx, req)
	p.found.ValidatesChecksum = refusal
	return err
}

// missing asks for a key that nothing was written to.
func (p *prober) missing(ctx context.Context) error {
	_, err := p.c.Head(ctx, p.base+"none")
	var e *pipeline.StoreError
	switch {
	case err == nil:
		return fmt.Errorf("cannot probe store: it has an object %q that nobody wrote", p.base+"none")
	case errors.As(err, &e) && e.Status == 403:
		p.found.MissingIsDenied = true
		return nil
	case errors.As(err, &e) && e.Class == pipeline.StoreMissing:
		return nil
	}
	return err
}

// conditions writes "b" only if absent, twice, then "a" only over an ETag that
// it does not have.
func (p *prober) conditions(ctx context.Context) error {
	req := p.request("b")
	req.IfNoneMatch = true
	_, err := p.put(ctx, req)
	takes := err == nil
	if _, err := refused(err); err != nil {
		return err
	}
	if !takes {
		req.IfNoneMatch = false
		if _, err := p.put(ctx, req); err != nil {
			return err
		}
	} else if p.found.ConditionalPut, err = p.condition(ctx, req); err != nil {
		return err
	}
	req = p.request("a")
	req.IfMatch = "00000000000000000000000000000000"
	p.found.ConditionalMatch, err = p.condition(ctx, req)
	return err
}

// condition reports whether a write whose condition is false is refused.
func (p *prober) condition(ctx context.Context, req pipeline.PutRequest) (bool, error) {
	_, err := p.put(ctx, req)
	if _, err := refused(err); err != nil {
		return false, err
	}
	return isClass(err, pipeline.StoreExists), nil
}

// listing looks for "a" and "b" in pages of one object.
func (p *prober) listing(ctx context.Context) error {
	first, err := p.c.List(ctx, pipeline.ListRequest{Prefix: p.base, Max: 1})
	if err != nil {
		return err
	}
	if len(first.Objects) == 0 || first.Objects[0].Key != p.base+"a" || first.Next == "" && len(first.Objects) < 2 {
		return &pipeline.StoreError{
			Op: "probe", Key: p.base + "a", Class: pipeline.StoreTransient, Status: 200,
			Err:  errors.New("a listing does not show what was just written"),
			Hint: "the endpoint's listings lag behind its writes; it is tried again",
		}
	}
	sum := md5.Sum(p.data)
	p.found.ETagIsMD5 = p.found.ETagIsMD5 && first.Objects[0].ETag == hex.EncodeToString(sum[:])
	after, err := p.c.List(ctx, pipeline.ListRequest{Prefix: p.base, StartAfter: p.base + "a", Max: 1})
	switch {
	case err == nil:
		p.found.ListStartAfter = len(after.Objects) > 0 && after.Objects[0].Key > p.base+"a"
	case isClass(err, pipeline.StoreTransient) && statusOf(err) == 200: // start-after was ignored
	default:
		_, err = refused(err)
		return err
	}
	return nil
}

// multipart uploads "b" again, in one part.
func (p *prober) multipart(ctx context.Context) error {
	key := p.base + "b"
	id, err := p.c.CreateMultipart(ctx, key)
	if err != nil {
		_, err = refused(err)
		return err
	}
	sum := md5.Sum(p.data)
	etag, err := p.c.uploadPart(ctx, pipeline.PartRequest{Key: key, UploadID: id, Number: 1, Body: p.data, MD5: sum}, p.form.signed)
	var res pipeline.PutResult
	if err == nil {
		res, err = p.c.CompleteMultipart(ctx, pipeline.CompleteRequest{Key: key, UploadID: id, ETags: []string{etag}})
	}
	if err != nil {
		_ = p.c.AbortMultipart(ctx, key, id)
		_, err = refused(err)
		return err
	}
	// A server that joins the parts into a plain object answers with one ETag
	// and lists another.
	obj, err := p.c.Head(ctx, key)
	if err != nil {
		return err
	}
	p.found.MultipartETag = res.ETag == MultipartETag([][16]byte{sum}) && obj.ETag == res.ETag
	return nil
}

// MultipartETag is the ETag that AWS gives an object of these parts.
func MultipartETag(parts [][16]byte) string {
	h := md5.New()
	for _, sum := range parts {
		h.Write(sum[:])
	}
	return fmt.Sprintf("%x-%d", h.Sum(nil), len(parts))
}

// cleanUp removes what the probe wrote. What cannot be removed is left: a key
// that may not delete is still good for uploads.
func (p *prober) cleanUp(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
	defer cancel()
	for _, key := range p.written {
		if err := p.c.Delete(ctx, key); err != nil {
			return
		}
	}
}

func isClass(err error, class pipeline.StoreClass) bool {
	var e *pipeline.StoreError
	return errors.As(err, &e) && e.Class == class
}

func statusOf(err error) int {
	if e, ok := errors.AsType[*pipeline.StoreError](err); ok {
		return e.Status
	}
	return 0
}
