package spec

import (
	"fmt"
	"slices"
	"strconv"

	"go.yaml.in/yaml/v3"
)

// maxItems bounds the comparison of every item with every other.
const maxItems = 1000

// kind is one way to write a value of type V.
type kind[V any] struct {
	name string // as the reference calls it
	read func(r *reader, n *yaml.Node, v *V)
	keys func(prefix string) []Key // the keys below; nil for a scalar
}

// field is one key of a mapping that fills a T. Absent, it is read from
// initial, so that the documented default and the applied one are the same.
type field[T any] struct {
	Key
	initial string
	read    func(r *reader, n *yaml.Node, t *T)
	keys    func(prefix string) []Key
}

// key declares a key whose value is stored where get points.
func key[T, V any](name string, k kind[V], get func(*T) *V) field[T] {
	return field[T]{
		Key:  Key{Path: name, Type: k.name},
		read: func(r *reader, n *yaml.Node, t *T) { k.read(r, n, get(t)) },
		keys: k.keys,
	}
}

func (f field[T]) must() field[T] { f.Required = true; return f }

// or sets the default, as it would be written in the file.
func (f field[T]) or(text string) field[T] { f.initial, f.Default = text, text; return f }

// derived documents a default that depends on other keys; see derive.
func (f field[T]) derived(text string) field[T] { f.Default = text; return f }

// whole gives an absent section the defaults of its keys.
func (f field[T]) whole() field[T] { f.initial = "{}"; return f }

// section is a mapping with the given keys and no others.
func section[T any](fields func() []field[T]) kind[T] {
	return kind[T]{
		name: "mapping",
		read: func(r *reader, n *yaml.Node, t *T) { readSection(r, n, fields(), t) },
		keys: func(prefix string) []Key {
			var all []Key
			for _, f := range fields() {
				k := f.Key
				k.Path = under(prefix, k.Path)
				all = append(all, k)
				if f.keys != nil {
					all = append(all, f.keys(k.Path)...)
				}
			}
			return all
		},
	}
}

func readSection[T any](r *reader, n *yaml.Node, fields []field[T], t *T) {
	if n.Kind != yaml.MappingNode {
		r.wrongType(n, "a mapping")
		return
	}
	names := make([]string, len(fields))
	for i, f := range fields {
		names[i] = f.Path
	}
	found := map[string]bool{}
	r.pairs(n, func(k, v *yaml.Node) {
		i := slices.Index(names, k.Value)
		if i < 0 {
			if meant := r.unknownKey(k, names); meant != "" {
				found[meant] = true
			}
			return
		}
		found[k.Value] = true
		r.enter(k.Value, k, v, func() { fields[i].read(r, v, t) })
	})
	for _, f := range fields {
		switch {
		case found[f.Path]:
		case f.Required:
			r.missing(f.Path)
		case f.initial != "":
			r.assume(f.Path, f.initial, func(v *yaml.Node) { f.read(r, v, t) })
		}
	}
}

// unknownKey reports a key and returns the one that was probably meant, which
// then is not reported as missing too.
func (r *reader) unknownKey(k *yaml.Node, names []string) string {
	meant := closest(k.Value, names)
	hint := ""
	if meant == "" {
		hint = placeOf(k.Value)
	} else {
		r.bad[where(append(slices.Clone(r.path), meant)...)] = true
	}
	r.add(markOf(k), hint, "unknown key %q%s", clip(k.Value), didYouMean(k.Value, names))
	return meant
}

func (r *reader) missing(name string) {
	r.add(r.find(where(r.path...)), "", "missing key %q", name)
	r.bad[where(append(slices.Clone(r.path), name)...)] = true
}

// assume reads the default of an absent key.
func (r *reader) assume(name, text string, read func(*yaml.Node)) {
	var doc yaml.Node
	if err := yaml.Unmarshal([]byte(text), &doc); err != nil {
		r.add(r.find(where(r.path...)), "", "cannot read default of %q: %v", name, err)
		return
	}
	was := r.assumed
	r.assumed = true
	r.enter(name, nil, doc.Content[0], func() { read(doc.Content[0]) })
	r.assumed = was
}

// pairs visits the entries of a mapping, reporting keys that are no strings
// and keys that come twice.
func (r *reader) pairs(n *yaml.Node, visit func(k, v *yaml.Node)) {
	first := map[string]int{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		k, v := n.Content[i], n.Content[i+1]
		if k.Kind != yaml.ScalarNode || k.Tag == "!!null" {
			r.add(markOf(k), "", "want a key, found %s", describe(k))
			continue
		}
		if line, twice := first[k.Value]; twice {
			r.add(markOf(k), "", "duplicate key %q (first in line %d)", clip(k.Value), line)
			continue
		}
		first[k.Value] = k.Line
		visit(k, v)
	}
}

// list is a sequence of one kind.
func list[V any](of kind[V]) kind[[]V] {
	k := kind[[]V]{name: "list of " + of.name}
	k.read = func(r *reader, n *yaml.Node, v *[]V) {
		if n.Kind != yaml.SequenceNode {
			r.wrongType(n, "a list")
			return
		}
		if len(n.Content) > maxItems {
			r.fail(n, "", "the list has %d items, more than %d", len(n.Content), maxItems)
			return
		}
		for i, c := range n.Content {
			var item V
			r.enter(strconv.Itoa(i), nil, c, func() { of.read(r, c, &item) })
			*v = append(*v, item)
		}
	}
	if of.keys != nil {
		k.keys = func(prefix string) []Key { return of.keys(prefix + "[]") }
	}
	return k
}

// named is a mapping from names to one kind, kept in the file's order.
func named[V any](what string, of kind[V], name func(*V) *string) kind[[]V] {
	k := kind[[]V]{name: fmt.Sprintf("mapping of %s to %s", what, of.name)}
	k.read = func(r *reader, n *yaml.Node, v *[]V) {
		if n.Kind != yaml.MappingNode {
			r.wrongType(n, "a mapping")
			return
		}
		r.pairs(n, func(kn, vn *yaml.Node) {
			var item V
			*name(&item) = kn.Value
			r.enter(kn.Value, kn, vn, func() { of.read(r, vn, &item) })
			*v = append(*v, item)
		})
	}
	if of.keys != nil {
		k.keys = func(prefix string) []Key { return of.keys(under(prefix, what)) }
	}
	return k
}

// optional is a kind whose absence is nil.
func optional[V any](of kind[V]) kind[*V] {
	return kind[*V]{
		name: of.name,
		read: func(r *reader, n *yaml.Node, v **V) { *v = new(V); of.read(r, n, *v) },
		keys: of.keys,
	}
}
