package mover

import (
	"context"
	"errors"
	"slices"
	"sort"
	"sync"

	"pipedeck/pipeline"
	"pipedeck/pipeline/spec"
	"pipedeck/s3/coverage"
	"pipedeck/s3/ledger"
	"pipedeck/s3/local"
)

// hashers is how many files an audit reads at the same time.
const hashers = 4

// Coverage audits outputs ("stage/output" or a unique bare name; none: all)
// against the store now.
func (m *Mover) Coverage(ctx context.Context, outputs []string, ids bool) ([]pipeline.OutputCoverage, error) {
	chosen, err := m.choose(outputs)
	if err != nil {
		return nil, err
	}
	list := make([]pipeline.OutputCoverage, 0, len(chosen))
	for _, o := range chosen {
		a := &audit{m: m, o: o}
		list = append(list, a.run(ctx, ids))
		if err := ctx.Err(); err != nil {
			return nil, err
		}
	}
	return list, nil
}

func (m *Mover) choose(names []string) ([]*output, error) {
	if len(names) == 0 {
		return slices.DeleteFunc(slices.Clone(m.outputs), (*output).isArtifacts), nil
	}
	var chosen []*output
	for _, name := range names {
		st, so, err := m.opt.Spec.FindOutput(name)
		if err != nil {
			return nil, pipeline.Problemf(pipeline.ProblemUsage, "", "%w", err)
		}
		i := slices.IndexFunc(m.outputs, func(o *output) bool { return o.name == st.Name+"/"+so.Name })
		chosen = append(chosen, m.outputs[i])
	}
	return chosen, nil
}

// audit is one look at all local files of an output and at their keys.
type audit struct {
	m     *Mover
	o     *output
	p     pipeline.StoreProfile
	files []audited
	mu    sync.Mutex
	cov   pipeline.OutputCoverage
	open  []int // files whose object must be compared by hash
	objs  map[int]pipeline.Object
}

// audited is one local file.
type audited struct {
	root  *root
	rel   string
	key   string // in full
	id    local.Identity
	known *ledger.Copy // hashed before, for this identity
	held  bool         // the ledger says that a non-empty object is stored
	class coverage.Class
}

func (a *audit) run(ctx context.Context, ids bool) pipeline.OutputCoverage {
	a.cov = pipeline.OutputCoverage{Name: a.o.name}
	a.cov.At, a.cov.Complete = a.m.opt.Clock(), true
	a.objs = map[int]pipeline.Object{}
	a.scan(ctx)
	a.recall(ctx)
	a.ask(ctx)
	a.compareAll(ctx)
	for i := range a.files {
		coverage.Add(&a.cov, a.files[i].class)
	}
	if ids {
		a.cov.IDs = a.ids(ctx)
	}
	return a.cov
}

// doubt makes the audit incomplete.
func (a *audit) doubt(err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.cov.Complete = false
	if a.cov.Reason == nil {
		text := pipeline.Clean(err.Error())
		if hint := hintOf(err); hint != "" {
			text += "; " + hint
		}
		a.cov.Reason = &text
	}
}

func (a *audit) scan(ctx context.Context) {
	for i := range a.o.roots {
		r := &a.o.roots[i]
		problems, err := local.Scan(ctx, r.dir, a.m.wanted(a.o), func(e local.Entry) {
			if e.Kind == local.KindRegular {
				a.files = append(a.files, audited{root: r, rel: e.Rel, key: a.m.prefix + a.m.keyOf(a.o, e.Rel), id: e.ID})
			}
		})
		if err != nil && !errors.Is(err, local.ErrNoDir) {
			a.doubt(err)
		}
		for _, p := range problems {
			a.doubt(p.Err)
		}
	}
	sort.Slice(a.files, func(i, j int) bool { return a.files[i].key < a.files[j].key })
	a.files = slices.CompactFunc(a.files, func(x, y audited) bool { return x.key == y.key })
}

// recall finds hashes that are still good in the ledger.
func (a *audit) recall(ctx context.Context) {
	i := 0
	err := a.m.opt.Ledger.Rows(ctx, a.o.name, "", func(r ledger.Row) error {
		key := a.m.prefix + r.Key
		for i < len(a.files) && a.files[i].key < key {
			i++
		}
		if i == len(a.files) || a.files[i].key != key {
			return nil
		}
		f := &a.files[i]
		f.held = r.Stored != nil && r.Stored.Size > 0
		for _, c := range []*ledger.Copy{r.Stored, r.Put} {
			if isCopyOf(c, f.id) {
				f.known = c
			}
		}
		return nil
	})
	if err != nil {
		a.m.log.Warn("audit hashes anew", "err", err)
	}
}

