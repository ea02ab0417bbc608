package store

import (
	"context"
	"io"

	"golang.org/x/time/rate"

	"pipedeck/pipeline"
)

// Limiter bounds requests and bytes per second over all stores that share it.
type Limiter struct {
	requests *rate.Limiter
	bytes    *rate.Limiter
}

// NewLimiter makes a limiter of requests per second and bytes per second; zero
// is no limit.
func NewLimiter(requestsPerSecond float64, bytesPerSecond int64) *Limiter {
	l := &Limiter{requests: rate.NewLimiter(rate.Inf, 0), bytes: rate.NewLimiter(rate.Inf, 0)}
	if requestsPerSecond > 0 {
		// A tenth of a second of burst keeps the workers busy without going
		// over what an endpoint counts in its windows.
		l.requests = rate.NewLimiter(rate.Limit(requestsPerSecond), max(1, int(requestsPerSecond/10)))
	}
	if bytesPerSecond > 0 {
		l.bytes = rate.NewLimiter(rate.Limit(bytesPerSecond), int(max(64<<10, bytesPerSecond/4)))
	}
	return l
}

// wait takes a turn for one request that moves n bytes.
func (l *Limiter) wait(ctx context.Context, op, key string, n int) error {
	err := l.requests.Wait(ctx)
	if err == nil {
		err = l.waitBytes(ctx, n)
	}
	if err != nil {
		return &pipeline.StoreError{Op: op, Key: key, Class: pipeline.StoreTransient, Err: err}
	}
	return nil
}

func (l *Limiter) waitBytes(ctx context.Context, n int) error {
	if l.bytes.Limit() == rate.Inf {
		return nil
	}
	for n > 0 {
		step := min(n, l.bytes.Burst())
		if err := l.bytes.WaitN(ctx, step); err != nil {
			return err
		}
		n -= step
	}
	return nil
}

// Limit makes a store that takes its turn at the limiter before each request.
func Limit(inner pipeline.Store, l *Limiter) pipeline.Store { return &limited{Store: inner, l: l} }

type limited struct {
	pipeline.Store
	l *Limiter
}

func (s *limited) Put(ctx context.Context, req pipeline.PutRequest) (pipeline.PutResult, error) {
	if err := s.l.wait(ctx, "put", req.Key, len(req.Body)); err != nil {
		return pipeline.PutResult{}, err
	}
	return s.Store.Put(ctx, req)
}

func (s *limited) Head(ctx context.Context, key string) (pipeline.Object, error) {
	if err := s.l.wait(ctx, "head", key, 0); err != nil {
		return pipeline.Object{}, err
	}
	return s.Store.Head(ctx, key)
}

func (s *limited) Get(ctx context.Context, key string, offset int64) (io.ReadCloser, pipeline.Object, error) {
	if err := s.l.wait(ctx, "get", key, 0); err != nil {
		return nil, pipeline.Object{}, err
	}
	r, obj, err := s.Store.Get(ctx, key, offset)
	if err != nil {
		return nil, obj, err
	}
	return &limitedBody{ReadCloser: r, ctx: ctx, l: s.l}, obj, nil
}

func (s *limited) List(ctx context.Context, req pipeline.ListRequest) (pipeline.ListPage, error) {
	if err := s.l.wait(ctx, "list", req.Prefix, 0); err != nil {
		return pipeline.ListPage{}, err
	}
	return s.Store.List(ctx, req)
}

func (s *limited) Delete(ctx context.Context, key string) error {
	if err := s.l.wait(ctx, "delete", key, 0); err != nil {
		return err
	}
	return s.Store.Delete(ctx, key)
}

func (s *limited) CreateMultipart(ctx context.Context, key string) (string, error) {
	if err := s.l.wait(ctx, "create upload of", key, 0); err != nil {
		return "", err
	}
	return s.Store.CreateMultipart(ctx, key)
}

func (s *limited) UploadPart(ctx context.Context, part pipeline.PartRequest) (string, error) {
	if err := s.l.wait(ctx, "put part of", part.Key, len(part.Body)); err != nil {
		return "", err
	}
	return s.Store.UploadPart(ctx, part)
}

func (s *limited) CompleteMultipart(ctx context.Context, req pipeline.CompleteRequest) (pipeline.PutResult, error) {
	if err := s.l.wait(ctx, "complete upload of", req.Key, 0); err != nil {
		return pipeline.PutResult{}, err
	}
	return s.Store.CompleteMultipart(ctx, req)
}

func (s *limited) AbortMultipart(ctx context.Context, key, uploadID string) error {
	if err := s.l.wait(ctx, "abort upload of", key, 0); err != nil {
		return err
	}
	return s.Store.AbortMultipart(ctx, key, uploadID)
}

type limitedBody struct {
	io.ReadCloser
	ctx context.Context
	l   *Limiter
}

func (b *limitedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if werr := b.l.waitBytes(b.ctx, n); werr != nil {
		return n, werr
	}
	return n, err
}
