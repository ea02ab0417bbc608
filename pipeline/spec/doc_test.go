package spec

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
)

// TestReferenceAgrees holds docs/spec.md to the parser's keys, types and
// defaults, in both directions.
func TestReferenceAgrees(t *testing.T) {
	t.Parallel()
	documented := reference(t)
	for _, k := range Keys() {
		row, ok := documented[k.Path]
		if !ok {
			t.Errorf("docs/spec.md has no row for %s", k.Path)
			continue
		}
		delete(documented, k.Path)
		want := k.Default
		switch {
		case k.Required:
			want = "required"
		case want == "":
			want = "-"
		}
		if got := strings.Trim(row[2], "`"); got != want {
			t.Errorf("docs/spec.md: default of %s is %q, the parser's %q", k.Path, got, want)
		}
		if row[1] != k.Type {
			t.Errorf("docs/spec.md: type of %s is %q, the parser's %q", k.Path, row[1], k.Type)
		}
		if row[3] == "" || row[4] == "" {
			t.Errorf("docs/spec.md: %s has no meaning or example", k.Path)
		}
	}
	for path := range documented {
		t.Errorf("docs/spec.md has a row for %s, which the parser does not know", path)
	}
}

// reference returns the rows of five cells of docs/spec.md by key.
func reference(t *testing.T) map[string][]string {
	t.Helper()
	text, err := os.ReadFile("../../docs/spec.md")
	if err != nil {
		t.Fatal(err)
	}
	rows := map[string][]string{}
	for line := range strings.Lines(string(text)) {
		cells := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), " | ")
		if len(cells) != 5 || !strings.HasPrefix(cells[0], " `") {
			continue
		}
		for i := range cells {
			cells[i] = strings.TrimSpace(cells[i])
		}
		name := strings.Trim(cells[0], "`")
		if rows[name] != nil {
			t.Errorf("docs/spec.md has two rows for %s", name)
		}
		rows[name] = cells
	}
	return rows
}

// TestReferenceExamples reads every example as YAML that gives its key.
func TestReferenceExamples(t *testing.T) {
	t.Parallel()
	for path, row := range reference(t) {
		var example map[string]any
		name := path[strings.LastIndexByte(path, '.')+1:]
		if err := yaml.Unmarshal([]byte(strings.Trim(row[4], "`")), &example); err != nil || len(example) != 1 {
			t.Errorf("example of %s: %s: %v", path, row[4], err)
		} else if _, ok := example[name]; !ok {
			t.Errorf("example of %s gives %v", path, example)
		}
	}
}

// TestAllKeysIsComplete holds all-keys.yaml to the parser's table.
func TestAllKeysIsComplete(t *testing.T) {
	t.Parallel()
	src, err := os.ReadFile(filepath.Join(specs, "all-keys.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	var doc map[string]any
	if err := yaml.Unmarshal(src, &doc); err != nil {
		t.Fatal(err)
	}
	for _, k := range Keys() {
		steps := strings.Split(strings.ReplaceAll(k.Path, "[]", ".[]"), ".")
		if !holdsKey(doc, steps) {
			t.Errorf("all-keys.yaml does not use %s", k.Path)
		}
	}
}

func holdsKey(v any, steps []string) bool {
	if len(steps) == 0 {
		return true
	}
	switch v := v.(type) {
	case map[string]any:
		if steps[0] != "NAME" {
			below, ok := v[steps[0]]
			return ok && holdsKey(below, steps[1:])
		}
		for _, below := range v {
			if holdsKey(below, steps[1:]) {
				return true
			}
		}
	case []any:
		for _, item := range v {
			if steps[0] == "[]" && holdsKey(item, steps[1:]) {
				return true
			}
		}
	}
	return false
}
