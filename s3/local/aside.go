package local

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// An aside folder holds, for each root, ROOTID/root with the root's absolute
// path and ROOTID/SLOT/REL with the files. A file's place aside tells where
// it belongs, so nothing per file has to be written and synced before it is
// moved, and names may hold any bytes. A slot's letter says how a file came
// there, its number makes room for a second file of the same name.
const (
	rootFileName = "root"
	slotRemoved  = "f" // moved aside by a rename
	slotSwapped  = "p" // swapped with a placeholder of the same name
	maxSlots     = 1000
)

func rootID(root string) string {
	sum := sha256.Sum256([]byte(root))
	return hex.EncodeToString(sum[:8])
}

// AsideDir says where files of root are moved aside before they are removed:
// the state directory's "aside" if that is on the same filesystem and mount,
// else ".pipedeck-aside" beside root, or inside it if root is itself a mount
// point. It creates nothing. The error wraps ErrNoDir while root is missing.
func AsideDir(stateDir, root string) (string, error) {
	root, err := filepath.Abs(root)
	if err != nil {
		return "", pathError("locate", root, err)
	}
	fd, err := openRoot(root)
	if err != nil {
		return "", err
	}
	_ = unix.Close(fd)
	same, err := SameFilesystem(stateDir, root)
	switch {
	case err != nil:
		return "", err
	case same:
		return filepath.Join(stateDir, "aside"), nil
	}
	mount, err := IsMountPoint(root)
	switch {
	case err != nil:
		return "", err
	case mount:
		return filepath.Join(root, asideDirName), nil
	default:
		return filepath.Join(filepath.Dir(root), asideDirName), nil
	}
}

// AsideFile is a file that lies aside.
type AsideFile struct {
	Path  string // where it lies
	Root  string // absolute path of the output's directory that it belongs to
	Rel   string // below Root
	Entry Entry  // Entry.Rel is Rel
	slot  string
}

// RecoverAside lists what lies aside after a crash, or because its name was
// taken. Call it before any removal of this aside folder begins. No folder is
// no file and no error. What could not be read is in Problems.
func RecoverAside(ctx context.Context, aside string) ([]AsideFile, Problems, error) {
	var files []AsideFile
	problems, err := WalkAside(ctx, aside, func(f AsideFile) { files = append(files, f) })
	return files, problems, err
}

// WalkAside is RecoverAside for many files. visit may restore the file.
func WalkAside(ctx context.Context, aside string, visit func(AsideFile)) (Problems, error) {
	homes, err := os.ReadDir(aside)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, pathError("read", aside, err)
	}
	var problems Problems
	for _, home := range homes {
		if isBinKind(home.Name()) {
			continue
		}
		bad, err := walkHome(ctx, aside, home.Name(), visit)
		problems = append(problems, bad...)
		if err != nil {
			return problems, err
		}
	}
	return problems, nil
}

// walkHome visits the files of one root. An error is the context's.
func walkHome(ctx context.Context, aside, home string, visit func(AsideFile)) (Problems, error) {
	dir := filepath.Join(aside, home)
	root, err := os.ReadFile(filepath.Join(dir, rootFileName))
	if err != nil {
		if entries, rerr := os.ReadDir(dir); errors.Is(rerr, fs.ErrNotExist) || rerr == nil && len(entries) == 0 {
			return nil, nil
		}
		return Problems{{Path: home, Err: pathError("read", home, err)}}, nil
	}
	slots, err := os.ReadDir(dir)
	if err != nil {
		return Problems{{Path: home, Err: pathError("read", home, err)}}, nil
	}
	var problems Problems
	for _, slot := range slots {
		name := slot.Name()
		if !slot.IsDir() {
			continue
		}
		bad, err := Scan(ctx, filepath.Join(dir, name), nil, func(e Entry) {
			if e.Kind != KindDir {
				visit(AsideFile{
					Path: filepath.Join(dir, name) + "/" + e.Rel, Root: string(root),
					Rel: e.Rel, Entry: e, slot: name,
				})
			}
		})
		problems = append(problems, bad...)
		if err != nil && ctx.Err() != nil {
			return problems, err
		}
		if err != nil {
			problems = append(problems, Problem{Path: home + "/" + name, Err: err})
		}
	}
	return problems, nil
}

