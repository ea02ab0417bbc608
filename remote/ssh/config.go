package ssh

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
)

// maxInclude is how deep Include may nest, as in OpenSSH.
const maxInclude = 16

// reader evaluates configuration files for one host, as ssh does: from top to
// bottom, the first value of a key wins.
type reader struct {
	host      string // as the operator wrote it
	user      string // of the destination, "" if it names none
	localUser string
	home      string
	env       func(string) string

	values map[string][]string // single values have one element
	notes  []string
	seen   map[string]bool // of notes
}

// many are the keys that may be given several times.
var many = []string{"identityfile", "certificatefile"}

// used are the keys that this package obeys.
var used = []string{
	"hostname", "user", "port", "identityfile", "certificatefile", "identitiesonly", "identityagent", "proxyjump",
	"userknownhostsfile", "globalknownhostsfile", "hostkeyalias", "hashknownhosts",
}

// harmless are keys that change nothing here: about terminals, sessions that
// pipedeck does not open, or things that it does by itself.
var harmless = []string{
	"addkeystoagent", "batchmode", "checkhostip", "clearallforwardings", "compression", "connectionattempts",
	"connecttimeout", "controlmaster", "controlpath", "controlpersist", "enableescapecommandline", "escapechar",
	"exitonforwardfailure", "fingerprinthash", "forwardagent", "forwardx11", "forwardx11timeout", "forwardx11trusted",
	"gatewayports", "gssapiauthentication", "gssapidelegatecredentials", "hostbasedauthentication", "ignoreunknown",
	"ipqos", "kbdinteractiveauthentication", "loglevel", "nohostauthenticationforlocalhost", "numberofpasswordprompts",
	"obscurekeystroketiming", "passwordauthentication", "permitlocalcommand", "preferredauthentications",
	"pubkeyauthentication", "requesttty", "requiredrsasize", "sendenv", "serveralivecountmax", "serveraliveinterval",
	"setenv", "stdinnull", "streamlocalbindmask", "streamlocalbindunlink", "stricthostkeychecking", "syslogfacility",
	"tcpkeepalive", "updatehostkeys", "usekeychain", "verifyhostkeydns", "visualhostkey", "xauthlocation",
	"localforward", "remoteforward", "dynamicforward", "localcommand", "remotecommand", "sessiontype", "forkafterauthentication",
}

func (r *reader) note(format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	if !r.seen[text] {
		r.seen[text] = true
		r.notes = append(r.notes, text)
	}
}

// file evaluates one file; active says whether the lines before the first Host
// or Match count.
func (r *reader) file(name string, active bool, depth int) {
	raw, err := os.ReadFile(name)
	if errors.Is(err, fs.ErrNotExist) {
		return
	}
	if err != nil {
		r.note("cannot read %q: %v; nothing in it is used", name, err)
		return
	}
	outer := active
	for i, line := range strings.Split(string(raw), "\n") {
		at := fmt.Sprintf("%s:%d", name, i+1)
		words, err := splitLine(line)
		if err != nil {
			r.note("%s: %v; the line is not used", at, err)
			continue
		}
		if len(words) == 0 {
			continue
		}
		key, args := strings.ToLower(words[0]), words[1:]
		switch {
		case len(args) == 0:
			r.note("%s: %s has no value; the line is not used", at, words[0])
		case key == "host":
			active = outer && matchList(args, r.host)
		case key == "match":
			active = outer && r.match(at, args)
		case key == "include":
			r.include(at, name, args, active, depth)
		case active:
			r.set(at, key, words[0], args)
		}
	}
}

// set takes a value if its key has none yet.
func (r *reader) set(at, key, written string, args []string) {
	switch {
	case slices.Contains(many, key):
		r.values[key] = append(r.values[key], args[0])
	case slices.Contains(used, key):
		if _, given := r.values[key]; !given {
			r.values[key] = args
		}
	case key == "proxycommand":
		if _, given := r.values[key]; !given {
			r.values[key] = []string{strings.Join(args, " ")}
		}
	case slices.Contains(harmless, key):
	default:
		r.note("%s: %s is not supported and not used", at, written)
	}
}

func (r *reader) value(key string) string {
	if v := r.values[key]; len(v) > 0 {
		return v[0]
	}
	return ""
}

