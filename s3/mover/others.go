package mover

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"pipedeck/pipeline"
	"pipedeck/s3/ledger"
)

const (
	// othersPatience bounds the look at what other nodes stored: a restart does
	// not wait for the store.
	othersPatience = 10 * time.Second
	// othersPause is how long a look that failed is not made again: workers that
	// come back one after the other would each wait for it.
	othersPause  = 15 * time.Second
	othersAtOnce = 8
)

// others is what this node knows of what the deck's other nodes stored.
type others struct {
	mu     sync.Mutex // held while the bucket is asked
	failed time.Time  // when that last failed
	lacks  string     // and why
}

// readOthers takes over what other nodes stored since the last look: the
// manifests of this run that were not read yet. It says what is not known, "" if
// nothing is missing: a start goes on all the same.
func (m *Mover) readOthers(ctx context.Context, outputs []*output) (lacks string) {
	if len(m.opt.Spec.Nodes) < 2 {
		return ""
	}
	m.others.mu.Lock()
	defer m.others.mu.Unlock()
	if now := m.opt.Clock(); m.others.lacks != "" && now.Sub(m.others.failed).Abs() < m.pause(othersPause) {
		return m.others.lacks
	}
	m.others.lacks = ""
	bounded, cancel := context.WithTimeout(ctx, m.pause(othersPatience))
	defer cancel()
	for _, o := range outputs {
		left, err := m.readOthersOf(bounded, o)
		switch {
		case err == nil:
			continue
		case ctx.Err() != nil:
			return ""
		case bounded.Err() != nil:
			err = fmt.Errorf("the store did not answer within %s", m.pause(othersPatience))
		}
		m.others.lacks, m.others.failed = "what other nodes stored since may be missing from it, and is then computed again: "+err.Error(), m.opt.Clock()
		if left > 0 {
			m.others.lacks += fmt.Sprintf("; manifests of %s that are left to the next start: %d", o.name, left)
		}
		m.notify(pipeline.Warn, "done-set of "+o.stage.Name+": "+m.others.lacks)
		return m.others.lacks
	}
	return ""
}

// readOthersOf reads the unread manifests of an output, several at a time, and
// keeps what was read. It returns how many are left.
func (m *Mover) readOthersOf(ctx context.Context, o *output) (left int, err error) {
	known, err := m.opt.Ledger.Manifests(ctx)
	if err != nil {
		return 0, err
	}
	var unread []pipeline.Object
	err = m.list(ctx, m.manifestPrefix(o), func(obj pipeline.Object) error {
		if !known[obj.Key] {
			unread = append(unread, obj)
		}
		return nil
	})
	if err != nil {
		return 0, err
	}
	work := make(chan pipeline.Object, len(unread))
	for _, obj := range unread {
		work <- obj
	}
	close(work)
	failed := make(chan error, othersAtOnce)
	stopping, stop := context.WithCancel(ctx)
	defer stop()
	var all sync.WaitGroup
	var read sync.Mutex
	done := 0
	for range min(othersAtOnce, len(unread)) {
		all.Go(func() {
			for obj := range work {
				if err := m.takeOthers(stopping, o, obj); err != nil {
					failed <- err
					stop()
					return
				}
				read.Lock()
				done++
				read.Unlock()
			}
		})
	}
	all.Wait()
	close(failed)
	var errs []error
	for err := range failed {
		if !errors.Is(err, context.Canceled) || ctx.Err() != nil {
			errs = append(errs, err)
		}
	}
	if len(errs) == 0 {
		return 0, nil
	}
	return len(unread) - done, errs[0]
}

// takeOthers keeps the sample ids of one manifest. They count as done because
// the node that wrote it had verified each of them; as stored files they count
// there, and not here.
func (m *Mover) takeOthers(ctx context.Context, o *output, obj pipeline.Object) error {
	rows, err := m.readManifest(ctx, o, obj)
	if err != nil {
		return err
	}
	read := ledger.Others{Manifest: obj.Key}
	for i := range rows {
		if rows[i].Sample != "" {
			read.Samples = append(read.Samples, rows[i].Sample)
		}
	}
	return m.opt.Ledger.SaveOthers(o.name, read)
}
