package agent

import (
	"bufio"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"pipedeck/pipeline"
)

// networkMagic maps f_type of statfs(2) to a name, for filesystems where
// locks or SQLite's shared memory do not work between machines. Numbers from
// linux/magic.h and the filesystems' sources.
func networkMagic(magic uint32) string {
	switch magic {
	case 0x6969:
		return "nfs"
	case 0x517b, 0xff534d42, 0xfe534d42:
		return "smb"
	case 0x00c36400:
		return "ceph"
	case 0x0bd00bd0:
		return "lustre"
	case 0x01021997:
		return "9p"
	case 0x5346414f, 0x6b414653:
		return "afs"
	case 0x73757245:
		return "coda"
	case 0x564c:
		return "ncp"
	case 0x47504653:
		return "gpfs"
	case 0x19830326:
		return "beegfs"
	case 0x01161970:
		return "gfs2"
	case 0x7461636f:
		return "ocfs2"
	case 0x20030528:
		return "orangefs"
	}
	return ""
}

const fuseMagic = 0x65735546

// CheckStateDir refuses a state directory on a network filesystem, where
// neither locks nor the ledger are safe. A directory that does not exist yet is
// judged by its nearest parent. The error is a *pipeline.Problem.
func CheckStateDir(path string) error {
	dir, st, err := statfsNearest(path)
	if err != nil {
		return pipeline.Problemf(pipeline.ProblemFailed, stateHint, "cannot look at the filesystem of %q: %w", path, err)
	}
	magic := uint32(st.Type) //nolint:gosec // only 32 bits are used on every architecture
	kind := networkMagic(magic)
	if magic == fuseMagic {
		kind = fuseKind(dir)
	}
	if kind == "" {
		return nil
	}
	return pipeline.Problemf(pipeline.ProblemRefused, "state_dir: PATH on a local disk",
		"cannot keep the agent's state in %q: it is on a network filesystem (%s)", path, kind)
}

func statfsNearest(path string) (string, unix.Statfs_t, error) {
	var st unix.Statfs_t
	dir := filepath.Clean(path)
	for {
		err := unix.Statfs(dir, &st)
		if err == nil || !errors.Is(err, fs.ErrNotExist) || dir == filepath.Dir(dir) {
			return dir, st, err
		}
		dir = filepath.Dir(dir)
	}
}

// fuseKind tells a FUSE filesystem on local disks ("") from one on a network:
// statfs has one magic for all, the mount table has the name. A name that is
// not known to be local counts as network.
func fuseKind(dir string) string {
	table, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return "fuse"
	}
	if target, err := filepath.EvalSymlinks(dir); err == nil {
		dir = target
	}
	return fuseKindIn(string(table), dir)
}

// fuseKindIn is fuseKind on a given mount table, in the format of proc(5).
func fuseKindIn(table, dir string) string {
	best, kind := "", "fuse"
	lines := bufio.NewScanner(strings.NewReader(table))
	for lines.Scan() {
		before, after, ok := strings.Cut(lines.Text(), " - ")
		left, right := strings.Fields(before), strings.Fields(after)
		if !ok || len(left) < 5 || len(right) < 1 {
			continue
		}
		mount := unescapeMount(left[4])
		if inside(dir, mount) && len(mount) >= len(best) {
			best, kind = mount, right[0]
		}
	}
	switch kind {
	case "fuseblk", "fuse.fuse-overlayfs", "fuse.bindfs", "fuse.mergerfs", "fuse.lxcfs", "fuse.portal":
		return ""
	}
	return kind
}

func inside(path, root string) bool {
	return path == root || root == "/" || strings.HasPrefix(path, root+"/")
}

// unescapeMount undoes the octal escapes of the mount table.
func unescapeMount(s string) string {
	return strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`).Replace(s)
}
