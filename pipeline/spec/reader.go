package spec

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"
)

// mark is a place in the file, from 1.
type mark struct{ line, column int }

func markOf(n *yaml.Node) mark { return mark{max(1, n.Line), max(1, n.Column)} }

// reader turns nodes into values. It remembers where each key stands, so that
// later checks can point at it, and which keys already failed, so that one
// mistake is reported once.
type reader struct {
	file    string
	errs    Errors
	path    []string
	marks   map[string]mark
	bad     map[string]bool
	assumed bool // reading a default, which stands nowhere in the file
}

func newReader(file string) *reader {
	return &reader{file: file, marks: map[string]mark{"": {1, 1}}, bad: map[string]bool{}}
}

// where joins the steps from the top of the file to a key.
func where(steps ...string) string { return strings.Join(steps, "/") }

func (r *reader) add(at mark, hint, format string, args ...any) {
	r.errs = append(r.errs, Error{
		File: r.file, Line: at.line, Column: at.column,
		Text: fmt.Sprintf(format, args...), Hint: hint,
	})
}

// fail reports a fault of the value being read.
func (r *reader) fail(n *yaml.Node, hint, format string, args ...any) {
	r.bad[where(r.path...)] = true
	r.add(markOf(n), hint, format, args...)
}

// enter reads a value one step deeper. A mapping or list is pointed at by its
// key, a scalar by itself.
func (r *reader) enter(step string, key, value *yaml.Node, read func()) {
	r.path = append(r.path, step)
	if !r.assumed {
		at := markOf(value)
		if value.Kind != yaml.ScalarNode && key != nil {
			at = markOf(key)
		}
		r.marks[where(r.path...)] = at
	}
	read()
	r.path = r.path[:len(r.path)-1]
}

// find returns where a key stands, or the closest thing above it that does.
func (r *reader) find(path string) mark {
	for {
		if at, ok := r.marks[path]; ok {
			return at
		}
		i := strings.LastIndexByte(path, '/')
		if i < 0 {
			return r.marks[""]
		}
		path = path[:i]
	}
}

// given says that the file itself has a key.
func (r *reader) given(steps ...string) bool {
	_, ok := r.marks[where(steps...)]
	return ok
}

// failed says that a fault at a key, or of what holds it, is reported already.
func (r *reader) failed(path string) bool {
	for {
		if r.bad[path] {
			return true
		}
		i := strings.LastIndexByte(path, '/')
		if i < 0 {
			return false
		}
		path = path[:i]
	}
}

func (r *reader) wrongType(n *yaml.Node, want string) {
	hint := ""
	if n.Kind == yaml.ScalarNode && want == "a string" && n.Tag != "!!null" {
		hint = "put it in quotes"
	}
	r.fail(n, hint, "want %s, found %s", want, describe(n))
}

func describe(n *yaml.Node) string {
	if n.Kind == yaml.MappingNode {
		return "a mapping"
	}
	if n.Kind == yaml.SequenceNode {
		return "a list"
	}
	switch n.Tag {
	case "!!null":
		return "nothing"
	case "!!int", "!!float":
		return "the number " + clip(n.Value)
	case "!!bool":
		return "the truth value " + clip(n.Value)
	}
	return strconv.Quote(clip(n.Value))
}

// clip keeps a quoted value from filling the screen.
func clip(s string) string {
	const most = 80
	if len(s) <= most {
		return s
	}
	return strings.ToValidUTF8(s[:most], "") + "…"
}

func isScalar(n *yaml.Node, tag string) bool { return n.Kind == yaml.ScalarNode && n.Tag == tag }

func (r *reader) text(n *yaml.Node, v *string) {
	if !isScalar(n, "!!str") {
		r.wrongType(n, "a string")
		return
	}
	*v = n.Value
}

// word also takes numbers and truth values, as they are written: arguments
// and environment values are text whatever they look like.
func (r *reader) word(n *yaml.Node, v *string) {
	if n.Kind != yaml.ScalarNode || n.Tag == "!!null" {
		r.wrongType(n, "a string")
		return
	}
	*v = n.Value
}

func (r *reader) boolean(n *yaml.Node, v *bool) {
	if !isScalar(n, "!!bool") {
		r.wrongType(n, "true or false")
		return
	}
	*v = strings.EqualFold(n.Value, "true")
}

func (r *reader) integer(n *yaml.Node, v *int64) {
	i, err := strconv.ParseInt(strings.ReplaceAll(n.Value, "_", ""), 10, 64)
	if !isScalar(n, "!!int") || err != nil {
		r.wrongType(n, "a whole number")
		return
	}
	*v = i
}

func (r *reader) count(n *yaml.Node, v *int) {
	var i int64
	before := len(r.errs)
	r.integer(n, &i)
	if len(r.errs) > before {
		return
	}
	if i < math.MinInt32 || i > math.MaxInt32 {
		r.fail(n, "", "%s is out of range", clip(n.Value))
		return
	}
	*v = int(i)
}

func (r *reader) number(n *yaml.Node, v *float64) {
	f, err := strconv.ParseFloat(n.Value, 64)
	if n.Kind != yaml.ScalarNode || n.Tag == "!!str" || err != nil || math.IsNaN(f) || math.IsInf(f, 0) {
		r.wrongType(n, "a number")
		return
	}
	*v = f
}

func (r *reader) duration(n *yaml.Node, v *time.Duration) {
	if n.Kind != yaml.ScalarNode || n.Tag == "!!null" {
		r.wrongType(n, "a duration such as 90s")
		return
	}
	d, err := ParseDuration(n.Value)
	if err != nil {
		r.fail(n, durationHint, "%v", err)
		return
	}
	*v = d
}

func (r *reader) size(n *yaml.Node, v *int64) {
	if n.Kind != yaml.ScalarNode || n.Tag == "!!null" {
		r.wrongType(n, "a size such as 512MB")
		return
	}
	b, err := ParseSize(n.Value)
	if err != nil {
		r.fail(n, sizeHint, "%v", err)
		return
	}
	*v = b
}

// rate is a size per second; the "/s" may be written.
func (r *reader) rate(n *yaml.Node, v *int64) {
	bare := *n
	bare.Value = strings.TrimSuffix(n.Value, "/s")
	r.size(&bare, v)
}
