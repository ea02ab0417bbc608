package pipeline

import (
	"fmt"
	"time"
)

// CredentialReading is what the agent was given for the store by who connected.
type CredentialReading struct {
	Given  bool
	EndsAt *time.Time // nil: they do not end
}

// StoreSnapshot is how the node stands to the bucket.
type StoreSnapshot struct {
	// Problem is why the store cannot be used, also while nothing is uploaded.
	Problem *string `json:"problem"`
	// CredentialsEndInSeconds is when those that were forwarded end.
	CredentialsEndInSeconds *float64 `json:"credentials_end_in_seconds"`
	CredentialsReason       *string  `json:"credentials_reason"` // why that is null
}

// endsSoon is when an end is near though nobody knows how long the work takes.
const endsSoon = 15 * time.Minute

func (w *World) storeSnapshot(now time.Time) *StoreSnapshot {
	out := StoreSnapshot{Problem: text(w.store.problem)}
	switch c := w.store.credentials; {
	case !w.mover.any:
		out.CredentialsReason = new("not read yet")
	case c == nil:
		out.CredentialsReason = new("the node uses its own")
	case !c.Given:
		out.CredentialsReason = new("none were handed over")
	case c.EndsAt == nil:
		out.CredentialsReason = new("they do not end")
	default:
		out.CredentialsEndInSeconds = finite(new(max(0, c.EndsAt.Sub(now).Round(time.Second).Seconds())))
	}
	return &out
}

// credentialsWarning says that forwarded credentials end before the work does;
// "" if they do not, or nothing needs them.
func credentialsWarning(n NodeSnapshot) string {
	if n.Store == nil || n.Store.CredentialsEndInSeconds == nil {
		return ""
	}
	left := seconds(*n.Store.CredentialsEndInSeconds)
	what := "end in " + humanTime(left)
	if left <= 0 {
		what = "have ended"
	}
	const help = ": renew them, then an open console or any command hands them over"
	queued := n.Artifacts != nil && waitsForStore(*n.Artifacts)
	for _, st := range n.Stages {
		for _, o := range st.Outputs {
			queued = queued || waitsForStore(o)
		}
		if st.ETASeconds != nil && left < seconds(*st.ETASeconds) {
			return fmt.Sprintf("store: the forwarded credentials %s, before stage %s (%s)%s", what, st.Name, humanTime(seconds(*st.ETASeconds)), help)
		}
		queued = queued || shouldRun(st.State)
	}
	if queued && left < endsSoon {
		return fmt.Sprintf("store: the forwarded credentials %s%s", what, help)
	}
	return ""
}

func seconds(n float64) time.Duration { return time.Duration(n * float64(time.Second)) }

// waitsForStore says whether an output has files that are not stored yet.
func waitsForStore(o OutputSnapshot) bool { return o.Queue.WaitingFiles > 0 || o.Queue.InFlight > 0 }

// reviewCredentials tells of an end that comes too early, once for each end.
func (w *World) reviewCredentials(s Snapshot, at time.Time) {
	if w.store.credentials == nil || w.store.credentials.EndsAt == nil || w.store.credentials.EndsAt.Equal(w.store.warned) {
		return
	}
	for _, n := range s.Nodes {
		if why := credentialsWarning(n); why != "" {
			w.store.warned = *w.store.credentials.EndsAt
			w.note(at, Warn, "store", "%s", why)
		}
	}
}
