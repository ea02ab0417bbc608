package spec

import (
	"fmt"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

// Key describes one key of the file. In Path, NAME stands for a name that the
// operator chooses and [] for the items of a list.
type Key struct {
	Path     string
	Type     string
	Default  string // as written in the file, or in words where it depends on other keys
	Required bool
}

// Keys lists every key that Parse knows, sections before what is in them.
func Keys() []Key { return section(specKeys).keys("") }

func under(prefix, name string) string {
	if prefix == "" {
		return name
	}
	return prefix + "." + name
}

// placeOf says where else a misplaced key would be known.
func placeOf(name string) string {
	var places []string
	for _, k := range Keys() {
		above, last := "", k.Path
		if i := strings.LastIndexByte(k.Path, '.'); i >= 0 {
			above, last = k.Path[:i], k.Path[i+1:]
		}
		if last == name {
			if above == "" {
				above = "the top level"
			}
			places = append(places, above)
		}
	}
	if len(places) == 0 {
		return ""
	}
	return fmt.Sprintf("%q is a key of %s", name, strings.Join(places, ", "))
}

func specKeys() []field[Spec] {
	return []field[Spec]{
		key("version", count(), func(s *Spec) *int { return &s.Version }).must(),
		key("deck", text(), func(s *Spec) *string { return &s.Deck }).must(),
		key("run", text(), func(s *Spec) *string { return &s.Run }).must(),
		key("workdir", text(), func(s *Spec) *string { return &s.Workdir }).must(),
		key("state_dir", text(), func(s *Spec) *string { return &s.StateDir }).or(".pipedeck"),
		key("nodes", list(section(nodeKeys)), func(s *Spec) *[]Node { return &s.Nodes }).derived("this machine, called local"),
		key("store", section(storeKeys), func(s *Spec) *Store { return &s.Store }).must(),
		key("artifacts", list(text()), func(s *Spec) *[]string { return &s.Artifacts }),
		key("sync", list(section(syncKeys)), func(s *Spec) *[]Sync { return &s.Sync }),
		key("notify", list(section(notifyKeys)), func(s *Spec) *[]Notify { return &s.Notify }),
		key("stages", named("NAME", section(stageKeys), func(s *Stage) *string { return &s.Name }),
			func(s *Spec) *[]Stage { return &s.Stages }).must(),
	}
}

func nodeKeys() []field[Node] {
	return []field[Node]{
		key("name", text(), func(n *Node) *string { return &n.Name }).must(),
		key("ssh", text(), func(n *Node) *string { return &n.SSH }).derived("this machine"),
		key("gpus", gpus(), func(n *Node) *GPUSet { return &n.GPUs }).or("all"),
	}
}

func storeKeys() []field[Store] {
	return []field[Store]{
		key("bucket", text(), func(s *Store) *string { return &s.Bucket }).must(),
		key("endpoint", text(), func(s *Store) *string { return &s.Endpoint }).derived("AWS"),
		key("region", text(), func(s *Store) *string { return &s.Region }).derived("of the credentials' profile"),
		key("path_style", boolean(), func(s *Store) *bool { return &s.PathStyle }).derived("true with an endpoint, else false"),
		key("prefix", text(), func(s *Store) *string { return &s.Prefix }).or(`""`),
		key("credentials", choice(CredentialsNode, CredentialsForward),
			func(s *Store) *string { return &s.Credentials }).or(CredentialsForward),
		key("max_parallel", count(), func(s *Store) *int { return &s.MaxParallel }).or("100"),
		key("max_memory", size(), func(s *Store) *int64 { return &s.MaxMemory }).or("512MB"),
		key("bandwidth", rate(), func(s *Store) *int64 { return &s.Bandwidth }).or("0"),
		key("requests_per_second", number(), func(s *Store) *float64 { return &s.RequestsPerSecond }).or("0"),
	}
}

func syncKeys() []field[Sync] {
	return []field[Sync]{
		key("from", text(), func(s *Sync) *string { return &s.From }).must(),
		key("to", text(), func(s *Sync) *string { return &s.To }).must(),
	}
}

func notifyKeys() []field[Notify] {
	return []field[Notify]{
		key("webhook", text(), func(n *Notify) *string { return &n.Webhook }),
		key("command", command(), func(n *Notify) *[]string { return &n.Command }),
	}
}

func text() kind[string]    { return kind[string]{name: "string", read: (*reader).text} }
func word() kind[string]    { return kind[string]{name: "string", read: (*reader).word} }
func boolean() kind[bool]   { return kind[bool]{name: "true or false", read: (*reader).boolean} }
func count() kind[int]      { return kind[int]{name: "integer", read: (*reader).count} }
func integer() kind[int64]  { return kind[int64]{name: "integer", read: (*reader).integer} }
func number() kind[float64] { return kind[float64]{name: "number", read: (*reader).number} }
func size() kind[int64]     { return kind[int64]{name: "size", read: (*reader).size} }
func rate() kind[int64]     { return kind[int64]{name: "size per second", read: (*reader).rate} }

// choice is one of a few words.
func choice(values ...string) kind[string] {
	k := kind[string]{name: strings.Join(values, ", ")}
	k.read = func(r *reader, n *yaml.Node, v *string) {
		if n.Kind != yaml.ScalarNode || n.Tag == "!!null" {
			r.wrongType(n, "one of "+k.name)
			return
		}
		if !slices.Contains(values, n.Value) {
			r.fail(n, "one of "+k.name, "unknown value %q%s", clip(n.Value), didYouMean(n.Value, values))
			return
		}
		*v = n.Value
	}
	return k
}

// command is a program and its arguments. A single string is refused: it
// would need a shell, and quoting rules, to mean anything.
func command() kind[[]string] {
	words := list(word())
	return kind[[]string]{name: "command", read: func(r *reader, n *yaml.Node, v *[]string) {
		switch {
		case n.Kind == yaml.ScalarNode && n.Tag != "!!null":
			r.fail(n, "write [program, argument, ...]; for a shell: [sh, -c, \"...\"]", "want a list, found %s", describe(n))
		case n.Kind == yaml.SequenceNode && len(n.Content) == 0:
			r.fail(n, "", "the command is empty")
		default:
			words.read(r, n, v)
			if len(*v) > 0 && strings.TrimSpace((*v)[0]) == "" && n.Content[0].Kind == yaml.ScalarNode {
				r.fail(n.Content[0], "", "the program's name is empty")
			}
		}
	}}
}

// gpus is "all", or a list of indexes and UUIDs.
func gpus() kind[GPUSet] {
	const want = "all, or a list of GPU indexes or UUIDs"
	return kind[GPUSet]{name: want, read: func(r *reader, n *yaml.Node, v *GPUSet) {
		switch {
		case n.Kind == yaml.ScalarNode && n.Value == "all":
			v.All = true
		case n.Kind != yaml.SequenceNode:
			r.wrongType(n, want)
		case len(n.Content) == 0:
			r.fail(n, "leave the key out, or name at least one", "the list of GPUs is empty")
		default:
			for _, c := range n.Content {
				r.gpu(c, v)
			}
		}
	}}
}

func (r *reader) gpu(n *yaml.Node, v *GPUSet) {
	if isScalar(n, "!!str") && strings.HasPrefix(n.Value, "GPU-") {
		if slices.Contains(v.UUIDs, n.Value) {
			r.fail(n, "", "GPU %q is named twice", clip(n.Value))
			return
		}
		v.UUIDs = append(v.UUIDs, n.Value)
		return
	}
	if !isScalar(n, "!!int") {
		r.wrongType(n, `a GPU's index or its UUID ("GPU-...")`)
		return
	}
	before, i := len(r.errs), 0
	r.count(n, &i)
	switch {
	case len(r.errs) > before:
	case i < 0:
		r.fail(n, "", "GPU index %d is negative", i)
	case slices.Contains(v.Indexes, i):
		r.fail(n, "", "GPU %d is named twice", i)
	default:
		v.Indexes = append(v.Indexes, i)
	}
}
