package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/charmbracelet/x/ansi"

	"pipedeck/bench/term"
)

// recorded draws the screens that a run on real GPUs left: gpu-NAME.svg of each
// NAME.ansi.
func recorded(from, out string) error {
	files, err := filepath.Glob(filepath.Join(from, "*.ansi"))
	if err != nil {
		return err
	}
	for _, file := range files {
		raw, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		path := filepath.Join(out, "gpu-"+strings.TrimSuffix(filepath.Base(file), ".ansi")+".svg")
		if err := os.WriteFile(path, drawn(string(raw)), 0o644); err != nil {
			return err
		}
		fmt.Println(path)
	}
	return nil
}

// drawn is the picture of a recorded screen, as large as its lines.
func drawn(screen string) []byte {
	lines := strings.Split(strings.TrimSuffix(screen, "\n"), "\n")
	w := 0
	for _, line := range lines {
		w = max(w, ansi.StringWidth(line))
	}
	return svg(term.Recorded(screen, w, len(lines)), w, len(lines))
}
