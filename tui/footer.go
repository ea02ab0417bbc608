package tui

import (
	"cmp"
	"slices"
)

// footer is the last line: a question, a note, or the keys that work here.
func footer(u *ui, w int) line {
	if u.prompt != nil {
		return u.prompt.draw(w)
	}
	if u.note.text != "" && u.now.Before(u.note.until) {
		return rowOf(u.note.look, left(clean(u.note.text), w))
	}
	where := onBoard
	if v := u.top(); v != nil {
		where = v.scope()
		if _, ok := v.(typist); ok {
			return rowOf(dim, "Esc back")
		}
	}
	keys := footerKeys(u.table(), where)
	parts := make([]part, 0, len(keys))
	for i, k := range keys {
		if k.id == "next-node" && len(u.pasts) < 2 {
			continue
		}
		drop := i + 1
		if k.id == "quit" || k.id == "help" {
			drop = 0
		}
		parts = append(parts, part{span: txt(dim, showKey(k.keys[0])+" "+k.name), drop: drop})
	}
	return bar(w, parts)
}

func footerKeys(table []binding, where scope) []binding {
	var out []binding
	for _, k := range table {
		if k.footer > 0 && (k.scope == where || k.scope == anywhere) {
			out = append(out, k)
		}
	}
	if where != onBoard {
		for _, k := range table {
			if k.id == "back" {
				out = append(out, k)
			}
		}
	}
	slices.SortStableFunc(out, func(a, b binding) int {
		if (a.scope == anywhere) != (b.scope == anywhere) && where != onBoard {
			return cmp.Compare(btoi(a.scope == anywhere), btoi(b.scope == anywhere))
		}
		return cmp.Compare(a.footer, b.footer)
	})
	return out
}
