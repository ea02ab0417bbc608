package mover

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"pipedeck/pipeline"
	"pipedeck/s3/local"
)

const (
	// metaRecord + stage is the record that was last read or written.
	metaRecord  = "record."
	maxRecord   = 1 << 20
	recordTries = 5
)

var errRecordChanged = errors.New("somebody else wrote it since it was read")

func (m *Mover) recordKey(stage string) string { return m.prefix + ".pipedeck/" + stage + ".json" }

// StageRecord reads how a stage's outputs of this run were made. If the bucket
// cannot be read, the record is the one that this node saw last.
func (m *Mover) StageRecord(ctx context.Context, stage string) (rec *pipeline.StageRecord, known bool, err error) {
	m.mu.Lock()
	known = m.known
	m.mu.Unlock()
	if m.opt.Spec.Stage(stage) == nil {
		return nil, known, pipeline.Problemf(pipeline.ProblemUsage, "", "cannot read the record of %q: the spec has no such stage", stage)
	}
	rec, err = m.readRecord(ctx, stage)
	if err == nil {
		m.rememberRecord(stage, rec)
		return rec, known, nil
	}
	last, lerr := m.opt.Ledger.Meta(ctx, metaRecord+stage)
	if lerr == nil && last != "" {
		var seen pipeline.StageRecord
		if json.Unmarshal([]byte(last), &seen) == nil {
			rec, known = &seen, true
		}
	}
	return rec, known, pipeline.Problemf(pipeline.ProblemUnreachable, hintOf(err), "cannot read the record of %q: %w", stage, err)
}

func (m *Mover) readRecord(ctx context.Context, stage string) (*pipeline.StageRecord, error) {
	p, err := m.opt.Verifier.Profile(ctx)
	if err != nil {
		return nil, err
	}
	key := m.recordKey(stage)
	if _, err := head(ctx, m.opt.Verifier, p, key); isMissing(err) {
		return nil, nil
	} else if err != nil {
		return nil, err
	}
	body, obj, err := m.opt.Verifier.Get(ctx, key, 0)
	if err != nil {
		return nil, err
	}
	defer func() { _ = body.Close() }()
	data, err := io.ReadAll(io.LimitReader(body, maxRecord))
	if err != nil {
		return nil, err
	}
	var rec pipeline.StageRecord
	if err := json.Unmarshal(data, &rec); err != nil {
		return nil, fmt.Errorf("object %q is no record: %w", key, err)
	}
	if rec.Schema > pipeline.SchemaVersion || rec.Schema < 1 {
		return nil, fmt.Errorf("object %q has schema %d: run the newer pipedeck", key, rec.Schema)
	}
	rec.ETag = obj.ETag
	return &rec, nil
}

// rememberRecord keeps a record for times when the bucket cannot be read. It
// is a convenience: a failure only costs that.
func (m *Mover) rememberRecord(stage string, rec *pipeline.StageRecord) {
	value := ""
	if rec != nil {
		data, err := json.Marshal(rec)
		if err != nil {
			return
		}
		value = string(data)
	}
	if err := m.saveMeta(metaRecord+stage, value); err != nil {
		m.log.Warn("stage record", "err", err)
	}
}

// WriteStageRecord replaces the record that was read with rec.ETag; "" is for
// the first one.
func (m *Mover) WriteStageRecord(ctx context.Context, stage string, rec pipeline.StageRecord) error {
	if m.opt.Spec.Stage(stage) == nil {
		return pipeline.Problemf(pipeline.ProblemUsage, "", "cannot write the record of %q: the spec has no such stage", stage)
	}
	data, err := json.Marshal(rec)
	if err != nil {
		return fmt.Errorf("cannot encode the record of %q: %w", stage, err)
	}
	for n := 1; ; n++ {
		err = m.putRecord(ctx, stage, rec.ETag, data)
		if class := classOf(err); err == nil || n == recordTries || class != pipeline.StoreTransient && class != pipeline.StoreThrottled {
			break
		}
		if serr := sleep(ctx, m.backoff(n)); serr != nil {
			break
		}
	}
	switch {
	case err == nil:
		m.rememberRecord(stage, &rec)
		return nil
	case errors.Is(err, errRecordChanged):
		return pipeline.Problemf(pipeline.ProblemRefused, "plan again: what it says now decides", "cannot write the record of %q: %w", stage, err)
	case classOf(err) == pipeline.StoreTransient, classOf(err) == pipeline.StoreThrottled:
		return pipeline.Problemf(pipeline.ProblemUnreachable, hintOf(err), "cannot write the record of %q: %w", stage, err)
	}
	return pipeline.Problemf(pipeline.ProblemFailed, hintOf(err), "cannot write the record of %q: %w", stage, err)
}

