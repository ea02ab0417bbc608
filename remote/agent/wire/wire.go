// Package wire is what agent and client agree on: where the socket is, the
// paths and headers of the HTTP protocol, and the shape of hello and problems.
package wire

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"net/http"
	"strconv"
	"time"

	"pipedeck/pipeline"
)

// Proto is a range of protocol versions, both ends included.
type Proto struct {
	Min int `json:"min"`
	Max int `json:"max"`
}

// Overlaps says whether two sides have a version in common.
func (p Proto) Overlaps(q Proto) bool { return p.Min <= q.Max && q.Min <= p.Max }

// String shows the range as "1" or "1-3".
func (p Proto) String() string {
	if p.Min == p.Max {
		return strconv.Itoa(p.Min)
	}
	return strconv.Itoa(p.Min) + "-" + strconv.Itoa(p.Max)
}

// Current is the range that this build speaks.
func Current() Proto { return Proto{Min: 1, Max: 1} }

// Paths of the protocol. The first part is the major version.
const (
	PathHello    = "/v1/hello"
	PathSnapshot = "/v1/snapshot"
	PathPlan     = "/v1/plan"
	PathApply    = "/v1/apply"
	PathActions  = "/v1/actions/" // followed by the action's id
	PathCoverage = "/v1/coverage"
	PathHistory  = "/v1/history"
	PathEvents   = "/v1/events"
	PathLog      = "/v1/log"
	PathRetry    = "/v1/retry"
	PathFailures = "/v1/failures"
	PathWorker   = "/v1/worker"
	PathPlanned  = "/v1/plans/" // followed by the plan's id
	PathResolve  = "/v1/resolve"
	PathStrange  = "/v1/strangers"
	PathStop     = "/v1/stop"
	PathHold     = "/v1/hold"
	PathRelease  = "/v1/release"

	PathCredentials = "/v1/credentials"
)

// HeaderKey carries the idempotency key of a mutating call: the same key with
// the same body answers with the first result and does nothing again.
const HeaderKey = "Idempotency-Key"

const (
	// MaxBody is the largest request body in bytes.
	MaxBody = 1 << 20
	// MaxKey is the longest idempotency key in bytes.
	MaxKey = 200
	// MaxWait is the longest a call may wait for news on the agent's side.
	MaxWait = time.Minute
)

// Hello is the agent's answer to who it is.
type Hello struct {
	Version   string    `json:"version"`
	Instance  string    `json:"instance"` // random, new at every start
	PID       int       `json:"pid"`
	StartedAt time.Time `json:"started_at"`
	BootID    string    `json:"boot_id"` // of the kernel, from /proc/sys/kernel/random/boot_id
	Proto     Proto     `json:"proto"`
	Features  []string  `json:"features"`
	SpecHash  string    `json:"spec_hash"`
	Deck      string    `json:"deck"`
	Run       string    `json:"run"`
	Node      string    `json:"node"`
	// KeeperPID is the process that would start this agent again; 0 when there
	// is none.
	KeeperPID int `json:"keeper_pid"`
	// KeeperLost is true when a keeper started this agent and has since gone.
	KeeperLost bool `json:"keeper_lost"`
	// Now is the node's clock at the answer.
	Now time.Time `json:"now"`
	// SHA256 is of the program that runs, hex; empty if it cannot be read.
	SHA256 string `json:"sha256"`
	// Credentials are what the agent was handed; null where it takes none.
	Credentials *CredentialState `json:"credentials,omitempty"`
}

// Credentials are keys of the store on their way to the agent's memory. They
// are never written anywhere.
type Credentials struct {
	AccessKeyID     string     `json:"access_key_id"`
	SecretAccessKey string     `json:"secret_access_key"`
	SessionToken    string     `json:"session_token"`
	Expires         *time.Time `json:"expires"` // null: they do not
}

// ID tells credentials apart without telling what they are.
func (c Credentials) ID() string {
	if c.AccessKeyID == "" {
		return ""
	}
	sum := sha256.Sum256([]byte(c.AccessKeyID + "\x00" + c.SecretAccessKey + "\x00" + c.SessionToken))
	return hex.EncodeToString(sum[:8])
}

// CredentialState is what may be told of credentials that an agent holds.
type CredentialState struct {
	ID      string     `json:"id"` // empty: it was handed none
	Expires *time.Time `json:"expires"`
}

// Status is the HTTP status that a kind of problem travels with.
func Status(kind pipeline.ProblemKind) int {
	switch kind {
	case pipeline.ProblemUsage:
		return http.StatusBadRequest
	case pipeline.ProblemRefused:
		return http.StatusConflict
	case pipeline.ProblemUnreachable:
		return http.StatusServiceUnavailable
	case pipeline.ProblemFailed:
		return http.StatusInternalServerError
	}
	return http.StatusInternalServerError
}

// AsProblem is err as it travels: a *pipeline.Problem in its chain with its
// full text, or a new one of kind failed.
func AsProblem(err error) *pipeline.Problem {
	if p, ok := errors.AsType[*pipeline.Problem](err); ok {
		return p
	}
	return &pipeline.Problem{Kind: pipeline.ProblemFailed, Text: err.Error(), Err: err}
}
