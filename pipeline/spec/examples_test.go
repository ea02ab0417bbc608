package spec

import (
	"os"
	"path/filepath"
	"testing"
)

func TestExamplesAreValid(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("../../examples/*/*.yaml")
	if err != nil || len(files) < 4 {
		t.Fatalf("examples: %q, %v", files, err)
	}
	for _, file := range files {
		raw, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := Parse(file, raw); err != nil {
			t.Errorf("%s: %v", file, err)
		}
	}
}
