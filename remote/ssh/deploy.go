package ssh

import (
	"bufio"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"strings"
	"time"

	"pipedeck/pipeline"
)

// File is one program to install: a local file and what it must be there.
type File struct {
	Name   string // pipedeck or pipedeck-gpu
	Path   string
	SHA256 string
	Size   int64
}

// Program is what is installed on a node: the files of one build.
type Program struct {
	Version string
	Files   []File // pipedeck first
}

// NewFile reads a local file's hash and size.
func NewFile(name, file string) (File, error) {
	f, err := os.Open(file)
	if err != nil {
		return File{}, err
	}
	defer func() { _ = f.Close() }()
	sum := sha256.New()
	size, err := io.Copy(sum, f)
	if err != nil {
		return File{}, err
	}
	return File{Name: name, Path: file, SHA256: hex.EncodeToString(sum.Sum(nil)), Size: size}, nil
}

// hashLetters is how much of a program's hash is in its folder's name.
const hashLetters = 12

// folder is the versioned place of a program below a base.
func (p Program) folder(base string) string {
	return path.Join(base, "bin", p.Version+"-"+p.Files[0].SHA256[:hashLetters])
}

// Progress is told how far an upload is.
type Progress func(name string, done, total int64)

// uploadStall is how long an upload may stand still.
const uploadStall = 60 * time.Second

// Install puts a program on the node unless it is there already, proves by the
// program's own word what is there, and makes the node's calls use it.
func (n *Node) Install(ctx context.Context, p Program, probe Probe, progress Progress) error {
	t := &n.dialer.opts.Target
	if err := probe.supported(t); err != nil {
		return err
	}
	for _, b := range probe.Bases {
		for _, have := range b.Installed {
			if b.Usable && path.Dir(have) == p.folder(b.Dir) && n.sameThere(ctx, have, p) {
				n.use(have)
				return nil
			}
		}
	}
	var need int64
	for _, f := range p.Files {
		need += f.Size
	}
	base, err := probe.usable(t, need+need/4)
	if err != nil {
		return err
	}
	folder := p.folder(base.Dir)
	n.dialer.opts.Say("installing pipedeck %s in %s", p.Version, folder)
	for _, f := range p.Files {
		if err := n.put(ctx, f, p.Files[0], folder, probe.Gzip, progress); err != nil {
			return err
		}
	}
	n.use(path.Join(folder, p.Files[0].Name))
	return nil
}

// sameThere asks an installed program for the hashes of its files.
func (n *Node) sameThere(ctx context.Context, exe string, p Program) bool {
	for _, f := range p.Files {
		var got FileReply
		err := n.callOf(ctx, exe, "hash", FileRequest{Path: path.Join(path.Dir(exe), f.Name)}, none(), &got)
		if err != nil || got.SHA256 != f.SHA256 {
			return false
		}
	}
	return true
}

// FileRequest names a file on the node.
type FileRequest struct {
	Path string `json:"path"`
	To   string `json:"to,omitempty"`     // where install puts it
	Want string `json:"sha256,omitempty"` // what it must be
}

// FileReply is what the program on the node read of a file.
type FileReply struct {
	SHA256  string `json:"sha256"`
	Version string `json:"version"`
}

// put uploads one file under a name of its own and has it checked and moved to
// its place by the program itself.
func (n *Node) put(ctx context.Context, f, main File, folder string, zip bool, progress Progress) error {
	l, err := n.connected(ctx)
	if err != nil {
		return err
	}
	part := path.Join(folder, "."+f.Name+"."+nonce()+".part")
	if err := l.upload(ctx, f, part, zip, progress); err != nil {
		return err
	}
	// The helper is no program that could judge itself: the agent's does.
	judge := part
	if f.Name != main.Name {
		judge = path.Join(folder, main.Name)
	}
	var got FileReply
	err = n.callOf(ctx, judge, "install", FileRequest{Path: part, To: path.Join(folder, f.Name), Want: f.SHA256}, none(), &got)
	if err == nil && got.SHA256 != f.SHA256 {
		err = pipeline.Problemf(pipeline.ProblemFailed, "try again", "cannot install %q: there it is %s, here %s", f.Name, got.SHA256, f.SHA256)
	}
	if err != nil {
		n.discard(ctx, part)
		return err
	}
	return nil
}

// discard removes a part that was not taken; a failure leaves a dot file.
func (n *Node) discard(ctx context.Context, part string) {
	l, err := n.connected(ctx)
	if err != nil {
		return
	}
	_, _ = l.script(ctx, "rm -f "+quoteShell(part)) // it is a leftover, not a danger
}

// upload streams a file to the node, compressed where it can unpack it.
func (l *link) upload(ctx context.Context, f File, part string, zip bool, progress Progress) error {
	word, ok := shellWord(part)
	if !ok {
		return fmt.Errorf("cannot name %q in a shell", part)
	}
	local, err := os.Open(f.Path)
	if err != nil {
		return err
	}
	defer func() { _ = local.Close() }()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	watch := time.AfterFunc(uploadStall, func() { cancel(errors.New("it does not move")) })
	defer watch.Stop()
	counted := &counter{r: local, tell: func(done int64) {
		watch.Reset(uploadStall)
		if progress != nil {
			progress(f.Name, done, f.Size)
		}
	}}
	var stdin io.Reader = counted
	unpack := "cat"
	if zip {
		unpack = "gzip -dc"
		z := zipped(counted)
		defer func() { _ = z.Close() }() // ends it where the node stopped reading
		stdin = z
	}
	mark := nonce()
	// One line of single quotes is read alike by every login shell.
	command := fmt.Sprintf(`exec /bin/sh -c 'PATH=$PATH:/usr/local/bin:/usr/bin:/bin; export PATH; umask 077; mkdir -p "${1%%/*}" && %s >"$1" && chmod 700 "$1" && printf "\n%%s ok 1\n" %s' sh %s`,
		unpack, mark, word)
	r, err := l.run(ctx, command, stdin)
	if cause := context.Cause(ctx); err != nil && cause != nil && !errors.Is(cause, context.Canceled) {
		return lost("", "cannot upload %q to %q: %w", f.Name, l.target.label(), cause)
	}
	if err != nil {
		return err
	}
	if framed(r.out, mark)["ok"] == nil {
		return unframed(l, "the upload", r)
	}
	return nil
}

// zipped compresses a stream as it is read.
func zipped(r io.Reader) io.ReadCloser {
	pr, pw := io.Pipe()
	go func() {
		// The compressor writes a few hundred bytes at a time, each a packet.
		b := bufio.NewWriterSize(pw, 32<<10)
		z, err := gzip.NewWriterLevel(b, gzip.BestSpeed)
		if err == nil {
			_, err = io.Copy(z, r)
		}
		if err == nil {
			err = errors.Join(z.Close(), b.Flush())
		}
		_ = pw.CloseWithError(err) // never fails
	}()
	return pr
}

// counter tells how much was read.
type counter struct {
	r    io.Reader
	done int64
	tell func(int64)
}

// Read implements io.Reader.
func (c *counter) Read(p []byte) (int, error) {
	n, err := c.r.Read(p)
	c.done += int64(n)
	c.tell(c.done)
	return n, err
}

func none() io.Reader { return strings.NewReader("") }
