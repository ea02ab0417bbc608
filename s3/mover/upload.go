package mover

import (
	"bytes"
	"context"
	"crypto/md5" //nolint:gosec // the hash that S3 speaks, not a secret's
	"errors"
	"fmt"
	"io"
	"time"

	"pipedeck/pipeline"
	"pipedeck/pipeline/spec"
	"pipedeck/s3/ledger"
	"pipedeck/s3/local"
)

var (
	errChanged  = errors.New("the file changed while it was read")
	errNotYet   = errors.New("nothing to send yet")
	errHolder   = errors.New("an empty file beside an object that is not")
	errMismatch = errors.New("the store holds another object of this name")
)

// racyWindow is how long after its last change a file is read at the earliest:
// within one clock tick a second write would not show in its mtime.
const racyWindow = 25 * time.Millisecond

// dispatchSmall hands files to goroutines, one slot of the gate each.
func (m *Mover) dispatchSmall(ctx context.Context) {
	m.dispatch(ctx, m.small, func(f *file) {
		defer m.release(f.out)
		m.finish(f, m.carry(ctx, f))
	})
}

func (m *Mover) dispatch(ctx context.Context, q *queue, send func(*file)) {
	flying := newGroup()
	defer flying.Wait()
	for q.wait(ctx) == nil {
		if m.await(ctx, func() bool { return m.known }) != nil || m.gate.acquire(ctx) != nil {
			return
		}
		f, due := q.pop()
		if f == nil || !m.take(f, due) {
			m.gate.release()
			continue
		}
		flying.Go(func() { send(f) })
	}
}

// take begins the upload of a file, unless it is not its turn.
func (m *Mover) take(f *file, popped time.Time) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !f.sendAt.taken(popped) || f.dropped || f.state != stateWaiting && f.state != stateFailed || !f.out.mine() {
		return false
	}
	now := m.opt.Clock()
	if f.next.After(now) {
		m.remind(f)
		return false
	}
	if due := m.turn(f, now); due.After(now) {
		f.next = due
		m.remind(f)
		return false
	}
	f.setState(stateInFlight)
	f.out.tally.inflight++
	return true
}

func (m *Mover) release(o *output) {
	m.mu.Lock()
	o.tally.inflight--
	m.mu.Unlock()
	m.gate.release()
	m.quieter(o)
	nudge(m.wakeVerify)
}

// carry sends one file in one request. nil means: it is in the store as far as
// the endpoint says.
func (m *Mover) carry(ctx context.Context, f *file) error {
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
	if isRacy(id, m.opt.Clock()) || id.Size > m.sizes.single {
		return errChanged
	}
	buf, err := m.buffers.get(ctx, max(1, id.Size))
	if err != nil {
		return err
	}
	defer m.buffers.put(buf)
	body, err := m.read(f, src, id, buf[:id.Size])
	if err != nil {
		return err
	}
	sums := local.HashBuffer(body, false)
	m.hook(HookFileRead)
	s := &sending{m: m, p: p, f: f, copy: newCopy(src, id, sums, ""), body: body}
	return s.settle(ctx)
}

// isRacy says that a file changed a moment ago. A time in the future is not
// this clock's.
func isRacy(id local.Identity, now time.Time) bool {
	last := time.Unix(0, max(id.MTimeNS, id.CTimeNS))
	return !last.After(now.Add(racyWindow)) && local.Racy(id, now)
}

// read fills buf with the file and makes sure that this was its content. Of a
// growing file it returns the whole lines that were there at the start.
func (m *Mover) read(f *file, src *local.File, id local.Identity, buf []byte) ([]byte, error) {
	if err := src.ReadAll(buf); err != nil {
		if errors.Is(err, io.ErrUnexpectedEOF) {
			return nil, errChanged
		}
		return nil, err
	}
	if err := m.unchanged(f, src, id); err != nil {
		return nil, err
	}
	m.mu.Lock()
	growing := f.out.grows()
	m.mu.Unlock()
	if !growing {
		return buf, nil
	}
	n := bytes.LastIndexByte(buf, '\n') + 1
	if n == 0 {
		return nil, errNotYet
	}
	return buf[:n], nil
}

// unchanged compares the identity after a read with the one before, and with
// the one that was judged. A growing file may have grown.
func (m *Mover) unchanged(f *file, src *local.File, id local.Identity) error {
	after, err := src.Identity()
	if err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if f.out.grows() && after.Dev == id.Dev && after.Ino == id.Ino && after.Size >= id.Size {
		f.setIdentity(after)
		return nil
	}
	if !after.Same(id) || !f.id.Same(id) {
		f.setIdentity(after)
		return errChanged
	}
	return nil
}

// sending is one attempt to bring one file's bytes to its key.
type sending struct {
	m    *Mover
	p    pipeline.StoreProfile
	f    *file
	copy *ledger.Copy
	body []byte      // nil for an upload in parts
	src  *local.File // of an upload in parts
	// put writes the object under the condition; nil: one PUT of body.
	put func(ctx context.Context, ifNoneMatch bool, ifMatch string) (string, error)
}

func (s *sending) key() string { return s.m.prefix + s.f.key }

