package local

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

// Reasons why a path cannot be used. The errors of this package wrap one of
// them beside the system's own error, where there is one.
var (
	// ErrNoDir says that the root of a tree does not exist or is no directory.
	ErrNoDir = errors.New("no such directory")
	// ErrSymlink says that a symbolic link lies in the way; none is followed.
	ErrSymlink = errors.New("symbolic link in the way")
	// ErrNotRegular says that the path names a fifo, socket, device or directory.
	ErrNotRegular = errors.New("not a regular file")
	// ErrVanished says that the file is no longer there.
	ErrVanished = errors.New("file vanished")
	// ErrDenied says that the agent's user may not do it.
	ErrDenied = errors.New("permission denied")
	// ErrBadName says that a relative path is empty, absolute or not clean.
	ErrBadName = errors.New("not a clean relative path")
)

// Problem is one path that could not be looked at.
type Problem struct {
	Path string // relative to the root that was scanned
	Err  error
}

// Problems are the paths that a scan had to leave out: what it saw is then
// not all there is.
type Problems []Problem

// pathError says what failed on which path and wraps cause and its class.
func pathError(verb, path string, cause error) error {
	class := classOf(cause)
	if class == nil || errors.Is(cause, class) {
		return fmt.Errorf("cannot %s %q: %w", verb, path, cause)
	}
	return fmt.Errorf("cannot %s %q: %w (%w)", verb, path, class, cause)
}

// classOf maps a system error to one of the errors above, or nil.
func classOf(err error) error {
	switch {
	case errors.Is(err, unix.ENOENT), errors.Is(err, unix.ENOTDIR):
		return ErrVanished
	case errors.Is(err, unix.ELOOP):
		return ErrSymlink
	case errors.Is(err, unix.EACCES), errors.Is(err, unix.EPERM), errors.Is(err, unix.EROFS):
		return ErrDenied
	case errors.Is(err, unix.ENXIO), errors.Is(err, unix.ENODEV), errors.Is(err, unix.EISDIR):
		return ErrNotRegular
	default:
		return nil
	}
}
