package local

import (
	"errors"
	"path"
	"strings"

	"golang.org/x/sys/unix"
)

// Names of pipedeck's own folders. No scan or watch enters them.
const (
	stateDirName = ".pipedeck"
	asideDirName = ".pipedeck-aside"
)

func isOwnName(name string) bool { return name == stateDirName || name == asideDirName }

const dirFlags = unix.O_RDONLY | unix.O_DIRECTORY | unix.O_NOFOLLOW | unix.O_CLOEXEC

// openRoot opens the root of a tree. Its parents may be symbolic links, since
// the operator named them; the root itself may not.
func openRoot(root string) (int, error) {
	fd, err := ignoringEINTR(func() (int, error) { return unix.Open(root, dirFlags, 0) })
	if err == nil {
		return fd, nil
	}
	var st unix.Stat_t
	if unix.Lstat(root, &st) == nil && kindOf(uint32(st.Mode)) == KindSymlink {
		return -1, pathError("open", root, ErrSymlink)
	}
	if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ENOTDIR) {
		return -1, pathError("open", root, ErrNoDir)
	}
	return -1, pathError("open", root, err)
}

// openDirBelow opens the directory rel ("" or "." for root itself) below a
// root's descriptor, following no link.
func openDirBelow(root int, rel string) (int, error) {
	if rel == "" {
		rel = "."
	}
	return openBeneath(root, rel, dirFlags)
}

// walkBeneath opens rel below dir one component at a time, for kernels and
// sandboxes without openat2.
func walkBeneath(dir int, rel string, flags int) (int, error) {
	parts := strings.Split(rel, "/")
	at := dir
	for i, part := range parts {
		how := dirFlags
		if i == len(parts)-1 {
			how = flags | unix.O_NOFOLLOW
		}
		next, err := ignoringEINTR(func() (int, error) { return unix.Openat(at, part, how, 0) })
		if err != nil && linkAt(at, part) {
			err = unix.ELOOP
		}
		if at != dir {
			_ = unix.Close(at)
		}
		if err != nil {
			return -1, err
		}
		at = next
	}
	return at, nil
}

func linkAt(dir int, name string) bool {
	var st unix.Stat_t
	err := unix.Fstatat(dir, name, &st, unix.AT_SYMLINK_NOFOLLOW)
	return err == nil && kindOf(uint32(st.Mode)) == KindSymlink
}

// makeDirsBelow creates the directories of rel below dir, where missing, and
// opens the last.
func makeDirsBelow(dir int, rel string, mode uint32) (int, error) {
	at, err := unix.Dup(dir)
	if err != nil {
		return -1, err
	}
	unix.CloseOnExec(at)
	if rel == "" || rel == "." {
		return at, nil
	}
	for part := range strings.SplitSeq(rel, "/") {
		err := unix.Mkdirat(at, part, mode)
		if err != nil && !errors.Is(err, unix.EEXIST) {
			_ = unix.Close(at)
			return -1, err
		}
		next, err := ignoringEINTR(func() (int, error) { return unix.Openat(at, part, dirFlags, 0) })
		_ = unix.Close(at)
		if err != nil {
			return -1, err
		}
		at = next
	}
	return at, nil
}

// splitRel checks a relative path and splits it into directory and name.
// pipedeck's own folders are no part of any output.
func splitRel(rel string) (dir, base string, err error) {
	bad := rel == "" || rel == "." || rel[0] == '/' || path.Clean(rel) != rel ||
		rel == ".." || strings.HasPrefix(rel, "../") || strings.Contains(rel, "\x00")
	for part := range strings.SplitSeq(rel, "/") {
		bad = bad || isOwnName(part)
	}
	if bad {
		return "", "", pathError("use", rel, ErrBadName)
	}
	dir, base = path.Split(rel)
	return strings.TrimSuffix(dir, "/"), base, nil
}

// joinRel is path.Join for relative paths that are known to be clean or empty.
func joinRel(dir, name string) string {
	if dir == "" || name == "" {
		return dir + name
	}
	return dir + "/" + name
}

func ignoringEINTR(call func() (int, error)) (int, error) {
	for {
		n, err := call()
		if !errors.Is(err, unix.EINTR) {
			return n, err
		}
	}
}

func kindOf(mode uint32) Kind {
	switch mode & unix.S_IFMT {
	case unix.S_IFREG:
		return KindRegular
	case unix.S_IFLNK:
		return KindSymlink
	case unix.S_IFDIR:
		return KindDir
	default:
		return KindOther
	}
}

// statAt looks at a name below dir without following it.
func statAt(dir int, name string) (unix.Stat_t, error) {
	var st unix.Stat_t
	for {
		err := unix.Fstatat(dir, name, &st, unix.AT_SYMLINK_NOFOLLOW)
		if !errors.Is(err, unix.EINTR) {
			return st, err
		}
	}
}
