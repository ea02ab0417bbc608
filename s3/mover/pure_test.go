package mover

import (
	"context"
	"encoding/hex"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"pipedeck/pipeline"
	"pipedeck/s3/ledger"
)

func TestCompare(t *testing.T) {
	t.Parallel()
	whole := &ledger.Copy{Size: 5, MD5: [16]byte{1}}
	md5 := hex.EncodeToString(whole.MD5[:])
	parts := &ledger.Copy{Size: 5, MD5: [16]byte{1}, ETag: "abc-2"}
	plain := pipeline.StoreProfile{ETagIsMD5: true, MultipartETag: true}
	for name, c := range map[string]struct {
		p    pipeline.StoreProfile
		obj  pipeline.Object
		copy *ledger.Copy
		want likeness
	}{
		"equal":              {plain, pipeline.Object{Size: 5, ETag: md5}, whole, same},
		"other hash":         {plain, pipeline.Object{Size: 5, ETag: hex.EncodeToString(make([]byte, 16))}, whole, different},
		"other size":         {plain, pipeline.Object{Size: 6, ETag: md5}, whole, different},
		"other size, opaque": {pipeline.StoreProfile{}, pipeline.Object{Size: 6, ETag: md5}, whole, different},
		"opaque":             {pipeline.StoreProfile{}, pipeline.Object{Size: 5, ETag: md5}, whole, unsure},
		"no ETag":            {plain, pipeline.Object{Size: 5}, whole, unsure},
		"parts equal":        {plain, pipeline.Object{Size: 5, ETag: "abc-2"}, parts, same},
		"parts differ":       {plain, pipeline.Object{Size: 5, ETag: "abd-2"}, parts, different},
		"cut otherwise":      {plain, pipeline.Object{Size: 5, ETag: "abc-3"}, parts, unsure},
		"parts, not ours":    {plain, pipeline.Object{Size: 5, ETag: "abc-2"}, whole, unsure},
		"parts opaque":       {pipeline.StoreProfile{ETagIsMD5: true}, pipeline.Object{Size: 5, ETag: "abc-2"}, parts, unsure},
	} {
		if got := compare(c.p, c.obj, c.copy); got != c.want {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}

func TestMayReplace(t *testing.T) {
	t.Parallel()
	p := pipeline.StoreProfile{ETagIsMD5: true}
	old := &ledger.Copy{Size: 5, MD5: [16]byte{1}, Dev: 1, Ino: 2, Born: 7}
	unborn := &ledger.Copy{Size: 5, MD5: [16]byte{1}, Dev: 1, Ino: 2}
	rebuilt := &ledger.Copy{Size: 5, MD5: [16]byte{1}}
	obj := pipeline.Object{Size: 5, ETag: hex.EncodeToString(old.MD5[:])}
	wrong := pipeline.Object{Size: 3, ETag: "wrong"}
	yes := func(*ledger.Copy) bool { return true }
	no := func(*ledger.Copy) bool { return false }
	for name, c := range map[string]struct {
		obj   pipeline.Object
		claim claim
		want  bool
	}{
		"from this very file":        {obj, claim{row: &ledger.Row{Stored: old}, dev: 1, ino: 2, born: 7, prefix: no}, true},
		"from another inode":         {obj, claim{row: &ledger.Row{Stored: old}, dev: 1, ino: 3, born: 7, prefix: yes}, false},
		"an inode given out again":   {obj, claim{row: &ledger.Row{Stored: old}, dev: 1, ino: 2, born: 8, prefix: no}, false},
		"no time of birth":           {obj, claim{row: &ledger.Row{Stored: unborn}, dev: 1, ino: 2, prefix: no}, false},
		"no time of birth, grown":    {obj, claim{row: &ledger.Row{Stored: unborn}, dev: 1, ino: 2, growing: true, prefix: yes}, true},
		"from another device":        {obj, claim{row: &ledger.Row{Stored: old}, dev: 2, ino: 2, born: 7, prefix: yes}, false},
		"grown":                      {obj, claim{row: &ledger.Row{Stored: old}, dev: 1, ino: 2, born: 7, growing: true, prefix: yes}, true},
		"rewritten lines":            {obj, claim{row: &ledger.Row{Stored: old}, dev: 1, ino: 2, born: 7, growing: true, prefix: no}, false},
		"newest PUT of this file":    {obj, claim{row: &ledger.Row{Put: old, Phase: ledger.Intended}, dev: 1, ino: 2, born: 7}, true},
		"ledger from the bucket":     {obj, claim{row: &ledger.Row{Stored: rebuilt}, dev: 0, ino: 0, born: 7}, false},
		"artifact as recorded":       {obj, claim{row: &ledger.Row{Stored: rebuilt}, dev: 1, ino: 9, born: 7, artifact: true}, true},
		"artifact not as recorded":   {wrong, claim{row: &ledger.Row{Stored: rebuilt}, dev: 1, ino: 9, born: 7, artifact: true}, false},
		"nothing known":              {obj, claim{row: &ledger.Row{}, dev: 1, ino: 2, born: 7}, false},
		"our damaged PUT":            {wrong, claim{row: &ledger.Row{Put: old, Phase: ledger.SentNew}, dev: 1, ino: 2, born: 7, wrongTag: "wrong"}, true},
		"damaged, key was not empty": {wrong, claim{row: &ledger.Row{Put: old, Phase: ledger.Sent}, dev: 1, ino: 2, born: 7, wrongTag: "wrong"}, false},
		"damaged, then replaced":     {wrong, claim{row: &ledger.Row{Put: old, Phase: ledger.SentNew}, dev: 1, ino: 2, born: 7, wrongTag: "another"}, false},
		"not verified yet":           {wrong, claim{row: &ledger.Row{Put: old, Phase: ledger.SentNew}, dev: 1, ino: 2, born: 7}, false},
	} {
		if got := mayReplace(p, c.obj, c.claim); got != c.want {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}

func TestBuffersStayWithinBudget(t *testing.T) {
	t.Parallel()
	const budget = 4 << 20
	b := newBuffers(budget)
	var wg sync.WaitGroup
	for i := range 64 {
		wg.Go(func() {
			for n := range 20 {
				buf, err := b.get(t.Context(), int64(1+(i*37+n*101)%1500)<<10)
				if err != nil {
					t.Error(err)
					return
				}
				b.mu.Lock()
				used := b.used
				b.mu.Unlock()
				if used > budget {
					t.Errorf("%d bytes lent and kept, the budget is %d", used, budget)
				}
				buf[0], buf[len(buf)-1] = 1, 1
				b.put(buf)
			}
		})
	}
	wg.Wait()
	b.coolAll()
	if b.used != 0 {
		t.Errorf("%d bytes are held when idle", b.used)
	}
	if _, err := b.get(t.Context(), budget+1); err == nil {
		t.Error("a buffer beyond the budget was lent")
	}
}

func TestWaitingForABufferCanBeGivenUp(t *testing.T) {
	t.Parallel()
	b := newBuffers(1 << 20)
	all, err := b.get(t.Context(), 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := b.get(ctx, 1<<10); !errors.Is(err, context.Canceled) {
		t.Errorf("err = %v", err)
	}
	b.put(all)
	if _, err := b.get(t.Context(), 1<<20); err != nil {
		t.Error(err)
	}
}

func storeErr(class pipeline.StoreClass) error {
	return &pipeline.StoreError{Op: "put", Class: class, Code: "X", Hint: "do this"}
}

func TestGateSendsOneCanaryInTrouble(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g := newGate(4, Options{Clock: time.Now, Rand: func() float64 { return 0.5 }})
		if err := g.acquire(t.Context()); err != nil {
			t.Fatal(err)
		}
		g.report(storeErr(pipeline.StoreCredentials))
		g.release()
		if s := g.state(); s.blocked == "" {
			t.Error("wrong credentials do not block")
		}
		began := time.Now()
		if err := g.acquire(t.Context()); err != nil {
			t.Fatal(err)
		}
		if wait := time.Since(began); wait < minRecheck/2 || wait > maxRecheck {
			t.Errorf("the canary went after %v", wait)
		}
		if _, ok := g.admit(false); ok {
			t.Error("a second request went beside the canary")
		}
		g.report(errors.New("a local error says nothing of the store"))
		if s := g.state(); s.blocked == "" {
			t.Error("a local error ended the trouble")
		}
		g.report(nil)
		g.release()
		for range 4 {
			if _, ok := g.admit(false); !ok {
				t.Error("after a success the gate is not open")
			}
		}
		if _, ok := g.admit(false); ok {
			t.Error("more than the maximum was admitted")
		}
	})
}

func TestGateSlowsDownAndRecovers(t *testing.T) {
	t.Parallel()
	now := time.Unix(0, 0)
	g := newGate(16, Options{Clock: func() time.Time { return now }, Rand: func() float64 { return 0 }})
	for range 10 {
		g.report(storeErr(pipeline.StoreThrottled))
	}
	if g.limit != 8 || !g.state().throttled {
		t.Errorf("one burst of refusals: limit %v", g.limit)
	}
	for range 1000 {
		g.report(nil)
	}
	if g.limit != 16 {
		t.Errorf("limit %v after a thousand successes", g.limit)
	}
}

func TestPartsAreAtMost900AndEqual(t *testing.T) {
	t.Parallel()
	s := sizesFor(512_000_000)
	for _, size := range []int64{s.single + 1, 150_000_000, 10 << 30, 4 << 40} {
		part := s.partSize(size)
		if n := (size + part - 1) / part; n > maxParts || part < smallestPart || part%mib != 0 {
			t.Errorf("%d bytes: %d parts of %d", size, n, part)
		}
	}
}
