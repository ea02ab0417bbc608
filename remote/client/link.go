package client

import (
	"errors"
	"fmt"
	"time"

	"pipedeck/pipeline"
)

// link is the state of the connection at now, with polls every interval.
func (v view) link(now time.Time, interval time.Duration) Link {
	var link Link
	if v.have {
		age := now.Sub(v.gotAt).Seconds()
		link.AgeSeconds = &age
	}
	state, reason := v.state(now, interval)
	link.State = state
	if reason != "" {
		link.Reason = &reason
	}
	return link
}

// LinkOf is the link to an agent that could not be asked once.
func LinkOf(err error) Link {
	link := Link{State: pipeline.LinkLost, Reason: new(pipeline.Clean(err.Error()))}
	switch {
	case errors.Is(err, ErrVersion):
		link.State = pipeline.LinkVersion
	case errors.Is(err, ErrDenied):
		link.State = pipeline.LinkAuth
	}
	return link
}

// withHint is an error that does not pass by itself, with what to do about it.
func withHint(err error) string {
	if p, ok := errors.AsType[*pipeline.Problem](err); ok && p.Hint != "" {
		return p.Text + "; " + p.Hint
	}
	return err.Error()
}

func (v view) state(now time.Time, interval time.Duration) (pipeline.LinkState, string) {
	why := ""
	if v.err != nil {
		why = v.err.Error()
	}
	switch {
	case errors.Is(v.err, ErrVersion):
		return pipeline.LinkVersion, withHint(v.err)
	case errors.Is(v.err, ErrDenied):
		return pipeline.LinkAuth, withHint(v.err)
	case v.err != nil && brokeLink(v.err):
		return pipeline.LinkLost, why
	case !v.have:
		return pipeline.LinkConnecting, why
	}
	return v.byAge(now, interval, why)
}

// byAge judges a connection that is there by how old its data is.
func (v view) byAge(now time.Time, interval time.Duration, why string) (pipeline.LinkState, string) {
	age := now.Sub(v.gotAt)
	// A long interval alone is not a fault: give it its three polls.
	stale := max(staleAfter, stalePolls*interval)
	lost := max(lostAfter, 3*stale)
	if why == "" {
		why = fmt.Sprintf("no answer for %.0f s", age.Seconds())
	}
	switch {
	case age > lost:
		return pipeline.LinkLost, why
	case age > stale:
		return pipeline.LinkStale, why
	case v.err != nil:
		return pipeline.LinkSlow, why
	case v.took > slowAfter:
		return pipeline.LinkSlow, fmt.Sprintf("the last answer took %.1f s", v.took.Seconds())
	case !v.askedAt.IsZero() && now.Sub(v.askedAt) > slowAfter:
		return pipeline.LinkSlow, why
	}
	return pipeline.LinkLive, ""
}

// withLink is snap as seen over the link of its one agent. snap is not changed.
func withLink(snap pipeline.Snapshot, link Link) pipeline.Snapshot {
	for _, node := range snap.Nodes {
		link.Via, link.ClockOffsetSeconds = node.Link.Via, node.Link.ClockOffsetSeconds
		snap = pipeline.WithLink(snap, node.Name, link)
	}
	return snap
}
