// Package smalldisk gives tests a disk that can be filled to the last byte.
package smalldisk

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// TB is what this package needs of a test.
type TB interface {
	Helper()
	Cleanup(func())
	Fatal(args ...any)
	Skipf(format string, args ...any)
	TempDir() string
}

// Mount returns a folder on a filesystem in memory of so many bytes, for the
// length of a test. Only root can mount one: for others the test is skipped.
func Mount(t TB, size int) string {
	t.Helper()
	dir := t.TempDir()
	if err := unix.Mount("none", dir, "tmpfs", 0, fmt.Sprintf("size=%d", size)); err != nil {
		t.Skipf("cannot mount a small disk: %v", err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil {
			t.Fatal(err)
		}
	})
	return dir
}

// Fill leaves no byte on the disk of dir, and returns the file to remove.
func Fill(t TB, dir string) string {
	t.Helper()
	f, err := os.Create(filepath.Join(dir, "filler"))
	if err != nil {
		t.Fatal(err)
	}
	for err == nil {
		_, err = f.Write(make([]byte, 4096))
	}
	if closed := f.Close(); closed != nil || !errors.Is(err, unix.ENOSPC) {
		t.Fatal("cannot fill the disk:", err, closed)
	}
	return f.Name()
}
