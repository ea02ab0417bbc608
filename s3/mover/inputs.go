package mover

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/bmatcuk/doublestar/v4"

	"pipedeck/pipeline"
	"pipedeck/pipeline/spec"
	"pipedeck/s3/local"
)

const (
	// metaInput + device and inode is the hash of a large input.
	metaInput = "input."
	// rememberedInput is the size from which on a hash is worth keeping.
	rememberedInput = 4 << 20
)

// inputHashes keeps what DescribeInputs found, and the hashing under way: it
// goes on when who asked has no more patience, so that gigabytes are read once.
type inputHashes struct {
	mu   sync.Mutex
	jobs map[string]*inputJob // by stage
}

func newInputHashes() *inputHashes { return &inputHashes{jobs: map[string]*inputJob{}} }

// inputJob hashes the inputs of a stage as they were seen.
type inputJob struct {
	seen   [32]byte // of the paths and identities
	files  int
	hashed atomic.Int64
	done   chan struct{}
	sum    string
	err    error
}

// input is one file that a stage reads.
type input struct {
	name string // as it goes into the hash
	path string
	id   local.Identity
	link string // target of a link to a directory, which is not followed
}

// DescribeInputs hashes the content of a stage's inputs, and its command.
func (m *Mover) DescribeInputs(ctx context.Context, stage string) (pipeline.StageRecord, error) {
	st := m.opt.Spec.Stage(stage)
	if st == nil {
		return pipeline.StageRecord{}, pipeline.Problemf(pipeline.ProblemUsage, "", "cannot describe the inputs of %q: the spec has no such stage", stage)
	}
	rec := pipeline.StageRecord{Schema: pipeline.SchemaVersion, Run: m.opt.Spec.Run, Stage: stage, Command: commandHash(st)}
	if len(st.Inputs) == 0 {
		return rec, nil
	}
	list, err := m.inputs(ctx, st)
	if err != nil {
		return rec, pipeline.Problemf(pipeline.ProblemFailed, "", "cannot read the inputs of %q: %w", stage, err)
	}
	job := m.care.hashes.job(stage, list, func(j *inputJob) {
		j.sum, j.err = m.hashInputs(context.WithoutCancel(ctx), list, &j.hashed)
	})
	select {
	case <-job.done:
	case <-ctx.Done():
		return rec, pipeline.Problemf(pipeline.ProblemUnreachable, "it goes on: ask again in a while",
			"cannot describe the inputs of %q yet: %s hashed", stage, pipeline.CountedOf(job.hashed.Load(), int64(job.files), "file", "files", "is", "are"))
	}
	if job.err != nil {
		return rec, pipeline.Problemf(pipeline.ProblemFailed, "", "cannot read the inputs of %q: %w", stage, job.err)
	}
	rec.Inputs = job.sum
	return rec, nil
}

// commandHash is of the worker's command and environment as the spec has them.
func commandHash(st *spec.Stage) string {
	doc := struct {
		Command []string      `json:"command"`
		Env     []spec.EnvVar `json:"env"`
	}{st.Workers.Command, st.Workers.Env}
	data, err := json.Marshal(doc)
	if err != nil { // strings only: it cannot fail
		data = fmt.Append(nil, doc)
	}
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:])
}

// job returns the hashing of these files, begun or ended, or begins it. One
// that failed is tried again.
func (h *inputHashes) job(stage string, list []input, run func(*inputJob)) *inputJob {
	seen := fingerprint(list)
	h.mu.Lock()
	defer h.mu.Unlock()
	if j := h.jobs[stage]; j != nil && j.seen == seen {
		select {
		case <-j.done:
			if j.err == nil {
				return j
			}
		default:
			return j
		}
	}
	j := &inputJob{seen: seen, files: len(list), done: make(chan struct{})}
	h.jobs[stage] = j
	go func() {
		defer close(j.done)
		run(j)
	}()
	return j
}

func fingerprint(list []input) (sum [32]byte) {
	h := sha256.New()
	for i := range list {
		in := &list[i]
		writeText(h, in.name)
		writeText(h, in.link)
		for _, n := range []int64{int64(in.id.Dev), int64(in.id.Ino), in.id.Size, in.id.MTimeNS, in.id.CTimeNS} {
			writeNumber(h, n)
		}
	}
	h.Sum(sum[:0])
	return sum
}

// writeText writes a text such that no two lists of texts look alike.
func writeText(h hash.Hash, s string) {
	writeNumber(h, int64(len(s)))
	_, _ = io.WriteString(h, s)
}

func writeNumber(h hash.Hash, n int64) {
	var b [8]byte
	binary.BigEndian.PutUint64(b[:], uint64(n))
	_, _ = h.Write(b[:])
}

