package tui

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/charmbracelet/x/ansi"
)

var update = flag.Bool("update", false, "write the golden screens anew")

func sizes() []size {
	return []size{{1, 1}, {40, 10}, {60, 20}, {80, 24}, {120, 40}, {200, 60}}
}

func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("..", "testdata", "golden", "tui", name+".txt")
	if *update {
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(got+"\n"), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatalf("%v (go test ./tui -update writes it)", err)
	}
	if string(want) != got+"\n" {
		t.Errorf("%s differs (go test ./tui -update writes it anew):\n%s", path, got)
	}
}

// plainText is a frame as text, without trailing blanks.
func plainText(frame string) string {
	lines := strings.Split(ansi.Strip(frame), "\n")
	for i := range lines {
		lines[i] = strings.TrimRight(lines[i], " ")
	}
	return strings.Join(lines, "\n")
}

func TestGoldenScreens(t *testing.T) {
	t.Parallel()
	for name, s := range scenes() {
		for _, sz := range sizes() {
			u := s.ui
			golden(t, fmt.Sprintf("%s-%dx%d", name, sz.w, sz.h), plainText(render(s.in, &u, sz)))
		}
	}
}

// Every frame fits its screen, at every size, for every content.
func TestFramesFit(t *testing.T) {
	t.Parallel()
	for name, s := range scenes() {
		for w := 1; w <= 210; w += 1 + w/5 {
			for h := 1; h <= 64; h += 1 + h/6 {
				u := s.ui
				checkFits(t, name, render(s.in, &u, size{w, h}), size{w, h})
			}
		}
	}
}

func checkFits(t *testing.T, name, frame string, sz size) {
	t.Helper()
	lines := strings.Split(frame, "\n")
	if len(lines) > sz.h {
		t.Fatalf("%s at %v: %d lines", name, sz, len(lines))
	}
	for i, l := range lines {
		text := ansi.Strip(l)
		if n := ansi.StringWidthWc(text); n > sz.w {
			t.Fatalf("%s at %v: line %d has %d cells: %q", name, sz, i, n, text)
		}
		if n := ansi.StringWidth(text); n > sz.w {
			t.Fatalf("%s at %v: line %d has %d cells by graphemes: %q", name, sz, i, n, text)
		}
		if strings.ContainsAny(text, "\x1b\r\t\a\u202e") {
			t.Fatalf("%s at %v: line %d has control characters: %q", name, sz, i, text)
		}
	}
}
