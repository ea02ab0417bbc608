package store

import (
	"context"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"pipedeck/pipeline"
)

func asStoreError(t *testing.T, err error) *pipeline.StoreError {
	t.Helper()
	var e *pipeline.StoreError
	if !errors.As(err, &e) {
		t.Fatalf("%v (%T) is no StoreError", err, err)
	}
	return e
}

// still answers at once and takes everything.
type still struct{ pipeline.Store }

func (still) Put(context.Context, pipeline.PutRequest) (pipeline.PutResult, error) {
	return pipeline.PutResult{ETag: "e"}, nil
}

func (still) Head(context.Context, string) (pipeline.Object, error) {
	return pipeline.Object{}, errors.New("no")
}

func (still) Get(context.Context, string, int64) (io.ReadCloser, pipeline.Object, error) {
	return io.NopCloser(strings.NewReader(strings.Repeat("x", 1<<20))), pipeline.Object{}, nil
}

func TestLimitRequests(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := NewLimiter(100, 0)
		a, b := Limit(still{}, l), Limit(still{}, l)
		began := time.Now()
		for range 100 {
			_, _ = a.Put(t.Context(), pipeline.PutRequest{})
			_, _ = b.Head(t.Context(), "k")
		}
		if took := time.Since(began).Seconds(); took < 1.8 || took > 2.1 {
			t.Errorf("200 requests at 100/s took %.2f s", took)
		}
	})
}

func TestLimitBytes(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := Limit(still{}, NewLimiter(0, 1<<20))
		began := time.Now()
		for range 4 {
			if _, err := s.Put(t.Context(), pipeline.PutRequest{Body: make([]byte, 2<<20)}); err != nil {
				t.Fatal(err)
			}
		}
		r, _, _ := s.Get(t.Context(), "k", 0)
		if n, err := io.Copy(io.Discard, r); n != 1<<20 || err != nil {
			t.Fatal(n, err)
		}
		if took := time.Since(began).Seconds(); took < 8.5 || took > 9.1 {
			t.Errorf("9 MiB at 1 MiB/s took %.2f s", took)
		}
	})
}

func TestLimitEndsWithItsCaller(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	s := Limit(still{}, NewLimiter(0.001, 0))
	if _, err := s.Put(ctx, pipeline.PutRequest{}); err != nil {
		t.Fatal(err)
	}
	cancel()
	_, err := s.Put(ctx, pipeline.PutRequest{Key: "k"})
	if e := asStoreError(t, err); e.Class != pipeline.StoreTransient || !errors.Is(err, context.Canceled) {
		t.Errorf("%+v", e)
	}
}

func TestCount(t *testing.T) {
	t.Parallel()
	var seen []string
	c := &Counter{Observe: func(op string, _ time.Duration, err error) {
		if err != nil {
			op += " failed"
		}
		seen = append(seen, op)
	}}
	s := Count(still{}, c)
	_, _ = s.Put(t.Context(), pipeline.PutRequest{Body: make([]byte, 5)})
	_, _ = s.Put(t.Context(), pipeline.PutRequest{Body: make([]byte, 6)})
	_, _ = s.Head(t.Context(), "k")
	ops := c.Ops()
	if put, h := ops["put"], ops["head"]; put.Requests != 2 || put.Bytes != 11 || h.Errors != 1 || c.Requests() != 3 {
		t.Errorf("%+v", ops)
	}
	if got := strings.Join(seen, ", "); got != "put, put, head failed" {
		t.Errorf("observed %s", got)
	}
}
