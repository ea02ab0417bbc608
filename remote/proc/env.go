package proc

import (
	"slices"
	"strings"
)

// CleanEnv drops what looks like a secret, and the marks of an enclosing
// launch, from an environment. PATH, HOME, CUDA_*, VIRTUAL_ENV and the like
// stay: workers need them as they were.
func CleanEnv(env []string) []string {
	out := make([]string, 0, len(env))
	for _, kv := range env {
		name, _, ok := strings.Cut(kv, "=")
		if ok && name != "" && !secretName(name) && !markName(name) {
			out = append(out, kv)
		}
	}
	return out
}

func secretName(name string) bool {
	up := strings.ToUpper(name)
	switch up {
	case "TOKENIZERS_PARALLELISM": // a setting of Hugging Face tokenizers
		return false
	case "SSH_AUTH_SOCK":
		return true
	}
	if strings.HasPrefix(up, "AWS_") || strings.HasSuffix(up, "_KEY") {
		return true
	}
	for _, part := range []string{"SECRET", "TOKEN", "PASSWORD", "PASSWD", "CREDENTIAL", "API_KEY", "APIKEY"} {
		if strings.Contains(up, part) {
			return true
		}
	}
	return false
}

func markName(name string) bool {
	return name == EnvRun || name == EnvLaunch || name == EnvDeckID
}

// mergeEnv lays the overrides over base; the last value of a name wins.
func mergeEnv(base []string, overrides ...string) []string {
	out := slices.Clone(base)
	at := make(map[string]int, len(out))
	for i, kv := range out {
		name, _, _ := strings.Cut(kv, "=")
		at[name] = i
	}
	for _, kv := range overrides {
		name, _, _ := strings.Cut(kv, "=")
		if i, ok := at[name]; ok {
			out[i] = kv
			continue
		}
		at[name] = len(out)
		out = append(out, kv)
	}
	return out
}

func envValue(env []string, name string) string {
	for _, kv := range slices.Backward(env) {
		if v, ok := strings.CutPrefix(kv, name+"="); ok {
			return v
		}
	}
	return ""
}
