package mover

import (
	"context"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"time"
	"unicode/utf8"

	"pipedeck/pipeline"
	"pipedeck/s3/ledger"
	"pipedeck/s3/local"
)

// manifest is an object that names verified files. Later ones overrule earlier
// ones, by the store's clock and then by key.
type manifest struct {
	Schema  int             `json:"schema"`
	Deck    string          `json:"deck"`
	Run     string          `json:"run"`
	Output  string          `json:"output"`
	MadeAt  time.Time       `json:"made_at"`
	Entries []manifestEntry `json:"entries"`
}

// manifestEntry is one file. Key is below the run's prefix; KeyBase64 carries
// one that is not valid UTF-8. ETag is left out where it is the MD5.
type manifestEntry struct {
	Key       string `json:"key,omitempty"`
	KeyBase64 string `json:"key_base64,omitempty"`
	Size      int64  `json:"size"`
	MD5       string `json:"md5"`
	CRC32C    string `json:"crc32c"`
	ETag      string `json:"etag,omitempty"`
	Sample    string `json:"id,omitempty"`
}

func entryOf(r *ledger.Row) manifestEntry {
	c := r.Stored
	e := manifestEntry{Size: c.Size, MD5: hexMD5(c), CRC32C: fmt.Sprintf("%08x", c.CRC32C), Sample: r.Sample}
	if c.ETag != e.MD5 {
		e.ETag = c.ETag
	}
	if utf8.ValidString(r.Key) {
		e.Key = r.Key
	} else {
		e.KeyBase64 = base64.StdEncoding.EncodeToString([]byte(r.Key))
	}
	return e
}

// row is the inverse of entryOf, as something claimed and not yet seen.
func (e *manifestEntry) row(output string) (ledger.Row, error) {
	key := e.Key
	if e.KeyBase64 != "" {
		raw, err := base64.StdEncoding.DecodeString(e.KeyBase64)
		if err != nil {
			return ledger.Row{}, fmt.Errorf("cannot read a manifest's key: %w", err)
		}
		key = string(raw)
	}
	c := &ledger.Copy{Size: e.Size, ETag: e.ETag}
	if n, err := hex.Decode(c.MD5[:], []byte(e.MD5)); err != nil || n != len(c.MD5) || len(e.MD5) != 2*n {
		return ledger.Row{}, fmt.Errorf("cannot read the MD5 of %q in a manifest: %q", key, e.MD5)
	}
	if _, err := fmt.Sscanf(e.CRC32C, "%x", &c.CRC32C); err != nil {
		return ledger.Row{}, fmt.Errorf("cannot read the CRC of %q in a manifest: %q", key, e.CRC32C)
	}
	if c.ETag == "" {
		c.ETag = e.MD5
	}
	return ledger.Row{Output: output, Key: key, Sample: e.Sample, Put: c, Phase: ledger.Claimed}, nil
}

// writeManifest stores a manifest of rows and returns its key. It tries until
// it succeeds or ctx ends.
func (m *Mover) writeManifest(ctx context.Context, o *output, rows []ledger.Row) (string, error) {
	now := m.opt.Clock().UTC()
	doc := manifest{Schema: pipeline.SchemaVersion, Deck: m.opt.Spec.Deck, Run: m.opt.Spec.Run, Output: o.name, MadeAt: now}
	for i := range rows {
		doc.Entries = append(doc.Entries, entryOf(&rows[i]))
	}
	body, err := json.Marshal(doc)
	if err != nil {
		return "", fmt.Errorf("cannot encode a manifest: %w", err)
	}
	sums := local.HashBuffer(body, false)
	key := m.manifestKey(o, now, sums)
	for n := 1; ; n++ {
		err := m.putManifest(ctx, key, body, sums, n > 1)
		if err == nil {
			return key, nil
		}
		if classOf(err) == "" || classOf(err) == pipeline.StoreFile || classOf(err) == pipeline.StoreIntegrity {
			m.notify(pipeline.Error, err.Error()+"; nothing local is removed until the manifest is stored")
		}
		if classOf(err) == pipeline.StoreIntegrity {
			// What arrived damaged stays as it is, and its name is taken.
			key = m.manifestKey(o, m.opt.Clock(), sums)
		}
		if err := sleep(ctx, m.backoff(n)); err != nil {
			return "", err
		}
	}
}

// manifestKey names a manifest: the time for people and for those of one
// second, the hash to make the name the content's own.
func (m *Mover) manifestKey(o *output, at time.Time, sums local.Sums) string {
	return m.manifestPrefix(o) + at.UTC().Format("20060102T150405.000000000Z") + "-" + hex.EncodeToString(sums.MD5[:8]) + ".json"
}

func (m *Mover) manifestPrefix(o *output) string {
	if o.isArtifacts() {
		return m.opt.Spec.ManifestPrefix(".", artifactsName)
	}
	return m.opt.Spec.ManifestPrefix(o.stage.Name, o.spec.Name)
}

// putManifest writes once and looks whether it is there. An earlier try may have
// left something behind although its answer was lost: where the endpoint does
// not keep that from being replaced, it is looked for first.
func (m *Mover) putManifest(ctx context.Context, key string, body []byte, sums local.Sums, again bool) error {
	p, err := m.profile(ctx)
	if err != nil {
		return err
	}
	if again && !p.ConditionalPut {
		if err := m.seeManifest(ctx, p, key, sums); !isMissing(err) {
			return err
		}
	}
	if err := m.gate.acquireRecord(ctx); err != nil {
		return err
	}
	_, err = m.opt.Store.Put(ctx, pipeline.PutRequest{Key: key, Body: body, MD5: sums.MD5, CRC32C: sums.CRC32C, IfNoneMatch: p.ConditionalPut})
	m.gate.report(err)
	m.gate.release()
	if err != nil && classOf(err) != pipeline.StoreExists {
		return err
	}
	return m.seeManifest(ctx, p, key, sums)
}

// seeManifest looks whether a manifest is stored as it was sent.
func (m *Mover) seeManifest(ctx context.Context, p pipeline.StoreProfile, key string, sums local.Sums) error {
	obj, err := head(ctx, m.opt.Verifier, p, key)
	if err != nil {
		return err
	}
	want := &ledger.Copy{Size: sums.Size, MD5: sums.MD5}
	switch compare(p, obj, want) {
	case same:
		return nil
	case unsure:
		got, err := m.fetchSums(ctx, m.opt.Verifier, key)
		if err != nil {
			return err
		}
		if got.Size == sums.Size && got.MD5 == sums.MD5 {
			return nil
		}
	case different:
	}
	return &pipeline.StoreError{Op: "verify manifest", Key: key, Class: pipeline.StoreIntegrity, Code: "it holds other bytes than were sent"}
}