// inputs lists the files that the globs of a stage match now, in the order of
// their names. A directory stands for all files below it.
func (m *Mover) inputs(ctx context.Context, st *spec.Stage) ([]input, error) {
	found := map[string]input{}
	for _, glob := range st.Inputs {
		base, rel := m.opt.Spec.Workdir, filepath.Clean(glob)
		if filepath.IsAbs(rel) {
			base, rel = "/", strings.TrimPrefix(rel, "/")
		}
		names := []string{rel}
		if strings.ContainsAny(glob, `*?[{\`) {
			var err error
			if names, err = doublestar.Glob(os.DirFS(base), rel, doublestar.WithFailOnIOErrors()); err != nil {
				return nil, err
			}
		}
		for _, name := range names {
			if err := m.addInputs(ctx, filepath.Join(base, name), found); err != nil {
				return nil, err
			}
		}
	}
	list := make([]input, 0, len(found))
	for _, in := range found {
		list = append(list, in)
	}
	slices.SortFunc(list, func(a, b input) int { return strings.Compare(a.name, b.name) })
	return list, nil
}

// addInputs adds a file, or all below a directory. What is not there is none.
func (m *Mover) addInputs(ctx context.Context, path string, found map[string]input) error {
	target, err := filepath.EvalSymlinks(path)
	if err != nil {
		return m.addInput(path, found)
	}
	if info, err := os.Stat(target); err != nil || !info.IsDir() {
		return m.addInput(path, found)
	}
	return filepath.WalkDir(target, func(at string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case ctx.Err() != nil:
			return ctx.Err()
		case !d.IsDir():
			return m.addInput(path+strings.TrimPrefix(at, target), found)
		case d.Name() == ".pipedeck" || d.Name() == ".pipedeck-aside":
			return fs.SkipDir
		}
		return nil
	})
}

func (m *Mover) addInput(path string, found map[string]input) error {
	name := path
	if rel, err := filepath.Rel(m.opt.Spec.Workdir, path); err == nil && rel != ".." && !strings.HasPrefix(rel, "../") {
		name = rel
	}
	if _, had := found[name]; had {
		return nil
	}
	f, err := local.OpenPath(path)
	if errors.Is(err, local.ErrNotRegular) {
		if target, lerr := os.Readlink(path); lerr == nil {
			found[name] = input{name: name, path: path, link: target}
		}
		return nil
	}
	if isGone(err) {
		return nil
	}
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	id, err := f.Identity()
	found[name] = input{name: name, path: path, id: id}
	return err
}

// hashInputs hashes files, some at a time, into one hash of all.
func (m *Mover) hashInputs(ctx context.Context, list []input, hashed *atomic.Int64) (string, error) {
	sums, errs := make([][32]byte, len(list)), make([]error, hashers)
	work := make(chan int, hashers)
	var wg sync.WaitGroup
	for n := range hashers {
		wg.Go(func() {
			for i := range work {
				if errs[n] == nil {
					sums[i], errs[n] = m.hashInput(ctx, &list[i])
				}
				hashed.Add(1)
			}
		})
	}
	for i := range list {
		work <- i
	}
	close(work)
	wg.Wait()
	if err := errors.Join(errs...); err != nil {
		return "", err
	}
	h := sha256.New()
	for i := range list {
		writeText(h, list[i].name)
		_, _ = h.Write(sums[i][:])
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}

func (m *Mover) hashInput(ctx context.Context, in *input) (sum [32]byte, err error) {
	if in.link != "" {
		return sha256.Sum256([]byte("-> " + in.link)), nil
	}
	name, want := metaInput+fmt.Sprintf("%x.%x", in.id.Dev, in.id.Ino), fmt.Sprintf("%d.%d.%d.", in.id.Size, in.id.MTimeNS, in.id.CTimeNS)
	if in.id.Size >= rememberedInput {
		if value, err := m.opt.Ledger.Meta(ctx, name); err == nil && strings.HasPrefix(value, want) {
			if n, err := hex.Decode(sum[:], []byte(strings.TrimPrefix(value, want))); err == nil && n == len(sum) {
				return sum, nil
			}
		}
	}
	if isRacy(in.id, m.opt.Clock()) {
		_ = sleep(ctx, 2*racyWindow) // until a further write would show
	}
	f, err := local.OpenPath(in.path)
	if err != nil {
		return sum, err
	}
	defer func() { _ = f.Close() }()
	h := sha256.New()
	if _, err := io.CopyBuffer(h, io.NewSectionReader(f, 0, in.id.Size), make([]byte, 1<<20)); err != nil {
		return sum, err
	}
	h.Sum(sum[:0])
	after, err := f.Identity()
	if err == nil && !after.Same(in.id) {
		err = fmt.Errorf("%q changed while it was hashed", in.path)
	}
	if err == nil && in.id.Size >= rememberedInput {
		if serr := m.opt.Ledger.SetMeta(name, want+hex.EncodeToString(sum[:])); serr != nil {
			m.log.Warn("input hash", "err", serr)
		}
	}
	return sum, err
}
