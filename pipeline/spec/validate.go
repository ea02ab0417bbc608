package spec

import (
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"
)

// maxOutputs bounds the comparison of every output with every other.
const maxOutputs = 256

// checker judges a spec that was read. A key whose reading failed is left
// alone: its value means nothing.
type checker struct {
	s      *Spec
	r      *reader
	broken map[string]bool // where this checker found a fault
}

func validate(s *Spec, r *reader) {
	c := &checker{s: s, r: r, broken: map[string]bool{}}
	c.top()
	c.nodes()
	c.store()
	c.extras()
	outputs := 0
	for i := range s.Stages {
		c.stage(&s.Stages[i])
		outputs += len(s.Stages[i].Outputs)
	}
	if outputs > maxOutputs {
		c.fail("stages", "", "the spec has %d outputs, more than %d", outputs, maxOutputs)
		return
	}
	c.space()
	c.ports()
}

// fail reports a fault at a key, unless the key could not even be read.
func (c *checker) fail(at, hint, format string, args ...any) {
	c.broken[at] = true
	if !c.r.failed(at) {
		c.r.add(c.r.find(at), hint, format, args...)
	}
}

// judge reports the result of a fault function.
func (c *checker) judge(at, fault, hint string) bool {
	if fault != "" {
		c.fail(at, hint, "%s", fault)
	}
	return fault == ""
}

// sound says that a key was read and nothing was found wrong with it.
func (c *checker) sound(at string) bool { return !c.broken[at] && !c.r.failed(at) }

func (c *checker) line(at string) int { return c.r.find(at).line }

// name judges a name where it stands: at its key, or as a value.
func (c *checker) name(at, what, name string) {
	fault, hint := nameFault(what, name)
	c.judge(at, fault, hint)
}

func (c *checker) template(at, tmpl string, sc scope) bool {
	_, fault, hint := sc.check(tmpl)
	return c.judge(at, fault, hint)
}

func (c *checker) templates(at string, words []string, sc scope) {
	for i, w := range words {
		c.template(where(at, strconv.Itoa(i)), w, sc)
		if strings.ContainsRune(w, 0) {
			c.fail(where(at, strconv.Itoa(i)), "", "an argument cannot hold a NUL byte")
		}
	}
}

func (c *checker) atLeast(at string, value, least int64) {
	if value < least {
		c.fail(at, "", "%s is %d, want at least %d", path.Base(at), value, least)
	}
}

func (c *checker) top() {
	s := c.s
	if s.Version != 1 {
		c.fail("version", "this pipedeck reads version 1", "unknown version %d", s.Version)
	}
	c.name("deck", "deck", s.Deck)
	c.name("run", "run", s.Run)
	c.workdir()
	if len(s.Stages) == 0 {
		c.fail("stages", "", "the spec has no stages")
	}
	fault, hint := pathFault("state_dir", s.StateDir, s.Workdir, false)
	if c.judge("state_dir", fault, hint) && c.sound("workdir") {
		c.stateDir()
	}
}

func (c *checker) workdir() {
	w := c.s.Workdir
	fault, hint := pathFault("workdir", w, "", false)
	switch {
	case !c.judge("workdir", fault, hint):
	case !path.IsAbs(w):
		c.fail("workdir", "it is a directory of the node, whatever directory a command is run in", "workdir %q is not an absolute path", clip(w))
	case strings.ContainsAny(w, `*?[]{}\,`):
		c.fail("workdir", "", "workdir %q has a character that globs and templates use", clip(w))
	case w == "/", slices.Contains([]string{"/tmp", "/dev/shm", "/var/tmp"}, w):
		c.fail("workdir", "give the deck a directory of its own", "workdir %q is shared with other programs", w)
	}
}

func (c *checker) stateDir() {
	dir := c.s.StateDir
	if _, in := within(c.s.Workdir, dir); in {
		c.fail("state_dir", "leave it out for .pipedeck below workdir", "state_dir %q holds workdir", dir)
		return
	}
	if _, in := within(dir, c.s.Workdir); !in {
		if why := sharedFault(dir); why != "" {
			c.fail("state_dir", "give it a directory of its own", "state_dir %q cannot be used: %s", dir, why)
		}
	}
}

func (c *checker) nodes() {
	names, destinations := map[string]int{}, map[string]int{}
	for i, n := range c.s.Nodes {
		at := where("nodes", strconv.Itoa(i))
		if !c.r.given("nodes", strconv.Itoa(i)) {
			continue
		}
		c.name(where(at, "name"), "node", n.Name)
		if line, twice := names[n.Name]; twice {
			c.fail(where(at, "name"), "", "node name %q is used twice (first in line %d)", clip(n.Name), line)
		} else {
			names[n.Name] = c.line(where(at, "name"))
		}
		if n.SSH != "" || c.r.given("nodes", strconv.Itoa(i), "ssh") {
			fault, hint := sshFault(n.SSH)
			c.judge(where(at, "ssh"), fault, hint)
		}
		if line, twice := destinations[n.SSH]; twice {
			c.fail(where(at, "ssh"), "two agents cannot share one workdir", "another node is the same machine (line %d)", line)
		} else {
			destinations[n.SSH] = c.line(where(at, "ssh"))
		}
	}
}

