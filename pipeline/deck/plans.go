package deck

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"sync/atomic"
	"time"

	"pipedeck/pipeline"
)

const (
	// planPatience is how long a plan request waits for a look at the files
	// before it answers how far that is; factsPatience bounds the other facts.
	planPatience  = time.Second
	factsPatience = 10 * time.Second
	// looksKept is how long a finished look waits for whoever was told that it
	// was not finished yet; nobody else is served by an old one.
	looksKept = 30 * time.Second
	// plansKept bounds the plans of one intent: a console renews the one that
	// it shows, and each may list many files.
	plansKept = 4
)

// heldPlan is a plan that was shown and not applied yet.
type heldPlan struct {
	plan   pipeline.Plan
	facts  pipeline.Facts
	list   []pipeline.ListedFile // what it moves out of the way, lost files first
	action string                // id of the action once applied: a plan runs once
}

// filesLook is one look at local files and store, joined by whoever asks for
// the same while it is under way.
type filesLook struct {
	done, total atomic.Int64
	owed        atomic.Bool // somebody was told to ask again
	finished    chan struct{}
	at          time.Time // when it finished
	holdings    []pipeline.Holding
	err         error
}

// Plan decides what an intent would do. A long look at the files goes on
// beside it: until it is finished the plan says how far it is.
func (d *Deck) Plan(ctx context.Context, in pipeline.Intent) (pipeline.Plan, error) {
	snap, err := d.Snapshot(ctx)
	if err != nil {
		return pipeline.Plan{}, err
	}
	facts, err := d.facts(ctx, snap, in)
	if err != nil {
		return pipeline.Plan{}, err
	}
	p, err := pipeline.Decide(d.sp, snap, facts, in, d.p.Now(), "p-"+d.p.NewID())
	if err != nil {
		return pipeline.Plan{}, err
	}
	d.keepPlan(&heldPlan{plan: p, facts: facts, list: pipeline.Removes(d.sp, snap, facts, in)})
	return p, nil
}

func (d *Deck) keepPlan(h *heldPlan) {
	d.mu.Lock()
	defer d.mu.Unlock()
	var same []*heldPlan
	for id, other := range d.plans {
		if d.p.Now().Sub(other.plan.ExpiresAt) > planLife {
			delete(d.plans, id)
		} else if other.action == "" && other.plan.Intent.Same(h.plan.Intent) {
			same = append(same, other)
		}
	}
	slices.SortFunc(same, func(a, b *heldPlan) int { return b.plan.MadeAt.Compare(a.plan.MadeAt) })
	for _, old := range same[min(len(same), plansKept):] {
		delete(d.plans, old.plan.ID)
	}
	d.plans[h.plan.ID] = h
}

// facts finds out what a plan rests on beyond the snapshot.
func (d *Deck) facts(ctx context.Context, snap pipeline.Snapshot, in pipeline.Intent) (pipeline.Facts, error) {
	need := pipeline.Need(d.sp, snap, in)
	var f pipeline.Facts
	bounded, cancel := context.WithTimeout(ctx, factsPatience)
	defer cancel()
	var err error
	if need.Trashes {
		if f.Trashes, err = d.p.Custody.Trashes(bounded); err != nil {
			return f, err
		}
	}
	if need.Strangers {
		if f.Strangers, err = d.Strangers(bounded, in.PIDs); err != nil {
			return f, err
		}
	}
	if need.Made != "" {
		f.Made = d.made(bounded, need.Made)
	}
	if !need.Holdings.Empty() {
		f.Holdings, f.Checking, err = d.holdings(ctx, need.Holdings)
	}
	return f, err
}

// made compares how a stage's outputs were made with how they would be now.
func (d *Deck) made(ctx context.Context, stage string) *pipeline.MadeFacts {
	var m pipeline.MadeFacts
	var err error
	if m.Now, err = d.p.Custody.DescribeInputs(ctx, stage); err != nil {
		// A hash that is not known is not called different.
		m.Err, m.Known = err.Error(), true
		return &m
	}
	if m.Recorded, m.Known, err = d.p.Custody.StageRecord(ctx, stage); err != nil {
		m.Err = err.Error()
	}
	return &m
}

