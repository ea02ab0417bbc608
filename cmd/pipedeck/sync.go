package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"pipedeck/pipeline"
	"pipedeck/remote/client"
)

// Bounds of a sync: it is for code, not for data.
const (
	syncFiles = 10_000
	syncBytes = 1 << 30
)

// syncFile is one file that the node shall have.
type syncFile struct {
	pipeline.CodeFile
	from string
}

// syncRequest asks what differs, and announces the contents that follow.
type syncRequest struct {
	farRequest
	Files []pipeline.CodeFile `json:"files"`
	Hash  string              `json:"hash"`
	Push  []int               `json:"push"` // whose contents follow, by index
	By    string              `json:"by"`
}

// syncReply is what the node lacks, by index.
type syncReply struct {
	New     []int `json:"new"`
	Changed []int `json:"changed"`
}

// neverSynced are names that are nobody's code.
var neverSynced = []string{".git", "__pycache__", ".venv", ".pipedeck", "node_modules"}

// localFiles lists what `sync` of a spec names; base is the spec's folder.
func localFiles(s specFile, base string) ([]syncFile, error) {
	var out []syncFile
	var total int64
	take := func(f syncFile) error {
		out, total = append(out, f), total+f.Size
		if len(out) > syncFiles || total > syncBytes {
			return fmt.Errorf("more than %d files or %d MB", syncFiles, syncBytes>>20)
		}
		return nil
	}
	for _, y := range s.Sync {
		below, err := filepath.Rel(s.Workdir, s.Abs(y.To))
		if err != nil {
			return nil, err
		}
		from := y.From
		if !filepath.IsAbs(from) {
			from = filepath.Join(base, from)
		}
		alone := below
		if strings.HasSuffix(y.To, "/") {
			alone = path.Join(below, filepath.Base(from))
		}
		if err := eachFile(from, below, alone, take); err != nil {
			return nil, pipeline.Problemf(pipeline.ProblemFailed, "name the files that are code in `sync`", "cannot sync %q: %w", y.From, err)
		}
	}
	slices.SortFunc(out, func(a, b syncFile) int { return strings.Compare(a.To, b.To) })
	return out, nil
}

// eachFile passes the files of a folder on, with their names below the node's
// one; a file that stands for itself is called alone there.
func eachFile(from, below, alone string, take func(syncFile) error) error {
	return filepath.WalkDir(from, func(name string, e fs.DirEntry, err error) error {
		never := name != from && err == nil && slices.Contains(neverSynced, e.Name())
		switch {
		case err != nil:
			return err
		case never && e.IsDir():
			return filepath.SkipDir
		case never || !e.Type().IsRegular():
			return nil // folders come with their files; links may lead anywhere
		}
		rel, err := filepath.Rel(from, name)
		if err != nil {
			return err
		}
		to := path.Join(below, filepath.ToSlash(rel))
		if rel == "." {
			to = alone
		}
		f, err := hashed(name, to)
		if err != nil {
			return err
		}
		return take(f)
	})
}

func hashed(name, to string) (syncFile, error) {
	f, err := os.Open(name)
	if err != nil {
		return syncFile{}, err
	}
	defer func() { _ = f.Close() }()
	st, err := f.Stat()
	if err != nil {
		return syncFile{}, err
	}
	sum := sha256.New()
	n, err := io.Copy(sum, f)
	file := pipeline.CodeFile{To: to, Size: n, SHA256: hex.EncodeToString(sum.Sum(nil)), Mode: uint32(st.Mode().Perm())}
	return syncFile{CodeFile: file, from: name}, err
}

// offered is the code as it is here, and how it differs from the node's.
type offered struct {
	files []syncFile
	code  pipeline.Code
	push  []int // of files
}

