package spec

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strconv"
	"strings"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"
)

// maxSource bounds the work that a hostile file can cause.
const maxSource = 1 << 18

// Parse reads a spec: syntax, keys, types, defaults and what can be judged
// without looking at a machine. name stands in the errors' positions. A
// failure is always an Errors with everything that was found.
func Parse(name string, src []byte) (*Spec, error) {
	r := newReader(name)
	root := r.document(src)
	if root == nil {
		return nil, r.errs.sorted()
	}
	sum := sha256.Sum256(src)
	s := &Spec{Hash: hex.EncodeToString(sum[:]), Source: bytes.Clone(src)}
	section(specKeys).read(r, root, s)
	s.derive(r)
	validate(s, r)
	if len(r.errs) > 0 {
		return nil, r.errs.sorted()
	}
	return s, nil
}

// document returns the one mapping of a YAML file, or nil after reporting why
// there is none.
func (r *reader) document(src []byte) *yaml.Node {
	if len(src) > maxSource {
		r.add(mark{1, 1}, "", "the file has %d bytes, more than %d", len(src), maxSource)
		return nil
	}
	if at, bad := invalidUTF8(src); bad {
		r.add(at, "save the file as UTF-8", "invalid UTF-8")
		return nil
	}
	dec := yaml.NewDecoder(bytes.NewReader(src))
	doc, err := decode(dec)
	if errors.Is(err, io.EOF) {
		r.add(mark{1, 1}, "", "the file is empty")
		return nil
	}
	if err != nil {
		r.syntax(err, src)
		return nil
	}
	next, err := decode(dec)
	switch {
	case err == nil:
		r.add(markOf(next), "one file describes one deck", "a second YAML document begins here")
		return nil
	case !errors.Is(err, io.EOF):
		r.syntax(err, src)
		return nil
	}
	if !r.plain(doc) {
		return nil
	}
	root := doc.Content[0]
	if root.Kind != yaml.MappingNode {
		r.wrongType(root, "a mapping of keys")
		return nil
	}
	return root
}

// decode reads the next document. The YAML library panics on some malformed
// input; for a spec that is a syntax error like any other.
func decode(dec *yaml.Decoder) (doc *yaml.Node, err error) {
	defer func() {
		if p := recover(); p != nil {
			doc, err = nil, fmt.Errorf("yaml: %v", p)
		}
	}()
	doc = &yaml.Node{}
	if err := dec.Decode(doc); err != nil {
		return nil, err
	}
	if doc.Kind != yaml.DocumentNode || len(doc.Content) != 1 {
		return nil, io.EOF
	}
	return doc, nil
}

// plain reports what makes one place mean another: aliases, merge keys, tags.
func (r *reader) plain(n *yaml.Node) bool {
	const hint = "write the value out where it is used"
	switch {
	case n.Kind == yaml.AliasNode:
		r.add(markOf(n), hint, "aliases are not supported: *%s", clip(n.Value))
		return false
	case n.Tag == "!!merge":
		r.add(markOf(n), hint, "merge keys are not supported")
		return false
	case n.Style&yaml.TaggedStyle != 0:
		r.add(markOf(n), "leave the tag out", "tags are not supported: %s", clip(n.Tag))
		return false
	}
	ok := true
	for _, c := range n.Content {
		ok = r.plain(c) && ok
	}
	return ok
}

func (r *reader) syntax(err error, src []byte) {
	text := strings.TrimPrefix(err.Error(), "yaml: ")
	line := 1
	if m := regexp.MustCompile(`^line (\d+): ((?s).*)$`).FindStringSubmatch(text); m != nil {
		text = m[2]
		if n, err := strconv.Atoi(m[1]); err == nil {
			line = max(1, n)
		}
		// The library counts lines from 0 in errors of its parser, from 1 in
		// those of its scanner.
		if regexp.MustCompile(`^did not find expected (key|'|node|<)`).MatchString(text) {
			line++
		}
	}
	lines := strings.Split(string(src), "\n")
	line = min(line, len(lines))
	body := lines[line-1]
	indent := body[:len(body)-len(strings.TrimLeft(body, " \t"))]
	hint := ""
	if strings.Contains(indent, "\t") {
		hint = "YAML is indented with spaces, never with tabs"
	}
	r.add(mark{line, len(indent) + 1}, hint, "%s", clip(text))
}

func invalidUTF8(src []byte) (mark, bool) {
	if utf8.Valid(src) {
		return mark{}, false
	}
	at := mark{1, 1}
	for len(src) > 0 {
		c, n := utf8.DecodeRune(src)
		if c == utf8.RuneError && n <= 1 {
			break
		}
		at.column++
		if c == '\n' {
			at = mark{at.line + 1, 1}
		}
		src = src[n:]
	}
	return at, true
}
