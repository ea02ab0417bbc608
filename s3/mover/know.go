package mover

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"pipedeck/pipeline"
	"pipedeck/s3/ledger"
	"pipedeck/s3/local"
)

const (
	maxManifest = 64 << 20
	takeOver    = 500 // rows of one commit while the bucket is taken over
	// readbackName is the scratch file in the state directory that holds an
	// object while its format is judged.
	readbackName = "readback"
)

// knowLoop makes the ledger know what the bucket holds, once; nothing is
// uploaded before. Then it aborts the multipart uploads that were left open.
func (m *Mover) knowLoop(ctx context.Context, left []ledger.Upload) {
	m.mu.Lock()
	known := m.known
	m.mu.Unlock()
	for n := 1; !known; n++ {
		err := m.rebuild(ctx)
		m.gate.report(err)
		m.mu.Lock()
		m.known, m.knownErr, m.asked = err == nil, "", m.opt.Clock()
		if err != nil {
			m.knownErr = err.Error()
			if hint := hintOf(err); hint != "" {
				m.knownErr += "; " + hint
			}
		}
		known = m.known
		m.mu.Unlock()
		m.signal()
		if !known && !m.sleepOr(ctx, m.wakeKnow, max(m.pause(minScan), m.backoff(n))) {
			return
		}
	}
	m.readMaps(ctx)
	m.sweepUploads(ctx, left)
}

// askAgain makes what the bucket holds be asked for at once instead of after
// the backoff: whoever waits is not answered with an old error. Mover.mu is held.
func (m *Mover) askAgain() {
	if !m.known && m.knownErr != "" {
		m.knownErr = ""
		nudge(m.wakeKnow)
	}
}

// sleepOr waits for a wake or for d; false: ctx ended.
func (m *Mover) sleepOr(ctx context.Context, wake <-chan struct{}, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-wake:
	case <-timer.C:
	}
	return true
}

// rebuild takes over what the bucket holds of this run: what manifests claim
// and the listing confirms is stored. Objects that no manifest names and that
// have no local file are read back and judged by their format.
func (m *Mover) rebuild(ctx context.Context) error {
	if _, err := m.profile(ctx); err != nil {
		return err
	}
	for _, o := range m.outputs {
		read, err := m.readManifests(ctx, o)
		if err != nil {
			return err
		}
		strangers, err := m.confirm(ctx, o)
		if err != nil {
			return err
		}
		if err := m.adoptStrangers(ctx, o, strangers); err != nil {
			return err
		}
		if err := m.opt.Ledger.SaveOthers(o.name, read...); err != nil {
			return err
		}
	}
	if err := m.saveMeta(metaKnown, "1"); err != nil {
		return err
	}
	m.hook(HookRebuilt)
	if err := m.loadCounts(ctx); err != nil {
		return err
	}
	return m.relook(ctx)
}

// readManifests puts the claims of an output's manifests into the ledger,
// oldest first: by the store's clock, since this node's may have been set back
// between two of them. It returns which were read; what of them is stored is then
// in the rows.
func (m *Mover) readManifests(ctx context.Context, o *output) (read []ledger.Others, err error) {
	var found []pipeline.Object
	err = m.list(ctx, m.manifestPrefix(o), func(obj pipeline.Object) error {
		found = append(found, obj)
		return nil
	})
	if err != nil {
		return nil, err
	}
	slices.SortStableFunc(found, func(a, b pipeline.Object) int { return a.Modified.Compare(b.Modified) })
	for _, obj := range found {
		if err := m.takeClaims(ctx, o, obj); err != nil {
			return nil, err
		}
		read = append(read, ledger.Others{Manifest: obj.Key})
	}
	return read, nil
}

func (m *Mover) takeClaims(ctx context.Context, o *output, obj pipeline.Object) error {
	rows, err := m.readManifest(ctx, o, obj)
	if err != nil {
		return err
	}
	for len(rows) > 0 {
		n := min(len(rows), takeOver)
		if err := m.opt.Ledger.Save(rows[:n]...); err != nil {
			return err
		}
		rows = rows[n:]
	}
	return nil
}

// readManifest returns the claims of one manifest. One that cannot be read is
// reported and left out: its objects are then strangers and are read back.
func (m *Mover) readManifest(ctx context.Context, o *output, obj pipeline.Object) ([]ledger.Row, error) {
	body, _, err := m.opt.Verifier.Get(ctx, obj.Key, 0)
	if err != nil {
		return nil, err
	}
	defer func() { _ = body.Close() }()
	data, err := io.ReadAll(io.LimitReader(body, maxManifest))
	if err != nil {
		return nil, err
	}
	var doc manifest
	if err := json.Unmarshal(data, &doc); err != nil {
		m.notify(pipeline.Warn, fmt.Sprintf("cannot read manifest %q: %v", obj.Key, err))
		return nil, nil
	}
	rows := make([]ledger.Row, 0, len(doc.Entries))
	for i := range doc.Entries {
		row, err := doc.Entries[i].row(o.name)
		if err != nil {
			m.notify(pipeline.Warn, err.Error())
			continue
		}
		rows = append(rows, row)
	}
	return rows, nil
}

