package mover

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"pipedeck/pipeline"
	"pipedeck/s3/coverage"
	"pipedeck/s3/ledger"
)

// recheck asks the store again for what stays on the disk: an object can go or
// change behind our back, and a settle promises that it is there.
type recheck struct {
	wanted, running bool
}

func (r recheck) open() bool { return r.wanted || r.running }

// vouched is a kept file with the copy that the store is said to hold.
type vouched struct {
	file *file
	copy *ledger.Copy
	key  string // in full
}

// beginRecheck returns what an output's recheck has to ask for once all files
// have been judged, and whether it begins.
func (m *Mover) beginRecheck(o *output) ([]vouched, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	r := &o.recheck
	if !r.wanted || r.running || !m.known || o.scan.rounds < o.scan.asked || o.tally.files[stateSeen] > 0 {
		return nil, false
	}
	r.wanted, r.running = false, true
	list := make([]vouched, 0, o.tally.files[stateKept])
	for _, f := range o.files {
		if f.state == stateKept && f.proven() {
			list = append(list, vouched{file: f, copy: f.row.Stored, key: m.prefix + f.key})
		}
	}
	slices.SortFunc(list, func(x, y vouched) int { return cmp.Compare(x.key, y.key) })
	return list, true
}

// runRecheck asks until the store has answered for every file.
func (m *Mover) runRecheck(ctx context.Context, o *output, list []vouched) {
	for n := 1; len(list) > 0; n++ {
		list = m.askFor(ctx, o, list)
		if len(list) > 0 && sleep(ctx, max(m.pause(time.Second), m.backoff(n))) != nil {
			break
		}
	}
	m.mu.Lock()
	o.recheck.running = false
	m.mu.Unlock()
	m.signal()
}

// askFor sends again what the listing does not hold, and returns what no page
// answered for.
func (m *Mover) askFor(ctx context.Context, o *output, list []vouched) (unasked []vouched) {
	p, err := m.profile(ctx)
	if err != nil {
		return list
	}
	keys, asked, held := make([]string, len(list)), make([]bool, len(list)), make([]bool, len(list))
	for i := range list {
		keys[i] = list[i].key
	}
	walk := coverage.Walk
	if !p.ListStartAfter {
		walk = coverage.WalkSerial
	}
	err = walk(ctx, m.opt.Verifier, m.listPrefix(o), keys, func(i int, obj *pipeline.Object) {
		asked[i], held[i] = true, obj != nil && holds(p, *obj, list[i].copy, true)
	})
	m.gate.report(err)
	m.mu.Lock()
	defer m.mu.Unlock()
	lost := 0
	for i, v := range list {
		switch f := v.file; {
		case !asked[i]:
			unasked = append(unasked, v)
		case held[i] || f.dropped || f.state != stateKept || f.row.Stored != v.copy:
		default:
			lost++
			f.fresh, f.hasty, f.since, f.next = false, true, m.opt.Clock(), time.Time{}
			m.enqueue(f)
		}
	}
	if lost > 0 {
		m.note(pipeline.Warn, fmt.Sprintf("%s: %d objects that were stored are gone or changed; their files are sent again where nothing else has their place", o.name, lost))
	}
	return unasked
}