// putRecord writes once, under the condition that the object is the one with
// this ETag ("": that there is none), and reads it back. Where the endpoint
// knows no conditions a look before is all there is.
func (m *Mover) putRecord(ctx context.Context, stage, etag string, data []byte) error {
	p, err := m.profile(ctx)
	if err != nil {
		return err
	}
	key := m.recordKey(stage)
	sums := local.HashBuffer(data, false)
	req := pipeline.PutRequest{Key: key, Body: data, MD5: sums.MD5, CRC32C: sums.CRC32C}
	switch {
	case etag == "" && p.ConditionalPut:
		req.IfNoneMatch = true
	case etag != "" && p.ConditionalMatch:
		req.IfMatch = etag
	default:
		obj, err := head(ctx, m.opt.Verifier, p, key)
		if err != nil && !isMissing(err) {
			return err
		}
		if obj.ETag != etag {
			return m.sameRecord(ctx, key, data)
		}
	}
	if _, err := m.opt.Store.Put(ctx, req); err != nil {
		// An answer that got lost looks like this when it is tried again.
		if class := classOf(err); class == pipeline.StoreExists || class == pipeline.StoreMissing {
			return m.sameRecord(ctx, key, data)
		}
		return err
	}
	return m.sameRecord(ctx, key, data)
}

// sameRecord reads the object and says whether it is what we wrote.
func (m *Mover) sameRecord(ctx context.Context, key string, data []byte) error {
	got, err := m.fetchSmall(ctx, key)
	if isMissing(err) || err == nil && !bytes.Equal(got, data) {
		return errRecordChanged
	}
	return err
}

func (m *Mover) fetchSmall(ctx context.Context, key string) ([]byte, error) {
	body, _, err := m.opt.Verifier.Get(ctx, key, 0)
	if err != nil {
		return nil, err
	}
	defer func() { _ = body.Close() }()
	data, err := io.ReadAll(io.LimitReader(body, maxRecord))
	if err != nil {
		return nil, &pipeline.StoreError{Op: "get", Key: key, Class: pipeline.StoreTransient, Err: err}
	}
	return data, nil
}

// ProbeStore writes, reads back and deletes a small object.
func (m *Mover) ProbeStore(ctx context.Context) error {
	key := m.prefix + ".pipedeck/probe/after-start-" + rand.Text()
	data := []byte("pipedeck probe " + m.opt.Clock().UTC().Format(time.RFC3339Nano) + " " + rand.Text())
	sums := local.HashBuffer(data, false)
	_, err := m.opt.Store.Put(ctx, pipeline.PutRequest{Key: key, Body: data, MD5: sums.MD5, CRC32C: sums.CRC32C})
	if err != nil {
		return storeProblem("write", err)
	}
	got, err := m.fetchSmall(ctx, key)
	derr := m.opt.Store.Delete(context.WithoutCancel(ctx), key)
	switch {
	case err != nil:
		return storeProblem("read back", err)
	case !bytes.Equal(got, data):
		return pipeline.Problemf(pipeline.ProblemFailed, "do not trust this endpoint with data; look at proxies on the way",
			"cannot trust the store: other bytes came back than were written")
	case derr != nil:
		return storeProblem("delete", derr)
	}
	return nil
}

func storeProblem(verb string, err error) error {
	kind := pipeline.ProblemFailed
	if class := classOf(err); class == pipeline.StoreTransient || class == pipeline.StoreThrottled || class == "" {
		kind = pipeline.ProblemUnreachable
	}
	return pipeline.Problemf(kind, hintOf(err), "cannot %s a probe object: %w", verb, err)
}
