package logs

import (
	"bytes"
	"errors"
	"io"
	"os"

	"pipedeck/pipeline"
)

const (
	block = 64 << 10
	// tailBytes bounds how far back lines are counted: a log without newlines
	// is not read as a whole.
	tailBytes = 8 << 20
	// genBack bounds how many missing generations are looked for.
	genBack = 100
)

// read collects up to limit bytes from a place on, through rotated files into
// the current one.
func (v *view) read(at cursor, limit int64) (pipeline.LogChunk, cursor, error) {
	var c pipeline.LogChunk
	if err := v.leaveReplaced(&c, &at, limit); err != nil {
		return c, at, err
	}
	for at.gen < v.gen && int64(len(c.Data)) < limit {
		done, err := v.readFile(&c, &at, RotatedName(v.name, at.gen), limit)
		if err != nil {
			return c, at, err
		}
		if done {
			at.gen, at.off = at.gen+1, 0
			continue
		}
		if c.Gap == -1 {
			at.gen, at.off = max(at.gen+1, v.gen-genBack), 0
		}
	}
	if at.gen == v.gen && int64(len(c.Data)) < limit {
		if err := appendFrom(&c, v.file, v.size, &at, limit); err != nil {
			return c, at, err
		}
	}
	c.Cursor = at.String()
	c.EOF = at.gen == v.gen && at.off >= v.size
	return c, at, nil
}

// leaveReplaced deals with a log that others than Rotate cut or replaced: the
// old bytes may be in PATH.1, as logrotate leaves them; else they are a gap.
func (v *view) leaveReplaced(c *pipeline.LogChunk, at *cursor, limit int64) error {
	if at.inode == 0 {
		at.inode = v.inode
	}
	replaced := at.inode != v.inode
	if at.gen > v.gen {
		at.gen = v.gen // the position file was removed
	}
	if !replaced && (at.gen < v.gen || at.off <= v.size) {
		return nil
	}
	if v.gen > 0 {
		c.Gap = -1
	} else {
		done, err := v.readFile(c, at, v.name+".1", limit)
		if err != nil {
			return err
		}
		if !done && c.Gap == 0 {
			return nil // the limit was reached inside it
		}
	}
	*at = cursor{gen: v.gen, inode: v.inode}
	return nil
}

// readFile appends the rest of a rotated file and says whether it came to its
// end. A file that is gone, or too short to be the one, is a gap.
func (v *view) readFile(c *pipeline.LogChunk, at *cursor, name string, limit int64) (bool, error) {
	f, info, err := openRegular(v.root, name)
	if errors.Is(err, os.ErrNotExist) || err == nil && info.Size() < at.off {
		if err == nil {
			f.Close()
		}
		c.Gap = -1
		return false, nil
	}
	if err != nil {
		return false, err
	}
	defer f.Close()
	if err := appendFrom(c, f, info.Size(), at, limit); err != nil {
		return false, err
	}
	return at.off >= info.Size(), nil
}

// appendFrom appends what a file of the given size has from a place on.
func appendFrom(c *pipeline.LogChunk, f *os.File, size int64, at *cursor, limit int64) error {
	buf := make([]byte, max(min(limit-int64(len(c.Data)), size-at.off), 0))
	n, err := f.ReadAt(buf, at.off)
	if err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	c.Data = append(c.Data, buf[:n]...)
	at.off += int64(n)
	return nil
}

// tail is the place where the last n lines begin, if need be in the generation
// before; n below 0: the beginning of the current file.
func (v *view) tail(n int) (cursor, error) {
	at := cursor{gen: v.gen, inode: v.inode, off: v.size}
	if n < 0 {
		at.off = 0
	}
	if n <= 0 {
		return at, nil
	}
	off, left, err := lastLines(v.file, v.size, n)
	if err != nil {
		return at, err
	}
	at.off = off
	if left == 0 || off > 0 || v.gen == 0 {
		return at, nil
	}
	f, info, err := openRegular(v.root, RotatedName(v.name, v.gen-1))
	if errors.Is(err, os.ErrNotExist) {
		return at, nil
	}
	if err != nil {
		return at, err
	}
	defer f.Close()
	off, _, err = lastLines(f, info.Size(), left)
	return cursor{gen: v.gen - 1, inode: v.inode, off: off}, err
}

// lastLines returns where the last n lines begin, and how many are missing. A
// last line without its newline counts.
func lastLines(r io.ReaderAt, size int64, n int) (int64, int, error) {
	if size == 0 {
		return 0, n, nil
	}
	buf := make([]byte, block)
	// The newline at the very end opens no line.
	for end := size - 1; end > 0; {
		from := max(end-block, 0)
		if size-from > tailBytes {
			return end, 0, nil
		}
		part := buf[:end-from]
		if _, err := r.ReadAt(part, from); err != nil && !errors.Is(err, io.EOF) {
			return 0, 0, err
		}
		for i := bytes.LastIndexByte(part, '\n'); i >= 0; i = bytes.LastIndexByte(part[:i], '\n') {
			if n--; n == 0 {
				return from + int64(i) + 1, 0, nil
			}
		}
		end = from
	}
	return 0, n - 1, nil
}