func (c *checker) store() {
	st := c.s.Store
	fault, hint := bucketFault(st.Bucket)
	c.judge("store/bucket", fault, hint)
	if c.r.given("store", "endpoint") {
		fault, hint := urlFault(st.Endpoint, false)
		c.judge("store/endpoint", fault, hint)
	}
	if strings.ContainsAny(st.Region, " /:\t\n") {
		c.fail("store/region", "as in eu-west-1", "%q is not a region", clip(st.Region))
	}
	if st.Prefix != "" {
		c.judge("store/prefix", keyTextFault("prefix", st.Prefix), "as in projects/dflash; it is put before the run")
	}
	c.atLeast("store/max_parallel", int64(st.MaxParallel), 1)
	if st.MaxParallel > 10_000 {
		c.fail("store/max_parallel", "100 fills most links", "max_parallel is %d, more than 10000", st.MaxParallel)
	}
	if least := int64(8e6); st.MaxMemory < least {
		c.fail("store/max_memory", "one part of a large file takes 5 MiB or more", "max_memory is %d bytes, want at least 8MB", st.MaxMemory)
	}
	if st.RequestsPerSecond < 0 {
		c.fail("store/requests_per_second", "0 is no limit", "requests_per_second is negative")
	}
}

// keyTextFault judges the constant text of a key or prefix.
func keyTextFault(what, text string) string {
	if fault := textFault(what, text); fault != "" {
		return fault
	}
	steps := strings.Split(text, "/")
	switch {
	case steps[0] == "":
		return fmt.Sprintf("%s %q begins with a slash", what, clip(text))
	case slices.Contains(steps, ".") || slices.Contains(steps, ".."):
		return fmt.Sprintf("%s %q has a step . or ..", what, clip(text))
	case slices.Contains(steps, ""):
		return fmt.Sprintf("%s %q has an empty step", what, clip(text))
	case strings.Contains(text, `\`):
		return fmt.Sprintf("%s %q has a backslash", what, clip(text))
	}
	return ""
}

func (c *checker) extras() {
	s := c.s
	for i, g := range s.Artifacts {
		fault, hint := globFault("artifacts", g, s.Workdir, true)
		if fault == "" && path.IsAbs(g) {
			fault, hint = fmt.Sprintf("artifact %q is an absolute path", clip(g)), "its path below workdir is its key: write it relative to workdir"
		}
		c.judge(where("artifacts", strconv.Itoa(i)), fault, hint)
	}
	targets := map[string]int{}
	for i, y := range s.Sync {
		at := where("sync", strconv.Itoa(i))
		c.judge(where(at, "from"), textFault("path", y.From), "")
		fault, hint := pathFault("path", y.To, s.Workdir, true)
		c.judge(where(at, "to"), fault, hint)
		to := s.Abs(y.To)
		if line, twice := targets[to]; twice {
			c.fail(where(at, "to"), "", "two entries are pushed to %q (first in line %d)", clip(y.To), line)
		}
		targets[to] = c.line(where(at, "to"))
		if _, in := within(to, s.StateDir); in {
			c.fail(where(at, "to"), "", "%q is in the state directory", clip(y.To))
		}
	}
	for i, n := range s.Notify {
		at := where("notify", strconv.Itoa(i))
		if c.oneOf(at, map[string]bool{"webhook": n.Webhook != "", "command": n.Command != nil}) == "webhook" {
			fault, hint := urlFault(n.Webhook, true)
			c.judge(where(at, "webhook"), fault, hint)
		}
		c.templates(where(at, "command"), n.Command, scope{allowed: []string{"workdir", "run"}})
	}
}

// written says that the operator gave a key, even if misspelt or misread.
func (c *checker) written(at string) bool { return c.r.given(at) || c.r.bad[at] }

// oneOf reports unless exactly one of the alternatives is given, and returns it.
func (c *checker) oneOf(at string, given map[string]bool) string {
	names := make([]string, 0, len(given))
	var found []string
	for name, is := range given {
		names = append(names, name)
		if is || c.written(where(at, name)) {
			found = append(found, name)
		}
	}
	slices.Sort(names)
	slices.Sort(found)
	switch len(found) {
	case 1:
		return found[0]
	case 0:
		c.fail(at, "", "one of %s is needed", strings.Join(names, ", "))
	default:
		c.fail(where(at, found[1]), "keep one of them", "%s exclude each other", strings.Join(found, " and "))
	}
	return ""
}
