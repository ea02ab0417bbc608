package local

import (
	"bufio"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"iter"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"golang.org/x/sys/unix"
)

// BinKind is why files were moved away.
type BinKind string

// Values of BinKind; each is the name of a folder.
const (
	BinTrash      BinKind = "trash"      // of files that a plan gave up
	BinQuarantine BinKind = "quarantine" // of files that are not complete
)

func isBinKind(name string) bool {
	return name == string(BinTrash) || name == string(BinQuarantine)
}

const (
	binAbout = "about.json"
	binList  = "list-"
	binFiles = "files"
	binGone  = ".gone-" // before the name of a bin that is being purged
)

// Bin is the folder of what one action moved: BASE/KIND/ACTION. It holds
// about.json, a list of what was to be moved, on disk before the first move,
// and an aside folder with the files.
type Bin struct {
	Base   string
	Kind   BinKind
	Action string
}

// BinAbout says of a bin when it was filled, by a clock that nobody sets.
type BinAbout struct {
	Action string        `json:"action"`
	At     time.Time     `json:"at"`
	Boot   string        `json:"boot"`
	Up     time.Duration `json:"up_ns"` // since boot
	Done   bool          `json:"done"`  // every file of the list was tried
}

// BinEntry is one file of a bin's list.
type BinEntry struct {
	Root   string
	Path   string // below Root
	ID     Identity
	Class  string
	Reason string
}

// BinBase says where bins of files below root lie: the state directory if that
// is on the same filesystem and mount, else the folder that AsideDir names.
func BinBase(stateDir, root string) (string, error) {
	aside, err := AsideDir(stateDir, root)
	if err == nil && filepath.Base(aside) != asideDirName {
		return stateDir, nil
	}
	return aside, err
}

// BinBases lists every existing folder that may hold bins of files below
// roots, whatever was mounted when they were moved.
func BinBases(stateDir string, roots []string) (bases []string) {
	add := func(base string) {
		for _, kind := range []BinKind{BinTrash, BinQuarantine} {
			var st unix.Stat_t
			if unix.Stat(filepath.Join(base, string(kind)), &st) == nil && !slices.Contains(bases, base) {
				bases = append(bases, base)
			}
		}
	}
	add(stateDir)
	for _, root := range roots {
		add(filepath.Join(filepath.Dir(root), asideDirName))
		add(filepath.Join(root, asideDirName))
	}
	return bases
}

// Bins lists the bins of a kind below a base.
func Bins(base string, kind BinKind) ([]Bin, error) {
	entries, err := os.ReadDir(filepath.Join(base, string(kind)))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, pathError("read", base, err)
	}
	var bins []Bin
	for _, e := range entries {
		if e.IsDir() && !strings.HasPrefix(e.Name(), ".") {
			bins = append(bins, Bin{Base: base, Kind: kind, Action: e.Name()})
		}
	}
	return bins, nil
}

func (b Bin) parent() string { return filepath.Join(b.Base, string(b.Kind)) }

// Dir is the bin's folder.
func (b Bin) Dir() string { return filepath.Join(b.parent(), b.Action) }

// Remover moves files into the bin, and out of it again.
func (b Bin) Remover() *Remover {
	return &Remover{Aside: filepath.Join(b.Dir(), binFiles), Links: true}
}

// About reads what is known of the bin.
func (b Bin) About() (about BinAbout, err error) {
	data, err := os.ReadFile(filepath.Join(b.Dir(), binAbout))
	if err == nil {
		err = json.Unmarshal(data, &about)
	}
	if err != nil {
		return BinAbout{}, pathError("read", b.Dir(), err)
	}
	return about, nil
}

// SetAbout makes the bin if need be and writes what is known of it, durably.
func (b Bin) SetAbout(about BinAbout) error {
	if err := os.MkdirAll(b.Dir(), 0o700); err != nil {
		return pathError("create", b.Dir(), err)
	}
	data, err := json.Marshal(about)
	if err != nil {
		return pathError("write", b.Dir(), err)
	}
	if err := replaceFile(filepath.Join(b.Dir(), binAbout), append(data, '\n'), 0o600); err != nil {
		return err
	}
	for _, dir := range []string{b.parent(), b.Base} {
		if err := syncDir(dir); err != nil {
			return err
		}
	}
	return nil
}

// binLine is a BinEntry on disk. PathBase64 carries a path that is no UTF-8.
type binLine struct {
	Root       string   `json:"root"`
	Path       string   `json:"path,omitempty"`
	PathBase64 string   `json:"path_base64,omitempty"`
	ID         [5]int64 `json:"id"` // device, inode, size, mtime, ctime
	Class      string   `json:"class,omitempty"`
	Reason     string   `json:"reason,omitempty"`
}

