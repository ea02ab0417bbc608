package mover

import (
	"context"
	"errors"

	"pipedeck/pipeline"
	"pipedeck/pipeline/spec"
	"pipedeck/s3/coverage"
	"pipedeck/s3/ledger"
	"pipedeck/s3/local"
)

func (a *audit) classify(ctx context.Context, i int) coverage.Class {
	f := &a.files[i]
	src, class := a.inspect(ctx, f)
	if src == nil {
		return class
	}
	defer func() { _ = src.Close() }()
	obj, there := a.objs[i]
	if !there {
		return coverage.Missing
	}
	return a.compare(ctx, src, f.id, obj)
}

// inspect opens a file and judges it. Without a file, what it is counts as is
// known.
func (a *audit) inspect(ctx context.Context, f *audited) (*local.File, coverage.Class) {
	src, err := local.Open(f.at.root.dir, f.rel)
	if errors.Is(err, local.ErrVanished) {
		return nil, coverage.Skipped // moved or removed since the scan
	}
	if err != nil {
		a.doubt(err)
		return nil, coverage.Unknown
	}
	id, err := src.Identity()
	if err != nil {
		_ = src.Close()
		a.doubt(err)
		return nil, coverage.Unknown
	}
	changed := !id.Same(f.id)
	f.id, f.looked = id, true
	switch {
	case a.watch != nil && a.watch.Has(src):
		_ = src.Close()
		return nil, coverage.BeingWritten
	case f.known != nil && !changed || f.at.aside:
		return src, coverage.Unknown
	}
	if class, complete := a.judged(ctx, f); !complete {
		_ = src.Close()
		return nil, class
	}
	return src, coverage.Unknown
}

// judged asks the file's format whether it is complete, and else says what it
// counts as.
func (a *audit) judged(ctx context.Context, f *audited) (class coverage.Class, complete bool) {
	v := a.m.judge(ctx, a.m.probe(a.o, f.at.root, f.rel, f.id))
	f.foreign = v.owner != ""
	switch {
	case isGone(v.err):
		return coverage.Skipped, false
	case v.err != nil:
		a.doubt(v.err)
		return coverage.Unknown, false
	case !v.done && !a.final(v):
		return coverage.BeingWritten, false
	}
	return coverage.Unknown, true
}

// probe is a file to be judged, and no more. Only in a directory with a marker
// the judgement needs the ledger.
func (m *Mover) probe(o *output, r *root, rel string, id local.Identity) *file {
	f := &file{out: o, root: r, rel: rel, key: m.keyOf(o, rel), id: id, unit: o.unitOf(rel)}
	if f.unit == "" {
		f.row = &ledger.Row{}
	}
	return f
}

// final: a jsonl whose writers are gone is complete as it is.
func (a *audit) final(verdict) bool {
	a.m.mu.Lock()
	defer a.m.mu.Unlock()
	return a.o.spec.Format == spec.FormatJSONL && !a.o.alive
}

// compare hashes a file and holds it against its object.
func (a *audit) compare(ctx context.Context, src *local.File, id local.Identity, obj pipeline.Object) coverage.Class {
	if obj.Size != id.Size {
		return coverage.Mismatched
	}
	sums, err := local.HashFile(ctx, src, id.Size, a.m.sizes.partSize(id.Size))
	if err != nil {
		a.doubt(err)
		return coverage.Unknown
	}
	after, err := src.Identity()
	if err != nil || !after.Same(id) || a.watch != nil && isRacy(id, a.m.opt.Clock()) {
		return coverage.BeingWritten
	}
	return classOfLike(compare(a.p, obj, newCopy(src, id, sums.Sums, sums.ETag)))
}
