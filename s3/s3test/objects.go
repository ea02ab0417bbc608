package s3test

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"time"
)

// object is one stored object. Its bytes are in memory or in a file.
type object struct {
	key      string
	body     []byte
	path     string
	size     int64
	etag     string
	modified time.Time
}

// objects is the bucket: keys sorted by bytes, as listings need them.
type objects struct {
	dir   string
	seq   int
	keys  []string
	byKey map[string]*object
}

func newObjects(dir string) objects { return objects{dir: dir, byKey: map[string]*object{}} }

func (b *objects) get(key string) (*object, bool) {
	o, ok := b.byKey[key]
	return o, ok
}

// data returns an object's bytes; the caller must not change them.
func (b *objects) data(o *object) []byte {
	if o.path == "" {
		return o.body
	}
	data, err := os.ReadFile(o.path)
	if err != nil {
		panic(fmt.Sprintf("s3test: lost a body: %v", err))
	}
	return data
}

func (b *objects) put(key string, data []byte, etag string, now time.Time) {
	o := &object{key: key, size: int64(len(data)), etag: etag, modified: now}
	if b.dir == "" {
		o.body = data
	} else {
		b.seq++
		o.path = filepath.Join(b.dir, fmt.Sprintf("body-%d", b.seq))
		if err := os.WriteFile(o.path, data, 0o600); err != nil {
			panic(fmt.Sprintf("s3test: cannot store a body: %v", err))
		}
	}
	old, had := b.byKey[key]
	if had {
		b.drop(old)
	} else {
		i, _ := slices.BinarySearch(b.keys, key)
		b.keys = slices.Insert(b.keys, i, key)
	}
	b.byKey[key] = o
}

func (b *objects) remove(key string) {
	o, ok := b.byKey[key]
	if !ok {
		return
	}
	b.drop(o)
	delete(b.byKey, key)
	if i, ok := slices.BinarySearch(b.keys, key); ok {
		b.keys = slices.Delete(b.keys, i, i+1)
	}
}

func (*objects) drop(o *object) {
	if o.path != "" {
		_ = os.Remove(o.path)
	}
}

func sortedKeysOf(uploads map[string]*upload) []string {
	var keys []string
	for u := range maps.Values(uploads) {
		keys = append(keys, u.key)
	}
	slices.Sort(keys)
	return keys
}