// list visits all objects below a prefix. A page that fails ends it: an
// incomplete listing is never taken for a complete one.
func (m *Mover) list(ctx context.Context, prefix string, visit func(pipeline.Object) error) error {
	req := pipeline.ListRequest{Prefix: prefix}
	for {
		page, err := m.opt.Verifier.List(ctx, req)
		if err != nil {
			return err
		}
		for _, obj := range page.Objects {
			if err := visit(obj); err != nil {
				return err
			}
		}
		if page.Next == "" {
			return nil
		}
		if page.Next == req.Token {
			return &pipeline.StoreError{
				Op: "list", Key: prefix, Class: pipeline.StoreTransient,
				Err: errors.New("the listing repeats its token"),
			}
		}
		req.Token = page.Next
	}
}

// confirm holds an output's claims against the listing and returns the keys
// that nothing claims.
func (m *Mover) confirm(ctx context.Context, o *output) (strangers []string, err error) {
	p, err := m.profile(ctx)
	if err != nil {
		return nil, err
	}
	rows := saver{ledger: m.opt.Ledger}
	err = m.list(ctx, m.listPrefix(o), func(obj pipeline.Object) error {
		key := strings.TrimPrefix(obj.Key, m.prefix)
		if _, mine := m.relOf(o, key); !mine || strings.HasPrefix(key, ".pipedeck/") {
			return nil
		}
		row, ok, err := m.opt.Ledger.Row(ctx, o.name, key)
		switch {
		case err != nil:
			return err
		case !ok, row.Put == nil && row.Stored == nil:
			strangers = append(strangers, key)
			return nil
		}
		return rows.add(m.confirmed(p, &row, obj))
	})
	return strangers, errors.Join(err, rows.flush())
}

// saver writes rows in groups.
type saver struct {
	ledger *ledger.Ledger
	rows   []ledger.Row
}

// add takes a row; nil is none.
func (s *saver) add(r *ledger.Row) error {
	if r == nil {
		return nil
	}
	if s.rows = append(s.rows, *r); len(s.rows) < takeOver {
		return nil
	}
	return s.flush()
}

func (s *saver) flush() error {
	if len(s.rows) == 0 {
		return nil
	}
	rows := s.rows
	s.rows = nil
	return s.ledger.Save(rows...)
}

// confirmed turns a claim into what is stored, if the object is what was
// claimed; else nil, and the object is reported.
func (m *Mover) confirmed(p pipeline.StoreProfile, row *ledger.Row, obj pipeline.Object) *ledger.Row {
	if row.Phase != ledger.Claimed {
		return nil
	}
	c := *row.Put
	if compare(p, obj, &c) != same && (c.ETag != obj.ETag || c.Size != obj.Size) {
		m.notify(pipeline.Error, fmt.Sprintf("object %q is not what its manifest says; it does not count as stored", obj.Key))
		return nil
	}
	c.ETag = obj.ETag
	row.Stored, row.Put, row.Phase = &c, nil, ledger.NoPut
	return row
}

// relook reads the ledger again for files that were found before it knew the
// bucket.
func (m *Mover) relook(ctx context.Context) error {
	m.mu.Lock()
	var files []*file
	for _, o := range m.outputs {
		for _, f := range o.files {
			files = append(files, f)
		}
	}
	m.mu.Unlock()
	for _, f := range files {
		row, ok, err := m.opt.Ledger.Row(ctx, f.out.name, f.key)
		if err != nil {
			return err
		}
		elsewhere, err := m.opt.Ledger.Elsewhere(ctx, f.out.name, f.sample, f.key)
		if err != nil {
			return err
		}
		m.mu.Lock()
		if !f.dropped {
			f.elsewhere = elsewhere
			if ok {
				m.learn(f, row)
			}
			m.identify(f)
		}
		m.mu.Unlock()
	}
	return nil
}

// learn gives a file the row that the bucket gave. Mover.mu is held.
func (m *Mover) learn(f *file, row ledger.Row) {
	*f.row = row
	if local.IsPlaceholder(f.id) && row.Stored != nil && row.Stored.Size > 0 {
		m.holdsPlace(f)
		return
	}
	f.setStored(row.Stored != nil)
}

// holdsPlace counts a file no longer: it is a placeholder. Mover.mu is held.
func (m *Mover) holdsPlace(f *file) {
	f.dropped = true
	f.out.drop(f)
	f.out.holders[f.key] = f.id.CTimeNS
}
