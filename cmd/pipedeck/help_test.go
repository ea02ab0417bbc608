package main

import (
	"bytes"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/cobra"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// visibleCommands are those that an operator is shown.
func visibleCommands(root *cobra.Command) []*cobra.Command {
	var out []*cobra.Command
	for _, c := range allCommands(root) {
		if !c.Hidden {
			out = append(out, c)
		}
	}
	return out
}

// TestHelp compares the help of every command with testdata/golden/help.
func TestHelp(t *testing.T) {
	t.Parallel()
	dir := filepath.Join("..", "..", "testdata", "golden", "help")
	want := map[string]bool{}
	for _, c := range visibleCommands(new(app).rootCommand()) {
		name := strings.ReplaceAll(c.CommandPath(), " ", "-") + ".txt"
		want[name] = true
		t.Run(c.CommandPath(), func(t *testing.T) {
			t.Parallel()
			var out, errs bytes.Buffer
			a := &app{in: strings.NewReader(""), out: &out, err: &errs, env: func(string) string { return "" }}
			args := append(strings.Fields(c.CommandPath())[1:], "--help")
			if code := a.run(args); code != exitOK || errs.Len() > 0 {
				t.Fatalf("%q ends with %d: %s", args, code, errs.String())
			}
			if c.Example == "" && c.Runnable() {
				t.Error("the help has no example")
			}
			golden(t, filepath.Join(dir, name), out.Bytes())
		})
	}
	files, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		if !want[f.Name()] {
			t.Errorf("%s is the help of no command", f.Name())
		}
	}
}

func golden(t *testing.T, path string, got []byte) {
	t.Helper()
	if *update {
		if err := os.WriteFile(path, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(want, got) {
		t.Errorf("differs from %s (rewrite with -update):\n%s", path, got)
	}
}
