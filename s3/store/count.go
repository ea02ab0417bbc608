package store

import (
	"context"
	"io"
	"maps"
	"sync"
	"time"

	"pipedeck/pipeline"
)

// OpCount is what was asked of a store in one kind of request.
type OpCount struct {
	Requests int64
	Errors   int64
	Bytes    int64 // of bodies sent
	Seconds  float64
}

// Counter counts requests by operation ("put", "list", …). The zero value is
// ready.
type Counter struct {
	mu  sync.Mutex
	ops map[string]OpCount
	// Observe, if set before use, sees every request as it ends.
	Observe func(op string, took time.Duration, err error)
}

// Ops returns a copy of the counts.
func (c *Counter) Ops() map[string]OpCount {
	c.mu.Lock()
	defer c.mu.Unlock()
	return maps.Clone(c.ops)
}

// Requests is the number of requests of all kinds.
func (c *Counter) Requests() int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	var n int64
	for _, op := range c.ops {
		n += op.Requests
	}
	return n
}

func (c *Counter) ended(op string, n int, began time.Time, err error) {
	took := time.Since(began)
	c.mu.Lock()
	if c.ops == nil {
		c.ops = make(map[string]OpCount)
	}
	o := c.ops[op]
	o.Requests++
	o.Bytes += int64(n)
	o.Seconds += took.Seconds()
	if err != nil {
		o.Errors++
	}
	c.ops[op] = o
	c.mu.Unlock()
	if c.Observe != nil {
		c.Observe(op, took, err)
	}
}

// Count makes a store that counts what is asked of it.
func Count(inner pipeline.Store, c *Counter) pipeline.Store { return &counted{Store: inner, c: c} }

type counted struct {
	pipeline.Store
	c *Counter
}

func (s *counted) Put(ctx context.Context, req pipeline.PutRequest) (res pipeline.PutResult, err error) {
	defer func(t time.Time) { s.c.ended("put", len(req.Body), t, err) }(time.Now())
	return s.Store.Put(ctx, req)
}

func (s *counted) Head(ctx context.Context, key string) (obj pipeline.Object, err error) {
	defer func(t time.Time) { s.c.ended("head", 0, t, err) }(time.Now())
	return s.Store.Head(ctx, key)
}

func (s *counted) Get(ctx context.Context, key string, offset int64) (r io.ReadCloser, obj pipeline.Object, err error) {
	defer func(t time.Time) { s.c.ended("get", 0, t, err) }(time.Now())
	return s.Store.Get(ctx, key, offset)
}

func (s *counted) List(ctx context.Context, req pipeline.ListRequest) (page pipeline.ListPage, err error) {
	defer func(t time.Time) { s.c.ended("list", 0, t, err) }(time.Now())
	return s.Store.List(ctx, req)
}

func (s *counted) Delete(ctx context.Context, key string) (err error) {
	defer func(t time.Time) { s.c.ended("delete", 0, t, err) }(time.Now())
	return s.Store.Delete(ctx, key)
}

func (s *counted) CreateMultipart(ctx context.Context, key string) (id string, err error) {
	defer func(t time.Time) { s.c.ended("create", 0, t, err) }(time.Now())
	return s.Store.CreateMultipart(ctx, key)
}

func (s *counted) UploadPart(ctx context.Context, part pipeline.PartRequest) (etag string, err error) {
	defer func(t time.Time) { s.c.ended("part", len(part.Body), t, err) }(time.Now())
	return s.Store.UploadPart(ctx, part)
}

func (s *counted) CompleteMultipart(ctx context.Context, req pipeline.CompleteRequest) (res pipeline.PutResult, err error) {
	defer func(t time.Time) { s.c.ended("complete", 0, t, err) }(time.Now())
	return s.Store.CompleteMultipart(ctx, req)
}

func (s *counted) AbortMultipart(ctx context.Context, key, uploadID string) (err error) {
	defer func(t time.Time) { s.c.ended("abort", 0, t, err) }(time.Now())
	return s.Store.AbortMultipart(ctx, key, uploadID)
}
