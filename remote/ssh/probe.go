package ssh

import (
	"context"
	"encoding/hex"
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	"pipedeck/pipeline"
)

// Probe is what a node says of itself before anything is installed.
type Probe struct {
	Kernel, Machine string
	Arch            string // as Go calls it
	UID             int
	Home            string
	Gzip            bool
	ClockOffset     time.Duration // the node's clock minus ours
	Server          string        // of the SSH server
	Bases           []Base        // in the order of preference
	// NoWorkdir says that the directory of Options.Workdir is not there.
	NoWorkdir bool
}

// Base is a directory that programs could be installed in.
type Base struct {
	Dir       string
	Usable    bool
	Reason    string // why it is not
	FreeBytes int64  // -1 unknown
	Installed []string
}

// baseDirs are where programs may go, best first: the home, the system's
// places, the deck's own directory, memory.
func baseDirs(stateDir string) []string {
	return []string{
		"$HOME/.local/share/pipedeck", "/var/lib/pipedeck", "/opt/pipedeck",
		path.Join(stateDir, "program"), "/dev/shm/pipedeck-$uid", "/tmp/pipedeck-$uid",
	}
}

// probeScript looks at a directory by making it, running something in it and
// removing what it made.
const probeScript = `
say kernel "$(uname -s)"
say machine "$(uname -m)"
uid=$(id -u)
say uid "$uid"
say home "${HOME:-}"
if command -v gzip >/dev/null 2>&1; then say gzip 1; fi
say now "$(date +%s)"
try() {
  dir=$1
  case $dir in /*) ;; *) return;; esac
  say base "$dir"
  top=$dir; made=
  while [ ! -d "$top" ] && [ "$top" != / ]; do made=$top; top=${top%/*}; [ -n "$top" ] || top=/; done
  if ! (umask 077; mkdir -p "$dir") 2>/dev/null; then say bad "$dir cannot be made"; return; fi
  if [ ! -O "$dir" ]; then say bad "$dir belongs to another user"; return; fi
  t=$dir/.try-$$
  if ! (printf '#!/bin/sh\nexit 42\n' >"$t" && chmod 700 "$t") 2>/dev/null; then
    say bad "$dir cannot be written to"
  else
    "$t" >/dev/null 2>&1
    if [ $? = 42 ]; then say good "$dir"; else say bad "$dir runs no programs (noexec)"; fi
  fi
  rm -f "$t" 2>/dev/null
  free=
  for f in $(df -Pk "$dir" 2>/dev/null | while read -r a b c d e; do echo "$d"; done); do free=$f; done
  say free "${free:-?} $dir"
  for d in "$dir"/bin/*/pipedeck; do if [ -x "$d" ]; then say have "$d"; fi; done
  if [ -n "$made" ]; then
    gone=$dir
    while [ "$gone" != "$top" ]; do rmdir "$gone" 2>/dev/null || break; gone=${gone%/*}; done
  fi
}
`

// probe asks the node what it is and where programs can be put.
func (l *link) probe(ctx context.Context, stateDir, workdir string) (Probe, error) {
	var b strings.Builder
	b.WriteString(probeScript)
	for _, dir := range baseDirs(stateDir) {
		switch {
		case strings.HasPrefix(dir, "$HOME"):
			fmt.Fprintf(&b, "[ -n \"${HOME:-}\" ] && try \"%s\"\n", dir)
		case strings.HasSuffix(dir, "$uid"):
			fmt.Fprintf(&b, "try \"%s\"\n", dir)
		default:
			// A directory that is not there is not made for a program's sake.
			fmt.Fprintf(&b, "[ -d %s ] && try %s\n", quoteShell(path.Dir(dir)), quoteShell(dir))
		}
	}
	if workdir != "" {
		fmt.Fprintf(&b, "[ -d %s ] || say noworkdir 1\n", quoteShell(workdir))
	}
	before := time.Now()
	values, err := l.script(ctx, b.String())
	if err != nil {
		return Probe{}, err
	}
	p := parseProbe(values)
	p.Server = l.server
	if at, err := strconv.ParseInt(first(values["now"]), 10, 64); err == nil {
		mid := before.Add(time.Since(before) / 2)
		p.ClockOffset = time.Unix(at, 0).Sub(mid).Round(time.Second)
	}
	return p, nil
}

func first(list []string) string {
	if len(list) == 0 {
		return ""
	}
	return list[0]
}

// goArch translates what uname says.
var goArch = map[string]string{"x86_64": "amd64", "amd64": "amd64", "aarch64": "arm64", "arm64": "arm64"}

func parseProbe(values map[string][]string) Probe {
	p := Probe{
		Kernel: first(values["kernel"]), Machine: first(values["machine"]), Home: first(values["home"]),
		Gzip: values["gzip"] != nil, UID: -1, NoWorkdir: values["noworkdir"] != nil,
	}
	p.Arch = goArch[p.Machine]
	if uid, err := strconv.Atoi(first(values["uid"])); err == nil {
		p.UID = uid
	}
	for _, dir := range values["base"] {
		p.Bases = append(p.Bases, parseBase(values, dir))
	}
	return p
}

func parseBase(values map[string][]string, dir string) Base {
	base := Base{Dir: dir, FreeBytes: -1, Usable: slices.Contains(values["good"], dir)}
	for _, bad := range values["bad"] {
		if why, ok := strings.CutPrefix(bad, dir+" "); ok {
			base.Reason = why
		}
	}
	if !base.Usable && base.Reason == "" {
		base.Reason = "cannot be looked at"
	}
	for _, free := range values["free"] {
		kb, at, _ := strings.Cut(free, " ")
		if n, err := strconv.ParseInt(kb, 10, 64); err == nil && at == dir {
			base.FreeBytes = n << 10
		}
	}
	for _, have := range values["have"] {
		if strings.HasPrefix(have, dir+"/bin/") {
			base.Installed = append(base.Installed, have)
		}
	}
	return base
}

// supported refuses a node that no agent runs on.
func (p Probe) supported(t *Target) error {
	if p.Kernel == "Linux" && p.Arch != "" {
		return nil
	}
	return pipeline.Problemf(pipeline.ProblemFailed, "the agent runs on Linux on x86_64 and aarch64",
		"cannot use %q: it is %q on %q", t.label(), p.Kernel, p.Machine)
}

// usable is the best base with room for need bytes.
func (p Probe) usable(t *Target, need int64) (Base, error) {
	var why []string
	for _, b := range p.Bases {
		_, quotable := shellWord(b.Dir)
		switch {
		case !b.Usable:
			why = append(why, b.Dir+" "+b.Reason)
		case !quotable:
			why = append(why, b.Dir+" has a name that not every shell takes")
		case b.FreeBytes >= 0 && b.FreeBytes < need:
			why = append(why, fmt.Sprintf("%s has only %d MB free", b.Dir, b.FreeBytes/1_000_000))
		default:
			return b, nil
		}
	}
	return Base{}, pipeline.Problemf(pipeline.ProblemFailed, "make one of these directories usable, or set `state_dir` to a place that is",
		"cannot install on %q: %s", t.label(), strings.Join(why, "; "))
}

// hexArg passes any path as a word that every shell takes.
func hexArg(s string) string { return hex.EncodeToString([]byte(s)) }
