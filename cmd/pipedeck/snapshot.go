package main

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"pipedeck/pipeline"
	"pipedeck/pipeline/spec"
	"pipedeck/remote/client"
)

func (a *app) snapshotCommand() *cobra.Command {
	var watch string
	cmd := &cobra.Command{
		Use:   "snapshot",
		Short: "Print one snapshot of the deck",
		Example: `  pipedeck snapshot --json
  pipedeck snapshot --json --watch 2s | jq .health`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return a.snapshot(cmd.Context(), watch) },
	}
	cmd.Flags().StringVar(&watch, "watch", "", "one object a line, this often (such as 2s)")
	return cmd
}

// snapshot prints one snapshot, or one at each interval. The exit code is the
// health of the last one.
func (a *app) snapshot(ctx context.Context, watch string) error {
	var interval time.Duration
	if watch != "" {
		var err error
		interval, err = spec.ParseDuration(watch)
		if err != nil || interval <= 0 {
			return pipeline.Problemf(pipeline.ProblemUsage, "for example --watch 2s", "cannot watch every %q: no interval", watch)
		}
	}
	nodes, err := a.chosen()
	if err != nil {
		return err
	}
	if len(nodes) > 1 {
		return a.snapshots(ctx, nodes, interval)
	}
	bare, err := a.bare(ctx, nodes[0])
	switch {
	case err != nil:
		return err
	case bare != nil && interval > 0:
		return a.watch(ctx, bare, interval)
	case bare != nil:
		s, err := bare.Snapshot(ctx)
		if err != nil {
			return err
		}
		return a.printSnapshot(s)
	}
	return a.withDeck(ctx, func(sf specFile, c *client.Client) error {
		if interval > 0 {
			return a.watch(ctx, c, interval)
		}
		s, err := c.Snapshot(ctx)
		if client.Died(err) { // another is on its way
			if c, err = a.connect(ctx, sf); err != nil {
				return err
			}
			defer c.Close()
			s, err = c.Snapshot(ctx)
		}
		if err != nil {
			return err
		}
		return a.printSnapshot(s)
	})
}

// snapshots is snapshot of several nodes in one document. A node that cannot be
// reached is in it, and hides nothing of the others.
func (a *app) snapshots(ctx context.Context, nodes []specFile, interval time.Duration) error {
	open := a.lookAtEach(ctx, nodes)
	defer closeAll(open)
	if interval > 0 {
		return a.watchAll(ctx, open, interval)
	}
	parts := make([]pipeline.Snapshot, len(open))
	var all sync.WaitGroup
	for i, n := range open {
		all.Go(func() { parts[i] = a.snapshotOf(ctx, n) })
	}
	all.Wait()
	return a.printSnapshot(pipeline.Join(nodes[0].Deck, nodes[0].Run, time.Now(), parts))
}

// snapshotOf is one node's part.
func (a *app) snapshotOf(ctx context.Context, n nodeDeck) pipeline.Snapshot {
	err := n.err
	switch {
	case err != nil:
	case n.bare != nil:
		var s pipeline.Snapshot
		if s, err = n.bare.Snapshot(ctx); err == nil {
			return s
		}
	default:
		a.sayOtherSpec(ctx, n.s, n.c)
		var s pipeline.Snapshot
		if s, err = n.c.Snapshot(ctx); err == nil {
			return s
		}
		if client.Died(err) { // another is on its way
			if again := a.eachNode(ctx, []specFile{n.s}, reach.ensure)[0]; again.err == nil {
				defer again.c.Close()
				if s, err = again.c.Snapshot(ctx); err == nil {
					return s
				}
			}
		}
	}
	return pipeline.UnseenOf(n.s.Spec, n.name(), client.LinkOf(err), time.Now())
}

// watchAll is watch of several nodes: each link ages and comes back by itself.
func (a *app) watchAll(ctx context.Context, open []nodeDeck, interval time.Duration) error {
	watchers := make([]*client.Watcher, len(open))
	for i, n := range open {
		first := n.c
		dial := func(ctx context.Context) (pipeline.Deck, error) {
			if c := first; c != nil {
				first = nil
				return c, nil
			}
			switch {
			case n.bare != nil:
				return n.bare, nil
			case n.reach == nil:
				return nil, n.err
			}
			return n.reach.dial(ctx)
		}
		watchers[i] = client.NewWatcher(dial, interval, wallClock{})
		go watchers[i].Run(ctx)
	}
	next := time.NewTimer(min(interval, firstPatience))
	defer next.Stop()
	var last error
	for {
		select {
		case <-ctx.Done():
			return last
		case <-next.C:
			next.Reset(interval)
		}
		parts := make([]pipeline.Snapshot, len(open))
		for i, w := range watchers {
			s, link, ok, _ := w.Current()
			if !ok {
				s = pipeline.UnseenOf(open[i].s.Spec, open[i].name(), link, time.Now())
			}
			parts[i] = s
		}
		last = a.printSnapshot(pipeline.Join(open[0].s.Deck, open[0].s.Run, time.Now(), parts))
	}
}

// firstPatience is how long the first line of a watch waits for answers.
const firstPatience = time.Second

// watch prints until it is interrupted; an agent that does not answer is
// itself a snapshot: stale, with the values of the last one.
func (a *app) watch(ctx context.Context, c pipeline.Deck, interval time.Duration) error {
	clock := wallClock{}
	w := client.NewWatcher(func(context.Context) (pipeline.Deck, error) { return c, nil }, interval, clock)
	go w.Run(ctx)
	late := time.NewTimer(interval)
	defer late.Stop()
	var last error
	var printed time.Time
	for {
		select {
		case <-ctx.Done():
			return last
		case <-w.Changed():
		case <-late.C:
		}
		// A change of the link between two polls waits for the next line.
		if clock.Now().Sub(printed) < interval*3/4 {
			continue
		}
		if s, _, ok, _ := w.Current(); ok {
			last = a.printSnapshot(s)
			printed = clock.Now()
		}
		late.Reset(interval * 5 / 4)
	}
}

func (a *app) printSnapshot(s pipeline.Snapshot) error {
	var err error
	if a.flag.json {
		err = a.printJSON(s)
	} else {
		for line := range strings.Lines(snapshotText(s)) {
			_, err = fmt.Fprintln(a.out, pipeline.Clean(strings.TrimRight(line, " \n")))
		}
	}
	if err != nil {
		return err
	}
	if code := s.ExitCode(); code != exitOK {
		return exitError(code)
	}
	return nil
}

// wallClock is the time of this machine.
type wallClock struct{}

// Now implements pipeline.Clock.
func (wallClock) Now() time.Time { return time.Now() }
