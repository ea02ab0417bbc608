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
	"sync"

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
	To     string      `json:"to"` // below workdir
	Size   int64       `json:"size"`
	SHA256 string      `json:"sha256"`
	Mode   fs.FileMode `json:"mode"`
	from   string
}

// syncRequest asks what differs, and announces the contents that follow.
type syncRequest struct {
	farRequest
	Files []syncFile `json:"files"`
	Hash  string     `json:"hash"`
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
	for _, y := range s.Sync {
		below, err := filepath.Rel(s.Workdir, s.Abs(y.To))
		if err != nil {
			return nil, err
		}
		from := y.From
		if !filepath.IsAbs(from) {
			from = filepath.Join(base, from)
		}
		err = filepath.WalkDir(from, func(name string, e fs.DirEntry, err error) error {
			if err != nil {
				return err
			}
			if name != from && slices.Contains(neverSynced, e.Name()) {
				if e.IsDir() {
					return filepath.SkipDir
				}
				return nil
			}
			if !e.Type().IsRegular() {
				return nil // folders come with their files; links may lead anywhere
			}
			rel, err := filepath.Rel(from, name)
			if err != nil {
				return err
			}
			to := path.Join(below, filepath.ToSlash(rel))
			if rel == "." && strings.HasSuffix(y.To, "/") {
				to = path.Join(below, filepath.Base(from))
			}
			f, err := hashed(name, to)
			if err != nil {
				return err
			}
			out, total = append(out, f), total+f.Size
			if len(out) > syncFiles || total > syncBytes {
				return fmt.Errorf("more than %d files or %d MB", syncFiles, syncBytes>>20)
			}
			return nil
		})
		if err != nil {
			return nil, pipeline.Problemf(pipeline.ProblemFailed, "name the files that are code in `sync`", "cannot sync %q: %w", y.From, err)
		}
	}
	slices.SortFunc(out, func(a, b syncFile) int { return strings.Compare(a.To, b.To) })
	return out, nil
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
	return syncFile{To: to, Size: n, SHA256: hex.EncodeToString(sum.Sum(nil)), Mode: st.Mode().Perm(), from: name}, err
}

// syncHash tells two states of the synced files apart.
func syncHash(files []syncFile) string {
	sum := sha256.New()
	for _, f := range files {
		_, _ = fmt.Fprintf(sum, "%q %s %o\n", f.To, f.SHA256, f.Mode) // a hash never fails
	}
	return hex.EncodeToString(sum.Sum(nil))
}

// sync pushes what the spec's `sync` names, where it differs there.
func (f *far) sync(ctx context.Context) error {
	if len(f.s.Sync) == 0 {
		return nil
	}
	files, err := localFiles(f.s, filepath.Dir(f.a.flag.spec))
	if err != nil {
		return err
	}
	req := syncRequest{farRequest: f.request(), Files: files, Hash: syncHash(files)}
	var differs syncReply
	if err := f.node.Call(ctx, farSync, req, &differs); err != nil {
		return err
	}
	var push []syncFile
	for _, group := range []struct {
		word string
		list []int
	}{{"new", differs.New}, {"changed", differs.Changed}} {
		for _, i := range group.list {
			if i < 0 || i >= len(files) {
				return fmt.Errorf("cannot sync: the node asks for file %d of %d", i, len(files))
			}
			push = append(push, files[i])
			if len(push) <= 20 {
				f.say("sync: %s: %s", group.word, files[i].To)
			}
		}
	}
	if len(push) == 0 {
		f.say("sync: %d files are the same on %s (%s)", len(files), f.s.node.Name, req.Hash[:12])
		return nil
	}
	req.Files = push
	body := &contents{files: push}
	defer body.close()
	var done int
	if err := f.node.CallWith(ctx, farPut, req, body, &done); err != nil {
		return err
	}
	f.say("sync: pushed %d of %d files to %s (%s)", done, len(files), f.s.node.Name, req.Hash[:12])
	return nil
}

// pushSync syncs before an action that starts workers on a node over SSH.
func (a *app) pushSync(ctx context.Context, verb pipeline.Verb) error {
	if verb != pipeline.VerbStart && verb != pipeline.VerbRestart {
		return nil
	}
	s, err := a.loadSpec()
	if err != nil || s.node.SSH == "" {
		return err
	}
	f, err := a.overSSH(s)
	if err != nil {
		return err
	}
	return f.sync(ctx)
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

	mu     sync.Mutex
	starts map[string]bool // plans that start workers
}

// Plan implements pipeline.Deck.
func (d *syncingDeck) Plan(ctx context.Context, in pipeline.Intent) (pipeline.Plan, error) {
	p, err := d.Client.Plan(ctx, in)
	if err == nil && (in.Verb == pipeline.VerbStart || in.Verb == pipeline.VerbRestart) {
		d.mu.Lock()
		d.starts[p.ID] = true
		d.mu.Unlock()
	}
	return p, err
}

// Apply implements pipeline.Deck.
func (d *syncingDeck) Apply(ctx context.Context, req pipeline.ApplyRequest) (pipeline.Action, error) {
	d.mu.Lock()
	start := d.starts[req.Plan]
	d.mu.Unlock()
	if start {
		if err := d.f.sync(ctx); err != nil {
			return pipeline.Action{}, err
		}
	}
	return d.Client.Apply(ctx, req)
}
