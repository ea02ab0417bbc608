package s3test

import (
	"bytes"
	"crypto/md5"
	"encoding/hex"
	"io"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/johannesboyne/gofakes3"
)

// boundedBackend keeps one bucket for gofakes3. Over its limit it drops the
// oldest bodies, never the small objects below ".pipedeck/": name, size and
// MD5 stay listed, and a GET of a dropped body is an error, not other bytes.
type boundedBackend struct {
	bucket string
	limit  int64
	born   time.Time

	mu      sync.Mutex
	objects objects
	kept    int64
	oldest  []string // keys with a body that may be dropped, oldest first
}

var _ gofakes3.Backend = (*boundedBackend)(nil)

func newBoundedBackend(bucket string, limit int64) *boundedBackend {
	return &boundedBackend{bucket: bucket, limit: limit, born: time.Now(), objects: newObjects("")}
}

func (b *boundedBackend) ListBuckets() ([]gofakes3.BucketInfo, error) {
	return []gofakes3.BucketInfo{{Name: b.bucket, CreationDate: gofakes3.NewContentTime(b.born)}}, nil
}

func (b *boundedBackend) BucketExists(name string) (bool, error) { return name == b.bucket, nil }

func (b *boundedBackend) CreateBucket(string) error {
	return gofakes3.ErrorMessage(gofakes3.ErrNotImplemented, "the demo has one bucket")
}

func (b *boundedBackend) DeleteBucket(string) error { return b.CreateBucket("") }

func (b *boundedBackend) ForceDeleteBucket(string) error { return b.CreateBucket("") }

func (b *boundedBackend) ListBucket(_ string, prefix *gofakes3.Prefix, page gofakes3.ListBucketPage) (*gofakes3.ObjectList, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	want, list := "", gofakes3.NewObjectList()
	if prefix != nil {
		want = prefix.Prefix
	}
	i, _ := slices.BinarySearch(b.objects.keys, max(want, page.Marker))
	for ; i < len(b.objects.keys) && strings.HasPrefix(b.objects.keys[i], want); i++ {
		o := b.objects.byKey[b.objects.keys[i]]
		if page.HasMarker && o.key <= page.Marker {
			continue
		}
		if page.MaxKeys > 0 && int64(len(list.Contents)) == page.MaxKeys {
			list.IsTruncated, list.NextMarker = true, list.Contents[len(list.Contents)-1].Key
			break
		}
		list.Add(&gofakes3.Content{
			Key: o.key, LastModified: gofakes3.NewContentTime(o.modified), ETag: `"` + o.etag + `"`, Size: o.size,
		})
	}
	return list, nil
}

func (b *boundedBackend) HeadObject(_, key string) (*gofakes3.Object, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	o, ok := b.objects.get(key)
	if !ok {
		return nil, gofakes3.KeyNotFound(key)
	}
	return b.object(o, nil, nil), nil
}

func (b *boundedBackend) GetObject(_, key string, want *gofakes3.ObjectRangeRequest) (*gofakes3.Object, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	o, ok := b.objects.get(key)
	if !ok {
		return nil, gofakes3.KeyNotFound(key)
	}
	if int64(len(o.body)) != o.size {
		return nil, gofakes3.ErrorMessage(gofakes3.ErrInternal, "the demo's store keeps only its newest bodies")
	}
	r, err := want.Range(o.size)
	if err != nil {
		return nil, err
	}
	data := o.body
	if r != nil {
		data = data[r.Start : r.Start+r.Length]
	}
	return b.object(o, r, data), nil
}

func (*boundedBackend) object(o *object, r *gofakes3.ObjectRange, data []byte) *gofakes3.Object {
	hash, _ := hex.DecodeString(o.etag) // our own encoding
	return &gofakes3.Object{
		Name: o.key, Size: o.size, Hash: hash, Range: r, Contents: io.NopCloser(bytes.NewReader(data)),
		Metadata: map[string]string{"Last-Modified": o.modified.UTC().Format("Mon, 02 Jan 2006 15:04:05 GMT")},
	}
}

func (b *boundedBackend) PutObject(_, key string, _ map[string]string, in io.Reader, size int64, cond *gofakes3.PutConditions) (gofakes3.PutObjectResult, error) {
	data, err := gofakes3.ReadAll(in, size)
	if err != nil {
		return gofakes3.PutObjectResult{}, err
	}
	sum := md5.Sum(data)
	b.mu.Lock()
	defer b.mu.Unlock()
	old, exists := b.objects.get(key)
	if cond != nil {
		info := &gofakes3.ConditionalObjectInfo{Exists: exists}
		if exists {
			info.Hash, _ = hex.DecodeString(old.etag)
		}
		if err := gofakes3.CheckPutConditions(cond, info); err != nil {
			return gofakes3.PutObjectResult{}, err
		}
	}
	if exists {
		b.kept -= int64(len(old.body))
	}
	b.objects.put(key, data, hex.EncodeToString(sum[:]), time.Now())
	b.kept += int64(len(data))
	if !strings.Contains(key, ".pipedeck/") {
		b.oldest = append(b.oldest, key)
	}
	b.drop()
	return gofakes3.PutObjectResult{}, nil
}

// drop frees bodies until the limit holds; the caller holds the lock.
func (b *boundedBackend) drop() {
	for b.kept > b.limit && len(b.oldest) > 0 {
		if o, ok := b.objects.get(b.oldest[0]); ok {
			b.kept -= int64(len(o.body))
			o.body = nil
		}
		b.oldest = b.oldest[1:]
	}
}

func (b *boundedBackend) DeleteObject(_, key string) (gofakes3.ObjectDeleteResult, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if o, ok := b.objects.get(key); ok {
		b.kept -= int64(len(o.body))
		b.objects.remove(key)
	}
	return gofakes3.ObjectDeleteResult{}, nil
}

func (b *boundedBackend) DeleteMulti(bucket string, keys ...string) (gofakes3.MultiDeleteResult, error) {
	var res gofakes3.MultiDeleteResult
	for _, key := range keys {
		if _, err := b.DeleteObject(bucket, key); err != nil {
			return res, err
		}
		res.Deleted = append(res.Deleted, gofakes3.ObjectID{Key: key})
	}
	return res, nil
}

func (b *boundedBackend) CopyObject(fromBucket, from, toBucket, to string, meta map[string]string) (gofakes3.CopyObjectResult, error) {
	return gofakes3.CopyObject(b, fromBucket, from, toBucket, to, meta)
}
