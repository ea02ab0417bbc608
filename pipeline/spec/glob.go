package spec

import (
	"slices"
	"strings"

	"github.com/bmatcuk/doublestar/v4"
)

// digits stands in a pattern for a number that a template will put there.
const digits = "\x00"

// pattern is a glob prepared for asking whether two globs can match the same
// path. It errs towards yes.
type pattern []segment

// segment is one path element; deep is "**", any number of them.
type segment struct {
	deep   bool
	tokens []token
}

// token is one character of a set, or any number of them if many.
type token struct {
	set  runeSet
	many bool
}

// runeSet holds the characters below 128; other stands for all the rest.
type runeSet struct {
	low, high uint64
	other     bool
}

func everything() runeSet { return runeSet{^uint64(0), ^uint64(0), true} }

func (s *runeSet) add(c rune) {
	switch {
	case c < 64:
		s.low |= 1 << c
	case c < 128:
		s.high |= 1 << (c - 64)
	default:
		s.other = true
	}
}

func (s *runeSet) addRange(first, last rune) {
	for c := first; c <= min(last, 128); c++ {
		s.add(c)
	}
	if last >= 128 {
		s.other = true
	}
}

func (s runeSet) meets(t runeSet) bool {
	return s.low&t.low != 0 || s.high&t.high != 0 || s.other && t.other
}

// overlap says whether some path could match both globs.
func overlap(a, b string) bool {
	begin, other := literalPrefix(a), literalPrefix(b)
	// "a/**" matches "a" too, so a path may lack the last slash of a prefix.
	if !strings.HasPrefix(begin+"/", other) && !strings.HasPrefix(other+"/", begin) {
		return false
	}
	as, bs := patternsOf(a), patternsOf(b)
	for _, p := range as {
		if slices.ContainsFunc(bs, p.meets) {
			return true
		}
	}
	return false
}

func patternsOf(glob string) []pattern {
	alternatives, ok := expandBraces(glob)
	if !ok {
		return []pattern{{{deep: true}}}
	}
	all := make([]pattern, 0, len(alternatives))
	for _, alt := range alternatives {
		var p pattern
		for s := range strings.SplitSeq(alt, "/") {
			p = append(p, segment{deep: s == "**", tokens: tokensOf(s)})
		}
		all = append(all, p)
	}
	return all
}

// expandBraces writes out {a,b}. It gives up on more than 16 alternatives.
func expandBraces(glob string) ([]string, bool) {
	const most = 16
	done, todo := []string(nil), []string{glob}
	for len(todo) > 0 {
		if len(done)+len(todo) > most {
			return nil, false
		}
		g := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		open, end, commas := findBraces(g)
		if open < 0 {
			done = append(done, g)
			continue
		}
		from := open + 1
		for _, c := range append(commas, end) {
			todo = append(todo, g[:open]+g[from:c]+g[end+1:])
			from = c + 1
		}
	}
	return done, true
}

// findBraces returns the first {...} and the commas of its own level.
func findBraces(g string) (open, end int, commas []int) {
	open, depth := -1, 0
	for i := 0; i < len(g); i++ {
		switch {
		case g[i] == '\\':
			i++
		case g[i] == '{':
			if depth == 0 {
				open = i
			}
			depth++
		case g[i] == ',' && depth == 1:
			commas = append(commas, i)
		case g[i] == '}' && depth > 0:
			if depth--; depth == 0 {
				return open, i, commas
			}
		}
	}
	return -1, 0, nil
}

func tokensOf(s string) []token {
	var ts []token
	rs := []rune(s)
	for i := 0; i < len(rs); i++ {
		var set runeSet
		switch rs[i] {
		case '*':
			ts = append(ts, token{everything(), true})
			continue
		case '?':
			set = everything()
		case '[':
			set, i = classAt(rs, i)
		case 0:
			for c := '0'; c <= '9'; c++ {
				set.add(c)
			}
			ts = append(ts, token{set, true})
		case '\\':
			i = min(i+1, len(rs)-1)
			set.add(rs[i])
		default:
			set.add(rs[i])
		}
		ts = append(ts, token{set: set})
	}
	return ts
}