// holdings joins or begins a look, and waits a moment for it.
func (d *Deck) holdings(ctx context.Context, req pipeline.HoldingsRequest) ([]pipeline.Holding, *pipeline.Checking, error) {
	look := d.lookAt(req)
	timer := time.NewTimer(planPatience)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return nil, nil, ctx.Err()
	case <-timer.C:
		look.owed.Store(true)
		return nil, &pipeline.Checking{Done: look.done.Load(), Total: look.total.Load()}, nil
	case <-look.finished:
		return look.holdings, nil, look.err
	}
}

func (d *Deck) lookAt(req pipeline.HoldingsRequest) *filesLook {
	raw, err := json.Marshal(req)
	if err != nil {
		raw = nil
	}
	key := string(raw)
	d.mu.Lock()
	defer d.mu.Unlock()
	if l := d.looks[key]; l != nil {
		select {
		case <-l.finished:
			if l.owed.Swap(false) && d.p.Now().Sub(l.at) < looksKept {
				return l
			}
		default:
			return l
		}
	}
	for old, l := range d.looks { // their lists may be long
		select {
		case <-l.finished:
			delete(d.looks, old)
		default:
		}
	}
	l := &filesLook{finished: make(chan struct{})}
	d.looks[key] = l
	d.work.Go(func() {
		defer close(l.finished)
		l.holdings, l.err = d.p.Custody.Holdings(d.life, req, func(done, total int64) {
			l.done.Store(done)
			l.total.Store(total)
		})
		l.at = d.p.Now()
	})
	return l
}

// PlanFiles pages the files that a plan moves out of the way.
func (d *Deck) PlanFiles(_ context.Context, plan string, offset, limit int) (pipeline.PlanFiles, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	h := d.plans[plan]
	if h == nil {
		return pipeline.PlanFiles{}, pipeline.Problemf(pipeline.ProblemRefused, "make a new one with `pipedeck plan`",
			"cannot list the files of plan %q: there is no such plan, or it expired", plan)
	}
	total := len(h.list)
	from := min(max(offset, 0), total)
	to := min(from+max(limit, 0), total)
	return pipeline.PlanFiles{
		Schema: pipeline.SchemaVersion, Plan: plan, Total: int64(total), Offset: int64(from),
		Files: append([]pipeline.ListedFile{}, h.list[from:to]...),
	}, nil
}

// Strangers lists processes that could be adopted or reaped.
func (d *Deck) Strangers(ctx context.Context, pids []int) ([]pipeline.Stranger, error) {
	found, err := d.p.Adopter.Strangers(ctx, pids)
	if err != nil {
		return nil, err
	}
	gpus := d.gpus()
	if len(pids) == 0 {
		holders := slices.DeleteFunc(pipeline.GPUHolders(gpus), func(pid int) bool {
			return slices.ContainsFunc(found, func(s pipeline.Stranger) bool { return s.PID == pid || slices.Contains(s.Set, pid) })
		})
		if len(holders) > 0 {
			more, err := d.p.Adopter.Strangers(ctx, holders)
			if err != nil {
				return nil, err
			}
			found = append(found, more...)
		}
	}
	return pipeline.JoinGPUs(found, gpus), nil
}

// gpus is what the last reading told of the node's GPUs.
func (d *Deck) gpus() []pipeline.GPUSnapshot {
	d.mu.Lock()
	defer d.mu.Unlock()
	var out []pipeline.GPUSnapshot
	for _, n := range d.world.Snapshot(d.p.Now()).Nodes {
		out = append(out, n.GPUs...)
	}
	return out
}

var errNoList = errors.New("the list of the plan's files cannot be read, so nothing was moved")
