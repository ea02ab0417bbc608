package logs

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"pipedeck/pipeline"
)

const (
	defaultLimit = 256 << 10
	maxLimit     = 4 << 20
	maxWait      = time.Minute
	pollEvery    = 100 * time.Millisecond
)

var _ pipeline.Logs = (*Reader)(nil)

// Reader reads the logs below one folder. It keeps nothing between calls.
type Reader struct{ dir string }

// New returns a Reader of the logs below dir. Nothing outside is opened, by
// whatever path or symbolic link.
func New(dir string) *Reader { return &Reader{dir: dir} }

// Read implements pipeline.Logs. A log that does not exist yet is an empty one.
// Limit is at most 4 MiB and Wait at most a minute. Without Cursor, Tail below
// 0 starts at the beginning of the file.
func (r *Reader) Read(ctx context.Context, path string, req pipeline.LogRequest) (pipeline.LogChunk, error) {
	rel, err := filepath.Rel(r.dir, path)
	if err != nil || !filepath.IsLocal(rel) || rel == "." {
		return pipeline.LogChunk{}, pipeline.Problemf(pipeline.ProblemRefused, "", "cannot read log %q: it is not below %q", path, r.dir)
	}
	limit := int64(req.Limit)
	if limit <= 0 {
		limit = defaultLimit
	}
	limit = min(limit, maxLimit)
	if req.Before != "" {
		chunk, err := r.before(rel, req.Before, limit)
		if err != nil {
			return pipeline.LogChunk{}, fmt.Errorf("cannot read log: %w", err)
		}
		return chunk, nil
	}
	at, err := parseCursor(req.Cursor)
	if err != nil {
		return pipeline.LogChunk{}, err
	}
	placed := req.Cursor != "" && req.Cursor != pipeline.LogStart
	deadline := time.Now().Add(min(req.Wait, maxWait))
	for {
		var chunk pipeline.LogChunk
		chunk, at, placed, err = r.readOnce(rel, at, placed, req, limit)
		if err != nil {
			return pipeline.LogChunk{}, fmt.Errorf("cannot read log: %w", err)
		}
		left := time.Until(deadline)
		if len(chunk.Data) > 0 || chunk.Gap != 0 || left <= 0 {
			return chunk, nil
		}
		if err := sleep(ctx, min(left, pollEvery)); err != nil {
			return pipeline.LogChunk{}, err
		}
	}
}

func sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-t.C:
		return nil
	}
}

// readOnce reads what is there now. placed says whether at is a place already;
// if not, it is found from the tail as soon as the log exists.
func (r *Reader) readOnce(rel string, at cursor, placed bool, req pipeline.LogRequest, limit int64) (pipeline.LogChunk, cursor, bool, error) {
	empty := pipeline.LogChunk{Cursor: at.String(), EOF: true}
	v, err := openView(r.dir, rel)
	if errors.Is(err, fs.ErrNotExist) {
		return empty, at, true, nil // whatever appears later is new
	}
	if err != nil {
		return empty, at, placed, err
	}
	defer v.close()
	start := ""
	switch {
	case placed:
	case req.Cursor == pipeline.LogStart:
		at = v.oldest()
		start = at.String()
	default:
		if at, err = v.tail(req.Tail); err != nil {
			return empty, at, placed, err
		}
	}
	chunk, at, err := v.read(at, limit)
	if req.Lines {
		at = wholeLines(&chunk, at)
	}
	chunk.Start, chunk.First = start, start != ""
	return chunk, at, true, err
}

// cursor is a place in a log: a generation, the inode of the log when it was
// current (0: any), and a byte in it.
type cursor struct {
	gen   int64
	inode uint64
	off   int64
}

func (c cursor) String() string { return fmt.Sprintf("%d:%d:%d", c.gen, c.inode, c.off) }

func parseCursor(s string) (cursor, error) {
	if s == "" || s == pipeline.LogStart {
		return cursor{}, nil
	}
	f := strings.Split(s, ":")
	if len(f) != 3 {
		return cursor{}, badCursor(s)
	}
	gen, err1 := strconv.ParseInt(f[0], 10, 64)
	inode, err2 := strconv.ParseUint(f[1], 10, 64)
	off, err3 := strconv.ParseInt(f[2], 10, 64)
	if errors.Join(err1, err2, err3) != nil || gen < 0 || off < 0 {
		return cursor{}, badCursor(s)
	}
	return cursor{gen: gen, inode: inode, off: off}, nil
}

func badCursor(s string) error {
	return pipeline.Problemf(pipeline.ProblemUsage, "read without a cursor first", "cannot read log: malformed cursor %q", s)
}

// view is a log at one moment: its file, and where that lies.
type view struct {
	root  *os.Root
	name  string
	file  *os.File
	size  int64
	inode uint64
	gen   int64
}

func openView(dir, rel string) (*view, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, err
	}
	v := &view{root: root, name: rel}
	if err := v.settle(); err != nil {
		v.close()
		return nil, err
	}
	return v, nil
}

func (v *view) close() {
	if v.file != nil {
		v.file.Close()
	}
	v.root.Close()
}

// settle takes size and generation together: a rotation between the two looks
// is seen by the changed position, and they are taken again.
func (v *view) settle() error {
	f, info, err := openRegular(v.root, v.name)
	if err != nil {
		return err
	}
	v.file, v.inode = f, inodeOf(info)
	for range 10 {
		before := readPosition(v.root.ReadFile, v.name)
		if info, err = f.Stat(); err != nil {
			return err
		}
		if before == readPosition(v.root.ReadFile, v.name) {
			v.size, v.gen = info.Size(), before.settled(info.Size()).Gen
			return nil
		}
	}
	return errors.New("it is being rotated again and again")
}

// openRegular does not wait for the writer of a pipe that somebody put there.
func openRegular(root *os.Root, name string) (*os.File, fs.FileInfo, error) {
	f, err := root.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, nil, err
	}
	info, err := f.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = fmt.Errorf("%q is not a regular file", name)
	}
	if err != nil {
		f.Close()
		return nil, nil, err
	}
	return f, info, nil
}

func inodeOf(info fs.FileInfo) uint64 {
	if st, ok := info.Sys().(*syscall.Stat_t); ok {
		return st.Ino
	}
	return 0
}