// offer compares what the spec's `sync` names with the node; nil without any.
func (f *far) offer(ctx context.Context) (*offered, error) {
	if len(f.s.Sync) == 0 {
		return nil, nil
	}
	files, err := localFiles(f.s, filepath.Dir(f.a.flag.spec))
	if err != nil {
		return nil, err
	}
	req := syncRequest{farRequest: f.request()}
	for _, file := range files {
		req.Files = append(req.Files, file.CodeFile)
	}
	o := &offered{files: files, code: pipeline.Code{Hash: pipeline.CodeHash(req.Files), Files: len(files), Push: []pipeline.CodePush{}}}
	var differs syncReply
	if err := f.node.Call(ctx, farSync, req, &differs); err != nil {
		return nil, err
	}
	for _, group := range []struct {
		isNew bool
		list  []int
	}{{true, differs.New}, {false, differs.Changed}} {
		for _, i := range group.list {
			if i < 0 || i >= len(files) {
				return nil, fmt.Errorf("cannot sync: the node asks for file %d of %d", i, len(files))
			}
			o.push = append(o.push, i)
			o.code.PushFiles++
			o.code.PushBytes += files[i].Size
			if len(o.code.Push) < pipeline.CodeShown {
				o.code.Push = append(o.code.Push, pipeline.CodePush{CodeFile: files[i].CodeFile, New: group.isNew})
			}
		}
	}
	return o, nil
}

// syncSaid is how many files are named before a push.
const syncSaid = 20

// tell says what differs on the node.
func (o *offered) tell(say func(string, ...any), node string) {
	for _, p := range o.code.Push[:min(syncSaid, len(o.code.Push))] {
		word := "changed"
		if p.New {
			word = "new"
		}
		say("sync: %s: %s", word, p.To)
	}
	if more := o.code.PushFiles - syncSaid; more > 0 {
		say("sync: and %d more", more)
	}
	if o.code.PushFiles == 0 {
		say("sync: %s the same on %s (%s)", pipeline.Counted(o.code.Files, "file is", "files are"), node, pipeline.ShortHash(o.code.Hash))
	}
}

// push brings the code that a plan was made with, exactly that, to the node.
func (f *far) push(ctx context.Context, p pipeline.Plan, say func(string, ...any)) error {
	want := p.Intent.Code
	now, err := f.offer(ctx)
	if err != nil {
		return err
	}
	if now == nil {
		now = &offered{} // the spec lost its `sync`
	}
	if now.code.Hash != want.Hash {
		return &pipeline.Problem{
			Kind: pipeline.ProblemRefused, Plan: &p, Hint: "make a new plan: it shows what would be pushed now",
			Text: fmt.Sprintf("cannot apply plan %q: the code here was %s when it was made and is %s now (%s); nothing was pushed",
				p.ID, pipeline.ShortHash(want.Hash), pipeline.ShortHash(now.code.Hash), want.Moved(now.code)),
		}
	}
	req := syncRequest{farRequest: f.request(), Hash: want.Hash, Push: now.push, By: operator()}
	body := &contents{}
	defer body.close()
	for _, file := range now.files {
		req.Files = append(req.Files, file.CodeFile)
	}
	for _, i := range now.push {
		body.files = append(body.files, now.files[i])
	}
	var done int
	if err := f.node.CallWith(ctx, farPut, req, body, &done); err != nil {
		return err
	}
	if done == 0 {
		return nil // the node only forgot that it has it
	}
	say("sync: pushed %d of %s to %s (%s)", done, pipeline.Counted(len(now.files), "file", "files"), f.s.node.Name, pipeline.ShortHash(want.Hash))
	return nil
}

// starts says whether a verb is one that code is pushed before.
func starts(v pipeline.Verb) bool {
	return v == pipeline.VerbStart || v == pipeline.VerbRestart || v == pipeline.VerbPivot
}

// withCode adds to what is asked for the code that it shall run.
func (f *far) withCode(ctx context.Context, in pipeline.Intent, say func(string, ...any)) (pipeline.Intent, error) {
	if !starts(in.Verb) {
		return in, nil
	}
	o, err := f.offer(ctx)
	if err != nil || o == nil {
		return in, err
	}
	o.tell(say, f.s.node.Name)
	in.Code = &o.code
	return in, nil
}

