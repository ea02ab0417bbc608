package spec

import (
	"path"
	"regexp"
	"slices"
	"strings"
)

// compiled is what Parse prepares for an Output once. Methods work without it
// too, for specs made by hand, but slower.
type compiled struct {
	id           *regexp.Regexp
	run, workdir string
}

// ignored says that a path is never an output: someone's temporary or lock
// file, or a folder of pipedeck's own.
func ignored(rel string) bool {
	for name := range strings.SplitSeq(rel, "/") {
		if temporary(name) || strings.HasSuffix(name, ".lock") || name == ".pipedeck" {
			return true
		}
	}
	return false
}

func temporary(name string) bool {
	return name == "_tmp" || name == ".pipedeck-aside" || strings.HasPrefix(name, ".tmp") ||
		strings.HasSuffix(name, ".tmp") || strings.HasSuffix(name, ".incomplete")
}

// Matches says whether rel, slash-separated below the output's dir, belongs
// to the output. For the marker format rel is a directory.
func (o *Output) Matches(rel string) bool {
	return !ignored(rel) && matches(o.Match, rel)
}

// Owns says whether the file rel is uploaded by this output: one that
// matches, or for the marker format one below a directory that does.
func (o *Output) Owns(rel string) bool {
	if o.Format != FormatMarker {
		return o.Matches(rel)
	}
	if ignored(rel) {
		return false
	}
	for dir := path.Dir(rel); dir != "." && dir != "/"; dir = path.Dir(dir) {
		if matches(o.Match, dir) {
			return true
		}
	}
	return false
}

// SampleID returns the sample id that rel carries, by the first match of ID.
// Integers are canonical: "000012" is "12".
func (o *Output) SampleID(rel string) (string, bool) {
	if o.ID == "" {
		return "", false
	}
	var re *regexp.Regexp
	if o.compiled != nil && o.compiled.id != nil {
		re = o.compiled.id
	} else {
		var err error
		if re, err = regexp.Compile(o.ID); err != nil {
			return "", false
		}
	}
	m := re.FindStringSubmatch(rel)
	if len(m) != 2 || m[1] == "" {
		return "", false
	}
	return canonicalID(m[1]), true
}

func canonicalID(id string) string {
	for _, c := range id {
		if c < '0' || c > '9' {
			return id
		}
	}
	if short := strings.TrimLeft(id, "0"); short != "" {
		return short
	}
	return "0"
}

// Dirs returns the output's directories for a number of ranks, in their
// order and as written in the spec: relative to Workdir unless absolute. A
// dir without {rank} gives one.
func (o *Output) Dirs(st *Stage, world int) []string {
	var dirs []string
	for rank := range max(1, world) {
		dir, err := Expand(o.Dir, o.vars(st, rank, world))
		if err != nil {
			dir = o.Dir
		}
		if dir = path.Clean(dir); !slices.Contains(dirs, dir) {
			dirs = append(dirs, dir)
		}
		if !usesRank(o.Dir) {
			break
		}
	}
	return dirs
}

func (o *Output) vars(st *Stage, rank, world int) Vars {
	v := Vars{Rank: rank, World: world, Stage: st.Name}
	if o.compiled != nil {
		v.Run, v.Workdir = o.compiled.run, o.compiled.workdir
	}
	return v
}

// ScratchDirs returns the stage's scratch directories for a number of ranks,
// absolute on the node.
func (s *Spec) ScratchDirs(st *Stage, world int) []string {
	var dirs []string
	for _, tmpl := range st.Scratch {
		for rank := range max(1, world) {
			dir, err := Expand(tmpl, Vars{Rank: rank, World: world, Stage: st.Name, Run: s.Run, Workdir: s.Workdir})
			if err != nil {
				dir = tmpl
			}
			if dir = s.Abs(dir); !slices.Contains(dirs, dir) {
				dirs = append(dirs, dir)
			}
			if !usesRank(tmpl) {
				break
			}
		}
	}
	return dirs
}

func usesRank(tmpl string) bool { return slices.Contains(variablesOf(tmpl), "rank") }

func variablesOf(tmpl string) []string {
	parts, err := splitTemplate(tmpl)
	if err != nil {
		return nil
	}
	var names []string
	for _, p := range parts {
		if p.name != "" {
			names = append(names, p.name)
		}
	}
	return names
}

// inferFormat tells the format by the extension that everything Match can
// match has, or "" where that says nothing.
func inferFormat(match string) string {
	alternatives, ok := expandBraces(match)
	if !ok {
		return ""
	}
	format := formatOf(alternatives[0])
	for _, alt := range alternatives[1:] {
		if formatOf(alt) != format {
			return ""
		}
	}
	return format
}

func formatOf(name string) string {
	switch path.Ext(name) {
	case ".safetensors":
		return FormatSafetensors
	case ".pt", ".ckpt", ".zip", ".npz":
		return FormatZip
	case ".jsonl":
		return FormatJSONL
	case ".parquet":
		return FormatParquet
	case ".arrow":
		return FormatArrow
	}
	return ""
}