// AddList puts a list of what is about to be moved on disk. The same list
// again changes nothing.
func (b Bin) AddList(entries iter.Seq[BinEntry]) error {
	f, err := os.CreateTemp(b.Dir(), ".tmp-"+binList+"*")
	if err != nil {
		return pathError("write", b.Dir(), err)
	}
	hash := sha256.New()
	err = writeLines(io.MultiWriter(f, hash), entries)
	err = errors.Join(err, f.Sync(), f.Close())
	if err == nil {
		err = os.Rename(f.Name(), filepath.Join(b.Dir(), binList+hex.EncodeToString(hash.Sum(nil)[:8])))
	}
	if err != nil {
		_ = os.Remove(f.Name())
		return pathError("write", b.Dir(), err)
	}
	return syncDir(b.Dir())
}

func writeLines(w io.Writer, entries iter.Seq[BinEntry]) error {
	out := bufio.NewWriterSize(w, 1<<18)
	enc := json.NewEncoder(out)
	for e := range entries {
		line := binLine{
			Root: e.Root, Path: e.Path, Class: e.Class, Reason: e.Reason,
			ID: [5]int64{int64(e.ID.Dev), int64(e.ID.Ino), e.ID.Size, e.ID.MTimeNS, e.ID.CTimeNS},
		}
		if !utf8.ValidString(e.Path) {
			line.Path, line.PathBase64 = "", base64.StdEncoding.EncodeToString([]byte(e.Path))
		}
		if err := enc.Encode(line); err != nil {
			return err
		}
	}
	return out.Flush()
}

// Listed visits everything that the bin's lists name.
func (b Bin) Listed(visit func(BinEntry)) error {
	lists, err := named(b.Dir(), binList)
	if err != nil {
		return pathError("read", b.Dir(), err)
	}
	for _, name := range lists {
		if err := readLines(name, visit); err != nil {
			return pathError("read", name, err)
		}
	}
	return nil
}

func readLines(name string, visit func(BinEntry)) error {
	f, err := os.Open(name)
	if err != nil {
		return err
	}
	defer f.Close()
	dec := json.NewDecoder(bufio.NewReader(f))
	for {
		var line binLine
		if err := dec.Decode(&line); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
		e := BinEntry{Root: line.Root, Path: line.Path, Class: line.Class, Reason: line.Reason, ID: Identity{
			Dev: uint64(line.ID[0]), Ino: uint64(line.ID[1]), Size: line.ID[2], MTimeNS: line.ID[3], CTimeNS: line.ID[4],
		}}
		if line.PathBase64 != "" {
			raw, err := base64.StdEncoding.DecodeString(line.PathBase64)
			if err != nil {
				return err
			}
			e.Path = string(raw)
		}
		visit(e)
	}
}

// Files visits what lies in the bin. visit may Restore the file.
func (b Bin) Files(ctx context.Context, visit func(AsideFile)) (Problems, error) {
	return WalkAside(ctx, filepath.Join(b.Dir(), binFiles), visit)
}

// Tidy removes the bin if no file is left in it.
func (b Bin) Tidy() error {
	if err := b.Remover().Tidy(); err != nil {
		return err
	}
	var st unix.Stat_t
	if unix.Lstat(filepath.Join(b.Dir(), binFiles), &st) == nil {
		return nil
	}
	return b.Purge()
}

// Purge removes the bin and all files in it for good. Killed in the middle, it
// leaves no half of a bin that could be brought back: see PurgeRest.
func (b Bin) Purge() error {
	gone := filepath.Join(b.parent(), binGone+b.Action)
	err := os.Rename(b.Dir(), gone)
	if errors.Is(err, fs.ErrExist) || errors.Is(err, unix.ENOTEMPTY) {
		if err = os.RemoveAll(gone); err == nil {
			err = os.Rename(b.Dir(), gone)
		}
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return pathError("purge", b.Dir(), err)
	}
	if err := os.RemoveAll(gone); err != nil {
		return pathError("purge", b.Dir(), err)
	}
	_ = unix.Rmdir(b.parent())
	if filepath.Base(b.Base) == asideDirName {
		_ = unix.Rmdir(b.Base)
	}
	return nil
}

// PurgeRest ends purges that were killed.
func PurgeRest(base string) error {
	var all error
	for _, kind := range []BinKind{BinTrash, BinQuarantine} {
		rests, err := named(filepath.Join(base, string(kind)), binGone)
		all = errors.Join(all, err)
		for _, rest := range rests {
			all = errors.Join(all, os.RemoveAll(rest))
		}
	}
	return all
}

// named lists the paths in dir whose names begin with prefix.
func named(dir, prefix string) (paths []string, err error) {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), prefix) {
			paths = append(paths, filepath.Join(dir, e.Name()))
		}
	}
	return paths, err
}

// MakeRoot makes the directory of an output again, to bring files back to it.
func MakeRoot(root string) error {
	if err := os.MkdirAll(root, 0o755); err != nil {
		return pathError("create", root, err)
	}
	return nil
}