// Restore moves a file that lies aside back to its name, to be judged anew.
// It replaces nothing but its own placeholder: if the name is taken the
// outcome is StatusKept. Missing directories below the root are made again. The
// status is restored, kept, vanished or, for a placeholder that never got to
// its place, removed.
func Restore(a AsideFile) (Outcome, error) {
	dirRel, base, err := splitRel(a.Rel)
	if err != nil {
		return Outcome{}, err
	}
	shelf, err := openRoot(filepath.Dir(a.Path))
	if err != nil {
		return Outcome{Status: StatusVanished, Reason: err.Error()}, nil
	}
	defer unix.Close(shelf)
	if strings.HasPrefix(a.slot, slotSwapped) && a.Entry.Kind == KindRegular && IsPlaceholder(a.Entry.ID) {
		return dropPlaceholder(shelf, base, a)
	}
	root, err := openRoot(a.Root)
	if err != nil {
		return Outcome{Status: StatusKept, Aside: a.Path, Reason: err.Error()}, nil
	}
	defer unix.Close(root)
	dir, err := makeDirsBelow(root, dirRel, 0o755)
	if err != nil {
		return Outcome{Status: StatusKept, Aside: a.Path, Reason: err.Error()}, nil
	}
	defer unix.Close(dir)
	return restoreTo(dir, shelf, base, a), nil
}

func restoreTo(dir, shelf int, base string, a AsideFile) Outcome {
	kept := func(reason string) Outcome { return Outcome{Status: StatusKept, Aside: a.Path, Reason: reason} }
	mine, err := statAt(shelf, base)
	if err != nil {
		return Outcome{Status: StatusVanished, Reason: err.Error()}
	}
	there, err := statAt(dir, base)
	switch {
	case err == nil && there.Dev == mine.Dev && there.Ino == mine.Ino:
		// A crash between link and unlink left both names.
		if err := unix.Unlinkat(shelf, base, 0); err != nil {
			return kept(err.Error())
		}
		return Outcome{Status: StatusRestored}
	case err == nil && strings.HasPrefix(a.slot, slotSwapped) && standsFor(&there, &mine):
		if err := swapBack(dir, shelf, base, identityOf(&there)); err != nil {
			return kept(err.Error())
		}
		return Outcome{Status: StatusRestored}
	}
	if err := moveBack(shelf, dir, base); err != nil {
		if errors.Is(err, unix.EEXIST) {
			return kept("another file has its name")
		}
		return kept(err.Error())
	}
	return Outcome{Status: StatusRestored}
}

// dropPlaceholder removes an empty file that was made to take a file's place
// and did not, unless someone found and opened it.
func dropPlaceholder(shelf int, base string, a AsideFile) (Outcome, error) {
	f, err := openAt(shelf, base, a.Rel)
	if err != nil {
		return Outcome{Status: StatusVanished, Reason: err.Error()}, nil
	}
	defer f.Close()
	state, _ := f.Writer()
	if id, err := f.Identity(); err != nil || state == WriterOpen || !IsPlaceholder(id) {
		return Outcome{Status: StatusKept, Aside: a.Path, Reason: "a placeholder that is in use"}, nil
	}
	if err := unix.Unlinkat(shelf, base, 0); err != nil {
		return Outcome{}, pathError("remove", a.Path, err)
	}
	return Outcome{Status: StatusRemoved, Reason: "a placeholder that was not needed"}, nil
}

// moveBack renames from the shelf to dir and never replaces. Where the
// filesystem has no such rename, a link does not replace either, and the name
// on the shelf is pipedeck's own to unlink.
func moveBack(shelf, dir int, base string) error {
	err := renameNoReplace(shelf, base, dir, base)
	if !noRenameFlags(err) {
		return err
	}
	if err := unix.Linkat(shelf, base, dir, base, 0); err != nil {
		return err
	}
	return unix.Unlinkat(shelf, base, 0)
}

func noRenameFlags(err error) bool {
	return errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENOSYS) || errors.Is(err, unix.EOPNOTSUPP)
}