// tookCode refuses the plan of an agent that does not look at the code before
// this action: it would start what is there.
func tookCode(in pipeline.Intent, p pipeline.Plan) error {
	has := func(k pipeline.StepKind) bool {
		return slices.ContainsFunc(p.Steps, func(s pipeline.Step) bool { return s.Kind == k })
	}
	if in.Code == nil || p.Intent.Code != nil && (has(pipeline.StepCode) || !has(pipeline.StepStartWorkers)) {
		return nil
	}
	return pipeline.Problemf(pipeline.ProblemRefused, "`pipedeck agent deploy` makes it the same, workers go on",
		"cannot sync before %s %q: the agent is of another version and does not check code", in.Verb, in.Target)
}

// apply applies a plan, and brings its code when the agent asks for it: a plan
// that is refused for another reason pushes nothing.
func (f *far) apply(ctx context.Context, c *client.Client, req pipeline.ApplyRequest, say func(string, ...any)) (pipeline.Action, error) {
	act, err := c.Apply(ctx, req)
	p, ok := errors.AsType[*pipeline.Problem](err)
	if !ok || p.Needs != pipeline.NeedsCode || p.Plan == nil || p.Plan.Intent.Code == nil {
		return act, err
	}
	if err := f.push(ctx, *p.Plan, say); err != nil {
		return act, err
	}
	if req.Key != "" {
		req.Key += "-code" // the first answer to the old one was the refusal
	}
	return c.Apply(ctx, req)
}

// farOf is the node that a client talks to; nil for this machine.
func (a *app) farOf(c *client.Client) *far {
	if f, ok := a.owners.Load(c); ok {
		return f.(*far) //nolint:forcetypeassert // nothing else is stored
	}
	return nil
}

// askPlan plans an intent with the code that its workers shall run.
func (a *app) askPlan(ctx context.Context, c *client.Client, in pipeline.Intent) (pipeline.Intent, error) {
	f := a.farOf(c)
	if f == nil {
		return in, nil
	}
	return f.withCode(ctx, in, f.say)
}

// applyPlan applies a plan on the node of a client.
func (a *app) applyPlan(ctx context.Context, c *client.Client, req pipeline.ApplyRequest) (pipeline.Action, error) {
	if f := a.farOf(c); f != nil {
		return f.apply(ctx, c, req, f.say)
	}
	return c.Apply(ctx, req)
}

// contents reads files one after the other, each as long as it was announced.
type contents struct {
	files []syncFile
	open  *os.File
	left  int64
}

// Read implements io.Reader.
func (c *contents) Read(p []byte) (int, error) {
	for c.left == 0 {
		c.close()
		if len(c.files) == 0 {
			return 0, io.EOF
		}
		f, err := os.Open(c.files[0].from)
		if err != nil {
			return 0, err
		}
		c.open, c.left, c.files = f, c.files[0].Size, c.files[1:]
	}
	n, err := c.open.Read(p[:min(int64(len(p)), c.left)])
	c.left -= int64(n)
	if errors.Is(err, io.EOF) && c.left > 0 {
		err = io.ErrUnexpectedEOF // it shrank: its hash would not fit either
	}
	if errors.Is(err, io.EOF) {
		err = nil
	}
	return n, err
}

func (c *contents) close() {
	if c.open != nil {
		_ = c.open.Close()
		c.open = nil
	}
}

// syncingDeck is the console's deck: a start from there is synced too.
type syncingDeck struct {
	*client.Client
	f *far
}

// quietly says nothing: the plan and the action's first step tell of the code.
func quietly(string, ...any) {}

// Plan implements pipeline.Deck.
func (d *syncingDeck) Plan(ctx context.Context, in pipeline.Intent) (pipeline.Plan, error) {
	in, err := d.f.withCode(ctx, in, quietly)
	if err != nil {
		return pipeline.Plan{}, err
	}
	p, err := d.Client.Plan(ctx, in)
	if err != nil {
		return p, err
	}
	return p, tookCode(in, p)
}

// Apply implements pipeline.Deck.
func (d *syncingDeck) Apply(ctx context.Context, req pipeline.ApplyRequest) (pipeline.Action, error) {
	return d.f.apply(ctx, d.Client, req, quietly)
}