// settle finds out what the key holds, and writes only what invariant 2 allows.
func (s *sending) settle(ctx context.Context) error {
	row := s.f.row
	look := !s.p.ConditionalPut || row.Stored != nil || row.Put != nil || s.f.attempts > 0
	for range 3 {
		var obj *pipeline.Object
		if look {
			got, err := s.head(ctx)
			if err != nil {
				return err
			}
			obj = got
		}
		err := s.onto(ctx, obj, look)
		if classOf(err) != pipeline.StoreExists {
			return err
		}
		look = true
	}
	return &pipeline.StoreError{Op: "put", Key: s.key(), Class: pipeline.StoreTransient, Code: "the key keeps changing"}
}

// head asks for the object; nil: there is none.
func (s *sending) head(ctx context.Context) (*pipeline.Object, error) {
	obj, err := head(ctx, s.m.opt.Store, s.p, s.key())
	if isMissing(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return &obj, nil
}

// onto writes over what was seen at the key (nil: nothing was, or nobody
// looked and the endpoint itself will refuse).
func (s *sending) onto(ctx context.Context, obj *pipeline.Object, looked bool) error {
	if obj == nil {
		return s.write(ctx, s.p.ConditionalPut, "", looked || s.p.ConditionalPut)
	}
	if s.copy.Size == 0 && obj.Size > 0 {
		return errHolder
	}
	like := compare(s.p, *obj, s.copy)
	if like == unsure {
		var err error
		if like, err = s.readBack(ctx); err != nil {
			return err
		}
	}
	if like == same {
		s.adopt(obj.ETag)
		return nil
	}
	if !mayReplace(s.p, *obj, s.claim()) {
		return fmt.Errorf("%w: %d bytes, ETag %s", errMismatch, obj.Size, obj.ETag)
	}
	match := ""
	if s.p.ConditionalMatch {
		match = obj.ETag
	}
	return s.write(ctx, false, match, false)
}

func (s *sending) claim() claim {
	f := s.f
	return claim{
		row: f.row, dev: s.copy.Dev, ino: s.copy.Ino, born: s.copy.Born, artifact: f.out.isArtifacts(), wrongTag: f.wrongTag,
		growing: f.out.spec.Format == spec.FormatJSONL,
		prefix:  s.begins,
	}
}

// begins says whether the file now begins with the bytes of c.
func (s *sending) begins(c *ledger.Copy) bool {
	switch {
	case c.Size > s.copy.Size:
		return false
	case s.body != nil:
		return md5.Sum(s.body[:c.Size]) == c.MD5 //nolint:gosec // as above
	}
	sums, err := local.HashFile(context.Background(), s.src, c.Size, s.m.sizes.part)
	return err == nil && sums.MD5 == c.MD5
}

// readBack compares by reading the object.
func (s *sending) readBack(ctx context.Context) (likeness, error) {
	sums, err := s.m.fetchSums(ctx, s.m.opt.Store, s.key())
	if err != nil {
		return unsure, err
	}
	return likenessOf(sums.Size == s.copy.Size && sums.MD5 == s.copy.MD5), nil
}

// adopt notes that the object already holds these bytes. Whether our PUT
// brought them is remembered if it was known.
func (s *sending) adopt(etag string) {
	row := *s.f.row
	if row.Put == nil || row.Put.MD5 != s.copy.MD5 || row.Phase != ledger.SentNew {
		row.Phase = ledger.Sent
	}
	s.copy.ETag = keepETag(s.copy.ETag, etag)
	row.Put = s.copy
	s.keep(row)
}

// write records the intent, writes, and records the answer.
func (s *sending) write(ctx context.Context, ifNoneMatch bool, ifMatch string, absent bool) error {
	row := *s.f.row
	row.Put, row.Phase = s.copy, ledger.Intended
	if err := s.m.saveIntent(row, ifNoneMatch); err != nil {
		return err
	}
	*s.f.row = row
	s.m.hook(HookIntentSaved)
	put := s.put
	if put == nil {
		put = s.putBody
	}
	etag, err := put(ctx, ifNoneMatch, ifMatch)
	if err != nil {
		return err
	}
	s.m.hook(HookObjectPut)
	row.Phase = ledger.Sent
	if absent {
		row.Phase = ledger.SentNew
	}
	s.copy.ETag = keepETag(s.copy.ETag, etag)
	s.keep(row)
	return nil
}

// keepETag prefers an ETag that was computed here over the endpoint's word.
func keepETag(computed, answered string) string {
	if computed != "" {
		return computed
	}
	return answered
}

// keep puts the new row in place. Losing it in a crash only makes the next
// agent look again.
func (s *sending) keep(row ledger.Row) {
	if !s.m.reserve.inUse() {
		if err := s.m.opt.Ledger.SaveLater(row); err != nil {
			s.m.log.Warn("ledger", "err", err)
		}
	}
	s.m.mu.Lock()
	*s.f.row = row
	s.m.mu.Unlock()
}

func (s *sending) putBody(ctx context.Context, ifNoneMatch bool, ifMatch string) (string, error) {
	res, err := s.m.opt.Store.Put(ctx, pipeline.PutRequest{
		Key: s.key(), Body: s.body,
		MD5: s.copy.MD5, CRC32C: s.copy.CRC32C, IfNoneMatch: ifNoneMatch, IfMatch: ifMatch,
	})
	return res.ETag, err
}
