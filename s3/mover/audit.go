package mover

import (
	"context"
	"errors"
	"slices"
	"sort"
	"strings"
	"sync"

	"pipedeck/pipeline"
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
	open  []int // files that must be judged and compared by hash
	objs  map[int]pipeline.Object
	tick  func()         // after each file that has its class; may be nil
	watch *local.Writers // not nil: who has a file open matters
}

// audited is one local file.
type audited struct {
	at      *spot
	rel     string // below at.root
	key     string // in full
	id      local.Identity
	known   *ledger.Copy // hashed before, for this identity
	held    bool         // the ledger says that a non-empty object is stored
	proven  bool         // known is what the ledger says is stored
	foreign bool         // it belongs to another run
	looked  bool         // for writers, too
	class   coverage.Class
}

// spot is a directory in which files lie, and where they are said to lie: what
// was moved aside belongs elsewhere.
type spot struct {
	root  *root
	base  string // absolute
	under string // of the files, below base
	aside bool
}

func (a *audit) run(ctx context.Context, ids bool) pipeline.OutputCoverage {
	a.begin()
	a.scan(ctx)
	a.sort(false)
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

func (a *audit) begin() {
	a.cov = pipeline.OutputCoverage{Name: a.o.name}
	a.cov.At, a.cov.Complete = a.m.opt.Clock(), true
	a.objs = map[int]pipeline.Object{}
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
		at := &spot{root: &a.o.roots[i], base: a.o.roots[i].dir}
		problems, err := local.Scan(ctx, at.base, a.m.wanted(a.o), func(e local.Entry) {
			if e.Kind == local.KindRegular {
				a.add(at, e.Rel, e.ID)
			}
		})
		if err != nil && !errors.Is(err, local.ErrNoDir) {
			a.doubt(err)
		}
		for _, p := range problems {
			a.doubt(p.Err)
		}
	}
}

func (a *audit) add(at *spot, rel string, id local.Identity) {
	key := a.m.prefix + a.m.keyOf(a.o, rel)
	if strings.HasSuffix(key, rel) {
		rel = key[len(key)-len(rel):] // one text for both, in a million files
	}
	a.files = append(a.files, audited{at: at, rel: rel, key: key, id: id})
}

// sort orders the files by key. Of files with one key only the first goes to
// the store, and only the first counts unless all are asked for.
func (a *audit) sort(all bool) {
	sort.SliceStable(a.files, func(i, j int) bool { return a.files[i].key < a.files[j].key })
	if !all {
		a.files = slices.CompactFunc(a.files, func(x, y audited) bool { return x.key == y.key })
	}
}

// recall finds hashes that are still good in the ledger.
func (a *audit) recall(ctx context.Context) {
	i := 0
	err := a.m.opt.Ledger.Rows(ctx, a.o.name, "", func(r ledger.Row) error {
		key := a.m.prefix + r.Key
		for i < len(a.files) && a.files[i].key < key {
			i++
		}
		for n := i; n < len(a.files) && a.files[n].key == key; n++ {
			a.files[n].recall(&r)
		}
		return nil
	})
	if err != nil {
		a.m.log.Warn("audit hashes anew", "err", err)
	}
}

func (f *audited) recall(r *ledger.Row) {
	f.held = r.Stored != nil && r.Stored.Size > 0
	for _, c := range []*ledger.Copy{r.Stored, r.Put} {
		if isCopyOf(c, f.id) {
			f.known, f.proven = c, c == r.Stored
		}
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
	keys, first := a.keys()
	walk := coverage.Walk
	if !p.ListStartAfter {
		walk = coverage.WalkSerial
	}
	err = walk(ctx, a.m.opt.Verifier, a.m.listPrefix(a.o), keys, func(k int, obj *pipeline.Object) {
		for i := first[k]; i < first[k+1]; i++ {
			a.answer(i, obj)
		}
	})
	if err != nil {
		a.doubt(err)
	}
}

// keys are the distinct keys, and where in files each begins.
func (a *audit) keys() (keys []string, first []int) {
	keys, first = make([]string, 0, len(a.files)), make([]int, 0, len(a.files)+1)
	for i := range a.files {
		if i == 0 || a.files[i].key != a.files[i-1].key {
			keys, first = append(keys, a.files[i].key), append(first, i)
		}
	}
	return keys, append(first, len(a.files))
}

// answer takes what the listing says of one file; what needs its content comes
// later.
func (a *audit) answer(i int, obj *pipeline.Object) {
	f := &a.files[i]
	switch {
	case local.IsPlaceholder(f.id) && (f.held || obj != nil && obj.Size > 0):
		a.settle(f, coverage.Skipped)
		return
	case obj == nil && f.known != nil:
		a.settle(f, coverage.Missing)
		return
	case obj != nil && f.known != nil:
		if like := compare(a.p, *obj, f.known); like != unsure {
			a.settle(f, classOfLike(like))
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

func (a *audit) settle(f *audited, class coverage.Class) {
	f.class = class
	if a.tick != nil {
		a.tick()
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
	a.each(ctx, a.open, func(i int) { a.settle(&a.files[i], a.classify(ctx, i)) })
}

// each runs do for files, some at a time.
func (a *audit) each(ctx context.Context, files []int, do func(i int)) {
	var wg sync.WaitGroup
	work := make(chan int, hashers)
	for range hashers {
		wg.Go(func() {
			for i := range work {
				do(i)
			}
		})
	}
	for _, i := range files {
		if ctx.Err() != nil {
			break
		}
		work <- i
	}
	close(work)
	wg.Wait()
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
