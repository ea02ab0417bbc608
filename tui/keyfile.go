package tui

import (
	"fmt"
	"slices"
	"strings"

	"pipedeck/pipeline"
)

// KeyMap is the operator's own choice of keys: names of KeyDoc.ID with the
// keys that replace those of the table.
type KeyMap map[string][]string

// ParseKeys reads a key file: lines of "name = key key", # begins a comment,
// and a name without keys has none. It refuses names and keys that do not
// exist and two meanings of one key in one place, with a *pipeline.Problem.
func ParseKeys(file, text string) (KeyMap, error) {
	m := KeyMap{}
	n := 0
	for raw := range strings.Lines(text) {
		n++
		where := fmt.Sprintf("%s:%d", file, n)
		line := strings.TrimSpace(raw)
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		name, keys, ok := strings.Cut(line, "=")
		name = strings.TrimSpace(name)
		switch {
		case !ok:
			return nil, keyProblem("a line is NAME = KEY KEY", "cannot read key file %s: %q has no =", where, line)
		case !slices.ContainsFunc(bindings(), func(b binding) bool { return b.id == name }):
			return nil, keyProblem("docs/console.md lists the names", "cannot read key file %s: no name %q", where, name)
		case m[name] != nil:
			return nil, keyProblem("", "cannot read key file %s: %q is there twice", where, name)
		}
		m[name] = []string{}
		for key := range strings.FieldsSeq(keys) {
			if key, ok = parseKey(key); !ok {
				return nil, keyProblem("a key is one character, or such as ctrl+d, f5, tab, enter, pgdown", "cannot read key file %s: no key %q", where, key)
			}
			m[name] = append(m[name], key)
		}
	}
	return m, m.check(file)
}

func keyProblem(hint, format string, args ...any) error {
	return pipeline.Problemf(pipeline.ProblemUsage, hint, format, args...)
}

// parseKey turns a key as operators write it into its name in the table.
func parseKey(s string) (string, bool) {
	if len([]rune(s)) == 1 {
		return s, true
	}
	s = strings.ToLower(strings.ReplaceAll(s, "ctrl-", "ctrl+"))
	base := s
	for _, mod := range []string{"ctrl+", "alt+", "shift+"} {
		base = strings.TrimPrefix(base, mod)
	}
	named := []string{"tab", "enter", "esc", "space", "home", "end", "up", "down", "left", "right", "pgup", "pgdown", "insert", "delete", "backspace"}
	fkey := len(base) > 1 && base[0] == 'f' && strings.Trim(base[1:], "0123456789") == ""
	return s, slices.Contains(named, base) || fkey || base != s && len([]rune(base)) == 1
}

// check finds a key with two meanings in one place. A view's own key hides the
// one that works anywhere only where the table itself does so.
func (m KeyMap) check(file string) error {
	table := m.apply(bindings())
	for i, a := range table {
		for _, b := range table[i+1:] {
			if a.scope != b.scope && a.scope != anywhere && b.scope != anywhere {
				continue
			}
			for _, key := range a.keys {
				if slices.Contains(b.keys, key) {
					return keyProblem("give one of them another key", "cannot use key file %q: %q means both %s and %s", file, showKey(key), a.id, b.id)
				}
			}
		}
	}
	if len(keysOf(table, "quit"))+len(keysOf(table, "leave")) == 0 {
		return keyProblem("", "cannot use key file %q: neither quit nor leave has a key", file)
	}
	return nil
}

func keysOf(table []binding, id string) []string {
	for _, b := range table {
		if b.id == id {
			return b.keys
		}
	}
	return nil
}

func (m KeyMap) apply(table []binding) []binding {
	for i := range table {
		if keys, ok := m[table[i].id]; ok {
			table[i].keys = keys
		}
	}
	return table
}

// table is the key table that holds for this console.
func (u *ui) table() []binding { return u.keymap.apply(bindings()) }
