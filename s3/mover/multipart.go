package mover

import (
	"context"
	"crypto/md5" //nolint:gosec // the hash that S3 speaks, not a secret's
	"encoding/hex"
	"fmt"
	"hash"
	"hash/crc32"
	"sync"
	"time"

	"pipedeck/pipeline"
	"pipedeck/s3/ledger"
	"pipedeck/s3/local"
)

const (
	mib          = 1 << 20
	maxSingle    = 64 * mib
	usualPart    = 16 * mib
	smallestPart = 5 * mib
	maxParts     = 900
	largeAtOnce  = 4 // files in parts at the same time
	partTries    = 4
	abortTimeout = 30 * time.Second
)

// sizes say how files are cut.
type sizes struct {
	single int64 // up to this, one PUT
	part   int64
}

func sizesFor(memory int64) sizes {
	return sizes{single: min(maxSingle, memory/4), part: min(usualPart, max(smallestPart, memory/4))}
}

// partSize cuts into at most 900 equal parts: some endpoints take no more than
// 1,000, and some want all but the last to be equal.
func (s sizes) partSize(size int64) int64 {
	least := (size + maxParts - 1) / maxParts
	return max(s.part, (least+mib-1)/mib*mib)
}

// dispatchLarge begins uploads in parts. Their parts take the gate's slots.
func (m *Mover) dispatchLarge(ctx context.Context) {
	flying := newGroup()
	defer flying.Wait()
	limit := make(chan struct{}, largeAtOnce)
	for m.large.wait(ctx) == nil {
		select {
		case limit <- struct{}{}:
		case <-ctx.Done():
			return
		}
		if m.await(ctx, func() bool { return m.known }) != nil {
			return
		}
		f, due := m.large.pop()
		if f == nil || !m.take(f, due) {
			<-limit
			continue
		}
		flying.Go(func() {
			defer func() { <-limit }()
			m.count(f.out, -1) // its parts count
			m.finish(f, m.carryParts(ctx, f))
			m.quieter(f.out)
		})
	}
}

func (m *Mover) count(o *output, n int64) {
	m.mu.Lock()
	o.tally.inflight += n
	m.mu.Unlock()
}

// slot takes a slot of the gate for one request of an output.
func (m *Mover) slot(ctx context.Context, o *output) (release func(), err error) {
	mine := func() bool { return m.isMine(o) }
	if !mine() {
		return nil, errHeld
	}
	if err := m.gate.acquireWhile(ctx, mine); err != nil {
		return nil, err
	}
	m.count(o, 1)
	return func() { m.release(o) }, nil
}

// carryParts sends one large file in parts.
func (m *Mover) carryParts(ctx context.Context, f *file) error {
	p, err := m.profile(ctx)
	if err != nil {
		return err
	}
	if err := m.tryName(ctx, f.key); err != nil {
		return err
	}
	src, err := local.Open(f.root.dir, f.rel)
	if err != nil {
		return err
	}
	defer func() { _ = src.Close() }()
	id, err := src.Identity()
	if err != nil {
		return err
	}
	if isRacy(id, m.opt.Clock()) {
		return errChanged
	}
	s := &sending{m: m, p: p, f: f, src: src}
	if done, err := s.compareFirst(ctx, id); done || err != nil {
		return err
	}
	up := &partUpload{m: m, f: f, src: src, id: id, key: s.key(), part: m.sizes.partSize(id.Size)}
	defer up.abort() //nolint:contextcheck // it must reach the server when ctx has ended
	if err := up.run(ctx); err != nil {
		return err
	}
	m.hook(HookFileRead)
	s.copy = newCopy(src, id, up.sums(), up.etag())
	s.put = func(ctx context.Context, ifNoneMatch bool, ifMatch string) (string, error) {
		return up.complete(ctx, s, ifNoneMatch, ifMatch)
	}
	return s.settle(ctx)
}

// compareFirst looks before gigabytes are sent: done means that the store
// holds the file already.
func (s *sending) compareFirst(ctx context.Context, id local.Identity) (done bool, err error) {
	release, err := s.m.slot(ctx, s.f.out)
	if err != nil {
		return false, err
	}
	obj, err := s.head(ctx)
	release()
	if err != nil || obj == nil {
		return false, err
	}
	sums, err := local.HashFile(ctx, s.src, id.Size, s.m.sizes.partSize(id.Size))
	if err != nil {
		return false, err
	}
	if err := s.m.unchanged(s.f, s.src, id); err != nil {
		return false, err
	}
	s.copy = newCopy(s.src, id, sums.Sums, sums.ETag)
	like := compare(s.p, *obj, s.copy)
	if like == unsure {
		if like, err = s.readBack(ctx); err != nil {
			return false, err
		}
	}
	if like == same {
		s.adopt(obj.ETag)
		return true, nil
	}
	if !mayReplace(s.p, *obj, s.claim()) {
		return false, fmt.Errorf("%w: %d bytes, ETag %s", errMismatch, obj.Size, obj.ETag)
	}
	return false, nil
}

// partUpload is one multipart upload. It reads the file once, in order, and
// sends parts at the same time as far as slots and buffers go.
type partUpload struct {
	m    *Mover
	f    *file
	src  *local.File
	id   local.Identity
	key  string
	part int64

	upload string
	ended  bool
	whole  hash.Hash
	crc    uint32
	mu     sync.Mutex // guards what parts write
	etags  []string
	md5s   [][16]byte
	err    error
}

