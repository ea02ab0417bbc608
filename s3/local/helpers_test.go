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
		dir, err := os.MkdirTemp("/dev/shm", "pipedeck-local-")
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

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func put(t testing.TB, root, rel, content string) Identity {
	t.Helper()
	path := filepath.Join(root, rel)
	must(t, os.MkdirAll(filepath.Dir(path), 0o755))
	must(t, os.WriteFile(path, []byte(content), 0o644))
	return idOf(t, root, rel)
}

func idOf(t testing.TB, root, rel string) Identity {
	t.Helper()
	f, err := Open(root, rel)
	must(t, err)
	defer f.Close()
	id, err := f.Identity()
	must(t, err)
	return id
}

func content(t testing.TB, path string) string {
	t.Helper()
	b, err := os.ReadFile(path)
	if os.IsNotExist(err) {
		return "(none)"
	}
	must(t, err)
	return string(b)
}

func aside(t testing.TB, r *Remover) []AsideFile {
	t.Helper()
	files, problems, err := RecoverAside(context.Background(), r.Aside)
	must(t, err)
	if len(problems) > 0 {
		t.Fatalf("problems: %v", problems)
	}
	return files
}
