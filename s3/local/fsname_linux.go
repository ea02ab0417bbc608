package local

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// FilesystemName returns the type of the filesystem that path, or its nearest
// existing parent, is on: ext4, tmpfs, nfs4, fuse.sshfs and so on, as
// /proc/self/mountinfo names it, or the magic number of statfs in hex.
func FilesystemName(path string) (string, error) {
	path, err := filepath.Abs(path)
	if err != nil {
		return "", pathError("locate", path, err)
	}
	var st unix.Statfs_t
	for {
		if err = unix.Statfs(path, &st); err == nil {
			break
		}
		up := filepath.Dir(path)
		if !errors.Is(classOf(err), ErrVanished) || up == path {
			return "", pathError("look at", path, err)
		}
		path = up
	}
	if target, err := filepath.EvalSymlinks(path); err == nil {
		path = target
	}
	if name := mountType(path); name != "" {
		return name, nil
	}
	return fmt.Sprintf("%#x", st.Type), nil
}

// mountType finds the mount with the longest path above path; of several on
// one path the last is on top.
func mountType(path string) string {
	f, err := os.Open("/proc/self/mountinfo")
	if err != nil {
		return ""
	}
	defer f.Close()
	best, name := -1, ""
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		fields := strings.Fields(lines.Text())
		dash := slices.Index(fields, "-")
		if dash < 6 || dash+1 >= len(fields) {
			continue
		}
		at := unescapeMount(fields[4])
		if below(path, at) && len(at) >= best {
			best, name = len(at), fields[dash+1]
		}
	}
	return name
}

func below(path, dir string) bool {
	return dir == "/" || path == dir || strings.HasPrefix(path, dir+"/")
}

// unescapeMount undoes mountinfo's octal escapes.
func unescapeMount(s string) string {
	return strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`).Replace(s)
}

// IsNetworkFS says whether a filesystem type is one on which SQLite and locks
// do not work reliably. An unknown FUSE filesystem counts as local.
func IsNetworkFS(name string) bool {
	switch name {
	case "nfs", "nfs4", "cifs", "smb3", "smbfs", "lustre", "ceph", "afs", "9p", "beegfs", "gpfs",
		"glusterfs", "ocfs2", "gfs2", "pvfs2", "coda", "ncpfs", "wekafs", "virtiofs":
		return true
	}
	sub, isFuse := strings.CutPrefix(name, "fuse.")
	if !isFuse {
		return false
	}
	for _, remote := range []string{
		"sshfs", "s3fs", "rclone", "juicefs", "JuiceFS", "glusterfs", "gcsfuse", "goofys", "ceph", "moosefs",
		"mfs", "curlftpfs", "davfs", "mountpoint-s3", "blobfuse", "geesefs", "seaweedfs", "alluxio", "beegfs",
	} {
		if strings.HasPrefix(sub, remote) {
			return true
		}
	}
	return false
}
