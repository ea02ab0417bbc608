package local

import (
	"context"
	"os"
	"path/filepath"
	"testing"
)

// eachFilesystem runs a test on the disk and, where there is one, on tmpfs.
func eachFilesystem(t *testing.T, test func(t *testing.T, dir string)) {
	t.Helper()
	t.Run("disk", func(t *testing.T) {
		t.Parallel()
		test(t, t.TempDir())
	})
	t.Run("tmpfs", func(t *testing.T) {
		t.Parallel()
		dir, err := os.MkdirTemp("/dev/shm", "pipedeck-local-") //nolint:usetesting // a tmpfs is the point
		if err != nil {
			t.Skipf("no tmpfs: %v", err)
		}
		t.Cleanup(func() { _ = os.RemoveAll(dir) })
		test(t, dir)
	})
}

// newTree makes an output directory and a Remover with its aside folder.
func newTree(t *testing.T, dir string) (root string, r *Remover) {
	t.Helper()
	root = filepath.Join(dir, "out")
	must(t, os.MkdirAll(root, 0o755))
	return root, NewRemover(filepath.Join(dir, "state", "aside"))
}

func must(tb testing.TB, err error) {
	tb.Helper()
	if err != nil {
		tb.Fatal(err)
	}
}

func put(tb testing.TB, root, rel, content string) Identity {
	tb.Helper()
	path := filepath.Join(root, rel)
	must(tb, os.MkdirAll(filepath.Dir(path), 0o755))
	must(tb, os.WriteFile(path, []byte(content), 0o644))
	return idOf(tb, root, rel)
}

func idOf(tb testing.TB, root, rel string) Identity {
	tb.Helper()
	f, err := Open(root, rel)
	must(tb, err)
	defer f.Close()
	id, err := f.Identity()
	must(tb, err)
	return id
}

func content(tb testing.TB, path string) string {
	tb.Helper()
	b, err := os.ReadFile(path)
	if os.IsNotExist(err) {
		return "(none)"
	}
	must(tb, err)
	return string(b)
}

func aside(tb testing.TB, r *Remover) []AsideFile {
	tb.Helper()
	files, problems, err := RecoverAside(context.Background(), r.Aside)
	must(tb, err)
	if len(problems) > 0 {
		tb.Fatalf("problems: %v", problems)
	}
	return files
}
