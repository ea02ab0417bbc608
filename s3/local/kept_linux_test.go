package local

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// TestKeptFileOnAFullDisk is written again and again where there is no byte
// left; another file cannot be.
func TestKeptFileOnAFullDisk(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := unix.Mount("none", dir, "tmpfs", 0, "size=1M"); err != nil {
		t.Skipf("cannot mount a small disk: %v", err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	kept := filepath.Join(dir, "deck.json")
	files := FS{Kept: kept}
	if err := files.WriteFile(kept, []byte(`{"n":0}`)); err != nil {
		t.Fatal(err)
	}
	filler, err := os.Create(filepath.Join(dir, "filler"))
	for err == nil {
		_, err = filler.Write(make([]byte, 4096))
	}
	if err := errors.Join(filler.Close()); err != nil {
		t.Fatal(err)
	}
	for n := 1; n <= 50; n++ {
		want := fmt.Appendf(nil, `{"n":%d,"more":%q}`, n, bytes.Repeat([]byte("x"), n*50))
		if err := files.WriteFile(kept, want); err != nil {
			t.Fatalf("write %d: %v", n, err)
		}
		if got, err := os.ReadFile(kept); err != nil || !bytes.Equal(bytes.TrimSpace(got), want) {
			t.Fatalf("write %d: %q, %v", n, got, err)
		}
	}
	if err := files.WriteFile(filepath.Join(dir, "other.json"), []byte("{}")); !errors.Is(err, unix.ENOSPC) {
		t.Errorf("another file on the full disk: %v", err)
	}
	left, err := filepath.Glob(filepath.Join(dir, ".tmp-*"))
	if err != nil || len(left) > 0 {
		t.Errorf("left behind: %q, %v", left, err)
	}
}
