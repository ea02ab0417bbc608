package local

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// Prepare makes the aside folder of root ahead of the first removal, while
// there is room for it on the disk.
func (r *Remover) Prepare(root string) error {
	r.mu.RLock()
	defer r.mu.RUnlock()
	root, err := filepath.Abs(root)
	if err != nil {
		return pathError("locate", root, err)
	}
	home, err := r.openHome(root)
	if err != nil {
		return err
	}
	defer unix.Close(home)
	shelf, err := makeDirsBelow(home, slotRemoved+"0", 0o700)
	if err != nil {
		return pathError("create", r.Aside, err)
	}
	return unix.Close(shelf)
}

// openHome opens the aside folder of a root. Its root file is on disk before
// the first file comes, else nobody could tell where that belongs.
func (r *Remover) openHome(root string) (int, error) {
	dir := filepath.Join(r.Aside, rootID(root))
	if _, ok := r.homes.Load(root); !ok {
		if err := makeHome(dir, root); err != nil {
			return -1, err
		}
		r.homes.Store(root, true)
	}
	fd, err := ignoringEINTR(func() (int, error) { return unix.Open(dir, dirFlags, 0) })
	if errors.Is(err, unix.ENOENT) { // someone cleaned the state directory
		if err := makeHome(dir, root); err != nil {
			return -1, err
		}
		fd, err = unix.Open(dir, dirFlags, 0)
	}
	if err != nil {
		return -1, pathError("open", dir, err)
	}
	return fd, nil
}

func makeHome(dir, root string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return pathError("create", dir, err)
	}
	file := filepath.Join(dir, rootFileName)
	if old, err := os.ReadFile(file); err == nil && string(old) == root {
		return nil
	}
	if err := replaceFile(file, []byte(root), 0o600); err != nil {
		return err
	}
	// The folder's own name must survive as well as what is in it.
	for _, d := range []string{filepath.Dir(dir), filepath.Dir(filepath.Dir(dir))} {
		if err := syncDir(d); err != nil {
			return err
		}
	}
	return nil
}

// Tidy removes the empty folders of the aside folder, and with nothing left
// in it the folder itself. It waits for removals under way.
func (r *Remover) Tidy() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	homes, err := os.ReadDir(r.Aside)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return pathError("read", r.Aside, err)
	}
	for _, home := range homes {
		if isBinKind(home.Name()) {
			continue
		}
		dir := filepath.Join(r.Aside, home.Name())
		slots, err := os.ReadDir(dir)
		if err != nil {
			return pathError("read", dir, err)
		}
		for _, slot := range slots {
			if slot.IsDir() {
				removeEmptyTree(filepath.Join(dir, slot.Name()))
			}
		}
		removeHome(dir)
	}
	r.homes.Clear()
	_ = unix.Rmdir(r.Aside)
	return nil
}

// removeHome removes the folder of a root if no slot is left in it: only then
// is its root file, or a half-written one, of no use.
func removeHome(dir string) {
	left, err := os.ReadDir(dir)
	if err != nil || slices.ContainsFunc(left, os.DirEntry.IsDir) {
		return
	}
	for _, e := range left {
		if e.Name() == rootFileName || strings.HasPrefix(e.Name(), ".tmp-"+rootFileName) {
			_ = os.Remove(filepath.Join(dir, e.Name()))
		}
	}
	_ = unix.Rmdir(dir)
}

// removeEmptyTree removes dir and the directories below it that hold nothing.
// rmdir itself refuses what is not empty.
func removeEmptyTree(dir string) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return
	}
	for _, e := range entries {
		if e.IsDir() {
			removeEmptyTree(filepath.Join(dir, e.Name()))
		}
	}
	_ = unix.Rmdir(dir)
}

// RemoveEmptyDir removes the directory rel below root, and those below it, if
// no file is in any of them, as for a checkpoint whose files were all removed.
// gone is false if something is left.
func RemoveEmptyDir(root, rel string) (gone bool, err error) {
	dirRel, base, err := splitRel(rel)
	if err != nil {
		return false, err
	}
	rootFD, err := openRoot(root)
	if err != nil {
		return false, err
	}
	defer unix.Close(rootFD)
	dir, err := openDirBelow(rootFD, dirRel)
	if err != nil {
		return false, pathError("open", rel, err)
	}
	defer unix.Close(dir)
	return rmdirTree(dir, base), nil
}

func rmdirTree(parent int, name string) bool {
	fd, err := unix.Openat(parent, name, dirFlags, 0)
	if err != nil {
		return errors.Is(err, unix.ENOENT)
	}
	f := os.NewFile(uintptr(fd), name)
	names, _ := f.Readdirnames(-1)
	for _, sub := range names {
		if st, err := statAt(fd, sub); err == nil && kindOf(uint32(st.Mode)) == KindDir {
			rmdirTree(fd, sub)
		}
	}
	_ = f.Close()
	err = unix.Unlinkat(parent, name, unix.AT_REMOVEDIR)
	return err == nil || errors.Is(err, unix.ENOENT)
}
