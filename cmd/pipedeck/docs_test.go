package main

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
)

// section is what docs/commands.md says below one heading of a command.
type section struct {
	use   string
	flags []string
}

// documented reads the headings "### `pipedeck …`" and the flags in the first
// column of the tables below them; "" is the table of all commands.
func documented(t *testing.T) map[string]section {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join("..", "..", "docs", "commands.md"))
	if err != nil {
		t.Fatal(err)
	}
	heading := regexp.MustCompile("^#+ `(pipedeck[^`]*)`$")
	row := regexp.MustCompile("^\\| `--([a-z-]+)")
	out := map[string]section{}
	at := ""
	for line := range strings.Lines(string(raw)) {
		line = strings.TrimRight(line, "\n")
		if m := heading.FindStringSubmatch(line); m != nil {
			at = commandPath(m[1])
			if _, twice := out[at]; twice {
				t.Errorf("%q is there twice", at)
			}
			out[at] = section{use: m[1]}
			continue
		}
		if m := row.FindStringSubmatch(line); m != nil {
			s := out[at]
			s.flags = append(s.flags, m[1])
			out[at] = s
		}
	}
	return out
}

// commandPath is a usage line without its arguments.
func commandPath(use string) string {
	var words []string
	for w := range strings.FieldsSeq(use) {
		if w != strings.ToLower(w) {
			break
		}
		words = append(words, w)
	}
	return strings.Join(words, " ")
}

// TestCommandsAreDocumented holds docs/commands.md to the command tree, both
// ways.
func TestCommandsAreDocumented(t *testing.T) {
	t.Parallel()
	docs := documented(t)
	root := new(app).rootCommand()
	everywhere := append(flagNames(root.PersistentFlags().FlagUsages()), "file", "help")
	if got := docs[""].flags; !sameSet(got, everywhere) {
		t.Errorf("flags of every command: the document has %q, the program %q", got, everywhere)
	}
	known := map[string]bool{"": true, "pipedeck completion": true} // cobra makes that one
	for _, c := range visibleCommands(root) {
		c.InitDefaultHelpFlag()
		c.InitDefaultVersionFlag()
		known[c.CommandPath()] = true
		s, ok := docs[c.CommandPath()]
		if !ok {
			t.Errorf("%q is not in docs/commands.md", c.CommandPath())
			continue
		}
		if use := usageOf(c); s.use != use {
			t.Errorf("the document says %q, the program %q", s.use, use)
		}
		var own []string
		for _, name := range flagNames(c.LocalNonPersistentFlags().FlagUsages()) {
			if !slices.Contains(everywhere, name) {
				own = append(own, name)
			}
		}
		if !sameSet(s.flags, own) {
			t.Errorf("%s: the document has the flags %q, the program %q", c.CommandPath(), s.flags, own)
		}
	}
	for path := range docs {
		if !known[path] {
			t.Errorf("docs/commands.md has %q, the program has not", path)
		}
	}
}

func usageOf(c *cobra.Command) string {
	if c.HasParent() {
		return c.Parent().CommandPath() + " " + c.Use
	}
	return c.Use
}

// flagNames are the flags that an operator is shown.
func flagNames(usages string) []string {
	shown := regexp.MustCompile(`(?m)^ +(?:-\w, )?--([a-z-]+)`).FindAllStringSubmatch(usages, -1)
	names := make([]string, len(shown))
	for i, m := range shown {
		names[i] = m[1]
	}
	return names
}

func sameSet(a, b []string) bool {
	return slices.Equal(slices.Compact(slices.Sorted(slices.Values(a))), slices.Compact(slices.Sorted(slices.Values(b))))
}
