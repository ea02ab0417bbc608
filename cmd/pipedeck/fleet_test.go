package main

import (
	"context"
	"errors"
	"testing"

	"pipedeck/remote/client"
)

// noReach is a node that cannot be reached.
type noReach struct{ reach }

func (noReach) dial(context.Context) (*client.Client, error) { return nil, errors.New("still not") }

// That the watcher tells of a node's first trouble takes nothing from whoever
// decides whether the console opens: a host key that was not accepted ends it.
func TestFirstTroubleOutlivesTheWatcher(t *testing.T) {
	t.Parallel()
	refused := errors.New("its host key was not accepted")
	n := &nodeView{reach: noReach{}, first: refused}
	if _, err := n.dial(t.Context(), t.Context()); !errors.Is(err, refused) {
		t.Errorf("the watcher is told %v", err)
	}
	if !errors.Is(n.first, refused) {
		t.Error("the console does not know of it any more")
	}
	if _, err := n.dial(t.Context(), t.Context()); err == nil || errors.Is(err, refused) {
		t.Errorf("the second try says %v", err)
	}
}
