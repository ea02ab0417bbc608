package store

import "bytes"

type tokenKind int

const (
	tokenEnd   tokenKind = iota // end of input
	tokenOpen                   // <name>
	tokenClose                  // </name>, with the text since the last tag
)

// token is a tag. A self-closing tag comes as two tokens.
type token struct {
	kind tokenKind
	name []byte // without namespace prefix
	text []byte // raw, entities unresolved
}

// scanner splits XML into tags. It copies nothing but CDATA.
type scanner struct {
	in     []byte
	pos    int
	self   []byte // name of a self-closing tag that is still to be closed
	joined []byte // text that CDATA split into pieces
}

// token returns the next tag.
func (s *scanner) token() (token, error) {
	if s.self != nil {
		name := s.self
		s.self = nil
		return token{kind: tokenClose, name: name}, nil
	}
	s.joined = nil
	text := s.in[s.pos:s.pos]
	for {
		i := bytes.IndexByte(s.in[s.pos:], '<')
		if i < 0 {
			s.pos = len(s.in)
			return token{kind: tokenEnd}, nil
		}
		text = s.add(text, s.in[s.pos:s.pos+i])
		s.pos += i
		if rest := s.in[s.pos:]; len(rest) > 1 && rest[1] != '!' && rest[1] != '?' {
			return s.tag(text)
		}
		more, err := s.markup()
		if err != nil {
			return token{}, err
		}
		text = s.add(text, more)
	}
}

// markup passes what is no tag, and returns the text of a CDATA section.
func (s *scanner) markup() ([]byte, error) {
	rest := s.in[s.pos:]
	for _, row := range [...]struct{ open, shut string }{{"<!--", "-->"}, {"<?", "?>"}} {
		if bytes.HasPrefix(rest, []byte(row.open)) {
			_, err := s.until(rest, row.open, row.shut)
			return nil, err
		}
	}
	const open, shut = "<![CDATA[", "]]>"
	if !bytes.HasPrefix(rest, []byte(open)) {
		return nil, errNotXML
	}
	body, err := s.until(rest, open, shut)
	return escapeAmp(body), err
}

// add joins two pieces of one text; the first stays uncopied if it is alone.
func (s *scanner) add(text, more []byte) []byte {
	if len(more) == 0 {
		return text
	}
	if len(text) == 0 {
		return more
	}
	s.joined = append(append(make([]byte, 0, len(text)+len(more)), text...), more...)
	return s.joined
}

// until skips from open to shut and returns what is between.
func (s *scanner) until(rest []byte, open, shut string) ([]byte, error) {
	end := bytes.Index(rest[len(open):], []byte(shut))
	if end < 0 {
		return nil, errCutOff
	}
	s.pos += len(open) + end + len(shut)
	return rest[len(open) : len(open)+end], nil
}

func escapeAmp(b []byte) []byte { return bytes.ReplaceAll(b, []byte("&"), []byte("&amp;")) }

// tag reads the tag at pos.
func (s *scanner) tag(text []byte) (token, error) {
	end := bytes.IndexByte(s.in[s.pos:], '>')
	if end < 0 {
		return token{}, errCutOff
	}
	inner := s.in[s.pos+1 : s.pos+end]
	s.pos += end + 1
	if len(inner) == 0 {
		return token{}, errNotXML
	}
	if inner[0] == '/' {
		return token{kind: tokenClose, name: local(bytes.TrimSpace(inner[1:])), text: text}, nil
	}
	self := inner[len(inner)-1] == '/'
	if self {
		inner = inner[:len(inner)-1]
	}
	if i := bytes.IndexAny(inner, " \t\r\n"); i >= 0 {
		inner = inner[:i]
	}
	name := local(inner)
	if len(name) == 0 {
		return token{}, errNotXML
	}
	if self {
		s.self = name
	}
	return token{kind: tokenOpen, name: name}, nil
}

// local drops a namespace prefix.
func local(name []byte) []byte { return name[bytes.LastIndexByte(name, ':')+1:] }
