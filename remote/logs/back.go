package logs

import (
	"bytes"
	"errors"
	"io"
	"os"

	"pipedeck/pipeline"
)

// before reads the whole lines that end at a place, at most limit bytes of
// them. It reads no more than that, however long the log is.
func (r *Reader) before(rel, place string, limit int64) (pipeline.LogChunk, error) {
	empty := pipeline.LogChunk{Cursor: cursor{}.String(), Start: cursor{}.String(), First: true, EOF: true}
	v, err := openView(r.dir, rel)
	if errors.Is(err, os.ErrNotExist) {
		return empty, nil
	}
	if err != nil {
		return empty, err
	}
	defer v.close()
	at := cursor{gen: v.gen, inode: v.inode, off: v.size}
	if place != pipeline.LogEnd {
		if at, err = parseCursor(place); err != nil {
			return empty, err
		}
	}
	end := at
	replaced := at.inode != 0 && at.inode != v.inode
	if replaced || at.gen > v.gen || at.gen == v.gen && at.off > v.size {
		// Others cut or replaced the log: what was before that place is gone.
		return pipeline.LogChunk{Start: end.String(), Cursor: end.String(), First: true}, nil
	}
	data, at, err := v.back(at, limit)
	return pipeline.LogChunk{
		Data: data, Start: at.String(), Cursor: end.String(),
		First: at.off == 0 && !v.kept(at.gen-1), EOF: end.gen == v.gen && end.off >= v.size,
	}, err
}

// kept says whether a rotated generation can still be read.
func (v *view) kept(gen int64) bool {
	if gen < 0 {
		return false
	}
	_, err := v.root.Stat(RotatedName(v.name, gen))
	return err == nil
}

// back reads up to limit bytes before a place, from one file, and cuts them at
// the beginning of a line.
func (v *view) back(at cursor, limit int64) ([]byte, cursor, error) {
	f, gone, err := v.backFile(&at)
	if err != nil || gone {
		return nil, at, err
	}
	if f != v.file {
		defer f.Close()
	}
	from := max(at.off-limit, 0)
	data := make([]byte, at.off-from)
	n, err := f.ReadAt(data, from)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, at, err
	}
	data = data[:n]
	if i := bytes.IndexByte(data, '\n'); from > 0 && i >= 0 && i < len(data)-1 {
		data, from = data[i+1:], from+int64(i)+1
	}
	at.off = from
	return data, at, nil
}

// backFile is the file that the bytes before a place are in. At the beginning
// of one that is the end of the generation before.
func (v *view) backFile(at *cursor) (f *os.File, gone bool, err error) {
	if at.off == 0 {
		if !v.kept(at.gen - 1) {
			return nil, true, nil
		}
		at.gen, at.off = at.gen-1, -1
	}
	if at.gen == v.gen {
		return v.file, false, nil
	}
	f, info, err := openRegular(v.root, RotatedName(v.name, at.gen))
	if errors.Is(err, os.ErrNotExist) {
		at.off = 0
		return nil, true, nil
	}
	if err != nil {
		return nil, false, err
	}
	if at.off < 0 || at.off > info.Size() {
		at.off = info.Size()
	}
	return f, false, nil
}

// oldest is the place of the first byte that is kept.
func (v *view) oldest() cursor {
	at := cursor{gen: v.gen, inode: v.inode}
	for v.kept(at.gen - 1) {
		at.gen--
	}
	return at
}

// wholeLines cuts a chunk that does not reach the newest byte after its last
// newline, and returns where that is.
func wholeLines(c *pipeline.LogChunk, at cursor) cursor {
	rest := len(c.Data) - bytes.LastIndexByte(c.Data, '\n') - 1
	if c.EOF || rest == len(c.Data) || int64(rest) > at.off {
		return at
	}
	c.Data = c.Data[:len(c.Data)-rest]
	at.off -= int64(rest)
	c.Cursor = at.String()
	return at
}
