package spec

import (
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"
)

// claim is what one output owns: files on the node and keys in the store, as
// globs. Paths are absolute.
type claim struct {
	st    *Stage
	o     *Output
	at    string
	label string
	dir   string
	files string
	keys  string
}

// space finds places that two things claim: files with two owners, keys with
// two sources, files that one removes and another needs.
func (c *checker) space() {
	if !c.sound("workdir") || !c.sound("state_dir") {
		return
	}
	claims := c.claims()
	for i := range claims {
		for j := range claims[:i] {
			c.apart(&claims[j], &claims[i])
		}
		c.apartFromState(&claims[i])
	}
	for i := range c.s.Artifacts {
		c.artifact(where("artifacts", strconv.Itoa(i)), c.s.Artifacts[i], claims)
	}
	files := map[string]string{}
	for i := range c.s.Stages {
		st := &c.s.Stages[i]
		c.reads(st, claims)
		c.statusFiles(st, claims, files)
		for j := range st.Scratch {
			c.scratchSpace(st, j, claims)
		}
	}
}

func (c *checker) claims() []claim {
	var all []claim
	for i := range c.s.Stages {
		st := &c.s.Stages[i]
		for j := range st.Outputs {
			o := &st.Outputs[j]
			at := outputAt(st, o)
			if !c.sound(where(at, "dir")) || !c.sound(where(at, "match")) {
				continue
			}
			cl := claim{st: st, o: o, at: at, label: st.Name + "/" + o.Name}
			cl.dir = c.absolute(c.s.dirText(st, o))
			cl.files = cl.dir + "/" + o.Match
			if o.Format == FormatMarker {
				cl.files += "/**"
			}
			if c.sound(where(at, "key")) {
				cl.keys = c.keyGlob(st, o)
			}
			all = append(all, cl)
		}
	}
	return all
}

// absolute puts workdir before a glob.
func (c *checker) absolute(glob string) string {
	if path.IsAbs(glob) {
		return path.Clean(glob)
	}
	return path.Join(c.s.Workdir, glob)
}

// keyGlob matches every key that an output can give, and some more where
// {path} is only part of a name.
func (c *checker) keyGlob(st *Stage, o *Output) string {
	parts, err := splitTemplate(o.Key)
	if err != nil {
		return "**"
	}
	vars := Vars{Stage: st.Name, Run: c.s.Run}
	glob := ""
	for i, p := range parts {
		switch {
		case p.name == "path":
			whole := (glob == "" || strings.HasSuffix(glob, "/")) && i == len(parts)-1
			if !whole {
				return glob + "*/**"
			}
			glob += o.Match
			if o.Format == FormatMarker {
				glob += "/**"
			}
		case p.name != "":
			value, _ := vars.value(p.name)
			glob += quoteGlob(value)
		default:
			glob += quoteGlob(p.text)
		}
	}
	return glob
}

func (c *checker) apart(a, b *claim) {
	switch {
	case overlap(a.files, b.files):
		c.fail(where(b.at, "dir"), "a file has one owner: use different directories, or matches that exclude each other",
			"output directories overlap: %s (line %d) and %s can match the same files", a.label, c.line(a.at), b.label)
	case a.keys != "" && b.keys != "" && overlap(a.keys, b.keys):
		c.fail(where(b.at, "key"), "begin each key with something of its own, such as "+b.o.Name+"/{path}",
			"key spaces collide: outputs %s (line %d) and %s can give the same key", a.label, c.line(a.at), b.label)
	}
}

// apartFromState keeps pipedeck's records out of what it uploads and deletes.
func (c *checker) apartFromState(cl *claim) {
	state := quoteGlob(c.s.StateDir)
	at := where(cl.at, "dir")
	switch {
	case overlap(state+"/**", cl.dir):
		c.fail(at, "", "output %s is in the state directory %q", cl.label, c.s.StateDir)
	case overlap(cl.dir+"/**", state) && (cl.dir != c.s.Workdir || treeOverlap(state, cl.files)):
		c.fail(at, "give the output a directory of its own", "the state directory %q is in the dir of output %s", c.s.StateDir, cl.label)
	}
}

func (c *checker) artifact(at, glob string, claims []claim) {
	if !c.sound(at) {
		return
	}
	full := c.absolute(glob)
	if below(full, quoteGlob(c.s.StateDir)) {
		c.fail(at, "", "artifact %q is in the state directory", clip(glob))
		return
	}
	for _, cl := range claims {
		if cl.o.AfterUpload != AfterKeep && below(full, cl.dir) && cl.dir != c.s.Workdir {
			c.fail(at, "the output uploads these files; leave them out here",
				"artifact %q is in the dir of output %s, whose files go away after upload (line %d)", clip(glob), cl.label, c.line(cl.at))
			return
		}
	}
	for _, cl := range claims {
		if cl.keys == "" || c.hidden(cl.keys, claims) || !artifactOverlap(path.Clean(glob), cl.keys) {
			continue
		}
		c.fail(at, "an artifact's key is its path: begin the output's key with something else",
			"key spaces collide: artifact %q and output %s (line %d) can give the same key", clip(glob), cl.label, c.line(cl.at))
		return
	}
}

// below says that everything a path or glob can match lies in a directory.
func below(glob, dir string) bool { return glob == dir || strings.HasPrefix(glob, dir+"/") }

func artifactOverlap(glob, keys string) bool {
	return overlap(glob, keys) || isLiteral(glob) && overlap(glob+"/**", keys)
}

// hidden: keys that as paths lie in a directory that artifacts leave out.
func (c *checker) hidden(keys string, claims []claim) bool {
	return slices.ContainsFunc(claims, func(cl claim) bool {
		return cl.o.AfterUpload != AfterKeep && cl.dir != c.s.Workdir && below(c.absolute(keys), cl.dir)
	})
}

