package agent

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"syscall"

	"pipedeck/pipeline"
)

const stateHint = "set `state_dir: PATH` to a folder on a local disk"

// PrepareStateDir refuses a state directory on a network filesystem and
// creates it with mode 0700. Errors are *pipeline.Problem.
func PrepareStateDir(path string) error {
	if err := CheckStateDir(path); err != nil {
		return err
	}
	return privateDir(path)
}

// privateDir creates dir with mode 0700, or checks that it is a real
// directory of this user that nobody else can enter.
func privateDir(dir string) error {
	// The parents are the operator's: only the folder itself is private.
	if err := os.MkdirAll(filepath.Dir(dir), 0o755); err != nil {
		return pipeline.Problemf(pipeline.ProblemFailed, stateHint, "cannot create %q: %w", filepath.Dir(dir), err)
	}
	err := os.Mkdir(dir, 0o700)
	if err != nil && !errors.Is(err, fs.ErrExist) {
		return pipeline.Problemf(pipeline.ProblemFailed, stateHint, "cannot create %q: %w", dir, err)
	}
	info, err := os.Lstat(dir)
	if err != nil {
		return pipeline.Problemf(pipeline.ProblemFailed, stateHint, "cannot look at %q: %w", dir, err)
	}
	if !info.IsDir() {
		return pipeline.Problemf(pipeline.ProblemRefused, stateHint, "cannot use %q: not a directory", dir)
	}
	if st, ok := info.Sys().(*syscall.Stat_t); ok && int(st.Uid) != os.Geteuid() {
		return pipeline.Problemf(pipeline.ProblemRefused,
			fmt.Sprintf("run pipedeck as user %d, or %s", st.Uid, stateHint),
			"cannot use %q: it belongs to user %d, this is user %d", dir, st.Uid, os.Geteuid())
	}
	if mode := info.Mode().Perm(); mode&0o077 != 0 {
		return pipeline.Problemf(pipeline.ProblemRefused,
			"chmod 700 "+dir, "cannot use %q: mode %04o lets other users in", dir, mode)
	}
	return nil
}

// listen binds the socket. The caller holds the agent lock, so a socket that
// is already there has no owner.
func listen(path string) (net.Listener, error) {
	if len(path) > 107 {
		return nil, pipeline.Problemf(pipeline.ProblemRefused, "use the path that SocketPath gives",
			"cannot listen on %q: %d bytes are more than the kernel takes (107)", path, len(path))
	}
	if err := privateDir(filepath.Dir(path)); err != nil {
		return nil, err
	}
	if err := removeStale(path); err != nil {
		return nil, err
	}
	listener, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		return nil, pipeline.Problemf(pipeline.ProblemFailed, stateHint, "cannot listen on %q: %w", path, err)
	}
	if err := os.Chmod(path, 0o600); err != nil {
		_ = listener.Close()
		return nil, pipeline.Problemf(pipeline.ProblemFailed, stateHint, "cannot protect %q: %w", path, err)
	}
	return listener, nil
}

func removeStale(path string) error {
	info, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return pipeline.Problemf(pipeline.ProblemFailed, "", "cannot look at %q: %w", path, err)
	}
	if info.Mode().Type() != fs.ModeSocket {
		return pipeline.Problemf(pipeline.ProblemRefused, "move it away if it is not needed",
			"cannot listen on %q: it is not a socket", path)
	}
	if err := os.Remove(path); err != nil {
		return pipeline.Problemf(pipeline.ProblemFailed, "", "cannot remove the stale socket %q: %w", path, err)
	}
	return nil
}
