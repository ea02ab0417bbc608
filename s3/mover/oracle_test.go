package mover_test

import (
	"bytes"
	"crypto/md5"
	"encoding/hex"
	"os"
	"strings"
	"testing"

	"pipedeck/s3/s3test"
)

// truth is what a test knows of one path: it wrote it.
type truth struct {
	rel     string
	data    []byte
	inode   int      // of the content, counted by the test
	writer  *os.File // not nil: still open
	rest    []byte   // that the writer has yet to write
	broken  bool     // by its format it will never be complete
	present bool     // false: the mover let it go, and was right
	safe    []byte   // what the store held, proven or not, when the test put something else there
	touched bool     // the test changed its object
}

// oracle holds disk and server against what a test wrote.
type oracle struct {
	t         testing.TB
	w         *world
	conds     bool // the endpoint honours conditions
	paths     map[string]*truth
	order     []string // of all names, for picking one by a seed
	origins   map[string]origin
	overwrite int
	gone      int
	tampered  int64 // objects of files that the test itself removed
}

// origin is who wrote an object's bytes.
type origin struct {
	inode   int
	foreign bool
	// late: it came when the mover may have begun its PUT. If that was not
	// verified yet, nobody can tell it from one that arrived damaged, and
	// invariant 2 (b) lets the mover replace it.
	late bool
}

func newOracle(tb testing.TB, w *world, p s3test.Personality) *oracle {
	tb.Helper()
	return &oracle{t: tb, w: w, conds: !p.IgnoreIfNone && !p.IgnoreIfMatch, paths: map[string]*truth{}, origins: map[string]origin{}}
}

// record notes a whole content of a path.
func (o *oracle) record(rel string, data []byte, inode int) *truth {
	p := o.paths[rel]
	if p == nil {
		p = &truth{rel: rel}
		o.paths[rel] = p
		o.order = append(o.order, rel)
	}
	p.data, p.inode, p.present = data, inode, true
	o.origins[tagOf(data)] = origin{inode: inode}
	return p
}

func (o *oracle) forget(rel string) { delete(o.paths, rel) }

func tagOf(data []byte) string {
	sum := md5.Sum(data) //nolint:gosec // the server's ETag
	return hex.EncodeToString(sum[:])
}

func (o *oracle) key(rel string) string { return "pre/r1/" + rel }

// there says whether the file itself, and no placeholder, is at its path.
func (o *oracle) there(p *truth) bool {
	info, err := os.Lstat(o.w.path(p.rel))
	if err != nil && !os.IsNotExist(err) {
		o.t.Fatal(err)
	}
	return err == nil && (info.Size() > 0 || len(p.data) == 0 || p.writer != nil)
}

// check is the whole point: it fails if a file is gone whose bytes the store
// does not hold, or an object was replaced that was not this file's.
func (o *oracle) check() {
	o.t.Helper()
	for _, p := range o.paths {
		if !p.present || o.there(p) {
			continue
		}
		stored, ok := o.w.server.Object(o.key(p.rel))
		held := ok && bytes.Equal(stored, p.data) || p.safe != nil && bytes.Equal(p.safe, p.data)
		switch {
		case p.writer == nil && held:
			p.present = false
			o.gone++
		case o.lyingAside(p.rel) || o.there(p):
		case p.writer != nil:
			o.t.Fatalf("LOST: %s is gone while it is written", p.rel)
		default:
			o.t.Fatalf("LOST: %s (%d bytes) is gone, the store holds %d bytes (there: %v)", p.rel, len(p.data), len(stored), ok)
		}
	}
	o.checkOverwrites()
}

// lyingAside says whether a file was moved aside, as it is for a moment on its
// way out and until the next start after a crash.
func (o *oracle) lyingAside(rel string) bool {
	_, below, _ := strings.Cut(rel, "/")
	return o.w.lyingAside("out/" + below)
}

func (o *oracle) checkOverwrites() {
	o.t.Helper()
	all := o.w.server.Overwrites()
	for _, ow := range all[o.overwrite:] {
		if strings.Contains(ow.Key, "/.pipedeck/probe/") {
			continue
		}
		before, known := o.origins[ow.Old]
		after, ours := o.origins[ow.New]
		switch {
		case strings.Contains(ow.Key, "/.pipedeck/"):
			o.t.Fatalf("OVERWRITTEN: manifest %s", ow.Key)
		case known && before.foreign && !before.late:
			o.t.Fatalf("OVERWRITTEN: %s, somebody else's", ow.Key)
		case known && ours && !after.foreign && !before.foreign && before.inode != after.inode:
			o.t.Fatalf("OVERWRITTEN: %s of file %d by file %d", ow.Key, before.inode, after.inode)
		case o.conds && !ow.IfMatch:
			o.t.Fatalf("OVERWRITTEN: %s without a condition", ow.Key)
		}
	}
	o.overwrite = len(all)
}

// tamper changes the object of a path behind the mover's back; nil removes it.
func (o *oracle) tamper(p *truth, data []byte) {
	old, had := o.w.server.Swap(o.key(p.rel), data)
	if data != nil {
		o.origins[tagOf(data)] = origin{foreign: true, late: had || p.present}
	}
	if had && bytes.Equal(old, p.data) {
		p.safe = old
	}
	p.touched = true
}

// stored counts the objects of outputs that hold what a test wrote to their path.
func (o *oracle) stored() (n int64) {
	for _, key := range dataKeys(o.w.server) {
		data, _ := o.w.server.Object(key)
		if from, known := o.origins[tagOf(data)]; known && !from.foreign {
			n++
		}
	}
	return n
}
