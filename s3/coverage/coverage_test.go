package coverage_test

import (
	"context"
	"errors"
	"fmt"
	"sort"
	"strings"
	"sync"
	"testing"
	"time"

	"pgregory.net/rapid"

	"pipedeck/pipeline"
	"pipedeck/s3/coverage"
)

// bucket lists sorted keys, and counts the pages.
type bucket struct {
	mu    sync.Mutex
	keys  []string
	pages int
	delay time.Duration
	fail  func(req pipeline.ListRequest) error
}

func (b *bucket) List(_ context.Context, req pipeline.ListRequest) (pipeline.ListPage, error) {
	b.mu.Lock()
	b.pages++
	b.mu.Unlock()
	if b.fail != nil {
		if err := b.fail(req); err != nil {
			return pipeline.ListPage{}, err
		}
	}
	time.Sleep(b.delay)
	after := max(req.StartAfter, req.Token)
	i := sort.SearchStrings(b.keys, req.Prefix)
	if after != "" {
		i = max(i, sort.Search(len(b.keys), func(i int) bool { return b.keys[i] > after }))
	}
	size := req.Max
	if size == 0 {
		size = 1000
	}
	var page pipeline.ListPage
	for ; i < len(b.keys) && strings.HasPrefix(b.keys[i], req.Prefix); i++ {
		if len(page.Objects) == size {
			page.Next = page.Objects[len(page.Objects)-1].Key
			break
		}
		page.Objects = append(page.Objects, pipeline.Object{Key: b.keys[i]})
	}
	return page, nil
}

type walk func(context.Context, coverage.Lister, string, []string, func(int, *pipeline.Object)) error

func TestWalkAnswersAsTheBucketIs(t *testing.T) {
	t.Parallel()
	for name, w := range map[string]walk{"jump": coverage.Walk, "serial": coverage.WalkSerial} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			rapid.Check(t, func(t *rapid.T) {
				text := rapid.StringMatching(`p/[ -~é\x01]{1,4}`)
				stored := rapid.SliceOfNDistinct(text, 0, 40, rapid.ID).Draw(t, "stored")
				asked := rapid.SliceOfNDistinct(text, 0, 40, rapid.ID).Draw(t, "asked")
				sort.Strings(stored)
				sort.Strings(asked)
				got := map[string]bool{}
				err := w(context.Background(), &bucket{keys: append(stored, "q")}, "p/", asked, func(i int, obj *pipeline.Object) {
					got[asked[i]] = obj != nil && obj.Key == asked[i]
				})
				if err != nil || len(got) != len(asked) {
					t.Fatalf("%d of %d answers, %v", len(got), len(asked), err)
				}
				for _, key := range asked {
					i := sort.SearchStrings(stored, key)
					if want := i < len(stored) && stored[i] == key; got[key] != want {
						t.Fatalf("%q: %v, want %v", key, got[key], want)
					}
				}
			})
		})
	}
}

func numbered(from, to int) (keys []string) {
	for i := from; i < to; i++ {
		keys = append(keys, fmt.Sprintf("p/hs_%07d.safetensors", i))
	}
	return keys
}

func TestFourRangesCostFewPages(t *testing.T) {
	t.Parallel()
	b := &bucket{}
	asked := make([]string, 0, 1000)
	for rank := range 4 {
		from := rank * 250_000
		b.keys = append(b.keys, numbered(from, from+5000)...)
		asked = append(asked, numbered(from+4750, from+5000)...)
	}
	n := 0
	err := coverage.Walk(t.Context(), b, "p/", asked, func(_ int, obj *pipeline.Object) {
		if obj != nil {
			n++
		}
	})
	if err != nil || n != 1000 || b.pages > 5 {
		t.Errorf("%d found with %d pages, %v; want 1000 with at most 5", n, b.pages, err)
	}
}

func TestAListingThatFailsAnswersForNothingMore(t *testing.T) {
	t.Parallel()
	down := errors.New("down")
	b := &bucket{keys: numbered(0, 3000), fail: func(req pipeline.ListRequest) error {
		if req.StartAfter > "p/hs_0001" {
			return down
		}
		return nil
	}}
	seen := 0
	err := coverage.Walk(t.Context(), b, "p/", numbered(0, 1500), func(int, *pipeline.Object) { seen++ })
	if !errors.Is(err, down) || seen != 1000 {
		t.Errorf("%d answers, %v", seen, err)
	}
}

// unordered answers with two pages of which the second goes back.
type unordered struct{}

func (unordered) List(_ context.Context, req pipeline.ListRequest) (pipeline.ListPage, error) {
	if req.Token == "" {
		return pipeline.ListPage{Objects: []pipeline.Object{{Key: "p/b"}}, Next: "t"}, nil
	}
	return pipeline.ListPage{Objects: []pipeline.Object{{Key: "p/a"}}}, nil
}

func TestPagesThatContradictThemselvesAreNoAnswer(t *testing.T) {
	t.Parallel()
	b := unordered{}
	err := coverage.WalkSerial(t.Context(), b, "p/", []string{"p/c"}, func(int, *pipeline.Object) {
		t.Error("an unordered page was believed")
	})
	if err == nil {
		t.Error("no error for an unordered page")
	}
}

func BenchmarkWalkMillion(b *testing.B) {
	keys := numbered(0, 1_000_000)
	store := &bucket{keys: keys, delay: 100 * time.Millisecond}
	for b.Loop() {
		if err := coverage.Walk(b.Context(), store, "p/", keys, func(int, *pipeline.Object) {}); err != nil {
			b.Fatal(err)
		}
	}
}
