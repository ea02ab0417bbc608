// Package coverage holds local files against what a bucket lists, in bounded
// memory: it walks both in key order and asks only for pages that hold a key
// that is looked for.
package coverage

import (
	"context"
	"errors"
	"strings"
	"sync"

	"pipedeck/pipeline"
)

const (
	pageKeys = 1000
	// sparsePage is asked for while pages answer for one key only.
	sparsePage = 20
	// shardKeys and maxShards: a walk is cut into ranges of at least a page,
	// walked at the same time, since one listing is bound by its round trips.
	shardKeys = 2000
	maxShards = 32
)

// Lister is the part of pipeline.Store that a walk needs.
type Lister interface {
	List(ctx context.Context, req pipeline.ListRequest) (pipeline.ListPage, error)
}

// Walk tells for each key, which must be sorted and unique and begin with
// prefix, whether the bucket lists it: visit gets nil for one that it does
// not. Keys that no page answered for are not visited, and the error says why.
// Visits of different keys may come at the same time; i counts in keys.
func Walk(ctx context.Context, store Lister, prefix string, keys []string, visit func(i int, obj *pipeline.Object)) error {
	shards := min(maxShards, max(1, len(keys)/shardKeys))
	errs := make([]error, shards)
	var wg sync.WaitGroup
	for n := range shards {
		from, to := n*len(keys)/shards, (n+1)*len(keys)/shards
		wg.Go(func() {
			w := walker{store: store, prefix: prefix, keys: keys[from:to], from: from, visit: visit}
			errs[n] = w.jump(ctx)
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}

// WalkSerial is Walk for endpoints that cannot start a listing at a key: it
// reads all pages below prefix.
func WalkSerial(ctx context.Context, store Lister, prefix string, keys []string, visit func(i int, obj *pipeline.Object)) error {
	w := walker{store: store, prefix: prefix, keys: keys, visit: visit}
	req, last := pipeline.ListRequest{Prefix: prefix}, ""
	for len(w.keys) > 0 {
		page, err := store.List(ctx, req)
		if err != nil {
			return err
		}
		if err := w.page(last, page); err != nil {
			return err
		}
		if n := len(page.Objects); n > 0 {
			last = page.Objects[n-1].Key
		}
		if page.Next != "" && page.Next == req.Token {
			return broken(prefix, "it repeats its token")
		}
		req.Token = page.Next
	}
	return nil
}

type walker struct {
	store  Lister
	prefix string
	keys   []string // not answered yet
	from   int      // index of keys[0]
	visit  func(int, *pipeline.Object)
}

// jump asks for pages that begin just before the next key.
func (w *walker) jump(ctx context.Context) error {
	size := pageKeys
	token := ""
	for len(w.keys) > 0 {
		before := len(w.keys)
		after := justBefore(w.keys[0])
		page, err := w.store.List(ctx, pipeline.ListRequest{Prefix: w.prefix, StartAfter: after, Token: token, Max: size})
		if err != nil {
			return err
		}
		if token != "" {
			after = ""
		}
		if err := w.page(after, page); err != nil {
			return err
		}
		switch answered := before - len(w.keys); {
		case answered == 0 && page.Next == token:
			return broken(w.prefix, "it repeats its token")
		case answered == 0:
			token = page.Next // an empty page that is not the last is legal
		case answered == 1:
			size, token = sparsePage, ""
		default:
			size, token = pageKeys, ""
		}
	}
	return nil
}

// page answers for the keys that a page covers.
func (w *walker) page(after string, page pipeline.ListPage) error {
	last := after
	for i := range page.Objects {
		key := page.Objects[i].Key
		if key <= last && last != "" || !strings.HasPrefix(key, w.prefix) {
			return broken(w.prefix, "it is out of order")
		}
		last = key
	}
	objects := page.Objects
	for len(w.keys) > 0 {
		for len(objects) > 0 && objects[0].Key < w.keys[0] {
			objects = objects[1:]
		}
		switch {
		case len(objects) > 0 && objects[0].Key == w.keys[0]:
			obj := objects[0]
			w.visit(w.from, &obj)
		case len(objects) == 0 && page.Next != "":
			return nil
		default:
			w.visit(w.from, nil)
		}
		w.keys, w.from = w.keys[1:], w.from+1
	}
	return nil
}

func broken(prefix, how string) error {
	return &pipeline.StoreError{
		Op: "list", Key: prefix, Class: pipeline.StoreTransient,
		Err: errors.New("the listing contradicts itself: " + how),
	}
}

// justBefore is a text that sorts before key, with hardly a key between them.
// It stays printable where the key is: not every endpoint takes other bytes.
func justBefore(key string) string {
	last := key[len(key)-1]
	if last > ' ' && last <= '~' {
		return key[:len(key)-1] + string(rune(last-1)) + "~"
	}
	return key[:len(key)-1]
}

// Class is what an audit says of one local file.
type Class int

// The classes; they exclude each other.
const (
	Unknown      Class = iota // the store or the file could not be asked
	Proven                    // the object has the size and hash of the file as it is
	Unproven                  // an object is there, and nothing tells its content
	Mismatched                // an object is there, with other content
	Missing                   // the listing is whole and has no such key
	BeingWritten              // the file is not complete
	Skipped                   // not a file to count: a placeholder
)

// Add counts one file in c or, for BeingWritten, beside it.
func Add(c *pipeline.OutputCoverage, class Class) {
	if class == Skipped {
		return
	}
	c.Local++
	switch class {
	case Proven:
		c.Proven++
	case Unproven:
		c.Unproven++
	case Mismatched:
		c.Mismatched++
	case Missing:
		c.Missing++
	case BeingWritten:
		c.BeingWritten++
	case Unknown:
		c.Unknown++
		c.Complete = false
	case Skipped:
	}
}
