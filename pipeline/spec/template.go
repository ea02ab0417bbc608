package spec

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Vars are the values of template variables. An empty string is a value that
// does not exist here; Rank and World always exist.
type Vars struct {
	Rank             int
	World            int
	GPU              string // index; of a stage that holds several, joined by commas
	GPUUUID          string // likewise
	Port             string
	Stage            string
	Workdir          string
	Run              string
	Path             string            // of a file below its output's dir
	ServiceAddresses map[string]string // by service, joined by commas
}

// Expand replaces the {variables} of a template; {{ and }} are literal
// braces. It fails for a variable that is unknown or has no value: an empty
// directory means something else entirely. Only {gpu} and {gpu_uuid} may be
// empty, for workers that hold no GPU: an empty CUDA_VISIBLE_DEVICES hides all.
func Expand(tmpl string, v Vars) (string, error) {
	parts, err := splitTemplate(tmpl)
	if err != nil {
		return "", fmt.Errorf("cannot expand %q: %w", tmpl, err)
	}
	var b strings.Builder
	for _, p := range parts {
		if p.name == "" {
			b.WriteString(p.text)
			continue
		}
		value, known := v.value(p.name)
		switch {
		case !known:
			return "", fmt.Errorf("cannot expand %q: unknown template variable {%s}", tmpl, p.name)
		case value == "" && p.name != "gpu" && p.name != "gpu_uuid":
			return "", fmt.Errorf("cannot expand %q: {%s} has no value here", tmpl, p.name)
		}
		b.WriteString(value)
	}
	return b.String(), nil
}

func (v Vars) value(name string) (string, bool) {
	switch name {
	case "rank":
		return strconv.Itoa(v.Rank), true
	case "world":
		return strconv.Itoa(v.World), true
	case "gpu":
		return v.GPU, true
	case "gpu_uuid":
		return v.GPUUUID, true
	case "port":
		return v.Port, true
	case "stage":
		return v.Stage, true
	case "workdir":
		return v.Workdir, true
	case "run":
		return v.Run, true
	case "path":
		return v.Path, true
	}
	if service, ok := serviceOf(name); ok {
		return v.ServiceAddresses[service], true
	}
	return "", false
}

func variableNames() []string {
	return []string{"rank", "world", "gpu", "gpu_uuid", "port", "stage", "workdir", "run", "path"}
}

// serviceOf returns NAME of "services.NAME.addresses".
func serviceOf(name string) (string, bool) {
	rest, ok := strings.CutPrefix(name, "services.")
	if !ok {
		return "", false
	}
	return strings.CutSuffix(rest, ".addresses")
}

// part is literal text, or a variable if it has a name.
type part struct{ text, name string }

func splitTemplate(s string) ([]part, error) {
	var parts []part
	literal := func(t string) {
		if n := len(parts); n > 0 && parts[n-1].name == "" {
			parts[n-1].text += t
			return
		}
		parts = append(parts, part{text: t})
	}
	for s != "" {
		i := strings.IndexAny(s, "{}")
		switch {
		case i < 0:
			literal(s)
			return parts, nil
		case i > 0:
			literal(s[:i])
			s = s[i:]
		case strings.HasPrefix(s, "{{"), strings.HasPrefix(s, "}}"):
			literal(s[:1])
			s = s[2:]
		case s[0] == '}':
			return nil, errors.New(`unbalanced "}"`)
		default:
			end := strings.IndexAny(s[1:], "{}")
			if end < 0 || s[1+end] == '{' {
				return nil, errors.New(`unbalanced "{"`)
			}
			parts = append(parts, part{name: s[1 : 1+end]})
			if end == 0 {
				return nil, errors.New("{} names no template variable")
			}
			s = s[2+end:]
		}
	}
	return parts, nil
}

// scope is what a template may use at one place.
type scope struct {
	allowed  []string
	services []string // names usable as {services.NAME.addresses}
	why      map[string]string
}

// check judges a template and returns its variables that are in order.
func (sc scope) check(tmpl string) (used []string, fault, hint string) {
	parts, err := splitTemplate(tmpl)
	if err != nil {
		return nil, fmt.Sprintf("%v in %q", err, clip(tmpl)), "write {{ and }} for literal braces"
	}
	for i, p := range parts {
		if p.name == "" {
			continue
		}
		if fault, hint = sc.judge(p.name); fault != "" {
			if i > 0 && strings.HasSuffix(parts[i-1].text, "$") {
				hint = fmt.Sprintf("write ${{%s}} to leave it to the shell", clip(p.name))
			}
			return nil, fault, hint
		}
		used = append(used, p.name)
	}
	return used, "", ""
}

func (sc scope) judge(name string) (fault, hint string) {
	if slices.Contains(sc.allowed, name) {
		return "", ""
	}
	if service, ok := serviceOf(name); ok {
		return sc.judgeService(service)
	}
	if slices.Contains(variableNames(), name) {
		if why := sc.why[name]; why != "" {
			return fmt.Sprintf("{%s} cannot be used here: %s", name, why), ""
		}
		return fmt.Sprintf("{%s} cannot be used here", name), sc.list()
	}
	return fmt.Sprintf("unknown template variable {%s}%s", clip(name), sc.suggest(name)),
		sc.list() + "; {{ and }} are literal braces"
}

func (sc scope) judgeService(service string) (fault, hint string) {
	if slices.Contains(sc.services, service) {
		return "", ""
	}
	if why := sc.why["services"]; why != "" {
		return fmt.Sprintf("{services.%s.addresses} cannot be used here: %s", clip(service), why), ""
	}
	return fmt.Sprintf("unknown service %q in {services.%s.addresses}%s", clip(service), clip(service),
		didYouMean(service, sc.services)), "a service of this stage that has a port; within services, one that stands before"
}

func (sc scope) suggest(name string) string {
	if best := closest(name, sc.allowed); best != "" {
		return fmt.Sprintf(" (did you mean {%s}?)", best)
	}
	return ""
}

func (sc scope) list() string {
	names := make([]string, 0, len(sc.allowed))
	for _, n := range sc.allowed {
		names = append(names, "{"+n+"}")
	}
	if len(names) == 0 {
		return "no template variables are known here"
	}
	return "known here: " + strings.Join(names, " ")
}
