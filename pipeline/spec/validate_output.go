package spec

import (
	"path"
	"regexp"
	"slices"
	"strings"
)

func (c *checker) output(st *Stage, o *Output) {
	at := outputAt(st, o)
	c.name(at, "output", o.Name)
	c.templatePath(where(at, "dir"), "dir", o.Dir, pathScope(), true)
	c.match(where(at, "match"), o)
	c.format(at, o)
	c.id(where(at, "id"), o)
	c.key(where(at, "key"), o)
	c.keepLast(at, o)
}

func outputAt(st *Stage, o *Output) string { return where("stages", st.Name, "outputs", o.Name) }

func (c *checker) match(at string, o *Output) {
	fault, hint := globFault("match", o.Match, "", false)
	switch {
	case !c.judge(at, fault, hint):
	case path.IsAbs(o.Match) || strings.HasSuffix(o.Match, "/") || path.Clean(o.Match) != o.Match:
		c.fail(at, "", "match %q is not a plain path below dir", clip(o.Match))
	case neverMatches(o.Match):
		c.fail(at, "*.tmp .tmp* *.lock *.incomplete _tmp/ are files that someone is still writing", "match %q can match only ignored files", clip(o.Match))
	}
}

// neverMatches recognises globs of which every match is ignored.
func neverMatches(glob string) bool {
	for name := range strings.SplitSeq(glob, "/") {
		plain := strings.NewReplacer("*", "x", "?", "x").Replace(name)
		if !strings.ContainsAny(plain, `[{\`) && ignored(plain) {
			return true
		}
	}
	return false
}

func (c *checker) format(at string, o *Output) {
	inferred := inferFormat(o.Match)
	switch {
	case o.Format == FormatMarker && o.Marker == "":
		c.fail(where(at, "format"), "the file whose appearance completes a directory", "format marker needs marker")
	case o.Format == FormatMarker:
		fault, hint := pathFault("marker", o.Marker, "", false)
		if fault == "" && (path.IsAbs(o.Marker) || strings.ContainsAny(o.Marker, "*?[{")) {
			fault, hint = "marker is a file below each directory: no absolute path, no wildcards", ""
		}
		if fault == "" && ignored(o.Marker) {
			fault, hint = "marker is a file that every match ignores", "*.tmp .tmp* *.lock *.incomplete _tmp/"
		}
		c.judge(where(at, "marker"), fault, hint)
	case o.Marker != "":
		c.fail(where(at, "marker"), "", "marker goes with format marker, not %s", o.Format)
	case o.Format == FormatAny && o.Settle == 0:
		c.fail(where(at, "settle"), "only time without a change tells that such a file is finished", "settle is 0 with format any: half-written files would be uploaded")
	case inferred != "" && o.Format != FormatAny && o.Format != inferred:
		c.fail(where(at, "format"), "a file that is never complete is never uploaded", "files matching %q are not of format %s%s",
			clip(o.Match), o.Format, didYouMean(inferred, []string{inferred}))
	}
	if o.Format == FormatMarker && o.AfterUpload == AfterPlaceholder {
		c.fail(where(at, "after_upload"), "use keep with keep_last, or delete", "placeholders would leave checkpoints that look complete")
	}
}

func (c *checker) id(at string, o *Output) {
	if o.ID == "" {
		if c.r.given(at) {
			c.fail(at, "leave it out if the path carries no sample id", "the id regexp is empty")
		}
		return
	}
	re, err := regexp.Compile(o.ID)
	switch {
	case err != nil:
		c.fail(at, "RE2 syntax, as in grep -E; put it in single quotes", "%s", regexpFault(err))
	case re.NumSubexp() != 1:
		c.fail(at, `as in hs_(\d+)\.safetensors; (?:...) groups without counting`, "the id regexp has %d groups, want exactly one", re.NumSubexp())
	}
}

func (c *checker) key(at string, o *Output) {
	sc := scope{
		allowed: []string{"path", "stage", "run"},
		why:     map[string]string{"rank": "the store does not tell which rank wrote a file; make it part of {path} by a dir above the ranks'"},
	}
	if o.Key == "" || !c.template(at, o.Key, sc) {
		return
	}
	sample, err := Expand(o.Key, Vars{Stage: "stage", Run: "run", Path: "path"})
	if err != nil {
		return
	}
	if !c.judge(at, keyTextFault("key", sample), "a path below PREFIX/RUN/, such as "+o.Name+"/{path}") {
		return
	}
	if first, _, _ := strings.Cut(sample, "/"); first == ".pipedeck" {
		c.fail(at, "", "keys below .pipedeck/ are pipedeck's own records")
	}
	c.keyPerFile(at, o)
}

// keyPerFile: two files must never get one key, or the second would wait as
// mismatched for ever.
func (c *checker) keyPerFile(at string, o *Output) {
	perPath := slices.Contains(variablesOf(o.Key), "path")
	many := !isLiteral(o.Match) || o.Format == FormatMarker
	switch {
	case many && !perPath:
		c.fail(at, "add {path}", "all files of the output would get the same key %q", clip(o.Key))
	case usesRank(o.Dir) && !perPath:
		c.fail(at, "add {path}, and take a dir above the ranks'", "the files of all ranks would get the same key %q", clip(o.Key))
	case usesRank(o.Dir) && o.ID == "":
		c.fail(at, "take the directory above as dir and the ranks' part into match, or give the id that makes names unique",
			"files of the same name from two ranks would get the same key")
	}
}

func (c *checker) keepLast(at string, o *Output) {
	c.atLeast(where(at, "keep_last"), int64(o.KeepLast), 0)
	if o.KeepLast > 0 && o.AfterUpload != AfterKeep {
		c.fail(where(at, "keep_last"), "keep_last removes older ones itself once they are proven: use after_upload: keep",
			"keep_last contradicts after_upload: %s", o.AfterUpload)
	}
}