// classAt reads a class such as [a-z] or [^0-9] and returns its last index.
func classAt(rs []rune, i int) (runeSet, int) {
	var set runeSet
	i++
	negated := i < len(rs) && (rs[i] == '^' || rs[i] == '!')
	if negated {
		i++
	}
	for ; i < len(rs) && rs[i] != ']'; i++ {
		if rs[i] == '\\' && i+1 < len(rs) {
			i++
		}
		first, last := rs[i], rs[i]
		if i+2 < len(rs) && rs[i+1] == '-' && rs[i+2] != ']' {
			last = rs[i+2]
			i += 2
		}
		set.addRange(first, last)
	}
	if negated {
		return runeSet{^set.low, ^set.high, true}, i
	}
	return set, i
}

func (p pattern) meets(q pattern) bool {
	g := newGrid(len(p), len(q))
	return g.reach(func(i, j int, to func(i, j int)) {
		if i < len(p) && p[i].deep {
			to(i+1, j)
			if j < len(q) {
				to(i, j+1)
			}
		}
		if j < len(q) && q[j].deep {
			to(i, j+1)
			if i < len(p) {
				to(i+1, j)
			}
		}
		if i < len(p) && j < len(q) && !p[i].deep && !q[j].deep && tokensMeet(p[i].tokens, q[j].tokens) {
			to(i+1, j+1)
		}
	})
}

func tokensMeet(a, b []token) bool {
	g := newGrid(len(a), len(b))
	return g.reach(func(i, j int, to func(i, j int)) {
		if i < len(a) && a[i].many {
			to(i+1, j)
		}
		if j < len(b) && b[j].many {
			to(i, j+1)
		}
		if i == len(a) || j == len(b) || !a[i].set.meets(b[j].set) {
			return
		}
		switch {
		case !a[i].many && !b[j].many:
			to(i+1, j+1)
		case !a[i].many:
			to(i+1, j)
		case !b[j].many:
			to(i, j+1)
		}
	})
}

// grid walks two sequences at once and asks whether both can end together.
type grid struct {
	rows, cols int
	seen       map[[2]int]bool
}

func newGrid(rows, cols int) *grid { return &grid{rows, cols, map[[2]int]bool{}} }

func (g *grid) reach(step func(i, j int, to func(i, j int))) bool {
	todo := [][2]int{{0, 0}}
	to := func(i, j int) {
		if at := [2]int{i, j}; !g.seen[at] {
			g.seen[at] = true
			todo = append(todo, at)
		}
	}
	for len(todo) > 0 {
		at := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		if at == [2]int{g.rows, g.cols} {
			return true
		}
		step(at[0], at[1], to)
	}
	return false
}

// literalPrefix returns the text that everything a glob matches begins with.
func literalPrefix(glob string) string {
	if i := strings.IndexAny(glob, `*?[{\`+digits); i >= 0 {
		return glob[:i]
	}
	return glob
}

func isLiteral(glob string) bool { return literalPrefix(glob) == glob }

// quoteGlob makes text match itself only.
func quoteGlob(text string) string {
	var b strings.Builder
	for _, c := range text {
		if strings.ContainsRune(`*?[]{}\,`, c) {
			b.WriteByte('\\')
		}
		b.WriteRune(c)
	}
	return b.String()
}

func matches(glob, path string) bool {
	ok, err := doublestar.Match(glob, path)
	return err == nil && ok
}

// treeOverlap says whether a glob, or what lies below it, could match
// something that another glob matches.
func treeOverlap(tree, glob string) bool {
	return overlap(tree, glob) || overlap(tree+"/**", glob)
}
