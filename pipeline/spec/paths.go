package spec

import (
	"fmt"
	"path"
	"slices"
	"strings"
	"unicode"

	"github.com/bmatcuk/doublestar/v4"
)

// maxText bounds paths, globs and keys: the length of an S3 key.
const maxText = 1024

// textFault judges what paths, globs and keys have in common.
func textFault(what, s string) string {
	switch {
	case s == "":
		return "the " + what + " is empty"
	case len(s) > maxText:
		return fmt.Sprintf("the %s has %d bytes, more than %d", what, len(s), maxText)
	case strings.ContainsFunc(s, unicode.IsControl):
		return fmt.Sprintf("the %s %q has a control character", what, clip(s))
	}
	return ""
}

// pathFault judges a path on the node. inside: it must stay below workdir.
func pathFault(what, p, workdir string, inside bool) (fault, hint string) {
	if fault := textFault(what, p); fault != "" {
		return fault, ""
	}
	steps := strings.Split(p, "/")
	switch {
	case slices.Contains(steps, ".."):
		return fmt.Sprintf("%s %q has a .. in it", what, clip(p)), "write the path that is meant, relative to workdir or absolute"
	case steps[0] == "~" || strings.HasPrefix(p, "$"):
		return fmt.Sprintf("%s %q is not expanded by a shell", what, clip(p)), "write the absolute path"
	case inside && path.IsAbs(p) && path.IsAbs(workdir):
		if _, ok := within(path.Clean(p), path.Clean(workdir)); !ok {
			return fmt.Sprintf("%s %q is outside workdir %q", what, clip(p), clip(workdir)), "write it relative to workdir"
		}
	}
	return "", ""
}

// globFault judges a glob on the node.
func globFault(what, g, workdir string, inside bool) (fault, hint string) {
	if fault, hint := pathFault(what, g, workdir, inside); fault != "" {
		return fault, hint
	}
	if !doublestar.ValidatePattern(g) {
		return fmt.Sprintf("%s %q is not a valid glob", what, clip(g)), "* within a name, ** for any folders, ? one character, [a-z], {this,that}"
	}
	for _, name := range variableNames() {
		if strings.Contains(g, "{"+name+"}") {
			return fmt.Sprintf("template variables are not expanded in %s: {%s}", what, name), "write * for the part that varies"
		}
	}
	return "", ""
}

// sharedFault says why a directory is too much shared to be removed as a
// whole: a mount point, or a folder of the system or of other programs.
func sharedFault(dir string) string {
	steps := strings.Split(strings.Trim(path.Clean(dir), "/"), "/")
	system := []string{"bin", "boot", "etc", "lib", "lib32", "lib64", "proc", "run", "sbin", "sys", "usr"}
	holders := []string{"/dev/shm", "/home", "/media", "/mnt", "/var/tmp"}
	parent := "/" + strings.Join(steps[:len(steps)-1], "/")
	top := steps[0]
	switch {
	case len(steps) == 1, slices.Contains(holders, path.Clean(dir)):
		return "it is, or may be, a mount point or shared with other programs"
	case slices.Contains(system, top), top == "var" && steps[1] != "tmp", top == "dev" && steps[1] != "shm":
		return "it belongs to the system"
	case slices.Contains([]string{"/home", "/media", "/mnt"}, parent):
		return "it may be a mount point or a home directory"
	}
	return ""
}
