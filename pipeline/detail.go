package pipeline

import (
	"strings"
	"time"
)

// FailureKind says what is wrong with a file.
type FailureKind string

// Values of FailureKind.
const (
	FailureUpload      FailureKind = "failed"      // could not be stored; tried again
	FailureMismatched  FailureKind = "mismatched"  // another object has its key; not tried again by itself
	FailureHeld        FailureKind = "held"        // proven, but cannot be removed at the moment
	FailureQuarantined FailureKind = "quarantined" // not what the output declares; moved aside
)

// Failure is one file that needs the operator or another try.
type Failure struct {
	Output  string      `json:"output"` // "stage/output"
	Path    string      `json:"path"`   // below the output's directory, not cleaned
	Kind    FailureKind `json:"kind"`
	Reason  string      `json:"reason"` // in words, not cleaned
	Since   time.Time   `json:"since"`
	NextTry *time.Time  `json:"next_try"` // null: only when the file or the operator changes something
}

// MaxFailures bounds one answer of Deck.Failures. The snapshot's counts say
// how many there are.
const MaxFailures = 1000

// WorkerDetail is what does not change while a worker lives, and how it was
// started.
type WorkerDetail struct {
	ID        string     `json:"id"` // "stage/rank"
	Rank      int        `json:"rank"`
	World     int        `json:"world"`    // ranks of the stage's last start
	Launch    string     `json:"launch"`   // id of the newest launch, "" before the first
	Launches  int        `json:"launches"` // how many there were
	Command   []string   `json:"command"`  // secrets masked
	Env       []EnvValue `json:"env"`      // of the spec, on top of the agent's own environment
	Dir       string     `json:"dir"`
	GPUs      []GPURef   `json:"gpus"`
	PID       *int       `json:"pid"` // null when no process lives
	StartedAt *time.Time `json:"started_at"`
	Restarts  int        `json:"restarts"`
	LastExit  *Exit      `json:"last_exit"` // of the newest launch that has ended; null: none has, or it is not known
	Log       string     `json:"log"`       // path on the node
	// Evidence is what its state rests on; null when no process lives.
	Evidence *WorkerEvidence `json:"evidence"`
}

// EnvValue is one variable of a worker's environment. The value of one whose
// name looks like a secret is never sent.
type EnvValue struct {
	Name   string `json:"name"`
	Value  string `json:"value"`
	Masked bool   `json:"masked,omitempty"`
}

// masked stands for a value that is not shown.
const masked = "******"

// MaskEnv turns "NAME=value" lines into values fit to be shown.
func MaskEnv(env []string) []EnvValue {
	out := make([]EnvValue, 0, len(env))
	for _, kv := range env {
		name, value, _ := strings.Cut(kv, "=")
		e := EnvValue{Name: name, Value: maskURL(value)}
		if value != "" && secretName(name) {
			e.Value, e.Masked = masked, true
		}
		out = append(out, e)
	}
	return out
}

// MaskArgs hides what follows a flag that looks like a secret, and passwords
// in URLs.
func MaskArgs(argv []string) []string {
	out := make([]string, len(argv))
	hide := false
	for i, arg := range argv {
		name, value, joined := strings.Cut(arg, "=")
		flag := strings.HasPrefix(arg, "-")
		switch {
		case hide && !flag:
			out[i] = masked
		case joined && value != "" && secretName(strings.TrimLeft(name, "-")):
			out[i] = name + "=" + masked
		default:
			out[i] = maskURL(arg)
		}
		hide = flag && !joined && secretName(strings.TrimLeft(arg, "-"))
	}
	return out
}

// secretName says whether a name is likely that of a secret. It errs on the
// side of hiding.
func secretName(name string) bool {
	up := strings.ToUpper(strings.ReplaceAll(name, "-", "_"))
	for _, word := range []string{"SECRET", "TOKEN", "PASSWORD", "PASSWD", "PASSPHRASE", "CREDENTIAL", "AUTH", "APIKEY", "COOKIE", "PRIVATE", "SIGNATURE"} {
		if strings.Contains(up, word) {
			return true
		}
	}
	return up == "KEY" || up == "PASS" || up == "PWD" && name != "PWD" ||
		strings.HasSuffix(up, "_KEY") || strings.HasSuffix(up, "_PASS") || strings.HasSuffix(up, "_PWD") || strings.HasSuffix(up, "_DSN")
}

// maskURL hides a password in "scheme://user:password@host".
func maskURL(s string) string {
	at := strings.Index(s, "://")
	if at < 0 {
		return s
	}
	rest := s[at+3:]
	end := strings.IndexAny(rest, "/?#")
	if end < 0 {
		end = len(rest)
	}
	host := strings.LastIndexByte(rest[:end], '@')
	colon := strings.IndexByte(rest, ':')
	if host < 0 || colon < 0 || colon > host {
		return s
	}
	return s[:at+3] + rest[:colon+1] + masked + rest[host:]
}