func (u *partUpload) run(ctx context.Context) error {
	if err := u.create(ctx); err != nil {
		return err
	}
	u.whole = md5.New() //nolint:gosec // as above
	parts := int((u.id.Size + u.part - 1) / u.part)
	u.etags, u.md5s = make([]string, parts), make([][16]byte, parts)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var wg sync.WaitGroup
	for n := range parts {
		buf, release, err := u.readPart(ctx, n)
		if err != nil {
			u.fail(err)
			break
		}
		wg.Go(func() {
			defer u.m.buffers.put(buf)
			if err := u.sendPart(ctx, n, buf, release); err != nil {
				u.fail(err)
				cancel()
			}
		})
	}
	wg.Wait()
	if u.err != nil {
		return u.err
	}
	return u.m.unchanged(u.f, u.src, u.id)
}

func (u *partUpload) create(ctx context.Context) error {
	release, err := u.m.slot(ctx, u.f.out)
	if err != nil {
		return err
	}
	defer release()
	u.upload, err = u.m.opt.Store.CreateMultipart(ctx, u.key)
	if err != nil {
		return err
	}
	return u.m.opt.Ledger.AddUpload(u.key, u.upload, u.m.opt.Clock())
}

// fail keeps the first error; what a cancel brings about comes later.
func (u *partUpload) fail(err error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.err == nil {
		u.err = err
	}
}

// readPart takes a slot, then a buffer, in this order everywhere: whoever
// holds a buffer can go on.
func (u *partUpload) readPart(ctx context.Context, n int) (buf []byte, release func(), err error) {
	release, err = u.m.slot(ctx, u.f.out)
	if err != nil {
		return nil, nil, err
	}
	off := int64(n) * u.part
	buf, err = u.m.buffers.get(ctx, min(u.part, u.id.Size-off))
	if err != nil {
		release()
		return nil, nil, err
	}
	if _, err = u.src.ReadAt(buf, off); err != nil {
		u.m.buffers.put(buf)
		release()
		return nil, nil, errChanged
	}
	u.whole.Write(buf)
	u.crc = crc32.Update(u.crc, crc32.MakeTable(crc32.Castagnoli), buf)
	return buf, release, nil
}

// sendPart tries a few times by itself: the whole file again would be dear.
func (u *partUpload) sendPart(ctx context.Context, n int, buf []byte, release func()) error {
	sums := local.HashBuffer(buf, false)
	for try := 1; ; try++ {
		etag, err := u.m.opt.Store.UploadPart(ctx, pipeline.PartRequest{
			Key: u.key, UploadID: u.upload, Number: n + 1,
			Body: buf, MD5: sums.MD5, CRC32C: sums.CRC32C,
		})
		u.m.gate.report(err)
		release()
		if err == nil {
			u.mu.Lock()
			u.etags[n], u.md5s[n] = etag, sums.MD5
			u.mu.Unlock()
			u.m.hook(HookPartPut)
			return nil
		}
		class := classOf(err)
		if try == partTries || class != pipeline.StoreTransient && class != pipeline.StoreThrottled && class != pipeline.StoreIntegrity {
			return err
		}
		if err := sleep(ctx, u.m.backoff(try)); err != nil {
			return err
		}
		if release, err = u.m.slot(ctx, u.f.out); err != nil {
			return err
		}
	}
}

func (u *partUpload) sums() local.Sums {
	s := local.Sums{Size: u.id.Size, CRC32C: u.crc}
	copy(s.MD5[:], u.whole.Sum(nil))
	return s
}

// etag is what S3 makes of the parts: MD5 over their MD5s, and their number.
func (u *partUpload) etag() string {
	all := md5.New() //nolint:gosec // as above
	for _, sum := range u.md5s {
		all.Write(sum[:])
	}
	return fmt.Sprintf("%s-%d", hex.EncodeToString(all.Sum(nil)), len(u.md5s))
}

// complete joins the parts. An answer that broke off is no failure if the
// object is there.
func (u *partUpload) complete(ctx context.Context, s *sending, ifNoneMatch bool, ifMatch string) (string, error) {
	u.m.hook(HookBeforeComplete)
	release, err := u.m.slot(ctx, u.f.out)
	if err != nil {
		return "", err
	}
	defer release()
	res, err := u.m.opt.Store.CompleteMultipart(ctx, pipeline.CompleteRequest{
		Key: u.key, UploadID: u.upload,
		ETags: u.etags, IfNoneMatch: ifNoneMatch, IfMatch: ifMatch,
	})
	if classOf(err) == pipeline.StoreTransient {
		obj, herr := s.head(ctx)
		if herr == nil && obj != nil && compare(s.p, *obj, s.copy) == same {
			res.ETag, err = obj.ETag, nil
		}
	}
	if err != nil {
		return "", err
	}
	u.ended = true
	_ = u.m.opt.Ledger.DropUpload(u.key, u.upload)
	return res.ETag, nil
}

// abort gives up what was not completed, also when the mover is ending: its
// request has a context of its own.
func (u *partUpload) abort() {
	if u.ended || u.upload == "" {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), abortTimeout)
	defer cancel()
	if err := u.m.opt.Store.AbortMultipart(ctx, u.key, u.upload); err == nil {
		_ = u.m.opt.Ledger.DropUpload(u.key, u.upload)
	}
}

// sweepUploads aborts what an earlier agent left open. Only uploads of this
// ledger are touched.
func (m *Mover) sweepUploads(ctx context.Context, open []ledger.Upload) {
	for _, u := range open {
		if m.opt.Store.AbortMultipart(ctx, u.Key, u.ID) == nil {
			_ = m.opt.Ledger.DropUpload(u.Key, u.ID)
		}
	}
}