// ask joins the files with the listing. A file that no page answered for stays
// unknown.
func (a *audit) ask(ctx context.Context) {
	if len(a.files) == 0 {
		return
	}
	p, err := a.m.opt.Verifier.Profile(ctx)
	if err != nil {
		a.doubt(err)
		return
	}
	a.p = p
	keys := make([]string, len(a.files))
	for i := range a.files {
		keys[i] = a.files[i].key
	}
	walk := coverage.Walk
	if !p.ListStartAfter {
		walk = coverage.WalkSerial
	}
	err = walk(ctx, a.m.opt.Verifier, a.m.listPrefix(a.o), keys, a.answer)
	if err != nil {
		a.doubt(err)
	}
}

// answer takes what the listing says of one file; what needs its content comes
// later.
func (a *audit) answer(i int, obj *pipeline.Object) {
	f := &a.files[i]
	switch {
	case local.IsPlaceholder(f.id) && (f.held || obj != nil && obj.Size > 0):
		f.class = coverage.Skipped
		return
	case obj == nil && f.known != nil:
		f.class = coverage.Missing
		return
	case obj != nil && f.known != nil:
		if like := compare(a.p, *obj, f.known); like != unsure {
			f.class = classOfLike(like)
			return
		}
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.open = append(a.open, i)
	if obj != nil {
		a.objs[i] = *obj
	}
}

func classOfLike(like likeness) coverage.Class {
	switch like {
	case same:
		return coverage.Proven
	case different:
		return coverage.Mismatched
	case unsure:
	}
	return coverage.Unproven
}

// compareAll judges and hashes the files that the ledger could not vouch for.
func (a *audit) compareAll(ctx context.Context) {
	var wg sync.WaitGroup
	work := make(chan int)
	for range hashers {
		wg.Go(func() {
			for i := range work {
				a.files[i].class = a.classify(ctx, i)
			}
		})
	}
	for _, i := range a.open {
		if ctx.Err() != nil {
			break
		}
		work <- i
	}
	close(work)
	wg.Wait()
}

func (a *audit) classify(ctx context.Context, i int) coverage.Class {
	f := &a.files[i]
	obj, there := a.objs[i]
	src, err := local.Open(f.root.dir, f.rel)
	if errors.Is(err, local.ErrVanished) {
		return coverage.Skipped // moved or removed since the scan
	}
	if err != nil {
		a.doubt(err)
		return coverage.Unknown
	}
	defer func() { _ = src.Close() }()
	id, err := src.Identity()
	if err != nil {
		a.doubt(err)
		return coverage.Unknown
	}
	if f.known == nil || !id.Same(f.id) {
		probe := &file{out: a.o, root: f.root, rel: f.rel, unit: a.o.unitOf(f.rel)}
		v := a.m.judge(ctx, probe)
		switch {
		case v.err != nil:
			a.doubt(v.err)
			return coverage.Unknown
		case !v.done && !a.final(v):
			return coverage.BeingWritten
		}
	}
	if !there {
		return coverage.Missing
	}
	return a.compare(ctx, src, id, obj)
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
	if err != nil || !after.Same(id) {
		return coverage.BeingWritten
	}
	return classOfLike(compare(a.p, obj, newCopy(src, id, sums.Sums, sums.ETag)))
}

// ids lists the sample ids that are stored, and those that are only local.
func (a *audit) ids(ctx context.Context) *pipeline.CoverageIDs {
	stored := map[string]struct{}{}
	if err := a.m.opt.Ledger.Samples(ctx, a.o.name, func(id string) { stored[id] = struct{}{} }); err != nil {
		a.doubt(err)
	}
	unproven := map[string]struct{}{}
	for i := range a.files {
		f := &a.files[i]
		id, ok := a.o.spec.SampleID(f.rel)
		switch {
		case !ok || f.class == coverage.Skipped:
		case f.class == coverage.Proven:
			stored[id] = struct{}{}
		default:
			unproven[id] = struct{}{}
		}
	}
	for id := range stored {
		delete(unproven, id)
	}
	return &pipeline.CoverageIDs{Stored: sortedIDs(stored), Unproven: sortedIDs(unproven)}
}

func sortedIDs(set map[string]struct{}) []string {
	ids := make([]string, 0, len(set))
	for id := range set {
		ids = append(ids, id)
	}
	slices.SortFunc(ids, compareIDs)
	return ids
}
