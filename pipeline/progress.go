package pipeline

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"regexp"
	"strconv"
	"strings"

	"pipedeck/pipeline/spec"
)

// ParseStatus reads a worker's JSON status file by the keys of p; a key may be
// a dotted path. A key that p does not name, or that the file lacks, is nil;
// only the done count must be there. Values are numbers or numeric strings.
func ParseStatus(data []byte, p spec.Progress) (done, total, skipped, failed *int64, err error) {
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.UseNumber()
	var doc any
	if err := dec.Decode(&doc); err != nil {
		return nil, nil, nil, nil, fmt.Errorf("cannot read the status file: %w", err)
	}
	out := [4]*int64{}
	for i, key := range []string{p.Done, p.Total, p.Skipped, p.Failed} {
		if key == "" {
			continue
		}
		v, found := lookUp(doc, key)
		if !found || v == nil {
			if i == 0 {
				return nil, nil, nil, nil, fmt.Errorf("cannot read the status file: no key %q", key)
			}
			continue
		}
		n, err := toCount(v)
		if err != nil {
			return nil, nil, nil, nil, fmt.Errorf("cannot read the status file: key %q: %w", key, err)
		}
		out[i] = &n
	}
	return out[0], out[1], out[2], out[3], nil
}

// lookUp finds a key, taken whole first and then as a dotted path.
func lookUp(doc any, key string) (any, bool) {
	m, ok := doc.(map[string]any)
	if !ok {
		return nil, false
	}
	if v, ok := m[key]; ok {
		return v, true
	}
	for i := range len(key) {
		if key[i] != '.' {
			continue
		}
		if sub, ok := m[key[:i]]; ok {
			if v, ok := lookUp(sub, key[i+1:]); ok {
				return v, true
			}
		}
	}
	return nil, false
}

func toCount(v any) (int64, error) {
	switch x := v.(type) {
	case json.Number:
		return parseCount(x.String())
	case string:
		return parseCount(strings.TrimSpace(x))
	}
	return 0, fmt.Errorf("%v is no number", v)
}

// parseCount reads a count: not negative, a fraction is cut off, groups of
// digits may be separated by commas or underscores.
func parseCount(s string) (int64, error) {
	plain := strings.NewReplacer(",", "", "_", "").Replace(s)
	if n, err := strconv.ParseInt(plain, 10, 64); err == nil && n >= 0 {
		return n, nil
	}
	f, err := strconv.ParseFloat(plain, 64)
	if err != nil || !(f >= 0 && f < math.MaxInt64) {
		return 0, fmt.Errorf("%q is no count", s)
	}
	return int64(f), nil
}

// LineCounter counts the complete, non-blank lines of a growing file. The zero
// value has read nothing.
type LineCounter struct {
	lines   int64
	content bool // the line being read has something in it
}

// Add reads the next bytes of the file.
func (c *LineCounter) Add(chunk []byte) {
	for _, b := range chunk {
		switch b {
		case '\n':
			if c.content {
				c.lines++
			}
			c.content = false
		case ' ', '\t', '\r':
		default:
			c.content = true
		}
	}
}

// Lines is the number of complete lines so far.
func (c *LineCounter) Lines() int64 { return c.lines }

// maxLogLine bounds the part of a line kept while its end is awaited.
const maxLogLine = 64 << 10

// LogScanner finds the newest progress in a worker's log, which comes in
// chunks. A carriage return ends a line too: progress bars use it.
type LogScanner struct {
	re              *regexp.Regexp
	iDone, iTotal   int
	partial         []byte
	overlong        bool
	done, total     int64
	hasDone, hasTot bool
}

// NewLogScanner takes a regular expression with a group "done" and perhaps a
// group "total".
func NewLogScanner(expr string) (*LogScanner, error) {
	re, err := regexp.Compile(expr)
	if err != nil {
		return nil, fmt.Errorf("cannot use the progress expression %q: %w", expr, err)
	}
	s := &LogScanner{re: re, iDone: re.SubexpIndex("done"), iTotal: re.SubexpIndex("total")}
	if s.iDone < 0 {
		return nil, fmt.Errorf("cannot use the progress expression %q: it has no group named done", expr)
	}
	return s, nil
}

// Add reads the next bytes of the log.
func (s *LogScanner) Add(chunk []byte) {
	for len(chunk) > 0 {
		i := bytes.IndexAny(chunk, "\r\n")
		if i < 0 {
			s.keep(chunk)
			return
		}
		s.keep(chunk[:i])
		if !s.overlong {
			s.line(s.partial)
		}
		s.partial, s.overlong = s.partial[:0], false
		chunk = chunk[i+1:]
	}
}

func (s *LogScanner) keep(b []byte) {
	if len(s.partial)+len(b) > maxLogLine {
		s.overlong = true
		s.partial = s.partial[:0]
	}
	if !s.overlong {
		s.partial = append(s.partial, b...)
	}
}

func (s *LogScanner) line(b []byte) {
	all := s.re.FindAllSubmatch(b, -1)
	if len(all) == 0 {
		return
	}
	m := all[len(all)-1]
	n, err := parseCount(string(m[s.iDone]))
	if err != nil {
		return
	}
	s.done, s.hasDone = n, true
	if s.iTotal < 0 {
		return
	}
	if n, err := parseCount(string(m[s.iTotal])); err == nil {
		s.total, s.hasTot = n, true
	}
}

// Last returns the newest counts seen, nil for what was not seen.
func (s *LogScanner) Last() (done, total *int64) {
	if s.hasDone {
		done = new(s.done)
	}
	if s.hasTot {
		total = new(s.total)
	}
	return done, total
}

// SumMetric adds up all series of one counter in Prometheus text. It fails if
// there is none, or if one has no finite value.
func SumMetric(data []byte, metric string) (float64, error) {
	sum, found := 0.0, false
	for line := range strings.Lines(string(data)) {
		line = strings.TrimSpace(line)
		rest, ok := strings.CutPrefix(line, metric)
		if !ok || rest == "" || strings.HasPrefix(line, "#") {
			continue
		}
		rest, ok = skipLabels(rest)
		if !ok {
			continue
		}
		fields := strings.Fields(rest)
		if len(fields) == 0 {
			continue
		}
		v, err := strconv.ParseFloat(fields[0], 64)
		if err != nil || math.IsNaN(v) || math.IsInf(v, 0) {
			return 0, fmt.Errorf("cannot read metric %q: value %q", metric, fields[0])
		}
		sum, found = sum+v, true
	}
	if !found {
		return 0, fmt.Errorf("cannot read metric %q: it is not there", metric)
	}
	if math.IsInf(sum, 0) {
		return 0, fmt.Errorf("cannot read metric %q: the sum is too large", metric)
	}
	return sum, nil
}

// skipLabels cuts a label block off the front; not ok if s goes on with a
// longer metric name.
func skipLabels(s string) (string, bool) {
	if s[0] == ' ' || s[0] == '\t' {
		s = strings.TrimLeft(s, " \t")
		if !strings.HasPrefix(s, "{") {
			return s, true
		}
	}
	if s[0] != '{' {
		return "", false
	}
	quoted := false
	for i := 1; i < len(s); i++ {
		switch {
		case quoted && s[i] == '\\':
			i++
		case s[i] == '"':
			quoted = !quoted
		case !quoted && s[i] == '}':
			return s[i+1:], true
		}
	}
	return "", false
}
