package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// The pictures in the docs are those of the recorded screens.
func TestRecordedScreensAreDrawn(t *testing.T) {
	t.Parallel()
	root := filepath.Join("..", "..")
	files, err := filepath.Glob(filepath.Join(root, "testdata", "gpu", "screens", "*.ansi"))
	if err != nil || len(files) == 0 {
		t.Fatalf("%v, %d recorded screens", err, len(files))
	}
	for _, file := range files {
		name := strings.TrimSuffix(filepath.Base(file), ".ansi")
		raw, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		got, err := os.ReadFile(filepath.Join(root, "docs", "pictures", "gpu-"+name+".svg"))
		if err != nil || !bytes.Equal(got, drawn(string(raw))) {
			t.Errorf("the picture of %s is missing or another one (%v): `make pictures` draws it", name, err)
		}
	}
}

func TestDrawn(t *testing.T) {
	t.Parallel()
	got := string(drawn("\x1b[1;33mSTALL\x1b[0m  x\n\n  <end> \n"))
	for _, want := range []string{`fill="#d7af5f"`, `font-weight="bold"`, ">STALL<", "&lt;end&gt;", `width="87"`, `height="71"`} {
		if !strings.Contains(got, want) {
			t.Errorf("no %q in %s", want, got)
		}
	}
}