// reads reports inputs that are gone when they are needed, or that change
// while the stage runs.
func (c *checker) reads(st *Stage, claims []claim) {
	at := where("stages", st.Name)
	for i, glob := range st.Inputs {
		c.read(where(at, "inputs", strconv.Itoa(i)), "input", glob, st, claims)
	}
	for i, g := range st.Gates {
		if g.LossMask != nil && g.LossMask.Dataset != "" {
			c.read(where(at, "gates", strconv.Itoa(i), "loss_mask", "dataset"), "dataset", quoteGlob(g.LossMask.Dataset), st, claims)
		}
	}
}

func (c *checker) read(at, what, glob string, st *Stage, claims []claim) {
	if !c.sound(at) {
		return
	}
	for _, cl := range claims {
		if !treeOverlap(c.absolute(glob), cl.files) {
			continue
		}
		switch {
		case cl.o.AfterUpload != AfterKeep && cl.st != st:
			c.fail(at, "set after_upload: keep there", "%s %q is deleted after upload by output %s (line %d)",
				what, clip(glob), cl.label, c.line(where(cl.at, "after_upload")))
		case cl.st == st && what == "input":
			c.fail(at, "inputs are what a stage reads and does not write", "input %q is written by the stage itself, as output %s (line %d)",
				clip(glob), cl.label, c.line(cl.at))
		}
	}
}

// statusFiles keeps done-sets and progress files from being uploaded, deleted
// or shared. files maps done-sets seen so far to their stage.
func (c *checker) statusFiles(st *Stage, claims []claim, files map[string]string) {
	if st.DoneSet != nil {
		c.doneSetFile(st, claims, files)
	}
	at := where("stages", st.Name, "progress")
	c.progressFiles(where(at, "json"), c.s.templateGlob(st.Progress.JSON, st), claims)
	c.progressFiles(where(at, "jsonl"), c.progressGlob(st), claims)
}

func (c *checker) doneSetFile(st *Stage, claims []claim, files map[string]string) {
	at := where("stages", st.Name, "done_set", "file")
	if !c.sound(at) {
		return
	}
	full := c.s.Abs(st.DoneSet.File)
	if other, twice := files[full]; twice {
		c.fail(at, "", "stage %q has the same done_set file", other)
	}
	files[full] = st.Name
	if _, in := within(full, c.s.StateDir); in {
		c.fail(at, "", "the done_set file is in the state directory")
	}
	for _, cl := range claims {
		if overlap(quoteGlob(full), cl.files) {
			c.fail(at, "", "the done_set file would be uploaded as a file of output %s (line %d)", cl.label, c.line(cl.at))
		}
	}
}

func (c *checker) progressFiles(at, glob string, claims []claim) {
	if glob == "" || !c.sound(at) {
		return
	}
	for _, cl := range claims {
		if cl.o.AfterUpload != AfterKeep && overlap(c.absolute(glob), cl.files) {
			c.fail(at, "set after_upload: keep there, or count something else",
				"progress is read from files that output %s deletes after upload (line %d)", cl.label, c.line(cl.at))
		}
	}
}

// progressGlob is progress.jsonl after its templates: a glob.
func (c *checker) progressGlob(st *Stage) string {
	glob, err := Expand(st.Progress.JSONL, Vars{World: 1, Stage: st.Name, Run: c.s.Run, Workdir: c.s.Workdir})
	if err != nil {
		return ""
	}
	return glob
}

// scratchSpace: scratch is removed as a whole at a pivot, so nothing that
// matters may lie in it.
func (c *checker) scratchSpace(st *Stage, i int, claims []claim) {
	at := where("stages", st.Name, "scratch", strconv.Itoa(i))
	if !c.sound(at) {
		return
	}
	dir := c.absolute(c.s.templateGlob(st.Scratch[i], st))
	tree := dir + "/**"
	state := quoteGlob(c.s.StateDir)
	const hint = "scratch is removed as a whole: give it a directory of its own"
	switch {
	case overlap(tree, quoteGlob(c.s.Workdir)):
		c.fail(at, hint, "scratch %q holds workdir", clip(st.Scratch[i]))
		return
	case overlap(tree, state), overlap(state+"/**", dir):
		c.fail(at, hint, "scratch %q and the state directory %q overlap", clip(st.Scratch[i]), c.s.StateDir)
		return
	}
	for _, cl := range claims {
		if overlap(tree, cl.dir) || overlap(tree, cl.files) && !ignored(st.Scratch[i]) {
			c.fail(at, hint, "scratch %q holds files of output %s (line %d)", clip(st.Scratch[i]), cl.label, c.line(cl.at))
			return
		}
	}
	for _, n := range c.precious() {
		if overlap(tree, c.absolute(n.glob)) {
			c.fail(at, hint, "scratch %q holds %s", clip(st.Scratch[i]), n.what)
			return
		}
	}
}

// need is something that must not be removed, as a glob.
type need struct{ what, glob string }

// precious lists what stages read and operators gave, besides outputs.
func (c *checker) precious() []need {
	var all []need
	for _, g := range c.s.Artifacts {
		all = append(all, need{fmt.Sprintf("artifact %q", clip(g)), g})
	}
	for _, y := range c.s.Sync {
		all = append(all, need{fmt.Sprintf("the files pushed to %q", clip(y.To)), quoteGlob(y.To)})
	}
	for _, st := range c.s.Stages {
		for _, g := range st.Inputs {
			all = append(all, need{fmt.Sprintf("input %q of stage %s", clip(g), st.Name), g})
		}
		if st.DoneSet != nil {
			all = append(all, need{"the done_set file of stage " + st.Name, quoteGlob(st.DoneSet.File)})
		}
	}
	return all
}
