package mover

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"pipedeck/pipeline"
	"pipedeck/pipeline/spec"
	"pipedeck/s3/ledger"
	"pipedeck/s3/local"
)

// adoptStrangers reads back objects that nothing names and that have no local
// file, and enters the good ones in a manifest.
func (m *Mover) adoptStrangers(ctx context.Context, o *output, keys []string) error {
	var rows []ledger.Row
	for _, key := range keys {
		rel, ok := m.relOf(o, key)
		if !ok || m.onDisk(o, rel) || o.isArtifacts() {
			continue
		}
		row, reason, err := m.readStranger(ctx, o, key, rel)
		if err != nil {
			return err
		}
		if reason != "" {
			m.notify(pipeline.Error, fmt.Sprintf("object %q does not count as stored: %s", key, reason))
			continue
		}
		if rows = append(rows, row); len(rows) == batchFiles {
			if err := m.adoptRows(ctx, o, rows); err != nil {
				return err
			}
			rows = nil
		}
	}
	return m.adoptRows(ctx, o, rows)
}

func (m *Mover) adoptRows(ctx context.Context, o *output, rows []ledger.Row) error {
	if len(rows) == 0 {
		return nil
	}
	key, err := m.writeManifest(ctx, o, rows)
	if err != nil {
		return err
	}
	return m.opt.Ledger.SaveManifest(key, rows)
}

func (m *Mover) onDisk(o *output, rel string) bool {
	for i := range o.roots {
		f, err := local.Open(o.roots[i].dir, rel)
		if err == nil {
			id, err := f.Identity()
			_ = f.Close()
			if err == nil && !local.IsPlaceholder(id) {
				return true
			}
		}
	}
	return false
}

// readStranger fetches an object to a scratch file and judges it there.
func (m *Mover) readStranger(ctx context.Context, o *output, key, rel string) (row ledger.Row, reason string, err error) {
	scratch, err := os.Create(filepath.Join(m.opt.StateDir, readbackName))
	if err != nil {
		return row, "", err
	}
	defer func() {
		_ = scratch.Truncate(0)
		_ = scratch.Close()
	}()
	sums, err := fetchTo(ctx, m.opt.Verifier, m.prefix+key, scratch)
	if err != nil {
		return row, "", err
	}
	if o.spec.Format != spec.FormatMarker {
		if reason, err = m.judgeScratch(o); reason != "" || err != nil {
			return row, reason, err
		}
	}
	obj, err := m.opt.Verifier.Head(ctx, m.prefix+key)
	if err != nil {
		return row, "", err
	}
	sample, _ := o.spec.SampleID(rel)
	return ledger.Row{
		Output: o.name, Key: key, Sample: sample,
		Stored: &ledger.Copy{Size: sums.Size, MD5: sums.MD5, CRC32C: sums.CRC32C, ETag: obj.ETag},
	}, "", nil
}

func (m *Mover) judgeScratch(o *output) (reason string, err error) {
	f, err := local.Open(m.opt.StateDir, readbackName)
	if err != nil {
		return "", err
	}
	defer func() { _ = f.Close() }()
	id, err := f.Identity()
	if err != nil {
		return "", err
	}
	j, err := local.Judge(f, o.spec.Format, id)
	if err != nil || j.Verdict == local.Complete || j.Verdict == local.AfterSettle {
		return "", err
	}
	return "as a " + o.spec.Format + " file it is " + j.Reason, nil
}