// include evaluates other files in place.
func (r *reader) include(at, from string, globs []string, active bool, depth int) {
	if depth >= maxInclude {
		r.note("%s: Include nests deeper than %d; it is not used", at, maxInclude)
		return
	}
	for _, glob := range globs {
		glob = r.tilde(glob)
		if !filepath.IsAbs(glob) {
			dir := filepath.Join(r.home, ".ssh")
			if strings.HasPrefix(from, "/etc/ssh/") {
				dir = "/etc/ssh"
			}
			glob = filepath.Join(dir, glob)
		}
		names, err := filepath.Glob(glob)
		if err != nil {
			r.note("%s: cannot include %q: %v", at, glob, err)
		}
		for _, name := range names {
			r.file(name, active, depth+1)
		}
	}
}

// match evaluates a Match line. What it asks and this package cannot tell makes
// it not match, which is said.
func (r *reader) match(at string, words []string) bool {
	for i := 0; i < len(words); i++ {
		word, negated := strings.CutPrefix(words[i], "!")
		what, inline, hasInline := strings.Cut(strings.ToLower(word), "=")
		if what == "all" {
			if negated {
				return false
			}
			continue
		}
		subject, known := r.subject(what)
		if !known {
			r.note("%s: Match %s is not supported; the lines below it are not used", at, what)
			return false
		}
		patterns := inline
		if !hasInline {
			if i++; i == len(words) {
				r.note("%s: Match %s has no pattern; the lines below it are not used", at, what)
				return false
			}
			patterns = words[i]
		}
		if matchList(strings.Split(patterns, ","), subject) == negated {
			return false
		}
	}
	return true
}

// subject is what a criterion of Match looks at.
func (r *reader) subject(what string) (string, bool) {
	switch what {
	case "host":
		if name := r.value("hostname"); name != "" {
			return strings.ReplaceAll(name, "%h", r.host), true
		}
		return r.host, true
	case "originalhost":
		return r.host, true
	case "user":
		return firstOf(r.user, r.value("user"), r.localUser), true
	case "localuser":
		return r.localUser, true
	}
	return "", false
}

func firstOf(texts ...string) string {
	for _, t := range texts {
		if t != "" {
			return t
		}
	}
	return ""
}

// matchList says whether a pattern matches and no negated one does.
func matchList(patterns []string, text string) bool {
	found := false
	for _, p := range patterns {
		pattern, negated := strings.CutPrefix(p, "!")
		if !wildcard(strings.ToLower(pattern), strings.ToLower(text)) {
			continue
		}
		if negated {
			return false
		}
		found = true
	}
	return found
}

// wildcard matches * and ?. Brackets, which path.Match knows and ssh does not,
// are literal.
func wildcard(pattern, text string) bool {
	escaped := strings.NewReplacer(`\`, `\\`, "[", `\[`).Replace(pattern)
	// A slash is no separator here.
	ok, err := path.Match(strings.ReplaceAll(escaped, "/", "\x00"), strings.ReplaceAll(text, "/", "\x00"))
	return err == nil && ok
}

// splitLine cuts a line into a key and its arguments: `key value`, `key=value`,
// quotes around arguments, comments.
func splitLine(line string) ([]string, error) {
	line = strings.TrimSpace(line)
	if line == "" || line[0] == '#' {
		return nil, nil
	}
	end := strings.IndexAny(line, " \t=")
	if end < 0 {
		return []string{line}, nil
	}
	words := []string{line[:end]}
	rest := strings.TrimLeft(line[end:], " \t")
	rest = strings.TrimLeft(strings.TrimPrefix(rest, "="), " \t")
	for rest != "" && rest[0] != '#' {
		var word string
		if rest[0] == '"' {
			closing := strings.IndexByte(rest[1:], '"')
			if closing < 0 {
				return nil, errors.New("a quote is not closed")
			}
			word, rest = rest[1:1+closing], rest[2+closing:]
		} else if end := strings.IndexAny(rest, " \t"); end >= 0 {
			word, rest = rest[:end], rest[end:]
		} else {
			word, rest = rest, ""
		}
		words = append(words, word)
		rest = strings.TrimLeft(rest, " \t")
	}
	return words, nil
}

func (r *reader) tilde(name string) string {
	if name == "~" || strings.HasPrefix(name, "~/") {
		return filepath.Join(r.home, strings.TrimPrefix(name, "~"))
	}
	return name
}
