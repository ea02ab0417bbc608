package main

import (
	"context"
	"errors"
	"log/slog"
	"path/filepath"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"

	"pipedeck/pipeline"
	"pipedeck/s3/ledger"
	"pipedeck/s3/local"
	"pipedeck/s3/mover"
	"pipedeck/s3/store"
)

// moverParts is a mover with what must be closed after it.
type moverParts struct {
	mover  *mover.Mover
	ledger *ledger.Ledger
	stores []*store.Client
}

func (m *moverParts) close() error {
	for _, c := range m.stores {
		c.Close()
	}
	return m.ledger.Close()
}

// newMover opens the ledger and makes two clients of the store: what one
// uploads, the other verifies over connections of its own. Before a file is
// moved aside and before it is unlinked, mine is called: it does not return
// once the deck is another agent's.
func newMover(ctx context.Context, s specFile, creds aws.CredentialsProvider, log *slog.Logger, mine func()) (*moverParts, error) {
	l, err := ledger.Open(ctx, filepath.Join(s.StateDir, "ledger.db"), ledger.Binding{
		Endpoint: s.Store.Endpoint, Bucket: s.Store.Bucket, Prefix: s.Store.Prefix, Run: s.Run, Deck: s.Deck,
	})
	if err != nil {
		return nil, err
	}
	parts := &moverParts{ledger: l}
	limiter := store.NewLimiter(s.Store.RequestsPerSecond, s.Store.Bandwidth)
	client := func() pipeline.Store {
		c := store.New(storeOptions(s, creds))
		parts.stores = append(parts.stores, c)
		return store.Limit(c, limiter)
	}
	//nolint:contextcheck // the mover lives as long as its Run, not as this call
	parts.mover, err = mover.New(mover.Options{
		Spec: s.Spec, Store: client(), Verifier: client(), Ledger: l,
		StateDir: s.StateDir, Clock: time.Now, Log: log,
		Hook: func(point string) {
			if point == mover.HookBeforeRemove || point == local.PointChecked {
				mine()
			}
		},
	})
	if err != nil {
		return nil, errors.Join(err, parts.close())
	}
	return parts, nil
}
