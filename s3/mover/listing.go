package mover

import (
	"context"
	"crypto/md5" //nolint:gosec // the hash that S3 speaks, not a secret's
	"hash/crc32"
	"io"
	"net/http"
	"sync"

	"pipedeck/pipeline"
	"pipedeck/s3/coverage"
	"pipedeck/s3/local"
)

// heads is how many HEAD or GET requests of one batch go at the same time.
const heads = 16

// check asks the store for items, sorted by key, by listing where the endpoint
// can start at a key. Items it could not ask for stay unchecked; the error says
// why.
func (m *Mover) check(ctx context.Context, o *output, items []*item) error {
	p, err := m.profile(ctx)
	if err != nil {
		return err
	}
	for _, it := range items {
		it.checked, it.found, it.like = false, nil, different
	}
	if !p.ListStartAfter {
		m.checkEach(ctx, items)
		return nil
	}
	err = m.checkByList(ctx, p, m.listPrefix(o), items)
	m.gate.report(err)
	m.resolve(ctx, items)
	return err
}

// checkByList notes for each item what the listing says of its key.
func (m *Mover) checkByList(ctx context.Context, p pipeline.StoreProfile, prefix string, items []*item) error {
	keys := make([]string, len(items))
	for i, it := range items {
		keys[i] = it.key
	}
	return coverage.Walk(ctx, m.opt.Verifier, prefix, keys, func(i int, obj *pipeline.Object) {
		it := items[i]
		it.checked = true
		if obj != nil {
			it.found, it.like = obj, compare(p, *obj, it.copy)
		}
	})
}

// checkEach asks for every item by itself.
func (m *Mover) checkEach(ctx context.Context, items []*item) {
	p, err := m.profile(ctx)
	if err != nil {
		return
	}
	each(items, func(it *item) {
		it.checked, it.found, it.like = false, nil, different
		obj, err := head(ctx, m.opt.Verifier, p, it.key)
		m.gate.report(err)
		switch {
		case isMissing(err):
			it.checked = true
		case err == nil:
			it.checked, it.found, it.like = true, &obj, compare(p, obj, it.copy)
		}
	})
	m.resolve(ctx, items)
}

// head asks for one object. Where a missing key is denied, a 403 may as well be
// a right that was taken away: then the listing is asked, and HEAD once more.
func head(ctx context.Context, store pipeline.Store, p pipeline.StoreProfile, key string) (pipeline.Object, error) {
	denied := func(err error) bool { return p.MissingIsDenied && statusOf(err) == http.StatusForbidden }
	obj, err := store.Head(ctx, key)
	if err == nil || !denied(err) {
		return obj, err
	}
	listed, there, lerr := listed(ctx, store, key)
	if lerr != nil || there {
		return listed, lerr
	}
	if obj, err = store.Head(ctx, key); err == nil || !denied(err) {
		return obj, err
	}
	return pipeline.Object{}, &pipeline.StoreError{Op: "head", Key: key, Class: pipeline.StoreMissing, Status: http.StatusForbidden, Err: err}
}

// maxEmptyPages bounds how often a listing may say that there is more and show
// nothing.
const maxEmptyPages = 10

// listed looks for one key in the listing. A page without objects is not the
// end of it.
func listed(ctx context.Context, store pipeline.Store, key string) (pipeline.Object, bool, error) {
	req := pipeline.ListRequest{Prefix: key, Max: 2}
	for range maxEmptyPages {
		page, err := store.List(ctx, req)
		if err != nil {
			return pipeline.Object{}, false, err
		}
		for _, found := range page.Objects {
			if found.Key == key {
				return found, true, nil
			}
		}
		if page.Next == "" || len(page.Objects) > 0 {
			return pipeline.Object{}, false, nil
		}
		req.Token = page.Next
	}
	return pipeline.Object{}, false, &pipeline.StoreError{Op: "list", Key: key, Class: pipeline.StoreTransient, Code: "only empty pages"}
}

// resolve reads back what ETags cannot tell.
func (m *Mover) resolve(ctx context.Context, items []*item) {
	var open []*item
	for _, it := range items {
		if it.checked && it.found != nil && it.like == unsure {
			open = append(open, it)
		}
	}
	each(open, func(it *item) {
		sums, err := m.fetchSums(ctx, m.opt.Verifier, it.key)
		m.gate.report(err)
		if err != nil {
			it.checked = false
			return
		}
		it.like = likenessOf(sums.Size == it.copy.Size && sums.MD5 == it.copy.MD5)
	})
}

// each runs do for all items, some at a time.
func each(items []*item, do func(*item)) {
	var wg sync.WaitGroup
	limit := make(chan struct{}, heads)
	for _, it := range items {
		limit <- struct{}{}
		wg.Go(func() {
			defer func() { <-limit }()
			do(it)
		})
	}
	wg.Wait()
}

// fetchSums reads an object and hashes it.
func (m *Mover) fetchSums(ctx context.Context, store pipeline.Store, key string) (local.Sums, error) {
	return fetchTo(ctx, store, key, io.Discard)
}

func fetchTo(ctx context.Context, store pipeline.Store, key string, to io.Writer) (local.Sums, error) {
	body, obj, err := store.Get(ctx, key, 0)
	if err != nil {
		return local.Sums{}, err
	}
	defer func() { _ = body.Close() }()
	whole := md5.New() //nolint:gosec // as above
	crc := crc32.New(crc32.MakeTable(crc32.Castagnoli))
	n, err := io.Copy(io.MultiWriter(whole, crc, to), body)
	if err != nil {
		return local.Sums{}, err
	}
	if n != obj.Size {
		return local.Sums{}, &pipeline.StoreError{Op: "get", Key: key, Class: pipeline.StoreTransient, Err: io.ErrUnexpectedEOF}
	}
	sums := local.Sums{Size: n, CRC32C: crc.Sum32()}
	copy(sums.MD5[:], whole.Sum(nil))
	return sums, nil
}
